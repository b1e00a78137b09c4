//! Grants: a human's yes that is remembered, for calls of one subtool that look alike.
//!
//! Made on the page only, from one call that was shown. It starts as exactly that call; the human widens
//! it field by field. What it says nothing about, it does not cover. It ends: by its time, by its uses,
//! with its subtool's definition, or when it is revoked.

use std::collections::BTreeMap;
use std::path::PathBuf;

use jiff::Timestamp;
use protocol::caller::Caller;
use protocol::task::TaskId;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::task::Task;
use crate::task::name::SubtoolName;

/// A grant has a name of the same kind as a task.
pub type GrantId = TaskId;

/// No grant holds longer.
pub const MAX_LIFETIME: std::time::Duration = std::time::Duration::from_hours(30 * 24);

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Grant {
    pub id: GrantId,
    pub tool: SubtoolName,
    /// Of the definition that the human saw; another one voids the grant.
    pub definition_hash: String,
    pub scope: GrantScope,
    /// By top-level field of the input.
    pub fields: BTreeMap<String, FieldCoverage>,
    pub made_at: Timestamp,
    /// The call that it was made from.
    pub made_from: TaskId,
    /// The session of the page that made it.
    pub made_by: String,
    pub expires_at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub most_uses: Option<u32>,
    #[serde(default)]
    pub uses: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_use: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked_at: Option<Timestamp>,
}

/// Whose calls it covers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GrantScope {
    pub uid: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub folder: Option<PathBuf>,
}

/// Which values of one field are covered.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FieldCoverage {
    Exactly(Value),
    OneOf(Vec<Value>),
    /// This path and what lies below it.
    Below(String),
    /// Numbers up to this one.
    AtMost(serde_json::Number),
    Anything,
}

impl FieldCoverage {
    fn holds(&self, value: Option<&Value>) -> bool {
        match (self, value) {
            (Self::Anything, _) => true,
            (_, None) => false,
            (Self::Exactly(expected), Some(value)) => expected == value,
            (Self::OneOf(expected), Some(value)) => expected.contains(value),
            (Self::Below(path), Some(Value::String(text))) => is_below(text, path),
            (Self::AtMost(most), Some(Value::Number(number))) => is_at_most(number, most),
            (Self::Below(_) | Self::AtMost(_), Some(_)) => false,
        }
    }
}

/// Whole components only, and none that leads back up.
fn is_below(text: &str, path: &str) -> bool {
    let path = path.trim_end_matches('/');
    let rest = text.strip_prefix(path);
    let is_component = rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    is_component && !text.split(['/', '\\']).any(|part| part == "..")
}

fn is_at_most(number: &serde_json::Number, most: &serde_json::Number) -> bool {
    match (number.as_i128(), most.as_i128()) {
        (Some(number), Some(most)) => number <= most,
        _ => number.as_f64().zip(most.as_f64()).is_some_and(|(number, most)| number <= most),
    }
}

/// Where a grant stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GrantStatus {
    Live,
    Expired,
    /// All its uses are taken.
    UsedUp,
    Revoked,
}

impl Grant {
    pub fn standing(&self, now: Timestamp) -> GrantStatus {
        if self.revoked_at.is_some() {
            GrantStatus::Revoked
        } else if now >= self.expires_at {
            GrantStatus::Expired
        } else if self.most_uses.is_some_and(|most| self.uses >= most) {
            GrantStatus::UsedUp
        } else {
            GrantStatus::Live
        }
    }

    /// When it ends, or ended.
    pub fn ended_at(&self) -> Timestamp {
        let is_used_up = self.most_uses.is_some_and(|most| self.uses >= most);
        let earlier = [self.revoked_at, self.last_use.filter(|_| is_used_up)].into_iter().flatten();
        earlier.fold(self.expires_at, Timestamp::min)
    }

    /// Whether a yes to `task` is remembered here, and still holds.
    pub fn covers(&self, task: &Task, now: Timestamp) -> bool {
        self.standing(now) == GrantStatus::Live && self.is_like(task)
    }

    /// Whether `task` is a call of the kind that this is about, whenever that was.
    pub fn is_like(&self, task: &Task) -> bool {
        self.tool == task.tool
            && self.definition_hash == task.definition_hash
            && self.scope.is_of(&task.caller)
            && task.input.keys().all(|field| self.fields.contains_key(field))
            && self.fields.iter().all(|(field, covers)| covers.holds(task.input.get(field)))
    }
}

