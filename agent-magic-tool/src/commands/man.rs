//! `man`: prints the manual page, generated from the same definitions as `--help`.

use agent_side::context::Context;
use agent_side::error::Error;
use protocol::code::Exit;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {}

pub(crate) fn run(_: &Args, command: clap::Command, context: &Context) -> Result<Exit, Error> {
    let mut page = Vec::new();
    clap_mangen::Man::new(command)
        .render(&mut page)
        .map_err(|error| Error::io("failed to generate the manual page", &error))?;
    context.output.text(&String::from_utf8_lossy(&page))?;
    Ok(Exit::Ok)
}
