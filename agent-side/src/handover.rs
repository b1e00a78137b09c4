//! Hands one request to the executor and waits for its reply, starting an executor if none is running.

use std::time::{Duration, Instant};

use protocol::caller::Caller;
use protocol::code::Code;
use protocol::handover::{AnswerError, PendingRequest, Reply};
use protocol::mailbox::Mailbox;
use protocol::mailbox::publication::PublicationWatch;
use protocol::mailbox::request::Operation;
use protocol::paths::Paths;
use protocol::task::TaskId;

use crate::backoff::Backoff;
use crate::context::Context;
use crate::error::Error;
use crate::full_program;
use crate::launch::Launch;
use crate::other_configuration::other_than_own;
use crate::wake_promise::WakePromise;

/// An executor that took a request replies as soon as its disk allows. Counted from its last sign of progress.
const REPLY_TIMEOUT: Duration = Duration::from_mins(1);
/// When to look at the executor's lock first: most replies have come by then.
const FIRST_LOCK_POLL: Duration = Duration::from_millis(2);
/// Pause between two looks at the executor's lock while waiting for a reply.
const LOCK_POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Short, so that the reply of an executor that is just starting is seen quickly.
const MAX_PAUSE: Duration = Duration::from_millis(5);

/// Sends `operation` to the executor and returns its reply.
///
/// After an error the request is withdrawn, unless the error has the request's `id` in its details: then
/// an executor has taken it and may have accepted it.
pub fn ask(context: &Context, mailbox: &Mailbox, operation: Operation) -> Result<Reply, Error> {
    let id = TaskId::new();
    let promise = match &operation {
        Operation::Run(run) if !run.dry_run => WakePromise::of(context, mailbox),
        Operation::Run(_)
        | Operation::Cancel { .. }
        | Operation::Abandon { .. }
        | Operation::Resolve { .. }
        | Operation::Forget { .. }
        | Operation::Listing(_)
        | Operation::Status => WakePromise::None,
    };
    let caller = Caller { wakes: promise.is_made(), ..context.caller.clone() };
    promise.record(mailbox, id);
    let is_run = matches!(operation, Operation::Run(_));
    let request = PendingRequest::post_as(id, mailbox, operation, caller).map_err(|error| {
        Error::new(Code::BadMailbox, format!("failed to write to the mailbox `{}`: {error}", mailbox.root().display()))
            .hint("it must be writable for the caller; to check: agent-magic-tool doctor")
    })?;
    let reply = wait_for(&request, &context.paths, mailbox)?;
    promise.update_after_reply(mailbox, id, &reply);
    if is_run {
        note_other_configuration(context, mailbox);
    }
    Ok(reply)
}

/// Says that other rules hold than those of this command's own configuration, or other definitions.
fn note_other_configuration(context: &Context, mailbox: &Mailbox) {
    if let Some(named) = context.paths.named_subtools()
        && let Some(identity) = mailbox.identity()
        && std::env::split_paths(named).filter(|path| !path.as_os_str().is_empty()).ne(identity.subtools)
    {
        context.output.note(&format!(
            "the executor of this mailbox does not use the definitions in `{}`, which AGENT_MAGIC_TOOL_SUBTOOLS names \
             here: it was started without them",
            named.display()
        ));
    }
    if mailbox.names_configuration(&context.paths.config_file()) {
        return;
    }
    // Where only the small program is, nothing can be done about it.
    let file = mailbox.identity().filter(|_| full_program::path().is_some()).and_then(|identity| identity.config);
    if let Some(message) = file.and_then(|file| other_than_own(&file, context)) {
        context.output.note(&message);
    }
}

fn wait_for(request: &PendingRequest<'_>, paths: &Paths, mailbox: &Mailbox) -> Result<Reply, Error> {
    let mut launch = Launch::new(paths, mailbox);
    let mut backoff = Backoff::new(MAX_PAUSE);
    let mut publications = PublicationWatch::new(mailbox);
    // An executor that is running has the first pause to reply; if none has run here yet, there is nothing to wait for.
    let mut next_lock_poll = Instant::now() + if publications.is_open() { FIRST_LOCK_POLL } else { Duration::ZERO };
    loop {
        if let Some(reply) = request.look().map_err(unusable_answer)? {
            return Ok(reply);
        }
        if Instant::now() >= next_lock_poll {
            launch.ensure().map_err(|error| withdraw_after(error, request))?;
            next_lock_poll = Instant::now() + LOCK_POLL_INTERVAL;
        }
        if let Some(reason) = launch.reason_to_give_up()
            && request.withdraw()
        {
            return Err(
                Error::new(Code::NoExecutor, reason).hint("nothing was done; to find out why: agent-magic-tool doctor")
            );
        }
        if launch.quiet() > REPLY_TIMEOUT {
            return Err(Error::new(Code::NoExecutor, format!("the executor did not answer within {REPLY_TIMEOUT:?}"))
                .hint("it took the request and may have accepted it; to check: agent-magic-tool tasks")
                .detail("id", request.id().to_string()));
        }
        backoff.pause_until_published(&mut publications, None);
    }
}

fn unusable_answer(error: AnswerError) -> Error {
    match error {
        AnswerError::Unreadable(source) => Error::io("failed to read the executor's answer", &source),
        AnswerError::Malformed(source) => {
            Error::new(Code::NoExecutor, format!("failed to parse the executor's answer: {source}"))
                .hint("the command and the executor have different versions: agent-magic-tool executor stop")
        }
    }
}

/// Withdraws the request after `error`; adds its id and a hint if an executor has already taken it.
fn withdraw_after(error: Error, request: &PendingRequest<'_>) -> Error {
    if request.withdraw() {
        return error;
    }
    error
        .detail("id", request.id().to_string())
        .hint("an executor took the request before it ended and may have accepted it; to check: agent-magic-tool tasks")
}
