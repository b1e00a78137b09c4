//! The hand-over: one request into the mailbox, one answer out of it.

use std::time::{Duration, Instant};

use protocol::caller::Caller;
use protocol::code::Code;
use protocol::mailbox::Mailbox;
use protocol::mailbox::request::{Answer, Operation, Request};
use protocol::paths::Paths;
use protocol::task::TaskId;

use crate::backoff::Backoff;
use crate::context::Context;
use crate::error::Error;
use crate::launch::Launch;
use crate::wake_promise::WakePromise;

/// An executor that has not taken a request by then is none.
const TAKEN_TIMEOUT: Duration = Duration::from_secs(10);
/// One that took it answers as soon as its disk allows.
const ANSWER_TIMEOUT: Duration = Duration::from_mins(1);
/// How often the executor's lock is looked at while its answer is awaited.
const LOOK_FOR_EXECUTOR: Duration = Duration::from_millis(20);
/// A starting executor is seen this soon.
const MAX_PAUSE: Duration = Duration::from_millis(5);

/// What came back.
#[derive(Debug)]
pub(crate) enum HandoverReply {
    /// Accepted: this task's result file is there.
    Accepted(TaskId),
    Answer(Answer),
}

/// Asks the executor, starting one if none is there.
///
/// On an error nothing is left behind, but for the one that says that the request was taken.
pub(crate) fn ask(context: &Context, mailbox: &Mailbox, ask: Operation) -> Result<HandoverReply, Error> {
    let id = TaskId::new();
    let waking = match &ask {
        Operation::Run(run) if !run.dry_run => WakePromise::of(context, mailbox),
        Operation::Run(_)
        | Operation::Cancel { .. }
        | Operation::Abandon { .. }
        | Operation::Resolve { .. }
        | Operation::Forget { .. }
        | Operation::Status => WakePromise::Nobody,
    };
    let caller = Caller { wakes: waking.is_promised(), ..context.caller.clone() };
    let request = Request::new(ask, caller);
    waking.owe(mailbox, id);
    mailbox.post(id, &request).map_err(|error| {
        Error::new(Code::BadMailbox, format!("the mailbox `{}` cannot be written: {error}", mailbox.root().display()))
            .hint("it must be writable from where you are: agent-magic-tool doctor")
    })?;
    let reply = wait_for(id, &context.paths, mailbox)?;
    waking.answered(mailbox, id, &reply);
    Ok(reply)
}

fn wait_for(id: TaskId, paths: &Paths, mailbox: &Mailbox) -> Result<HandoverReply, Error> {
    let mut launch = Launch::new(paths, mailbox);
    let mut patience = Backoff::new(MAX_PAUSE);
    let mut look_for_executor = Instant::now();
    let result_file = mailbox.result_file(id);
    loop {
        if result_file.exists() {
            return Ok(HandoverReply::Accepted(id));
        }
        let answer =
            mailbox.collect_answer(id).map_err(|error| Error::io("the executor's answer cannot be read", &error))?;
        if let Some(bytes) = answer {
            let answer = serde_json::from_slice(&bytes).map_err(|error| {
                Error::new(Code::NoExecutor, format!("the executor's answer cannot be understood: {error}"))
                    .hint("the command and the executor differ: agent-magic-tool executor stop")
            })?;
            return Ok(HandoverReply::Answer(answer));
        }
        if Instant::now() >= look_for_executor {
            launch.ensure().map_err(|error| give_up(error, id, mailbox))?;
            look_for_executor = Instant::now() + LOOK_FOR_EXECUTOR;
        }
        let waited = patience.waited();
        if waited > TAKEN_TIMEOUT && mailbox.withdraw(id) {
            return Err(Error::new(Code::NoExecutor, format!("no executor took the request within {TAKEN_TIMEOUT:?}"))
                .hint("nothing was done; look what is wrong: agent-magic-tool doctor"));
        }
        if waited > ANSWER_TIMEOUT {
            return Err(Error::new(Code::NoExecutor, format!("the executor did not answer within {ANSWER_TIMEOUT:?}"))
                .hint("it has the request, and may have accepted it: agent-magic-tool tasks")
                .detail("id", id.to_string()));
        }
        patience.pause(None);
    }
}

/// Takes the request back; where that is too late, the error says so.
fn give_up(error: Error, id: TaskId, mailbox: &Mailbox) -> Error {
    if mailbox.withdraw(id) {
        return error;
    }
    error
        .detail("id", id.to_string())
        .hint("an executor had taken the request before it ended, and may have accepted it: agent-magic-tool tasks")
}
