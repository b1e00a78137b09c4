//! `wait`: blocks until tasks have ended.

use std::time::Instant;

use protocol::code::Exit;
use protocol::duration::PositiveDuration;
use protocol::mailbox::Mailbox;

use crate::context::Context;
use crate::error::Error;
use crate::launch::Launch;
use crate::result::{self, ResultFile, WaitMode};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The tasks: ids, or paths of result files
    #[arg(value_name = "ID|FILE", required = true)]
    tasks: Vec<String>,
    /// Return as soon as one of them has ended, with only that result
    #[arg(long)]
    any: bool,
    /// Stop waiting after this long; the tasks go on
    #[arg(long, value_name = "DURATION")]
    timeout: Option<PositiveDuration>,
}

pub(crate) fn run(args: &Args, context: &Context) -> Result<Exit, Error> {
    let mailbox = Mailbox::open(&context.paths.mailbox)?;
    let ids = args.tasks.iter().map(|word| result::task_of(word, &mailbox)).collect::<Result<Vec<_>, _>>()?;
    let until = if args.any { WaitMode::Any } else { WaitMode::All };
    let deadline = args.timeout.map(|timeout| Instant::now() + timeout.get());
    let mut launch = Launch::new(&context.paths, &mailbox);
    let mut files = result::wait_for(&ids, &mailbox, until, deadline, || launch.ensure().map(drop))?;
    if args.any
        && let Some(first) = files.iter().position(ResultFile::is_final)
    {
        files = vec![files.swap_remove(first)];
    }
    result::print(&files, &mailbox, context)?;
    Ok(overall_exit(&files))
}

/// The exit status for several tasks: open before failed, failed before refused, refused before done.
fn overall_exit(files: &[ResultFile]) -> Exit {
    let exits = || files.iter().map(ResultFile::exit);
    let order = [Exit::Pending, Exit::AwaitingConfirmation, Exit::Failed, Exit::Refused];
    order.into_iter().find(|exit| exits().any(|found| found == *exit)).unwrap_or(Exit::Ok)
}
