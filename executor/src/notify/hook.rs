//! Hooks: which of them are called when a task ends, with which event, and when a failed delivery is retried.
//!
//! Only decides. The store records the deliveries together with the end of the task (`store/src/outbox.rs`), and the
//! daemon sends them with `hook/send.rs`.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use ground::base::backoff::Backoff;
use ground::config::{self, NamePatterns};
use ground::task::Task;
use jiff::{SignedDuration, Timestamp};
use protocol::task::State;
use serde_json::json;
use store::outbox::HookDelivery;

pub mod send;

/// The longest pause before another attempt, without the jitter.
pub const MAX_PAUSE: Duration = Duration::from_hours(1);

/// The hooks of one configuration, by name.
#[derive(Debug, Clone, Default)]
pub struct Hooks(BTreeMap<String, config::HookSettings>);

impl Hooks {
    pub fn new(configured: BTreeMap<String, config::HookSettings>) -> Self {
        Self(configured)
    }

    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    pub fn get(&self, name: &str) -> Option<&config::HookSettings> {
        self.0.get(name)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the deliveries for the end of `task`, due immediately.
    pub fn deliveries(&self, task: &Task, result_file: &Path, now: Timestamp) -> Vec<HookDelivery> {
        let matching = self.0.iter().filter(|(_, hook)| matches(hook, task));
        let delivery = |(name, _): (&String, _)| HookDelivery {
            hook: name.clone(),
            task: task.id,
            event: event(task, result_file),
            created_at: now,
            attempts: 0,
            next_at: now,
            reason: None,
        };
        matching.map(delivery).collect()
    }
}

/// Whether the hook's filters match the task.
fn matches(hook: &config::HookSettings, task: &Task) -> bool {
    let names = |patterns: &Option<NamePatterns>, name: Option<&str>| {
        patterns.as_ref().is_none_or(|patterns| name.is_some_and(|name| patterns.matches(name)))
    };
    names(&hook.tools, Some(task.tool.as_str()))
        && names(&hook.sessions, task.caller.session.as_deref())
        && hook.states.as_ref().is_none_or(|states| states.contains(&task.state))
}

/// Returns the id of an event, which is the same for each attempt, so that a receiver can ignore duplicates.
pub fn event_id(delivery: &HookDelivery) -> String {
    format!("{}.final", delivery.task)
}

/// The event as JSON: the task, how it ended and its result file, without its input and its data.
fn event(task: &Task, result_file: &Path) -> String {
    let at = task.end.as_ref().map_or(task.created_at, |end| end.at);
    json!({
        "type": "task.final",
        "id": format!("{}.final", task.id),
        "timestamp": at.to_string(),
        "data": {
            "id": task.id,
            "tool": task.tool.as_str(),
            "status": task.state,
            "success": task.state == State::Succeeded,
            "result_file": result_file,
            "session": task.caller.session,
        },
    })
    .to_string()
}

/// Returns the delivery to record after a failed attempt; `Err` if there is no other attempt.
pub fn after_failure(
    delivery: HookDelivery,
    reason: String,
    hook: &config::HookSettings,
    now: Timestamp,
) -> Result<HookDelivery, HookDelivery> {
    let backoff = Backoff { first: hook.backoff.get(), max: MAX_PAUSE };
    let pause = backoff.spread_pause(delivery.attempts, &delivery.task.to_string());
    let next_at = now.saturating_add(SignedDuration::try_from(pause).unwrap_or(SignedDuration::MAX));
    let next_at = next_at.unwrap_or(Timestamp::MAX);
    let give_up = delivery.created_at.saturating_add(hook.give_up.get()).unwrap_or(Timestamp::MAX);
    let after = HookDelivery { attempts: delivery.attempts + 1, next_at, reason: Some(reason), ..delivery };
    if next_at > give_up { Err(after) } else { Ok(after) }
}

#[cfg(test)]
mod tests {
    use ground::config::Config;
    use ground::task::sample::stored;
    use ground::task::{End, Outcome};
    use protocol::caller::Caller;
    use protocol::task::TaskId;

