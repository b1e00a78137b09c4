//! Grants: remembered approvals for similar calls of one subtool.
//!
//! Grants are created only on the page, from one call that the human was shown. A grant starts with exactly that
//! call, and the human widens it field by field. A field that the grant does not name is not covered. A grant ends
//! when it expires, when its uses are spent, when the subtool's definition changes, or when it is revoked.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

use jiff::Timestamp;
use protocol::caller::Caller;
use protocol::decimal::Decimal;
use protocol::task::TaskId;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_with_macros::skip_serializing_none;

use crate::task::Task;
use crate::task::confirmation::Digest;
use crate::task::fingerprint::{FileRole, Fingerprint};
use crate::task::name::SubtoolName;
use crate::task::touch::TouchProof;

/// Grant ids have the same form as task ids.
pub type GrantId = TaskId;

/// The longest lifetime of a grant.
pub const MAX_LIFETIME: std::time::Duration = std::time::Duration::from_hours(30 * 24);

#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Grant {
    pub id: GrantId,
    pub tool: SubtoolName,
    /// Hash of the definition that the human saw; the grant does not cover any other.
    pub definition_hash: String,
    pub scope: GrantScope,
    /// The files that the human saw; the grant covers no call that executes others.
    #[serde(default)]
    pub files: Vec<Fingerprint>,
    /// Keyed by top-level field of the input.
    pub fields: BTreeMap<String, FieldCoverage>,
    /// The rules that ask a human and were in force when it was made: it does not outrank one that came later.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub rules: BTreeSet<Digest>,
    pub made_at: Timestamp,
    /// The task from which the grant was created.
    pub made_from: TaskId,
    /// The page session that created it.
    pub made_by: String,
    pub expires_at: Timestamp,
    pub most_uses: Option<u32>,
    #[serde(default)]
    pub uses: u32,
    pub last_use: Option<Timestamp>,
    pub revoked_at: Option<Timestamp>,
    /// What a key of the human signed, if the grant was made with a touch.
    pub proof: Option<Box<TouchProof>>,
}

/// Whose calls a grant covers.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GrantScope {
    pub uid: u32,
    /// The client of a server that several share; no other client's calls are covered, nor do its own use grants of
    /// callers that are no such clients.
    pub client: Option<String>,
    pub folder: Option<PathBuf>,
}

/// Which values of one field a grant covers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FieldCoverage {
    Exactly(Value),
    OneOf(Vec<Value>),
    /// This path and every path below it.
    Below(String),
    /// Numbers up to this one.
    AtMost(serde_json::Number),
    Anything,
}

impl FieldCoverage {
    fn includes(&self, value: Option<&Value>) -> bool {
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

/// Whether a value of an input names the file `path`.
pub fn names(value: &Value, path: &Path) -> bool {
    let is_name = |text: &str| {
        let text = text.split_once('=').map_or(text, |(_, value)| value);
        let relative = Path::new(text.trim_start_matches('@')).components();
        let relative: PathBuf = relative.filter(|part| !matches!(part, Component::CurDir)).collect();
        !relative.as_os_str().is_empty() && path.ends_with(relative)
    };
    match value {
        Value::String(text) => is_name(text),
        Value::Array(items) => items.iter().any(|item| names(item, path)),
        Value::Object(fields) => fields.values().any(|value| names(value, path)),
        _ => false,
    }
}

/// Whether the last part of `path` stands in a text of `value`.
fn mentions(value: &Value, path: &Path) -> bool {
    let Some(name) = path.file_name().and_then(|name| name.to_str()) else { return false };
    match value {
        Value::String(text) => text.contains(name),
        Value::Array(items) => items.iter().any(|item| mentions(item, path)),
        Value::Object(fields) => fields.iter().any(|(key, value)| key.contains(name) || mentions(value, path)),
        _ => false,
    }
}

/// Whether what is named below `folder` also leads there: to the same place below it where what was seen led to.
fn stays_below(file: &Fingerprint, folder: &str, seen: &[&Fingerprint]) -> bool {
    let below = |file: &Fingerprint| {
        let rest = file.path.strip_prefix(folder).ok()?.to_owned();
        let real = file.leads_to.clone()?;
        // The links, if there are any, are above the folder.
        let above = real.ancestors().nth(rest.components().count())?.to_owned();
        (above.join(&rest) == real).then_some(above)
    };
    let real_folder = below(file);
    real_folder.is_some() && seen.iter().any(|seen| below(seen) == real_folder)
}

/// Compares whole components, and refuses any path with `..`, and one that a program may read as another one.
fn is_below(text: &str, path: &str) -> bool {
    if text.trim() != text || text.chars().any(char::is_control) {
        return false;
    }
    let path = path.trim_end_matches('/');
    let rest = text.strip_prefix(path);
    let is_component = rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    is_component && !text.split(['/', '\\']).any(|part| part == "..")
}

/// Compares the numbers as they are written, whatever their length: a float would round.
fn is_at_most(number: &serde_json::Number, most: &serde_json::Number) -> bool {
    let decimal = |number: &serde_json::Number| Decimal::parse(&number.to_string());
    decimal(number).zip(decimal(most)).is_some_and(|(number, most)| number <= most)
}

/// Whether a grant still applies, and if not, why.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GrantStatus {
    Live,
    Expired,
    /// All its uses are spent.
    UsedUp,
    Revoked,
}

impl Grant {
    /// The digest of what it allows, to whom and for how long; not of its name, and not of how it was used.
    pub fn content(&self) -> Digest {
        let lifetime = self.expires_at.duration_since(self.made_at).as_secs();
        let what = (&self.tool, &self.definition_hash, &self.files, &self.fields);
        let content = (what, &self.scope, lifetime, self.most_uses);
        Digest::of(&[&serde_json::to_vec(&content).expect("a grant is plain JSON")])
    }

