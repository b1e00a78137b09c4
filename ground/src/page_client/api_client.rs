//! What `serve` asks the page for a client that shows an API key: who it is, what waits for a human, and a decision.
//! To such a client, a task that waits is a gate: the types that it sees are called so.
//!
//! The key goes along with each request and is kept nowhere. It is sent only to a program of our own user; whether it may
//! decide is for the executor to say.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;

use crate::task::effect::EffectClass;
use protocol::code::Code;
use protocol::digest;
use protocol::paths::Paths;
use protocol::task::{State, TaskId};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use serde_with_macros::skip_serializing_none;
use sha2::{Digest as _, Sha256};

use super::client::{self, PageClientError};
use super::site::PageSite;

/// The paths that an API key opens.
const API: &str = "/api/";

/// Asks the page of this user's executor. Cheap to make and to clone.
#[derive(Debug, Clone)]
pub struct PageApi {
    /// The executor's folder.
    folder: PathBuf,
}

/// Who a key is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ApiKeyStanding {
    pub name: String,
    pub may_decide: bool,
}

/// What waits for a human.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GateList {
    /// The oldest first.
    pub gates: Vec<Gate>,
    /// How many more wait.
    pub more: usize,
}

impl GateList {
    pub fn into_waiting(self) -> impl Iterator<Item = Gate> {
        self.gates.into_iter()
    }

    /// The digest of each gate.
    pub fn digests(&self) -> BTreeMap<TaskId, String> {
        self.gates.iter().map(|gate| (gate.id, gate.digest.clone())).collect()
    }

    /// What differs whenever the list does: a gate came, went, or shows something else.
    pub fn version(&self) -> String {
        let mut hash = Sha256::new();
        for gate in &self.gates {
            hash.update(format!("{} {}\n", gate.id, gate.digest));
        }
        hash.update(self.more.to_string());
        digest::hex(&hash.finalize())
    }
}

/// One task that waits for a human, as its card shows it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Gate {
    #[schemars(with = "String")]
    pub id: TaskId,
    /// A decision carries it, so that it counts only for what was shown.
    pub digest: String,
    pub subtool: String,
    pub description: String,
    /// What happens, in one sentence of ours.
    pub summary: String,
    pub needs: GateNeed,
    #[schemars(with = "String")]
    pub effect: EffectClass,
    pub effect_words: String,
    /// Whether it destroys something.
    pub danger: bool,
    /// Whether it was asked with the same API key, which can then only deny it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub own: bool,
    /// The rule that requires the confirmation.
    pub why: String,
    /// What the agent says; unverified.
    pub reason: Option<PlainText>,
    pub asked_by: GateCaller,
    /// When it starts if it is approved, unless that is at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub starts: Option<String>,
    pub expires_at: String,
    pub fields: Vec<GateField>,
    /// The exact request, with secrets replaced by their names.
    pub would_send: PlainText,
    /// What it reaches: an origin, a program, a file.
    pub touches: Vec<String>,
    /// The files that it executes.
    pub runs: Vec<GateFile>,
    /// The files that its input names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reads: Vec<GateFile>,
    /// What a change in a database does.
    pub change: Option<GateChange>,
    /// What its dry run showed, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub would_change: Option<GateDryRun>,
    /// Why it is not known what would be replaced.
    pub unknown: Option<String>,
    /// What is unusual about it.
    pub marks: Vec<String>,
}

/// What a decision needs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "how", rename_all = "snake_case")]
pub enum GateNeed {
    /// A yes.
    Click,
    /// A yes, and this word, which a human types.
    Word { word: String },
    /// An answer that fits this form: a JSON Schema of an object. Its words hide nothing, and an option whose title is not
    /// its value shows both; values and names are as they are sent.
    Answer { question: PlainText, form: GateForm },
    /// A touch of the approver's key, which only the page can ask for.
    Touch,
    /// The page: it asks for a secret, or for a sign-in.
    Page,
}

/// A JSON Schema of an object. It is a type of its own since generators of clients stumble over one without a name.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct GateForm(pub Map<String, Value>);

