//! Tasks that are a part of another task: the calls of a script, and the steps of a subtool.
//!
//! All attempts of the whole make a part with the same idempotency key, so it is made once. Here is what those keys say.

use protocol::caller::Caller;
use protocol::task::TaskId;
use serde::Serialize;
use serde_with_macros::skip_serializing_none;

use super::Task;

/// What follows the id of the whole in the key of a script's call.
const CALL: &str = "-script-";
/// The same of a step.
const STEP: &str = "-step-";

/// Of which task another one is a part, and which.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PartOf {
    /// The whole.
    pub id: TaskId,
    /// The number of a script's call, from 1.
    pub call: Option<u64>,
    /// The name of a step; with a number behind it, if it runs for each item of a list.
    pub step: Option<String>,
}

impl PartOf {
    /// What `task` is a part of, as its key and its depth say; neither is proven.
    pub fn of(task: &Task) -> Option<Self> {
        let own = task.caller.own_key(String::new());
        let key = task.idempotency_key.as_deref()?.strip_prefix(&own)?;
        let (id, rest) = key.split_at_checked(TaskId::CHARS).filter(|_| task.caller.depth > 0)?;
        let id = id.parse().ok()?;
        let whole = Self { id, call: None, step: None };
        if let Some(number) = rest.strip_prefix(CALL) {
            return Some(Self { call: Some(number.parse().ok()?), ..whole });
        }
        rest.strip_prefix(STEP).map(|name| Self { step: Some(name.to_owned()), ..whole })
    }
}

/// Whether a key that a caller chose is one of those of parts.
pub fn is_reserved(key: &str) -> bool {
    let Some((id, rest)) = key.split_at_checked(TaskId::CHARS) else { return false };
    id.parse::<TaskId>().is_ok() && [CALL, STEP].iter().any(|kind| rest.starts_with(kind))
}

/// The key of a call of the script `id`.
pub fn key_of_call(id: &str, number: u64) -> String {
    format!("{id}{CALL}{number}")
}

/// The key of a step of the task `id`.
pub fn key_of_step(id: &str, name: &str) -> String {
    format!("{id}{STEP}{name}")
}

/// How the keys of the parts of `id` begin, if `caller` made them: first those of calls, then those of steps.
pub fn keys_of_parts(id: TaskId, caller: &Caller) -> [String; 2] {
    [CALL, STEP].map(|kind| caller.own_key(format!("{id}{kind}")))
}

#[cfg(test)]
mod tests {
    use protocol::tool_scope::ToolScope;

    use super::*;

    #[test]
    fn a_key_says_what_a_task_is_a_part_of() {
        let id = TaskId::new();
        let narrow = ToolScope::default().narrowed(vec!["a".parse().expect("a glob")]).expect("a scope");
        for caller in [Caller::default(), Caller { tool_scope: narrow, ..Caller::default() }] {
            let part = |key: String, depth| {
                let caller = Caller { depth, ..caller.clone() };
                let key = Some(caller.own_key(key));
                let task = crate::task::sample::stored(None);
                PartOf::of(&Task { idempotency_key: key, caller, ..task })
            };
            let call = key_of_call(&id.to_string(), 12);
            assert!(caller.own_key(call.clone()).starts_with(&keys_of_parts(id, &caller)[0]));
            assert_eq!(part(call.clone(), 1), Some(PartOf { id, call: Some(12), step: None }));
            assert_eq!(part(call, 0), None, "an agent's own key");
            let step = part(key_of_step(&id.to_string(), "found-0"), 1);
            assert_eq!(step, Some(PartOf { id, call: None, step: Some("found-0".to_owned()) }));
            assert_eq!(part(format!("{id}-question-x"), 1), None);
        }
    }
}