    pub fn status(&self, now: Timestamp) -> GrantStatus {
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

    /// Returns when the grant ends or ended.
    pub fn ended_at(&self) -> Timestamp {
        let is_used_up = self.most_uses.is_some_and(|most| self.uses >= most);
        let earlier = [self.revoked_at, self.last_use.filter(|_| is_used_up)].into_iter().flatten();
        earlier.fold(self.expires_at, Timestamp::min)
    }

    /// Whether the grant approves `task`: it is live now and when the task may start, and no rule came after it that asks
    /// about the task.
    pub fn covers(&self, task: &Task, now: Timestamp) -> bool {
        let start = task.run_at.map_or(now, |at| at.max(now));
        let is_live = [now, start].iter().all(|at| self.status(*at) == GrantStatus::Live);
        is_live && self.matches(task) && !self.is_outranked(task)
    }

    /// Whether a task that it approved must not start any more.
    pub fn has_ended(&self, now: Timestamp) -> bool {
        self.revoked_at.is_some() || now >= self.expires_at
    }

    /// Whether a rule asks a human about `task` that was not in force when the grant was made.
    fn is_outranked(&self, task: &Task) -> bool {
        let asked_by = task.confirmation.as_ref().map(|confirmation| confirmation.asked_by.as_slice());
        asked_by.unwrap_or_default().iter().any(|rule| !self.rules.contains(rule))
    }

    /// Whether `task` uses the files that the human saw; the folder in which its program starts is up to the scope. A file
    /// that its input names may be another one, or have another content, only if the human widened the field that names it.
    /// Of a call that needed no confirmation, they are not known.
    fn covers_files_of<'a>(&'a self, task: &'a Task) -> bool {
        let Some(confirmation) = &task.confirmation else { return true };
        let split = |files: &'a [Fingerprint]| {
            let files = files.iter().filter(|file| file.role != FileRole::WorkingFolder);
            files.partition::<Vec<_>, _>(|file| file.role.is_of_input())
        };
        let (named, executed) = split(&confirmation.files);
        let (seen_named, seen) = split(&self.files);
        let is_same = |(seen, now): (&&Fingerprint, &&Fingerprint)| seen.is_same_as(now);
        let is_covered = |file: &&Fingerprint| {
            seen_named.iter().any(|seen| seen.is_same_as(file)) || self.is_widened_for(task, file, &seen_named)
        };
        seen.len() == executed.len() && seen.iter().zip(&executed).all(is_same) && named.iter().all(is_covered)
    }

    /// Whether a field of `task` names the file for which the grant covers other values as well; of what leads elsewhere
    /// through links, for which it covers that place as well. `seen` are the files that the human saw.
    fn is_widened_for(&self, task: &Task, file: &Fingerprint, seen: &[&Fingerprint]) -> bool {
        let is_wide = |covers: &FieldCoverage| match covers {
            FieldCoverage::Anything => true,
            // A link to nothing leads nowhere below.
            FieldCoverage::Below(folder) => file.role != FileRole::Place || stays_below(file, folder, seen),
            _ => false,
        };
        let covers_it = |(field, covers): (&String, &FieldCoverage)| {
            let Some(value) = task.input.get(field) else { return false };
            // A path may stand anywhere in a text of which any is covered.
            let is_in_text =
                file.role == FileRole::Place && *covers == FieldCoverage::Anything && mentions(value, &file.path);
            is_in_text || (is_wide(covers) && names(value, &file.path))
        };
        self.fields.iter().any(covers_it)
    }

    /// Whether `task` is a call that the grant describes, whether or not the grant is live.
    pub fn matches(&self, task: &Task) -> bool {
        self.tool == task.tool
            && self.definition_hash == task.definition_hash
            && self.scope.includes(&task.caller)
            && self.covers_files_of(task)
            && task.input.keys().all(|field| self.fields.contains_key(field))
            && self.fields.iter().all(|(field, coverage)| coverage.includes(task.input.get(field)))
    }
}

