//! `resolve`: records whether a task that ended as `unknown` took effect.

use protocol::code::Exit;
use protocol::handover::Reply;
use protocol::mailbox::Mailbox;
use protocol::mailbox::request::{Answer, Operation};
use serde_json::json;

use crate::context::Context;
use crate::error::Error;
use crate::handover;
use crate::result;

#[derive(Debug, clap::Args)]
#[command(group = clap::ArgGroup::new("outcome").args(["happened", "did_not"]).required(true))]
pub struct Args {
    /// The task: an id, or the path of a result file
    #[arg(value_name = "ID|FILE")]
    task: String,
    /// It took effect
    #[arg(long)]
    happened: bool,
    /// It did not take effect
    #[arg(long)]
    did_not: bool,
    /// How you found out, for readers of the result
    #[arg(long, value_name = "TEXT")]
    note: Option<String>,
}

pub fn run(args: Args, context: &Context) -> Result<Exit, Error> {
    let mailbox = Mailbox::open(&context.paths.mailbox)?;
    let id = result::task_of(&args.task, &mailbox)?;
    let operation = Operation::Resolve { id, happened: args.happened, note: args.note };
    match handover::ask(context, &mailbox, operation)? {
        Reply::Answer(Answer::Resolved { id, resolution }) => {
            context
                .output
                .json(&json!({"id": id, "resolution": resolution, "result_file": mailbox.result_file(id)}))?;
            Ok(Exit::Ok)
        }
        Reply::Answer(Answer::Refused(error)) => Err(error.into()),
        Reply::Accepted(_) | Reply::Answer(_) => Err(Error::unexpected_answer("resolve")),
    }
}
