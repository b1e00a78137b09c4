//! The caller of a request. Requests, tasks, attempts and the command executor all use this type.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use serde_with_macros::skip_serializing_none;
use sha2::{Digest as _, Sha256};

use crate::code::Code;
use crate::data_class::DataClass;
use crate::digest;
use crate::error::ErrorBody;
use crate::mailbox::result::OWNER;
use crate::paths::{CALL_BUDGET, DEPTH, READ_ONLY, SESSION, TOOL_SCOPE, TRUST};
use crate::tool_scope::ToolScope;

/// The caller of a command.
///
/// Only the user id is verified, by the kernel. The caller states the other fields itself; none of them
/// grants anything that would be refused without it.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Caller {
    /// The owner of the request file. The executor sets it and ignores the value in the request.
    #[serde(default)]
    pub uid: u32,
    pub session: Option<String>,
    /// The caller's working directory.
    pub folder: Option<PathBuf>,
    /// The nesting depth: how many agents above the caller were themselves started by an agent.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub depth: u8,
    /// Whether the caller is woken when its task is final.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub wakes: bool,
    /// Whether the caller may only run subtools that are declared to be read-only.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub read_only: bool,
    /// Whether the caller runs without a human: a task that needs confirmation then fails unless a human has
    /// the page open.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unattended: bool,
    /// The most sensitive data that the caller's model may get; `None` if the caller does not say.
    pub trust: Option<DataClass>,
    /// Which subtools the caller may use.
    #[serde(default, skip_serializing_if = "ToolScope::is_everything")]
    pub tool_scope: ToolScope,
    /// The question that the call is made for, if it is made for one of our own loop.
    pub call_budget: Option<CallBudget>,
}

/// How many calls may be made for a question, by whatever makes them: the model, a script, steps, a sub-agent.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CallBudget {
    /// Names the question among all of its user.
    pub question: String,
    pub calls: u32,
}

impl CallBudget {
    /// As it stands in `AGENT_MAGIC_TOOL_CALL_BUDGET`.
    pub fn to_env_value(&self) -> String {
        format!("{}:{}", self.calls, self.question)
    }

    /// Of a value that cannot be read, the least is taken.
    pub fn from_env_value(value: &str) -> Self {
        let read = value.split_once(':').and_then(|(calls, question)| Some((calls.parse().ok()?, question)));
        let (calls, question) = read.unwrap_or((1, value));
        Self { question: question.to_owned(), calls }
    }
}

impl Caller {
    /// The environment of a program that calls us for this caller: with it, the program is the same caller.
    pub fn environment(&self) -> [(&'static str, Option<String>); 6] {
        [
            (SESSION, self.session.clone()),
            (DEPTH, (self.depth > 0).then(|| self.depth.to_string())),
            (READ_ONLY, self.read_only.then(|| "1".to_owned())),
            (TRUST, self.trust.map(|trust| trust.as_str().to_owned())),
            (TOOL_SCOPE, (!self.tool_scope.is_everything()).then(|| self.tool_scope.to_env_value())),
            (CALL_BUDGET, self.call_budget.as_ref().map(CallBudget::to_env_value)),
        ]
    }

    /// Lowers what the caller's model may get to `trust`; never raises it.
    #[must_use]
    pub fn trusted_with(mut self, trust: DataClass) -> Self {
        self.trust = Some(self.trust.map_or(trust, |own| own.min(trust)));
        self
    }

    /// The client of a server, if the caller works for one of several that share it: the API key that it showed, as
    /// `NAME.ID`, or `slack`. Clients of one Unix user get equal shares, and no grant of another one.
    pub fn client(&self) -> Option<&str> {
        let (client, _) = self.session.as_deref()?.strip_prefix(SHARED_LABEL)?.rsplit_once('-')?;
        // Behind a colon stands what the client calls its session.
        Some(client.split_once(':').map_or(client, |(client, _)| client))
    }

    /// The API key of the client, as `NAME.ID`; `None` if it is known by something else.
    pub fn api_key(&self) -> Option<&str> {
        self.client().filter(|client| client.contains('.') && !client.starts_with(MCP_CLIENT))
    }

    /// Whose tasks the caller has, if not those of its whole user: the clients of a server that share one, and a caller
    /// whose tool scope is restricted, have their own alone. Tasks without an owner are not theirs.
    pub fn owner(&self) -> Option<String> {
        if let Some(client) = self.client() {
            return Some(format!("{SHARED_LABEL}{client}"));
        }
        match &self.session {
            Some(session) if session.starts_with(SHARED_LABEL) => Some(session.clone()),
            _ if self.tool_scope.is_everything() => None,
            Some(session) => Some(session.clone()),
            None => {
                let digest = digest::hex(&Sha256::digest(self.tool_scope.to_env_value()));
                Some(format!("scope-{}", &digest[..OWNER_DIGITS]))
            }
        }
    }

    /// Whether the caller may see, stop and resolve a task of `other`.
    pub fn may_touch(&self, other: &Self) -> bool {
        self.uid == other.uid && self.owns(other.owner().as_deref())
    }

    /// Whether the caller has what belongs to `owner`, as [`Caller::owner`] names it.
    pub fn owns(&self, owner: Option<&str>) -> bool {
        self.owner().is_none_or(|own| owner == Some(own.as_str()))
    }

    /// The class of the data of a result file and what the caller's model may get, if that is less.
    pub fn beyond_trust(&self, file: &Map<String, Value>) -> Option<BeyondTrust> {
        let trust = self.trust?;
        let class = DataClass::of_result(file)?;
        (class > trust).then_some(BeyondTrust { class, trust })
    }

    /// Whether the caller may see a result file: that of a task that it has, with data that its model may get.
    pub fn may_see(&self, file: &Map<String, Value>) -> bool {
        self.owns(file.get(OWNER).and_then(Value::as_str)) && self.beyond_trust(file).is_none()
    }

    /// The idempotency key under which the caller's `key` is kept. No caller can name the key of another owner.
    #[must_use]
    pub fn own_key(&self, key: String) -> String {
        match self.owner() {
            Some(owner) => format!("{}-{key}", &digest::hex(&Sha256::digest(owner))[..OWNER_DIGITS]),
            None => key,
        }
    }
}

/// Data of this class is more than a model may get that is trusted with that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BeyondTrust {
    pub class: DataClass,
    pub trust: DataClass,
}

