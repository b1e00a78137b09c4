//! What a call needs while it runs: the server's questions go to the human's page, its progress to the result file,
//! and what must survive a restart to the record.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use ground::config::secret::Secrets;
use ground::task::failure::Failure;
use ground::task::notes::AttemptProgress;
use ground::task::question_key::QuestionKey;
use mcp::client::{CallHandle, CallHost, CallProgress, HumanAnswer, QuestionForm, ServerQuestion};
use protocol::error::ErrorBody;
use serde_json::{Map, Value, json};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::attempt_clock::ClockPause;
use crate::delegation::Delegation;
use crate::{Invocation, RunnerContext};

/// How often the result file shows progress at most.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);
/// How much of what a server says is shown.
const MAX_MESSAGE_CHARS: usize = 500;
/// What a human says who has opened a URL.
const DONE: &str = "I have done it";
const YES: &str = "Yes";
const NO: &str = "No";

/// The executor's side of one call.
pub(super) struct CallDesk {
    server: String,
    invocation: Invocation,
    secrets: Secrets,
    delegation: Option<Arc<Delegation>>,
    cancel: CancellationToken,
    last_progress: Mutex<Option<Instant>>,
    /// While the server works on a task, which may take hours.
    pause: Mutex<Option<ClockPause>>,
    /// Where the call can be gone on with.
    handle: Mutex<Option<CallHandle>>,
    /// Why a question of the server did not reach the human.
    unasked: Mutex<Option<Failure>>,
}

impl CallDesk {
    /// `left_at` is where an earlier attempt left the call.
    pub(super) fn new(
        server: &str,
        invocation: &Invocation,
        context: &RunnerContext,
        cancel: &CancellationToken,
        left_at: Option<&CallHandle>,
    ) -> Self {
        let desk = Self {
            server: server.to_owned(),
            invocation: invocation.clone(),
            secrets: context.secrets.clone(),
            delegation: context.delegation.clone(),
            cancel: cancel.clone(),
            last_progress: Mutex::new(None),
            pause: Mutex::new(None),
            handle: Mutex::new(None),
            unasked: Mutex::new(None),
        };
        if let Some(handle) = left_at {
            desk.goes_on(handle);
        }
        desk
    }