    use super::*;

    fn hooks(toml: &str) -> Hooks {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("config.toml");
        std::fs::write(&path, toml).expect("written");
        Hooks::new(Config::load(&path).expect("a valid configuration").hooks)
    }

    fn matching(hooks: &Hooks, task: &Task) -> Vec<String> {
        let deliveries = hooks.deliveries(task, Path::new("/r.json"), task.created_at);
        deliveries.into_iter().map(|delivery| delivery.hook).collect()
    }

    #[test]
    fn a_hook_gets_the_tasks_that_match_its_filters() {
        let hooks = hooks(
            "[hooks.all]\ncommand = [\"x\"]\n\
             [hooks.failed]\ncommand = [\"x\"]\nstates = [\"failed\", \"unknown\"]\n\
             [hooks.mail]\ncommand = [\"x\"]\ntools = [\"gmail_*\", \"send\"]\n\
             [hooks.mine]\ncommand = [\"x\"]\nsessions = [\"s\"]\n",
        );
        let end = End { at: Timestamp::UNIX_EPOCH, outcome: Outcome::Data(1.into()), meta: serde_json::Map::new() };
        let mail = Task { state: State::Succeeded, end: Some(end), ..stored(None) };
        assert_eq!(matching(&hooks, &mail), ["all", "mail", "mine"]);
        let caller = Caller { session: None, ..mail.caller.clone() };
        let other = Task { tool: "files_read".parse().expect("a name"), state: State::Unknown, caller, ..mail };
        assert_eq!(matching(&hooks, &other), ["all", "failed"]);
    }

    #[test]
    fn an_event_contains_neither_the_input_nor_the_data_of_the_task() {
        let end =
            End { at: Timestamp::UNIX_EPOCH, outcome: Outcome::Data("secret".into()), meta: serde_json::Map::new() };
        let task = Task { state: State::Succeeded, end: Some(end), ..stored(None) };
        let event: serde_json::Value = serde_json::from_str(&event(&task, Path::new("/r.json"))).expect("JSON");
        let expected = json!({"type": "task.final", "id": format!("{}.final", task.id), "timestamp": "1970-01-01T00:00:00Z",
            "data": {"id": task.id.to_string(), "tool": "gmail_search_messages", "status": "succeeded", "success": true,
                "result_file": "/r.json", "session": "s"}});
        assert_eq!(event, expected);
    }

    #[test]
    fn pauses_grow_up_to_an_hour_until_the_delivery_is_given_up() {
        let hooks = hooks("[hooks.a]\ncommand = [\"x\"]\ngive_up = \"72h\"\nbackoff = \"1s\"\n");
        let hook = hooks.get("a").expect("a configured hook");
        let created_at = Timestamp::from_second(1_000).expect("a time");
        let mut delivery = HookDelivery {
            hook: "a".to_owned(),
            task: TaskId::new(),
            event: "{}".to_owned(),
            created_at,
            attempts: 0,
            next_at: created_at,
            reason: None,
        };
        let mut pauses = Vec::new();
        let given_up = loop {
            let now = delivery.next_at;
            match after_failure(delivery, "no".to_owned(), hook, now) {
                Ok(later) => {
                    pauses.push(later.next_at.duration_since(now));
                    delivery = later;
                }
                Err(given_up) => break given_up,
            }
        };
        for (number, pause) in pauses.iter().enumerate() {
            let min = SignedDuration::from_secs(1 << number.min(12)).min(SignedDuration::from_hours(1));
            assert!(*pause >= min && *pause <= min + min / 4, "{number}: {pause}");
        }
        assert!(given_up.next_at.duration_since(created_at) > SignedDuration::from_hours(72));
        assert_eq!((given_up.attempts as usize, given_up.reason.as_deref()), (pauses.len() + 1, Some("no")));
        assert!(pauses.len() > 60, "{}", pauses.len());
    }
}
