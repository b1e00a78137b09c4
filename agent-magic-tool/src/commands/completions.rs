//! `completions`: prints the completion script for a shell, generated from the same definitions as `--help`.

use agent_side::context::Context;
use agent_side::error::Error;
use clap_complete::Shell;
use protocol::code::Exit;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    shell: Shell,
}

pub(crate) fn run(args: &Args, mut command: clap::Command, context: &Context) -> Result<Exit, Error> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, "agent-magic-tool", &mut script);
    context.output.text(&String::from_utf8_lossy(&script))?;
    Ok(Exit::Ok)
}