    /// Where the call can be gone on with, once the server has said so.
    pub(super) fn handle(&self) -> Option<CallHandle> {
        self.handle.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The failure of a call whose question did not reach the human, whatever the server made of that.
    pub(super) fn unasked(&self) -> Option<Failure> {
        self.unasked.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn not_asked(&self, why: &ErrorBody) -> HumanAnswer {
        tracing::info!(server = self.server, error = %why.message, "a server's question was not asked");
        let message =
            format!("the MCP server `{}` asked the human something, which failed: {}", self.server, why.message);
        let failure = Failure::new(why.code, message).detail("server", self.server.as_str()).effect_possible();
        let failure = match &why.hint {
            Some(hint) => failure.hint(hint.clone()),
            None => failure.hint("the human was not asked; tell the user"),
        };
        *self.unasked.lock().unwrap_or_else(PoisonError::into_inner) = Some(failure);
        HumanAnswer::Cancel
    }

    /// From now on the call is what `handle` says: a task takes as long as the server needs.
    fn goes_on(&self, handle: &CallHandle) {
        *self.handle.lock().unwrap_or_else(PoisonError::into_inner) = Some(handle.clone());
        if matches!(handle, CallHandle::Task(_)) {
            let pause = self.invocation.clock.pause();
            self.pause.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(pause);
        }
    }

    /// What a server says, shortened and without secrets.
    fn shown(&self, text: &str) -> String {
        let mut text = self.secrets.redact(text).into_owned();
        self.invocation.hidden.redact(&mut text);
        protocol::excerpt::line(&text, MAX_MESSAGE_CHARS)
    }

    async fn answer(&self, question: &ServerQuestion) -> HumanAnswer {
        let Some(delegation) = &self.delegation else { return self.not_asked(&Delegation::unavailable().error) };
        let _pause = self.invocation.clock.pause();
        let on_shown = || {
            let message = Some(format!("The server `{}` asks a human on the confirmation page", self.server));
            let progress = AttemptProgress { message, asks_human: true, ..AttemptProgress::default() };
            self.invocation.feedback.progress(progress);
        };
        // Without a handle the call cannot be gone on with, and what it asks ends with it.
        let key = if self.handle().is_some() { QuestionKey::OfTask(&question.key) } else { QuestionKey::OfAttempt };
        let input = input(&self.server, question);
        let asked = delegation.ask(&self.invocation, key, input, &self.cancel, on_shown).await;
        let result = match asked {
            Ok(task) => task.result,
            // A call that was cancelled is not told that its question failed.
            Err(_) if self.cancel.is_cancelled() => return HumanAnswer::Cancel,
            Err(failure) => return self.not_asked(&failure.error),
        };
        self.invocation.feedback.progress(AttemptProgress::default());
        reading(&result, question)
    }
}

impl CallHost for CallDesk {
    fn ask<'a>(&'a self, question: &'a ServerQuestion) -> BoxFuture<'a, HumanAnswer> {
        self.answer(question).boxed()
    }

    fn progress(&self, progress: &CallProgress) {
        let mut last = self.last_progress.lock().unwrap_or_else(PoisonError::into_inner);
        if last.is_some_and(|last| last.elapsed() < PROGRESS_INTERVAL) {
            return;
        }
        *last = Some(Instant::now());
        self.invocation.feedback.progress(AttemptProgress {
            done: (progress.progress > 0.0).then_some(progress.progress),
            total: progress.total,
            message: progress.message.as_deref().map(|message| self.shown(message)),
            asks_human: false,
        });
    }

    fn remember(&self, handle: &CallHandle) {
        self.goes_on(handle);
        let handle = serde_json::to_string(handle).expect("a handle is plain JSON");
        self.invocation.feedback.job_accepted(&handle);
    }
}

/// The input of the question to the human.
fn input(server: &str, question: &ServerQuestion) -> Map<String, Value> {
    let said = &question.message;
    let asked = match &question.form {
        QuestionForm::Fields(schema) if has_fields(schema) => json!({
            "question": format!("The MCP server `{server}` asks: {said}"),
            "form": form(schema),
        }),
        QuestionForm::Fields(_) => json!({
            "question": format!("The MCP server `{server}` asks: {said}"),
            "options": [YES, NO],
        }),
        QuestionForm::Url(url) => json!({
            "question": format!(
                "The MCP server `{server}` asks you to open this address in your browser: {url}\n\nIts reason: {said}\n\n\
                 Open it only if you know the site; what you enter there goes to the site, not to the agent."
            ),
            "options": [DONE, NO],
        }),
    };
    let Value::Object(asked) = asked else { unreachable!("the literals above are objects") };
    asked
}

fn has_fields(schema: &Map<String, Value>) -> bool {
    schema.get("properties").and_then(Value::as_object).is_some_and(|fields| !fields.is_empty())
}

/// The server's form as ours: the name of its dialect is of no use to the page.
fn form(schema: &Map<String, Value>) -> Map<String, Value> {
    let mut form = schema.clone();
    form.shift_remove("$schema");
    form
}

/// Reads the result file of the question.
fn reading(result: &Value, question: &ServerQuestion) -> HumanAnswer {
    let data = &result["data"];
    match (data["action"].as_str(), &question.form) {
        (Some("accept"), QuestionForm::Fields(schema)) if has_fields(schema) => {
            HumanAnswer::Accept(data["content"].as_object().cloned())
        }
        (Some("accept"), QuestionForm::Fields(_)) if data["answer"] == YES => HumanAnswer::Accept(Some(Map::new())),
        (Some("accept"), QuestionForm::Url(_)) if data["answer"] == DONE => HumanAnswer::Accept(None),
        (Some("accept" | "decline"), _) => HumanAnswer::Decline,
        _ => HumanAnswer::Cancel,
    }
}