impl GrantScope {
    fn includes(&self, caller: &Caller) -> bool {
        self.uid == caller.uid
            && self.client.as_deref() == caller.client()
            && self.folder.as_ref().is_none_or(|folder| caller.folder.as_ref() == Some(folder))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn grant(task: &Task, fields: &[(&str, FieldCoverage)]) -> Grant {
        let fields = fields.iter().map(|(field, coverage)| ((*field).to_owned(), coverage.clone()));
        let grant = Grant::sample(task, task.created_at);
        Grant { fields: fields.collect(), most_uses: Some(2), ..grant }
    }

    fn task(input: Value) -> Task {
        let Value::Object(input) = input else { panic!("an object") };
        Task { input, ..crate::task::sample::stored(None) }
    }

    #[test]
    fn a_grant_covers_only_the_values_that_it_names() {
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
            |task: &mut Task| task.definition_hash.push('x'),
            |task: &mut Task| task.tool = "other".parse().expect("a name"),
        ] {
            let mut other = asked.clone();
            change(&mut other);
            assert!(!exact.covers(&other, now));
        }
    }

    #[test]
    fn a_grant_covers_only_the_program_that_was_shown() {
        let mut asked = task(json!({}));
        let file = |sha256: &str| Fingerprint {
            sha256: sha256.to_owned(),
            ..Fingerprint::of(Path::new("/none"), FileRole::Program, 0)
        };
        let mut confirmation = crate::task::confirmation::Confirmation::sample(&asked);
        confirmation.files = vec![file("aa")];
        asked.confirmation = Some(Box::new(confirmation.clone()));
        let grant = Grant { files: vec![file("aa")], ..grant(&asked, &[]) };
        assert!(grant.covers(&asked, asked.created_at));
        for files in [vec![file("bb")], vec![], vec![file("aa"), file("bb")]] {
            confirmation.files = files;
            asked.confirmation = Some(Box::new(confirmation.clone()));
            assert!(!grant.covers(&asked, asked.created_at), "{:?}", confirmation.files);
        }
        assert!(!Grant { files: Vec::new(), ..grant }.covers(&asked, asked.created_at), "it covers no files");
    }

    #[test]
    fn a_grant_ends_when_it_expires_is_used_up_or_is_revoked() {
        let asked = task(json!({}));
        let mut grant = grant(&asked, &[]);
        let now = asked.created_at;
        assert_eq!(grant.status(now), GrantStatus::Live);
        assert_eq!(grant.status(grant.expires_at), GrantStatus::Expired);
        grant.uses = 2;
        assert_eq!(grant.status(now), GrantStatus::UsedUp);
        grant.revoked_at = Some(now);
        assert_eq!(grant.status(now), GrantStatus::Revoked);
        assert!(!grant.covers(&asked, now));
    }

    #[test]
    fn a_path_covers_only_paths_below_it() {
        let below = FieldCoverage::Below("/home/a/src/".to_owned());
        for (path, expected) in [
            ("/home/a/src", true),
            ("/home/a/src/x.rs", true),
            ("/home/a/src2", false),
            ("/home/a", false),
            ("/home/a/src/../../b", false),
            ("/home/a/src/..", false),
            ("/home/a/src/x.rs ", false),
            ("/home/a/src/x.rs\n", false),
            ("home/a/src/x", false),
        ] {
            assert_eq!(below.includes(Some(&json!(path))), expected, "{path}");
        }
    }

    #[test]
    fn numbers_are_compared_exactly() {
        let number = |text: &str| serde_json::from_str::<serde_json::Number>(text).expect("a number");
        for (most, value, expected) in [
            ("100", "100", true),
            ("100", "100.0", true),
            ("100", "1e2", true),
            ("100", "100.00000000000001", false),
            ("100", "101", false),
            ("100", "-1e300", true),
            ("99.5", "99.50000000000001", false),
            ("9007199254740992", "9007199254740992", true),
            ("9007199254740992", "9007199254740993", false),
            ("9007199254740992.0", "9007199254740993", false),
            ("9007199254740993", "9007199254740992.0", true),
            ("-9007199254740993.0", "-9007199254740991", false),
            ("1e15", "1000000000000001", false),
            ("18446744073709551615", "18446744073709551614", true),
            ("18446744073709551614", "18446744073709551615", false),
            ("0", "1e-300", false),
        ] {
            let most = FieldCoverage::AtMost(number(most));
            assert_eq!(most.includes(Some(&json!(number(value)))), expected, "{most:?} {value}");
        }
    }

    proptest! {
        #[test]
        fn an_exact_grant_covers_only_its_own_call(
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
