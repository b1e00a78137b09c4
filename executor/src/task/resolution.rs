//! Resolution: somebody says what had happened to a task that ended as unknown.
//!
//! The task stays as it ended; what was said is recorded beside it, once, and never changed. Decides
//! only; the dispatcher has it recorded and told.

use jiff::Timestamp;
use protocol::code::Code;
use protocol::error::ErrorBody;
use protocol::resolution::{Resolution, ResolvedBy};
use protocol::task::Step;

use crate::task::Task;

/// Longer notes are refused: they stand in every copy of the result.
pub const MAX_NOTE_CHARS: usize = 2_000;

/// What somebody wants to have said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResolutionClaim {
    pub happened: bool,
    pub by: ResolvedBy,
    pub note: Option<String>,
}

/// What holds of `task` once `verdict` was given: the verdict itself, or the same one that was given
/// before. An error: it needs none, or another one was given before.
pub fn resolve(task: &Task, verdict: ResolutionClaim, at: Timestamp) -> Result<Resolution, ErrorBody> {
    let id = task.id;
    if let Some(first) = &task.resolution {
        return if first.happened == verdict.happened { Ok(first.clone()) } else { Err(resolved_before(task, first)) };
    }
    if task.state.after(Step::Resolve).is_err() {
        let (message, hint) = if task.state.is_final() {
            (format!("task `{id}` ended as {}: what happened is known", task.state), "agent-magic-tool read")
        } else {
            (format!("task `{id}` has not ended: it is {}", task.state), "agent-magic-tool wait")
        };
        return Err(ErrorBody::new(Code::NotUnknown, message).hint(format!("{hint} {id}")));
    }
    if let Some(length) =
        verdict.note.as_ref().map(|note| note.chars().count()).filter(|length| *length > MAX_NOTE_CHARS)
    {
        let message = format!("the note has {length} characters; the most is {MAX_NOTE_CHARS}");
        return Err(ErrorBody::new(Code::BadRequest, message).hint("say it in fewer words"));
    }
    let ResolutionClaim { happened, by, note } = verdict;
    Ok(Resolution { happened, by, note, at })
}

fn resolved_before(task: &Task, first: &Resolution) -> ErrorBody {
    let what = if first.happened { "it happened" } else { "it did not happen" };
    let who = match first.by {
        ResolvedBy::Caller => "a caller",
        ResolvedBy::Human => "a human",
    };
    let note = first.note.as_ref().map(|note| format!(": {note}")).unwrap_or_default();
    ErrorBody::new(Code::AlreadyResolved, format!("{who} said at {} of task `{}` that {what}{note}", first.at, task.id))
        .hint("what was said first stands; it is in the result as `_meta.resolution`")
        .detail("resolution", serde_json::to_value(first).expect("a resolution is plain JSON"))
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
    fn only_what_ended_as_unknown_is_resolved() {
        for state in State::ALL {
            let task = Task { state, ..contract::task(None) };
            let resolved = resolve(&task, verdict(true), task.created_at);
            if state == State::Unknown {
                let ResolutionClaim { happened, by, note } = verdict(true);
                assert_eq!(resolved, Ok(Resolution { happened, by, note, at: task.created_at }));
            } else {
                assert_eq!(resolved.expect_err("refused").code, Code::NotUnknown, "{state}");
            }
        }
    }

    #[test]
    fn what_was_said_first_stands() {
        let mut task = Task { state: State::Unknown, ..contract::task(None) };
        let first = resolve(&task, verdict(false), task.created_at).expect("resolved");
        task.resolution = Some(first.clone());
        let later = Timestamp::MAX;
        let again = ResolutionClaim { by: ResolvedBy::Human, note: None, ..verdict(false) };
        assert_eq!(resolve(&task, again, later), Ok(first));
        let refused = resolve(&task, verdict(true), later).expect_err("it was said that it did not happen");
        assert_eq!(refused.code, Code::AlreadyResolved);
        assert!(refused.message.ends_with("that it did not happen: it is in the outbox"), "{}", refused.message);
    }

    #[test]
    fn a_note_has_its_limit() {
        let task = Task { state: State::Unknown, ..contract::task(None) };
        let note = |length| ResolutionClaim { note: Some("ä".repeat(length)), ..verdict(true) };
        assert!(resolve(&task, note(MAX_NOTE_CHARS), task.created_at).is_ok());
        assert_eq!(
            resolve(&task, note(MAX_NOTE_CHARS + 1), task.created_at).expect_err("too long").code,
            Code::BadRequest
        );
    }
}
