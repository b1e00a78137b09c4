//! `man`: the manual page, made from the same words as `--help`.

use protocol::code::Exit;

use crate::context::Context;
use crate::error::Error;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {}

pub(crate) fn run(_: &Args, words: clap::Command, context: &Context) -> Result<Exit, Error> {
    let mut page = Vec::new();
    clap_mangen::Man::new(words)
        .render(&mut page)
        .map_err(|error| Error::io("the manual page cannot be made", &error))?;
    context.output.text(&String::from_utf8_lossy(&page))?;
    Ok(Exit::Ok)
}
