//! Calls of tools: of the one tool, and of subtools that are tools of their own.

use std::time::Duration;

use protocol::caller::Caller;
use protocol::command_executor::{CommandOutput, OpenedTask};
use protocol::task::{State, TaskId};
use rmcp::model::{CallToolResponse, CallToolResult, ContentBlock, CreateTaskResult, JsonObject};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer};
use serde_json::Value;
use tokio::time::{Instant, sleep_until};

use super::client::Client;
use super::content::{self, Understands};
use super::exposed;
use super::handler::Handler;
use super::progress::Progress;
use super::results::ResultNow;
use super::tasks::{self, TaskHandle};
use super::turns::withdrawn;

/// The field of `_meta` with which a client makes its call safe to send again.
const IDEMPOTENCY_KEY: &str = "agent-magic-tool/idempotency-key";
impl Handler {
    /// A call of the one tool.
    pub(super) async fn call_line(
        &self,
        client: &Client,
        line: &str,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let server = &self.server;
        let output = server.turns.run_line(&server.settings, client, line.to_owned(), key(&context), &context).await?;
        if follows_tasks(&context)
            && let Some(id) = receipt_of(&output)
            && let Some(now) =
                ResultNow::read(&server.settings.mailbox, id, &client.caller).filter(|now| !now.is_final())
        {
            let task = tasks::task(TaskHandle { id, data_only: false }, &now, &server.settings.mailbox);
            return Ok(CreateTaskResult::new(task).into());
        }
        Ok(content::of_line(&output, Understands::of(context.protocol_version().as_ref())).into())
    }

    /// A call of a subtool that is a tool of its own: delegates it, and waits for its result for a while.
    pub(super) async fn call_exposed(
        &self,
        client: &Client,
        name: &str,
        arguments: &JsonObject,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let (settings, mut progress) = (&self.server.settings, Progress::of(&context));
        let mut words = ["run", name, "--input=-"].map(str::to_owned).to_vec();
        let key = key(&context);
        if !key.is_empty() {
            words.push(format!("--idempotency-key={key}"));
        }
        let input = serde_json::to_string(arguments)
            .map_err(|error| ErrorData::invalid_params(format!("the arguments are no JSON: {error}"), None))?;
        let printed = self.server.turns.call(settings, client, words, input).await?;
        let receipt: Value = serde_json::from_str(&printed.stdout).unwrap_or_default();
        let Some(id) = receipt["id"].as_str().and_then(|id| id.parse().ok()) else {
            let text = if printed.stderr.is_empty() { printed.stdout } else { printed.stderr };
            return Ok(CallToolResult::error(vec![ContentBlock::text(text.trim_end())]).into());
        };
        let is_followed = follows_tasks(&context);
        let limit = if is_followed { exposed::WAIT_BEFORE_TASK } else { exposed::WAIT };
        let handle = TaskHandle { id, data_only: true };
        match self.await_end(id, &client.caller, limit, &mut progress, &context).await? {
            Some(now) if now.is_final() => Ok(self.result_of(client, handle, now, &context).await?.into()),
            Some(now) if is_followed => Ok(CreateTaskResult::new(tasks::task(handle, &now, &settings.mailbox)).into()),
            _ => {
                // Says what the task waits for, and removes nothing.
                let line = format!("agent-magic-tool read {id}");
                let mut output = self.server.turns.run_short(settings, client, line).await?;
                output.opened =
                    vec![OpenedTask { id, tool: name.to_owned(), result_file: settings.mailbox.result_file(id) }];
                Ok(content::of_line(&output, Understands::of(context.protocol_version().as_ref())).into())
            }
        }
    }

    /// The result of a final task, as the call that delegated it would have given it.
    pub(super) async fn result_of(
        &self,
        client: &Client,
        handle: TaskHandle,
        now: ResultNow,
        context: &RequestContext<RoleServer>,
    ) -> Result<CallToolResult, ErrorData> {
        let settings = &self.server.settings;
        let understands = Understands::of(context.protocol_version().as_ref());
        let line = format!("agent-magic-tool wait {}", handle.id);
        let printed = self.server.turns.run_short(settings, client, line).await?;
        if !handle.data_only {
            return Ok(content::of_line(&printed, understands));
        }
        let mailbox = settings.mailbox.clone();
        let read = tokio::task::spawn_blocking(move || content::of_data(&now, &printed, &mailbox, understands)).await;
        read.map_err(|error| ErrorData::internal_error(format!("the result was not read: {error}"), None))
    }

    /// Waits until the task has ended, waits for a human who is not at the page, or `limit` is over; returns its result
    /// file as it is then.
    async fn await_end(
        &self,
        id: TaskId,
        caller: &Caller,
        limit: Duration,
        progress: &mut Progress,
        context: &RequestContext<RoleServer>,
    ) -> Result<Option<ResultNow>, ErrorData> {
        let mut events = self.server.result_events();
        let deadline = Instant::now() + limit;
        let mut reported = None;
        loop {
            let now = ResultNow::read(&self.server.settings.mailbox, id, caller);
            if now.as_ref().is_none_or(|now| now.is_final() || now.waits_for_absent_human()) {
                return Ok(now);
            }
            let state = now.as_ref().map(ResultNow::state);
            if let Some(state) = state.filter(|state| reported != Some(*state)) {
                progress.report(state.as_str()).await;
                reported = Some(state);
            }
            tokio::select! {
                () = events.next() => {}
                () = sleep_until(deadline) => return Ok(now),
                () = context.ct.cancelled() => return Err(withdrawn()),
                () = progress.due() => progress.remind(state.map_or("pending", State::as_str)).await,
            }
        }
    }
}

/// The key with which a client makes its call safe to send again.
fn key(context: &RequestContext<RoleServer>) -> String {
    context.meta.get(IDEMPOTENCY_KEY).and_then(Value::as_str).unwrap_or_default().to_owned()
}

/// Whether the client declared with this very request that it follows tasks.
fn follows_tasks(context: &RequestContext<RoleServer>) -> bool {
    context.client_capabilities().is_some_and(|capabilities| capabilities.supports_tasks())
}

/// The task of a line that printed nothing but the receipt of one delegated run.
fn receipt_of(output: &CommandOutput) -> Option<TaskId> {
    let [opened] = output.opened.as_slice() else { return None };
    let printed = serde_json::Deserializer::from_str(&output.text).into_iter::<Value>().next()?.ok()?;
    (printed["id"] == opened.id.to_string()).then_some(opened.id)
}