/// Who asks. The folder and the session are its own claims.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GateCaller {
    pub user: String,
    pub uid: u32,
    pub folder: String,
    pub session: Option<String>,
    /// The client for which it works, of a server that several share: like `the API key phone`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<String>,
    /// The API key with which it was asked, as its name and its id: like `phone.1a2b3c4d`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    pub at: String,
}

/// Text that hides nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PlainText {
    /// The text itself; or, if `hidden` is not empty, with `\u{200B}` for a character that is not visible, `\u{20*4}` for four
    /// of them, and `\\` for a backslash.
    pub text: String,
    /// The names of the characters that are not visible.
    pub hidden: Vec<String>,
    /// What looks like something else.
    pub notes: Vec<String>,
}

/// A field of the input.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GateField {
    pub name: String,
    pub value: PlainText,
    /// The JSON that the value holds as a text.
    pub decoded: Option<PlainText>,
    /// What the value replaces.
    pub replaces: Option<PlainText>,
    /// The lines that differ from what is replaced.
    pub diff: Option<String>,
    /// Whether the value is the default.
    pub is_default: bool,
}

/// A file that is executed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GateFile {
    pub role: String,
    pub path: String,
    pub owner: String,
    /// How long it is, if the input names it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// The start of the hash of its content; absent of a place, which has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
    /// Who else could change it.
    pub warning: Option<String>,
}

/// A change in a database, as it was tried.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GateChange {
    pub rows_affected: u64,
    /// How many rows that are there it overwrites or removes to make room for its own, if it may.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replaced: Option<u64>,
    /// How many of them are shown.
    pub shown: usize,
    pub diff: Option<String>,
    pub rows: Option<PlainText>,
    /// The columns that the database sets by itself: what is written there may differ from what is shown.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub set_by_database: Vec<PlainText>,
    /// What it sets off in other tables, by foreign keys and triggers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sets_off: Vec<String>,
    /// The rows of other tables that foreign keys change with it; those that triggers change are not shown.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cascades: Vec<GateCascade>,
}

/// The rows of one table that foreign keys change with a change in a database.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GateCascade {
    pub table: String,
    /// How many rows are deleted or changed.
    pub words: String,
    /// The first of the rows, before and after it.
    pub diff: Option<String>,
    /// The first of the rows, if they are only shown as they are.
    pub rows: Option<PlainText>,
}

/// What a dry run of the task showed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GateDryRun {
    /// Absent: nothing could be shown.
    pub shown: Option<PlainText>,
    /// Whether long lists and texts in it are cut.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_cut: bool,
    /// Why nothing could be shown.
    pub why_not: Option<String>,
}

/// A decision on a task.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GateDecision {
    pub decision: GateVerdict,
    /// That of the gate that was shown.
    pub digest: String,
    pub word: Option<String>,
    /// For the agent.
    pub note: Option<String>,
    /// The fields of the answer, if the gate asks a question.
    pub answer: Option<Map<String, Value>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum GateVerdict {
    Approve,
    Deny,
}

/// What became of a decision.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GateOutcome {
    #[schemars(with = "String")]
    pub id: TaskId,
    #[schemars(with = "String")]
    pub state: State,
}

/// Why the page did not do it. `serve` passes all of this on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct PageApiError {
    /// An HTTP status: 401 for a wrong key, 403 for one that may not decide and for what needs a touch, 404, 409 for what is
    /// no longer what was shown, 422 for a missing word or answer, 429, and 503 without an executor.
    pub status: u16,
    pub code: Code,
    pub message: String,
}

impl PageApi {
    pub fn new(paths: &Paths) -> Self {
        Self { folder: paths.executor() }
    }

    /// Who this key is, and whether it may decide.
    pub async fn standing(&self, bearer: &str) -> Result<ApiKeyStanding, PageApiError> {
        self.request("GET", "key".to_owned(), bearer, None).await
    }

    /// What waits for a human.
    pub async fn waiting(&self, bearer: &str) -> Result<GateList, PageApiError> {
        self.request("GET", "gates".to_owned(), bearer, None).await
    }

