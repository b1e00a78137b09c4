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
pub struct Args {
    /// The task: an id, or the path of a result file
    #[arg(value_name = "ID|FILE")]
    task: String,
    /// Why, for the result of a task that has not started
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
}

pub fn run(args: &Args, context: &Context) -> Result<Exit, Error> {
    let mailbox = Mailbox::open(&context.paths.mailbox)?;
    let id = result::task_of(&args.task, &mailbox)?;
    let ended = || ResultFile::read(&mailbox, id, &context.caller).ok().filter(ResultFile::is_final);
    if let Some(file) = ended() {
        return Err(already_ended(&file));
    }
    match handover::ask(context, &mailbox, Operation::Cancel { id, reason: args.reason.clone() })? {
        Reply::Answer(Answer::Cancelling { id, state }) => {
            let message = match ended() {
                Some(file) => said_at_end(&file),
                None if state.is_final() => "it is cancelled; its result says how far it got".to_owned(),
                None => "it is being stopped; its result will say how far it got".to_owned(),
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

/// How far a task got that is cancelled, as its result says.
fn said_at_end(file: &ResultFile) -> String {
    let error = file.field("error");
    let texts: Vec<_> = ["message", "hint"].into_iter().filter_map(|key| error[key].as_str()).collect();
    format!("it was {}", texts.join("; "))
}

fn already_ended(file: &ResultFile) -> Error {
    let id = file.id;
    Error::new(Code::AlreadyEnded, format!("task `{id}` cannot be cancelled: it has already ended as `{}`", file.state))
        .hint(format!("its result: agent-magic-tool read {id}"))
}