impl BeyondTrust {
    /// The error about `what` has the data: a subtool or a task.
    pub fn error(self, what: &str) -> ErrorBody {
        let (class, trust) = (self.class.as_str(), self.trust.as_str());
        let message =
            format!("{what} returns data of the class `{class}`, and this model may get `{trust}` data at most");
        ErrorBody::new(Code::TrustZone, message).hint(
            "do not look for another way to the data; tell the user, who can use a model that may get it, or set `trust` \
             under [models.NAME]",
        )
    }
}

/// How many digits of a digest stand for an owner.
const OWNER_DIGITS: usize = 32;

/// What the label of a session begins with whose client shares the server with others, and those of its sub-agents. Such
/// a session sees its own tasks alone.
pub const SHARED_LABEL: &str = "shared-";

/// What the client of a key begins with whom `mcp` serves over HTTP.
pub const MCP_CLIENT: &str = "mcp@";

/// The label of a session, or of a sub-agent, that works for `client`; for our own user without one. `name` is what the
/// client calls its session, by which a human recognizes it.
pub fn session_label(client: Option<&str>, name: Option<&str>, id: &str) -> String {
    match (client, name) {
        (Some(client), Some(name)) => format!("{SHARED_LABEL}{client}:{name}-{id}"),
        (Some(client), None) => format!("{SHARED_LABEL}{client}-{id}"),
        (None, Some(name)) => format!("agent-{name}-{id}"),
        (None, None) => format!("agent-{id}"),
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
pub(crate) fn is_zero(depth: &u8) -> bool {
    *depth == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_tells_the_client_and_its_session() {
        let label = session_label(Some("phone.1a2b"), Some("slack-C1:a-b@c"), "0123");
        assert_eq!(label, "shared-phone.1a2b:slack-C1:a-b@c-0123");
        for (label, client) in [
            (label, Some("phone.1a2b")),
            (session_label(Some("slack"), None, "0123"), Some("slack")),
            (session_label(None, Some("shared-x"), "0123"), None),
            (session_label(None, None, "0123"), None),
        ] {
            let caller = Caller { session: Some(label), ..Caller::default() };
            assert_eq!(caller.client(), client, "{caller:?}");
        }
    }

    #[test]
    fn a_caller_touches_what_belongs_to_it_alone() {
        let of = |session: Option<&str>, scope: &[&str]| {
            let patterns = scope.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
            let everything = ToolScope::default();
            let tool_scope =
                if patterns.is_empty() { everything } else { everything.narrowed(patterns).expect("globs") };
            Caller { session: session.map(str::to_owned), tool_scope, ..Caller::default() }
        };
        let callers = [
            of(None, &[]),
            of(Some("s"), &["a"]),
            of(Some("t"), &["a"]),
            of(None, &["a"]),
            of(None, &["b"]),
            of(Some("shared-phone.1-0"), &[]),
            of(Some("shared-tablet.2-0"), &[]),
            of(Some("shared-"), &[]),
        ];
        for (number, caller) in callers.iter().enumerate() {
            for (other_number, other) in callers.iter().enumerate() {
                let expected = number == 0 || number == other_number;
                assert_eq!(caller.may_touch(other), expected, "{caller:?} {other:?}");
                let is_same_key = caller.own_key("k".to_owned()) == other.own_key("k".to_owned());
                assert_eq!(is_same_key, number == other_number, "{caller:?} {other:?}");
            }
        }
        // The sessions of a client, and a scope that is narrowed within a session, have the same owner.
        assert!(callers[5].may_touch(&of(Some("shared-phone.1:x-9"), &["a"])));
        assert!(callers[1].may_touch(&of(Some("s"), &["b"])));
        assert!(!callers[0].may_touch(&Caller { uid: 1, ..Caller::default() }));
    }
}
