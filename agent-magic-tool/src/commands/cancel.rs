//! `cancel`: asks the executor to stop a task.

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
pub(crate) struct Args {
    /// The task: an id, or the path of a result file
    #[arg(value_name = "ID|FILE")]
    task: String,
}

pub(crate) fn run(args: &Args, context: &Context) -> Result<Exit, Error> {
    let mailbox = Mailbox::open(&context.paths.mailbox)?;
    let id = result::task_of(&args.task, &mailbox)?;
    match handover::ask(context, &mailbox, Operation::Cancel { id })? {
        Reply::Answer(Answer::Cancelling { id, state }) => {
            let message = if state.is_final() {
                "it was cancelled before it started"
            } else {
                "it is being stopped; its result file will say how far it got"
            };
            context
                .output
                .json(&json!({"id": id, "state": state, "message": message, "result_file": mailbox.result_file(id)}))?;
            Ok(Exit::Ok)
        }
        Reply::Answer(Answer::Refused(error)) => Err(error.into()),
        Reply::Accepted(_) | Reply::Answer(_) => Err(Error::unexpected_answer("cancel")),
    }
}