    /// The same, once it is no longer the list with this version; after some seconds in any case.
    pub async fn waiting_after(&self, bearer: &str, version: &str) -> Result<GateList, PageApiError> {
        self.request("GET", format!("gates/after/{version}"), bearer, None).await
    }

    /// One task that waits for a human.
    pub async fn waiting_task(&self, bearer: &str, id: TaskId) -> Result<Gate, PageApiError> {
        self.request("GET", format!("gate/{id}"), bearer, None).await
    }

    /// Decides on a task. Returns its new state.
    pub async fn decide(&self, bearer: &str, id: TaskId, decision: GateDecision) -> Result<State, PageApiError> {
        let body = serde_json::to_string(&decision).expect("a decision is plain JSON");
        let outcome: GateOutcome = self.request("POST", format!("gate/{id}"), bearer, Some(body)).await?;
        Ok(outcome.state)
    }

    async fn request<T: DeserializeOwned>(
        &self,
        method: &'static str,
        path: String,
        bearer: &str,
        body: Option<String>,
    ) -> Result<T, PageApiError> {
        // What would end the header early is no key.
        if !bearer.bytes().all(|byte| byte.is_ascii_graphic()) {
            let message = "this is not an API key".to_owned();
            return Err(PageApiError { status: 401, code: Code::BadApiKey, message });
        }
        let (folder, bearer) = (self.folder.clone(), bearer.to_owned());
        let exchange = move || -> Result<String, PageClientError> {
            let site = PageSite::read(&folder)?.filter(|site| site.port != 0).ok_or(PageClientError::NoPage)?;
            let mut headers = vec![format!("authorization: Bearer {bearer}")];
            headers.extend(body.as_ref().map(|_| "content-type: application/json".to_owned()));
            client::send(&site, (method, &format!("{API}{path}")), &headers, body.as_deref()).map(|answer| answer.body)
        };
        let text = tokio::task::spawn_blocking(exchange).await.map_err(|error| PageApiError::unreachable(&error))??;
        serde_json::from_str(&text).map_err(|error| PageApiError::unreachable(&error))
    }
}

impl PageApiError {
    fn unreachable(error: &dyn std::error::Error) -> Self {
        let message = format!("the executor's page gave no answer: {}", protocol::error::chain(error));
        Self { status: 503, code: Code::NoExecutor, message }
    }
}

impl From<PageClientError> for PageApiError {
    fn from(error: PageClientError) -> Self {
        match error {
            PageClientError::Refused { status, code, message } => {
                let code = serde_json::from_value(Value::String(code)).unwrap_or(Code::Internal);
                Self { status, code, message }
            }
            PageClientError::NoPage => {
                let message = "no executor serves its page, so nothing can be decided; start one with \
                               `agent-magic-tool executor start`";
                Self { status: 503, code: Code::NoExecutor, message: message.to_owned() }
            }
            PageClientError::Io(_) | PageClientError::NotTheExecutor => Self::unreachable(&error),
        }
    }
}

impl From<io::Error> for PageApiError {
    fn from(error: io::Error) -> Self {
        PageClientError::Io(error).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_keeps_its_status_code_and_words() {
        let refused =
            PageClientError::Refused { status: 409, code: "stale".to_owned(), message: "look again".to_owned() };
        assert_eq!(
            PageApiError::from(refused),
            PageApiError { status: 409, code: Code::Stale, message: "look again".to_owned() }
        );
        assert_eq!(PageApiError::from(PageClientError::NoPage).status, 503);
        assert_eq!(PageApiError::from(PageClientError::NotTheExecutor).code, Code::NoExecutor);
    }

    #[tokio::test]
    async fn without_an_executor_or_with_a_key_that_ends_the_header_nothing_is_sent() {
        let folder = tempfile::tempdir().expect("a folder");
        let client = PageApi::new(&Paths::below(folder.path(), &folder.path().join("mailbox")));
        assert_eq!(client.standing("amt_1_2").await.expect_err("no executor").code, Code::NoExecutor);
        for key in ["a b", "a\r\nb: c", "a\n", "ä"] {
            assert_eq!(client.standing(key).await.expect_err("no key").status, 401, "{key:?}");
        }
    }
}
