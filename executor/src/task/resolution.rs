//! Settlement: somebody says what had happened to a task that ended as unknown.
//!
//! The task stays as it ended; what was said is recorded beside it, once, and never changed. Decides
//! only; the dispatcher has it recorded and told.

use jiff::Timestamp;
use protocol::code::Code;
use protocol::error::ErrorBody;
use protocol::resolution::{ResolvedBy, Resolution};
use protocol::task::Step;

use crate::task::Task;

/// Longer notes are refused: they stand in every copy of the result.
pub const LONGEST_NOTE: usize = 2_000;

/// What somebody wants to have said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResolutionClaim {
    pub happened: bool,
    pub by: ResolvedBy,
    pub note: Option<String>,
}

/// What holds of `task` once `verdict` was given: the verdict itself, or the same one that was given
/// before. An error: it needs none, or another one was given before.
pub fn settle(task: &Task, verdict: ResolutionClaim, at: Timestamp) -> Result<Resolution, ErrorBody> {
    let id = task.id;
    if let Some(first) = &task.settlement {
        return if first.happened == verdict.happened { Ok(first.clone()) } else { Err(settled_before(task, first)) };
    }
    if task.state.after(Step::Settle).is_err() {
        let (message, hint) = if task.state.is_final() {
            (format!("task `{id}` ended as {}: what happened is known", task.state), "agent-magic-tool read")
        } else {
            (format!("task `{id}` has not ended: it is {}", task.state), "agent-magic-tool wait")
        };
        return Err(ErrorBody::new(Code::NotUnknown, message).hint(format!("{hint} {id}")));
    }
    if let Some(length) = verdict.note.as_ref().map(|note| note.chars().count()).filter(|length| *length > LONGEST_NOTE)
    {
        let message = format!("the note has {length} characters; the most is {LONGEST_NOTE}");
        return Err(ErrorBody::new(Code::BadRequest, message).hint("say it in fewer words"));
    }
    let ResolutionClaim { happened, by, note } = verdict;
    Ok(Resolution { happened, by, note, at })
}

fn settled_before(task: &Task, first: &Resolution) -> ErrorBody {
    let what = if first.happened { "it happened" } else { "it did not happen" };
    let who = match first.by {
        ResolvedBy::Caller => "a caller",
        ResolvedBy::Human => "a human",
    };
    let note = first.note.as_ref().map(|note| format!(": {note}")).unwrap_or_default();
    ErrorBody::new(Code::AlreadySettled, format!("{who} said at {} of task `{}` that {what}{note}", first.at, task.id))
        .hint("what was said first stands; it is in the result as `_meta.settled`")
        .detail("settled", serde_json::to_value(first).expect("a settlement is plain JSON"))
}

#[cfg(test)]
mod tests {
    use protocol::task::State;

    use super::*;
    use crate::store::contract;

    fn verdict(happened: bool) -> ResolutionClaim {
        ResolutionClaim { happened, by: ResolvedBy::Caller, note: Some("it is in the outbox".to_owned()) }
    }

    #[test]
    fn only_what_ended_as_unknown_is_settled() {
        for state in State::ALL {
            let task = Task { state, ..contract::task(None) };
            let settled = settle(&task, verdict(true), task.created_at);
            if state == State::Unknown {
                let ResolutionClaim { happened, by, note } = verdict(true);
                assert_eq!(settled, Ok(Resolution { happened, by, note, at: task.created_at }));
            } else {
                assert_eq!(settled.expect_err("refused").code, Code::NotUnknown, "{state}");
            }
        }
    }

    #[test]
    fn what_was_said_first_stands() {
        let mut task = Task { state: State::Unknown, ..contract::task(None) };
        let first = settle(&task, verdict(false), task.created_at).expect("settled");
        task.settlement = Some(first.clone());
        let later = Timestamp::MAX;
        let again = ResolutionClaim { by: ResolvedBy::Human, note: None, ..verdict(false) };
        assert_eq!(settle(&task, again, later), Ok(first));
        let refused = settle(&task, verdict(true), later).expect_err("it was said that it did not happen");
        assert_eq!(refused.code, Code::AlreadySettled);
        assert!(refused.message.ends_with("that it did not happen: it is in the outbox"), "{}", refused.message);
    }

    #[test]
    fn a_note_has_its_limit() {
        let task = Task { state: State::Unknown, ..contract::task(None) };
        let note = |length| ResolutionClaim { note: Some("ä".repeat(length)), ..verdict(true) };
        assert!(settle(&task, note(LONGEST_NOTE), task.created_at).is_ok());
        assert_eq!(
            settle(&task, note(LONGEST_NOTE + 1), task.created_at).expect_err("too long").code,
            Code::BadRequest
        );
    }
}
