//! Wording: how the page names states, times and people.

use std::borrow::Cow;
use std::path::Path;

use definition::Definition;
use ground::task::Task;
use ground::task::confirmation::{Confirmation, DecidedBy, Verdict};
use ground::task::effect::EffectClass;
use jiff::Timestamp;
use protocol::caller::MCP_CLIENT;
use protocol::task::{State, Step};
use serde::Serialize;

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

/// A point in time to come, as the clock shows it and by what is left until then.
#[derive(Debug, Serialize)]
pub(super) struct StartTime {
    at: String,
    words: String,
    left: String,
}

impl StartTime {
    /// When `task` starts, if it was approved or not and that is not now.
    pub(super) fn of(task: &Task, now: Timestamp) -> Option<Self> {
        let at = task.starts_at().filter(|at| *at > now)?;
        let words = at.strftime("%Y-%m-%d %H:%M:%S UTC").to_string();
        Some(Self { at: at.to_string(), words, left: span(at.duration_since(now).as_secs()) })
    }

    /// The same without a browser.
    pub(super) fn plain(&self) -> String {
        format!("{}, in {}", self.words, self.left)
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

/// What a task of this class does. `definition` is that of its subtool, if it is known.
pub(super) fn effect_words(effect: EffectClass, definition: Option<&Definition>) -> &'static str {
    let is_of_steps = definition.is_some_and(|definition| definition.run.shares_its_tasks());
    match effect {
        // What it declares says nothing of its steps. To repeat an attempt is safe, since they are not repeated.
        EffectClass::Read if is_of_steps => "says that it only reads; it runs several subtools, each by its own rules",
        EffectClass::Idempotent if is_of_steps => "runs several subtools, each by its own rules",
        EffectClass::Read => "only reads",
        EffectClass::Idempotent => "changes something; running it twice is the same as once",
        EffectClass::Verifiable => "changes something; whether it did can be checked",
        EffectClass::Once => "changes something, and must not happen twice",
    }
}

/// Who decided and how, in a few words.
pub(super) fn decided_words(confirmation: Option<&Confirmation>, state: State) -> Cow<'static, str> {
    let Some(confirmation) = confirmation else { return "no approval needed".into() };
    let Some(decision) = &confirmation.decision else {
        return match state {
            State::Expired => "no one answered".into(),
            State::AwaitingConfirmation => "not decided yet".into(),
            _ => "not decided".into(),
        };
    };
    let what = match decision.verdict {
        Verdict::Approved if decision.answer.is_some() => "answered",
        Verdict::Approved => "approved",
        Verdict::Edited => "edited and approved",
        Verdict::Denied => "denied",
    };
    match &decision.by {
        DecidedBy::Grant(_) => "by one of your grants".into(),
        DecidedBy::Page(_) => format!("{what} by you").into(),
        DecidedBy::ApiKey(key) => format!("{what} with API key {}", key.name).into(),
    }
}

/// The name of the session that decided, if it is not the session `current`.
pub(super) fn other_session(by: &DecidedBy, current: &str) -> Option<String> {
    match by {
        DecidedBy::Page(name) if name != current => Some(name.clone()),
        DecidedBy::Page(_) | DecidedBy::Grant(_) | DecidedBy::ApiKey(_) => None,
    }
}

/// Who decided, with the session or the grant, for a human in the session `current`.
pub(super) fn by_words(by: &DecidedBy, current: &str) -> String {
    match by {
        DecidedBy::Page(name) if name == current => format!("you, in this session ({name})"),
        DecidedBy::Page(name) => format!("you, in another session ({name})"),
        DecidedBy::Grant(id) => format!("grant {id}"),
        DecidedBy::ApiKey(key) => format!("API key {}", key.name),
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
pub(super) fn scope_words(uid: u32, client: Option<&str>, folder: Option<&Path>) -> String {
    let place = folder.map_or_else(|| "any folder".to_owned(), |folder| folder.display().to_string());
    match client {
        None => format!("every program of {} in {place}", user(uid)),
        Some(client) => format!("every session of {} in {place}", client_words(client)),
    }
}

/// A client of a server that several share, from what [`protocol::caller::Caller::client`] calls it.
pub(super) fn client_words(client: &str) -> String {
    if let Some(name) = client.strip_prefix(MCP_CLIENT) {
        return format!("the MCP client {name}");
    }
    match client.split_once('.') {
        Some((key, _)) => format!("the API key {key}"),
        None if client == "slack" => "Slack".to_owned(),
        None => client.to_owned(),
    }
}

/// The name of a Unix user; `user UID` if it has none.
pub(super) fn user(uid: u32) -> String {
    let found = nix::unistd::User::from_uid(nix::unistd::Uid::from_raw(uid)).ok().flatten();
    found.map_or_else(|| format!("user {uid}"), |user| user.name)
}

#[cfg(test)]
mod tests {
    use ground::task::api_key::ApiKeyRef;
    use ground::task::confirmation::Decision;

    use super::*;

    #[test]
    fn a_decision_says_who_made_it() {
        let task = ground::task::sample::stored(None);
        let words = |verdict: Verdict, by: DecidedBy, answer: Option<serde_json::Value>| {
            let mut confirmation = Confirmation::sample(&task);
            let decision = Decision::new(task.created_at, verdict, by);
            confirmation.decision = Some(Decision { answer, ..decision });
            decided_words(Some(&confirmation), State::Succeeded).into_owned()
        };
        let key = || DecidedBy::ApiKey(ApiKeyRef { name: "phone".to_owned(), hash: String::new() });
        let you = || DecidedBy::Page("s".to_owned());
        assert_eq!(words(Verdict::Approved, you(), None), "approved by you");
        assert_eq!(words(Verdict::Approved, you(), Some(true.into())), "answered by you");
        assert_eq!(words(Verdict::Edited, you(), None), "edited and approved by you");
        assert_eq!(words(Verdict::Approved, DecidedBy::Grant(task.id), None), "by one of your grants");
        assert_eq!(words(Verdict::Approved, key(), None), "approved with API key phone");
        assert_eq!(words(Verdict::Approved, key(), Some(true.into())), "answered with API key phone");
        assert_eq!(words(Verdict::Denied, key(), None), "denied with API key phone");
    }

    #[test]
    fn a_duration_is_shown_in_one_unit() {
        for (seconds, expected) in
            [(-5, "0 s"), (59, "59 s"), (60, "1 min"), (3_599, "59 min"), (7_200, "2 h"), (200_000, "2 d")]
        {
            assert_eq!(span(seconds), expected);
        }
    }
}
