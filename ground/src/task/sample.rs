//! Made-up tasks, confirmations and grants, for tests of this crate and of those above it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;
use protocol::caller::Caller;
use protocol::task::TaskId;
use serde_json::{Map, Value};

use super::Task;
use super::confirmation::{Confirmation, ConfirmationRequest};
use super::effect::EffectClass;
use super::grant::{Grant, GrantId, GrantScope};

impl Task {
    /// A task that was just accepted.
    pub fn sample(tool: &str, effect: EffectClass, created_at: Timestamp) -> Self {
        let (id, caller) = (TaskId::new(), Caller { uid: 1, ..Caller::default() });
        let name = tool.parse().expect("a valid subtool name");
        Self::accepted(id, name, tool.to_owned(), effect, Map::new(), caller, created_at)
    }
}

impl Grant {
    /// A grant that was made from `task`, for its user and an hour.
    pub fn sample(task: &Task, made_at: Timestamp) -> Self {
        Self {
            id: GrantId::new(),
            tool: task.tool.clone(),
            definition_hash: task.definition_hash.clone(),
            scope: GrantScope { uid: task.caller.uid, client: None, folder: None },
            files: Vec::new(),
            fields: BTreeMap::new(),
            rules: BTreeSet::new(),
            made_at,
            made_from: task.id,
            made_by: "page".to_owned(),
            expires_at: made_at + jiff::SignedDuration::from_hours(1),
            most_uses: None,
            uses: 0,
            last_use: None,
            revoked_at: None,
            proof: None,
        }
    }
}

impl ConfirmationRequest {
    /// What is asked for an hour.
    pub fn sample() -> Self {
        Self {
            why: "w".to_owned(),
            reason: None,
            needs: None,
            asked_by: Vec::new(),
            instance: "i".to_owned(),
            wait: Duration::from_hours(1),
            files: Vec::new(),
            has_preview: false,
        }
    }
}

impl Confirmation {
    /// A confirmation of `task` that was just requested.
    pub fn sample(task: &Task) -> Self {
        Self::ask(task, ConfirmationRequest::sample(), "n".to_owned(), task.created_at)
    }
}

/// A task as a store keeps it, with an input that is easily spoilt.
pub fn stored(key: Option<&str>) -> Task {
    let Value::Object(input) = serde_json::json!({"q": "年度报告", "n": 9_007_199_254_740_993_i64}) else {
        unreachable!()
    };
    let created_at = Timestamp::from_second(1_700_000_000).expect("a time");
    Task {
        input,
        definition_hash: "abc".to_owned(),
        caller: Caller {
            uid: 1000,
            session: Some("s".to_owned()),
            folder: Some("/home/a".into()),
            depth: 2,
            ..Caller::default()
        },
        idempotency_key: key.map(str::to_owned),
        ..Task::sample("gmail_search_messages", EffectClass::Once, created_at)
    }
}
