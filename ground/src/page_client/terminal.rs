//! A session of the page for the human's terminal: signs in with a link and answers questions, as a browser does.
//!
//! It can only answer questions. Approvals need the page, which shows everything that an approval is bound to. Each
//! request passes the page's door like any other.

use std::path::Path;

use protocol::task::TaskId;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::client::{PageClient, PageClientError};

/// A session of the page that can only answer questions.
#[derive(Debug)]
pub struct TerminalSession(PageClient);

/// A question that waits for an answer.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct PendingQuestion {
    pub id: TaskId,
    pub tool: String,
    /// The digest that an answer is bound to.
    pub digest: String,
    pub question: String,
    /// The schema of an object whose properties are the fields of the form.
    pub schema: Map<String, Value>,
    /// Whether a field is a secret, which is entered only on the page.
    pub wants_secrets: bool,
}

impl TerminalSession {
    /// Signs in with a new link. `folder` is the executor's folder. The caller has checked that a human is at the terminal.
    pub fn log_in(folder: &Path) -> Result<Self, PageClientError> {
        PageClient::log_in(folder).map(Self)
    }

    /// The question of a task; `None` if the task is not a pending question.
    pub fn question(&self, id: TaskId) -> Result<Option<PendingQuestion>, PageClientError> {
        match self.0.get(&format!("/question/{id}")) {
            Ok(answer) => Ok(serde_json::from_str(&answer.body).ok()),
            Err(PageClientError::Refused { status: 404, .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Answers a question with the fields of its form, or declines it if `content` is `None`.
    pub fn answer(
        &self,
        question: &PendingQuestion,
        content: Option<&Map<String, Value>>,
    ) -> Result<(), PageClientError> {
        let action = if content.is_some() { "accept" } else { "decline" };
        let body = json!({"id": question.id, "digest": question.digest, "action": action, "content": content});
        self.0.post("/answer", &body).map(drop)
    }

    /// Ends the session.
    pub fn log_out(self) {
        self.0.log_out();
    }
}
