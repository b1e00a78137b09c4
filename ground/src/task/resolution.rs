//! Resolution: a caller or a human says what happened to a task that ended as unknown.
//!
//! The task's end does not change; the resolution is recorded beside it. The first one stays, unless it is a caller's: then
//! a human, who can look for themselves, overrules it. This module only decides; the dispatcher records the resolution and notifies.

use jiff::Timestamp;
use protocol::code::Code;
use protocol::error::ErrorBody;
use protocol::resolution::{Resolution, ResolvedBy};
use protocol::task::Step;

use crate::task::Task;

/// The longest note; every copy of the result contains it.
pub const MAX_NOTE_CHARS: usize = 2_000;

/// What a caller or a human says about a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResolutionClaim {
    pub happened: bool,
    pub by: ResolvedBy,
    pub note: Option<String>,
}

/// Returns the resolution of `task` after `claim`: a new one, or the earlier one if both agree. A human's takes the place
/// of a caller's.
///
/// Fails if the task did not end as unknown, if an earlier resolution says the opposite and stays, or if the note is too long.
pub fn resolve(task: &Task, claim: ResolutionClaim, at: Timestamp) -> Result<Resolution, ErrorBody> {
    let id = task.id;
    let may_overrule = |first: &Resolution| first.by == ResolvedBy::Caller && claim.by == ResolvedBy::Human;
    if let Some(first) = task.resolution.as_ref().filter(|first| !may_overrule(first)) {
        return if first.happened == claim.happened { Ok(first.clone()) } else { Err(already_resolved(task, first)) };
    }
    if task.state.after(Step::Resolve).is_err() {
        let (message, hint) = if task.state.is_final() {
            (format!("task `{id}` ended as {}, not as unknown", task.state), "agent-magic-tool read")
        } else {
            (format!("task `{id}` has not ended: it is {}", task.state), "agent-magic-tool wait")
        };
        return Err(ErrorBody::new(Code::NotUnknown, message).hint(format!("{hint} {id}")));
    }
    if let Some(length) = claim.note.as_ref().map(|note| note.chars().count()).filter(|length| *length > MAX_NOTE_CHARS)
    {
        let message = format!("the note has {length} characters; the most is {MAX_NOTE_CHARS}");
        return Err(ErrorBody::new(Code::BadRequest, message).hint("shorten the note"));
    }
    let ResolutionClaim { happened, by, note } = claim;
    Ok(Resolution { happened, by, note, at })
}

fn already_resolved(task: &Task, first: &Resolution) -> ErrorBody {
    let what = if first.happened { "it happened" } else { "it did not happen" };
    let who = match first.by {
        ResolvedBy::Caller => "a caller",
        ResolvedBy::Human => "a human",
    };
    let note = first.note.as_ref().map(|note| format!(": {note}")).unwrap_or_default();
    let message = format!("{who} already resolved task `{}` at {}: {what}{note}", task.id, first.at);
    ErrorBody::new(Code::AlreadyResolved, message)
        .hint("the first resolution stays; it is in the result as `_meta.resolution`. Only a human overrules a caller's, on the page")
        .detail("resolution", serde_json::to_value(first).expect("a resolution is plain JSON"))
}

#[cfg(test)]
mod tests {
    use protocol::task::State;

    use super::*;
    use crate::task::sample::stored;

    fn claim(happened: bool) -> ResolutionClaim {
        ResolutionClaim { happened, by: ResolvedBy::Caller, note: Some("it is in the outbox".to_owned()) }
    }

    #[test]
    fn only_a_task_that_ended_as_unknown_can_be_resolved() {
        for state in State::ALL {
            let task = Task { state, ..stored(None) };
            let resolved = resolve(&task, claim(true), task.created_at);
            if state == State::Unknown {
                let ResolutionClaim { happened, by, note } = claim(true);
                assert_eq!(resolved, Ok(Resolution { happened, by, note, at: task.created_at }));
            } else {
                assert_eq!(resolved.expect_err("refused").code, Code::NotUnknown, "{state}");
            }
        }
    }

    #[test]
    fn the_first_resolution_stays_unless_a_human_overrules_a_caller() {
        let mut task = Task { state: State::Unknown, ..stored(None) };
        let first = resolve(&task, claim(false), task.created_at).expect("resolved");
        task.resolution = Some(first.clone());
        let later = Timestamp::MAX;
        let again = ResolutionClaim { note: None, ..claim(false) };
        assert_eq!(resolve(&task, again, later), Ok(first));
        let refused = resolve(&task, claim(true), later).expect_err("it contradicts the first resolution");
        assert_eq!(refused.code, Code::AlreadyResolved);
        assert!(refused.message.ends_with(": it did not happen: it is in the outbox"), "{}", refused.message);
        for happened in [true, false] {
            let human = ResolutionClaim { by: ResolvedBy::Human, note: None, happened };
            let overruled = resolve(&task, human, later).expect("a human may");
            assert_eq!((overruled.happened, overruled.by, overruled.at), (happened, ResolvedBy::Human, later));
            let resolved = Task { resolution: Some(overruled.clone()), ..task.clone() };
            for by in [ResolvedBy::Caller, ResolvedBy::Human] {
                let other = ResolutionClaim { by, ..claim(!happened) };
                assert_eq!(resolve(&resolved, other, later).expect_err("it is final").code, Code::AlreadyResolved);
                let same = ResolutionClaim { by, ..claim(happened) };
                assert_eq!(resolve(&resolved, same, later).as_ref(), Ok(&overruled));
            }
        }
    }

    #[test]
    fn a_note_that_is_too_long_is_refused() {
        let task = Task { state: State::Unknown, ..stored(None) };
        let note = |length| ResolutionClaim { note: Some("ä".repeat(length)), ..claim(true) };
        assert!(resolve(&task, note(MAX_NOTE_CHARS), task.created_at).is_ok());
        assert_eq!(
            resolve(&task, note(MAX_NOTE_CHARS + 1), task.created_at).expect_err("too long").code,
            Code::BadRequest
        );
    }
}