impl GrantScope {
    fn is_of(&self, caller: &Caller) -> bool {
        self.uid == caller.uid
            && self.session.as_ref().is_none_or(|session| caller.session.as_ref() == Some(session))
            && self.folder.as_ref().is_none_or(|folder| caller.folder.as_ref() == Some(folder))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn grant(task: &Task, fields: &[(&str, FieldCoverage)]) -> Grant {
        let fields = fields.iter().map(|(field, covers)| ((*field).to_owned(), covers.clone()));
        Grant {
            id: TaskId::new(),
            tool: task.tool.clone(),
            definition_hash: task.definition_hash.clone(),
            scope: GrantScope { uid: task.caller.uid, session: task.caller.session.clone(), folder: None },
            fields: fields.collect(),
            made_at: task.created_at,
            made_from: task.id,
            made_by: "s".to_owned(),
            expires_at: task.created_at + jiff::SignedDuration::from_hours(1),
            most_uses: Some(2),
            uses: 0,
            last_use: None,
            revoked_at: None,
        }
    }

    fn task(input: Value) -> Task {
        let Value::Object(input) = input else { panic!("an object") };
        Task { input, ..crate::store::contract::task(None) }
    }

    #[test]
    fn it_covers_what_it_names_and_nothing_beside_it() {
        let asked = task(json!({"to": "bob", "amount": 5}));
        let exact = grant(
            &asked,
            &[("to", FieldCoverage::Exactly(json!("bob"))), ("amount", FieldCoverage::AtMost(10.into()))],
        );
        let now = asked.created_at;
        assert!(exact.covers(&asked, now));
        for other in [
            json!({"to": "eve", "amount": 5}),
            json!({"to": "bob", "amount": 11}),
            json!({"to": "bob", "amount": "5"}),
            json!({"to": "bob", "amount": 5, "cc": "eve"}),
            json!({"amount": 5}),
        ] {
            assert!(!exact.covers(&task(other.clone()), now), "{other}");
        }
        for change in [
            |task: &mut Task| task.caller.uid += 1,
            |task: &mut Task| task.caller.session = Some("other".to_owned()),
            |task: &mut Task| task.definition_hash.push('x'),
            |task: &mut Task| task.tool = "other".parse().expect("a name"),
        ] {
            let mut other = asked.clone();
            change(&mut other);
            assert!(!exact.covers(&other, now));
        }
    }

    #[test]
    fn it_ends_by_its_time_its_uses_and_when_it_is_revoked() {
        let asked = task(json!({}));
        let mut grant = grant(&asked, &[]);
        let now = asked.created_at;
        assert_eq!(grant.standing(now), GrantStatus::Live);
        assert_eq!(grant.standing(grant.expires_at), GrantStatus::Expired);
        grant.uses = 2;
        assert_eq!(grant.standing(now), GrantStatus::UsedUp);
        grant.revoked_at = Some(now);
        assert_eq!(grant.standing(now), GrantStatus::Revoked);
        assert!(!grant.covers(&asked, now));
    }

    #[test]
    fn a_path_covers_what_lies_below_it_and_nothing_that_leads_out() {
        let below = FieldCoverage::Below("/home/a/src/".to_owned());
        for (path, expected) in [
            ("/home/a/src", true),
            ("/home/a/src/x.rs", true),
            ("/home/a/src2", false),
            ("/home/a", false),
            ("/home/a/src/../../b", false),
            ("/home/a/src/..", false),
            ("home/a/src/x", false),
        ] {
            assert_eq!(below.holds(Some(&json!(path))), expected, "{path}");
        }
    }

    #[test]
    fn large_numbers_are_compared_exactly() {
        let most = FieldCoverage::AtMost(serde_json::Number::from(9_007_199_254_740_992_i64));
        assert!(most.holds(Some(&json!(9_007_199_254_740_992_i64))));
        assert!(!most.holds(Some(&json!(9_007_199_254_740_993_i64))));
    }

    proptest! {
        #[test]
        fn an_exact_grant_covers_its_own_call_alone(
            one in prop::collection::btree_map("[a-c]", 0..3_i64, 0..3),
            other in prop::collection::btree_map("[a-c]", 0..3_i64, 0..3),
        ) {
            let asked = task(json!(one));
            let fields: Vec<_> = one.iter().map(|(key, value)| (key.as_str(), FieldCoverage::Exactly(json!(value)))).collect();
            let grant = grant(&asked, &fields);
            prop_assert_eq!(grant.covers(&task(json!(other)), asked.created_at), one == other);
        }
    }
}
