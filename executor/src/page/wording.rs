//! Wording: how the page names states, times and people.

use std::path::Path;

use jiff::Timestamp;
use protocol::task::{State, Step};
use serde::Serialize;

use crate::task::confirmation::{Confirmation, DecidedBy, Verdict};
use crate::task::effect::EffectClass;

/// A point in time, and how long ago it was.
#[derive(Debug, Serialize)]
pub(super) struct DisplayTime {
    pub(super) at: String,
    pub(super) ago: String,
}

impl DisplayTime {
    pub(super) fn of(at: Timestamp, now: Timestamp) -> Self {
        Self { at: at.to_string(), ago: span(now.duration_since(at).as_secs()) }
    }
}

/// A number of seconds, in the largest unit that fits.
pub(super) fn span(seconds: i64) -> String {
    const MINUTE: i64 = 60;
    const HOUR: i64 = 60 * MINUTE;
    const DAY: i64 = 24 * HOUR;
    let seconds = seconds.max(0);
    match seconds {
        ..MINUTE => format!("{seconds} s"),
        MINUTE..HOUR => format!("{} min", seconds / MINUTE),
        HOUR..DAY => format!("{} h", seconds / HOUR),
        _ => format!("{} d", seconds / DAY),
    }
}

pub(super) fn state_words(state: State) -> &'static str {
    match state {
        State::Accepted => "accepted",
        State::AwaitingConfirmation => "waits for your yes",
        State::Queued => "queued",
        State::Running => "running",
        State::Succeeded => "succeeded",
        State::Failed => "failed",
        State::Denied => "denied",
        State::Expired => "expired",
        State::Cancelled => "cancelled",
        State::TimedOut => "timed out",
        State::Unknown => "unknown",
    }
}

pub(super) fn effect_words(effect: EffectClass) -> &'static str {
    match effect {
        EffectClass::Read => "only reads",
        EffectClass::Idempotent => "changes something; running it twice is the same as once",
        EffectClass::Verifiable => "changes something; whether it did can be checked",
        EffectClass::Once => "changes something, and must not happen twice",
    }
}

/// Who decided and how, in a few words.
pub(super) fn decided_words(confirmation: Option<&Confirmation>, state: State) -> &'static str {
    let Some(confirmation) = confirmation else { return "no approval needed" };
    let Some(decision) = &confirmation.decision else {
        return match state {
            State::Expired => "no one answered",
            State::AwaitingConfirmation => "not decided yet",
            _ => "not decided",
        };
    };
    match (decision.verdict, &decision.by) {
        (Verdict::Approved, DecidedBy::Grant(_)) => "by one of your grants",
        (Verdict::Approved, DecidedBy::Page(_)) if decision.answer.is_some() => "answered by you",
        (Verdict::Approved, DecidedBy::Page(_)) => "approved by you",
        (Verdict::Edited, _) => "edited and approved by you",
        (Verdict::Denied, _) => "denied by you",
    }
}

/// The name of the session that decided, if it is not the session `current`.
pub(super) fn other_session(by: &DecidedBy, current: &str) -> Option<String> {
    match by {
        DecidedBy::Page(name) if name != current => Some(name.clone()),
        DecidedBy::Page(_) | DecidedBy::Grant(_) => None,
    }
}

/// Who decided, with the session or the grant, for a human in the session `current`.
pub(super) fn by_words(by: &DecidedBy, current: &str) -> String {
    match by {
        DecidedBy::Page(name) if name == current => format!("you, in this session ({name})"),
        DecidedBy::Page(name) => format!("you, in another session ({name})"),
        DecidedBy::Grant(id) => format!("grant {id}"),
    }
}

/// One step in the timeline of a task.
pub(super) fn step_words(step: Step, attempt: u32, was_asked: bool) -> String {
    match step {
        Step::Ask => "Waits for your yes".to_owned(),
        Step::Enqueue if was_asked => "Approved".to_owned(),
        Step::Enqueue => "Queued".to_owned(),
        Step::Start => format!("Started, attempt {attempt}"),
        Step::Verify => format!("Checked whether it happened, attempt {attempt}"),
        Step::Retry => "Retry scheduled".to_owned(),
        Step::Succeed => "Succeeded".to_owned(),
        Step::Fail => "Failed".to_owned(),
        Step::Deny => "Denied".to_owned(),
        Step::Expire => "Expired".to_owned(),
        Step::Cancel => "Cancelled".to_owned(),
        Step::TimeOut => "Timed out".to_owned(),
        Step::Lose => "Outcome lost".to_owned(),
        Step::Resolve => "Resolved by hand".to_owned(),
    }
}

/// Whose calls a grant covers.
pub(super) fn scope_words(uid: u32, folder: Option<&Path>) -> String {
    let place = folder.map_or_else(|| "any folder".to_owned(), |folder| folder.display().to_string());
    format!("every program of {} in {place}", user(uid))
}

/// The name of a Unix user; `user UID` if it has none.
pub(super) fn user(uid: u32) -> String {
    let found = nix::unistd::User::from_uid(nix::unistd::Uid::from_raw(uid)).ok().flatten();
    found.map_or_else(|| format!("user {uid}"), |user| user.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_is_shown_in_one_unit() {
        for (seconds, expected) in
            [(-5, "0 s"), (59, "59 s"), (60, "1 min"), (3_599, "59 min"), (7_200, "2 h"), (200_000, "2 d")]
        {
            assert_eq!(span(seconds), expected);
        }
    }
}
