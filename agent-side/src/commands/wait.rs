//! `wait`: blocks until tasks have ended, or until only the caller can do something about them.

use protocol::code::Exit;
use protocol::duration::PositiveDuration;
use protocol::mailbox::Mailbox;

use crate::answer;
use crate::context::Context;
use crate::error::Error;
use crate::result::{self, ResultFile};
use crate::waiting::{self, WaitMode};

#[derive(Debug, clap::Args)]
pub struct Args {
    /// The tasks: ids, or paths of result files
    #[arg(value_name = "ID|FILE", required = true)]
    tasks: Vec<String>,
    /// Return as soon as one of them has ended, with only that result
    #[arg(long)]
    any: bool,
    /// Stop waiting after this long [100s if not set otherwise]; the tasks go on
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true)]
    timeout: Option<PositiveDuration>,
    /// Print only what this jq expression returns, which sees only the data: `.[0].id`
    #[arg(long, value_name = "EXPR")]
    jq: Option<String>,
}

pub fn run(args: &Args, context: &Context) -> Result<Exit, Error> {
    let mailbox = Mailbox::open(&context.paths.mailbox)?;
    let ids = args.tasks.iter().map(|word| result::task_of(word, &mailbox)).collect::<Result<Vec<_>, _>>()?;
    let mode = if args.any { WaitMode::Any } else { WaitMode::All };
    let limit = args.timeout.map(PositiveDuration::get);
    let mut files = waiting::wait_for(&ids, mode, limit, &mailbox, context)?;
    if args.any
        && let Some(first) = files.iter().position(ResultFile::is_final)
    {
        files = vec![files.swap_remove(first)];
    }
    answer::print(&files, args.jq.as_deref(), &mailbox, context)
}
