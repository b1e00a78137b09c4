//! The words that a model reads of a task that is open: whether it needs a human, when it goes on, and how its result is
//! got.

use jiff::Timestamp;
use protocol::mailbox::result::WILL_BE_WOKEN;
use protocol::task::State;

use super::{ApproverStatus, asked_later, asks_human, is_previewed, progress, retried, scheduled};
use crate::task::Task;
use crate::task::notes::LastFailure;

/// Returns the message for the model while `task` is open.
pub(super) fn message_to_model(task: &Task, approver: ApproverStatus) -> String {
    match (scheduled(task), retried(task)) {
        (Some(at), _) => scheduled_message(task, &at.to_string()),
        (None, Some((failure, next))) => retry_message(task, failure, next),
        (None, None) => with_progress(task, open_message(task, approver)),
    }
}

/// If a human is needed, it begins with what to do first.
fn open_message(task: &Task, approver: ApproverStatus) -> String {
    let waits_for_human = (task.state == State::AwaitingConfirmation && !is_previewed(task)) || asks_human(task);
    let is_question = asks_human(task) || task.confirmation.as_ref().is_some_and(|asked| asked.is_question());
    let what = match (waits_for_human, is_question, approver.is_online) {
        (false, ..) if is_previewed(task) => {
            "The user will be asked to confirm it as soon as it is known what it would do."
        }
        (false, ..) => "The tool execution has been delegated to the agent.",
        (true, false, true) => "The user is asked to confirm it and has the page open.",
        (true, true, true) => "The user is asked the question and has the page open.",
        (true, false, false) => {
            "Tell the user: run `agent-magic-tool executor page` and decide. The tool execution waits for that."
        }
        (true, true, false) => {
            "Tell the user: run `agent-magic-tool executor page` and answer the question. The tool execution waits for that."
        }
    };
    let next = match (task.caller.wakes, waits_for_human) {
        (true, _) => WILL_BE_WOKEN.to_owned(),
        (false, false) => format!("Run `agent-magic-tool wait {}` for its result.", task.id),
        (false, true) if approver.is_online => format!("Its result: `agent-magic-tool wait {}`.", task.id),
        (false, true) => format!("Then: `agent-magic-tool wait {}`.", task.id),
    };
    let again = match (waits_for_human, is_question) {
        (false, _) => "",
        (true, false) => " Do not run it again.",
        (true, true) => " Do not ask it again.",
    };
    let start = start_of_unapproved(task);
    // Callers recognize the promise of a wake-up at the end.
    if task.caller.wakes { format!("{what}{start}{again} {next}") } else { format!("{what}{start} {next}{again}") }
}

/// When a scheduled task starts that a human has not decided on, and what becomes of it without a decision.
fn start_of_unapproved(task: &Task) -> String {
    let undecided = task.confirmation.as_ref().filter(|asked| asked.decision.is_none() && !asked.is_question());
    let Some((asked, at)) = undecided.zip(task.scheduled()) else { return String::new() };
    format!(
        " It starts at {at} if it is confirmed by then, and otherwise as soon as it is; without a decision it expires at {}, \
         and nothing is done.",
        asked.expires_at
    )
}

fn retry_message(task: &Task, failure: &LastFailure, next: Timestamp) -> String {
    let why = if failure.server_asked { ", as the server asked" } else { "" };
    let attempt = task.attempt;
    let what = format!(
        "Attempt {attempt} failed: {}. The next attempt starts at {next}{why}.",
        failure.error.message.trim_end_matches('.')
    );
    if task.caller.wakes { format!("{what} {WILL_BE_WOKEN}") } else { what }
}

fn scheduled_message(task: &Task, at: &str) -> String {
    let what = match asked_later(task) {
        Some(asked) => format!(
            "The question is scheduled: the user is asked at {at}. Without an answer it expires at {}.",
            asked.expires_at
        ),
        None => format!("The tool execution is scheduled: it does not start before {at}."),
    };
    let next = if task.caller.wakes {
        WILL_BE_WOKEN.to_owned()
    } else {
        format!("There is no need to wait for it; its result from then on: `agent-magic-tool wait {}`.", task.id)
    };
    format!("{what} {next}")
}

/// What the far side says comes first.
fn with_progress(task: &Task, message: String) -> String {
    match progress(task).and_then(|progress| progress.message.as_deref()) {
        Some(said) => format!("{}. {message}", said.trim_end_matches('.')),
        None => message,
    }
}
