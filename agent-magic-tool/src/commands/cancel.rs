//! `cancel`: asks the executor to stop a task.

use protocol::code::{Code, Exit};
use protocol::handover::Reply;
use protocol::mailbox::Mailbox;
use protocol::mailbox::request::{Answer, Operation};
use serde_json::json;

use crate::context::Context;
use crate::error::Error;
use crate::handover;
use crate::result::{self, ResultFile};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The task: an id, or the path of a result file
    #[arg(value_name = "ID|FILE")]
    task: String,
}

pub(crate) fn run(args: &Args, context: &Context) -> Result<Exit, Error> {
    let mailbox = Mailbox::open(&context.paths.mailbox)?;
    let id = result::task_of(&args.task, &mailbox)?;
    let ended = || ResultFile::read(&mailbox, id, &context.caller).ok().filter(ResultFile::is_final);
    if let Some(file) = ended() {
        return Err(already_ended(&file));
    }
    match handover::ask(context, &mailbox, Operation::Cancel { id })? {
        Reply::Answer(Answer::Cancelling { id, state }) => {
            let message = if state.is_final() {
                "it was cancelled before it started"
            } else {
                "it is being stopped; its result will say how far it got"
            };
            context.output.json(&json!({"id": id, "state": state, "message": message}))?;
            Ok(Exit::Ok)
        }
        Reply::Answer(Answer::Refused(error)) => Err(match ended() {
            Some(file) if error.code == Code::UnknownTask => already_ended(&file),
            _ => error.into(),
        }),
        Reply::Accepted(_) | Reply::Answer(_) => Err(Error::unexpected_answer("cancel")),
    }
}

fn already_ended(file: &ResultFile) -> Error {
    let id = file.id;
    Error::new(Code::AlreadyEnded, format!("task `{id}` cannot be cancelled: it has already ended as `{}`", file.state))
        .hint(format!("its result: agent-magic-tool read {id}"))
}
