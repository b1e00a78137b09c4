//! The messages of one client, and what each of them does.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use protocol::command_executor;
use protocol::task::TaskId;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, CancelTaskParams, GetPromptRequestParams,
    GetPromptResponse, GetTaskParams, GetTaskResult, Implementation, ListPromptsResult, ListResourceTemplatesResult,
    ListResourcesResult, ListToolsResult, MetaObject, PaginatedRequestParams, ReadResourceRequestParams,
    ReadResourceResponse, ReadResourceResult, ResourceUpdatedNotificationParam, ServerCapabilities, ServerConfig,
    SubscribeRequestParams, SubscriptionFilter, Tool, UnsubscribeRequestParams, UpdateTaskParams,
};
use rmcp::service::{NotificationContext, RequestContext, SubscriptionContext};
use rmcp::{ErrorData, RoleServer, ServerHandler};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::client::Client;
use super::prompts;
use super::results::{self, ResultNow, ResultUri};
use super::shared::Server;
use super::subscriptions::ResultChanges;
use super::tasks::{self, TaskHandle};

/// How many resources one session may be subscribed to.
const MAX_SUBSCRIPTIONS: usize = 256;

/// One connection or session, or one request of a client that has neither.
#[derive(Debug)]
pub(super) struct Handler {
    pub(super) server: Arc<Server>,
    session: TaskId,
    /// The resources that the client is subscribed to.
    subscriptions: Mutex<HashMap<String, CancellationToken>>,
}

impl Handler {
    pub(super) fn of(server: Arc<Server>) -> Self {
        Self { server, session: TaskId::new(), subscriptions: Mutex::default() }
    }

    fn client(&self, context: &RequestContext<RoleServer>) -> Client {
        Client::of(context, &self.server.settings, self.session)
    }

    /// The tools that the client may use.
    async fn tools(&self, client: &Client) -> Result<Vec<Tool>, ErrorData> {
        let exposed = self.server.exposed.of(&client.caller, &self.server).await?;
        let is_listed = |tool: &Tool| client.access.tools.covers(&tool.name);
        Ok(std::iter::once(one_tool()).chain(exposed).filter(is_listed).collect())
    }

    fn check_resource(client: &Client, uri: &str) -> Result<ResultUri, ErrorData> {
        if !client.access.resources.covers(uri) {
            return Err(client.refused("resource", uri));
        }
        ResultUri::parse(uri).ok_or_else(|| results::not_found(uri))
    }

    /// The result file of a task as it is now. If it is missing or its executor is gone, an executor is started, which
    /// restores it and goes on.
    async fn result_now(&self, client: &Client, id: TaskId) -> Result<Option<ResultNow>, ErrorData> {
        let mailbox = &self.server.settings.mailbox;
        let now = ResultNow::read(mailbox, id, &client.caller);
        if now.as_ref().is_some_and(|now| now.is_final() || !mailbox.has_unfinished_tasks()) {
            return Ok(now);
        }
        let line = format!("agent-magic-tool read {id}");
        self.server.turns.run_short(&self.server.settings, client, line).await?;
        Ok(ResultNow::read(mailbox, id, &client.caller))
    }

    fn subscriptions(&self) -> std::sync::MutexGuard<'_, HashMap<String, CancellationToken>> {
        self.subscriptions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Handler {
    fn drop(&mut self) {
        for (_, followed) in self.subscriptions().drain() {
            followed.cancel();
        }
    }
}

impl ServerHandler for Handler {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder()
            .enable_tools()
            .enable_tool_list_changed()
            .enable_resources()
            .enable_resources_subscribe()
            .enable_prompts()
            .enable_tasks()
            .build();
        let implementation =
            Implementation::new("agent-magic-tool", env!("CARGO_PKG_VERSION")).with_title("agent-magic-tool");
        ServerConfig::new(capabilities).with_server_info(implementation).with_instructions(prompts::INSTRUCTIONS)
    }

    async fn list_tools(
        &self,
        _request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(self.tools(&self.client(&context)).await?))
    }

    /// By it the headers of a call are compared with its arguments.
    fn get_tool(&self, name: &str) -> Option<Tool> {
        if name == command_executor::NAME { Some(one_tool()) } else { self.server.exposed.known(name) }
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let client = self.client(&context);
        if !client.access.tools.covers(&request.name) {
            return Err(client.refused("tool", &request.name));
        }
        let arguments = request.arguments.unwrap_or_default();
        if request.name == command_executor::NAME {
            return match arguments.get("command").and_then(Value::as_str) {
                Some(line) => self.call_line(&client, line, context).await,
                None => Ok(CallToolResult::error(vec![rmcp::model::ContentBlock::text(
                    "The argument `command` is missing: a command line, like `agent-magic-tool list tools`.",
                )])
                .into()),
            };
        }
        if !self.tools(&client).await?.iter().any(|tool| tool.name == request.name) {
            let message = format!("no tool named `{}`; see tools/list", request.name);
            return Err(ErrorData::invalid_params(message, None));
        }
        self.call_exposed(&client, &request.name, &arguments, context).await
    }

    async fn list_resources(
        &self,
        _request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        let client = self.client(&context);
        let words = vec!["tasks".to_owned(), format!("--limit={}", results::MAX_LISTED)];
        let printed = self.server.turns.call(&self.server.settings, &client, words, String::new()).await?;
        let tasks: Value = serde_json::from_str(&printed.stdout)
            .map_err(|_| ErrorData::internal_error(printed.stderr.trim_end().to_owned(), None))?;
        let mut resources = results::listed(&tasks);
        resources.retain(|resource| client.access.resources.covers(&resource.uri));
        Ok(ListResourcesResult::with_all_items(resources))
    }

    async fn list_resource_templates(
        &self,
        _request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        let client = self.client(&context);
        let mut templates = results::templates();
        templates.retain(|template| client.access.resources.covers(&template.uri_template));
        Ok(ListResourceTemplatesResult::with_all_items(templates))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let client = self.client(&context);
        let contents = match Self::check_resource(&client, &request.uri)? {
            ResultUri::File(id) => {
                let words = vec!["read".to_owned(), id.to_string()];
                let printed = self.server.turns.call(&self.server.settings, &client, words, String::new()).await?;
                if printed.stdout.is_empty() {
                    return Err(results::not_found(&request.uri));
                }
                results::file_contents(id, &printed.stdout)
            }
            ResultUri::Data(id) => {
                let now = self.result_now(&client, id).await?.ok_or_else(|| results::not_found(&request.uri))?;
                let mailbox = self.server.settings.mailbox.clone();
                let read = tokio::task::spawn_blocking(move || now.data_contents(&mailbox)).await;
                read.map_err(|error| ErrorData::internal_error(error.to_string(), None))??
            }
        };
        Ok(ReadResourceResult::new(vec![contents]).into())
    }

    async fn subscribe(
        &self,
        request: SubscribeRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        let client = self.client(&context);
        let id = Self::check_resource(&client, &request.uri)?.task();
        if self.result_now(&client, id).await?.is_none() {
            return Err(results::not_found(&request.uri));
        }
        let followed = CancellationToken::new();
        {
            let mut subscriptions = self.subscriptions();
            subscriptions.retain(|_, followed| !followed.is_cancelled());
            if subscriptions.len() >= MAX_SUBSCRIPTIONS {
                return Err(ErrorData::invalid_request("too many subscriptions; end some of them first", None));
            }
            if let Some(earlier) = subscriptions.insert(request.uri.clone(), followed.clone()) {
                earlier.cancel();
            }
        }
        let mut changes =
            ResultChanges::of([id], &self.server.settings.mailbox, &client.caller, self.server.result_events());
        let (peer, uri) = (context.peer, request.uri);
        self.server.background.spawn(followed.clone().run_until_cancelled_owned(async move {
            while changes.next().await.is_some() {
                let update = ResourceUpdatedNotificationParam::new(uri.clone());
                if peer.notify_resource_updated(update).await.is_err() {
                    break;
                }
            }
            followed.cancel();
        }));
        Ok(())
    }

    async fn unsubscribe(
        &self,
        request: UnsubscribeRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        if let Some(followed) = self.subscriptions().remove(&request.uri) {
            followed.cancel();
        }
        Ok(())
    }

    fn accepted_subscription_filter(&self, requested: &SubscriptionFilter) -> Option<SubscriptionFilter> {
        let uris = requested.resource_subscriptions.iter().flatten();
        let ours = uris.filter(|uri| ResultUri::parse(uri).is_some()).take(MAX_SUBSCRIPTIONS);
        Some(SubscriptionFilter::builder().tools_list_changed().resource_subscriptions(ours).build())
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        let client = self.client(context.request_context());
        let accepted = context.accepted();
        let uris: Vec<String> = accepted.resource_subscriptions.clone().unwrap_or_default();
        let uris: Vec<_> = uris.into_iter().filter(|uri| client.access.resources.covers(uri)).collect();
        let ids = uris.iter().filter_map(|uri| ResultUri::parse(uri)).map(ResultUri::task);
        let mut changes =
            ResultChanges::of(ids, &self.server.settings.mailbox, &client.caller, self.server.result_events());
        let wants_tools = accepted.tools_list_changed == Some(true);
        let mut tools = self.server.exposed.changes();
        if wants_tools {
            self.server.exposed.current(&self.server).await?;
        }
        let mut are_open = !uris.is_empty();
        loop {
            let sent = tokio::select! {
                () = context.cancelled() => return Ok(()),
                Ok(()) = tools.changed(), if wants_tools => context.sink().notify_tool_list_changed().await,
                next = changes.next(), if are_open => match next {
                    None => {
                        are_open = false;
                        Ok(())
                    }
                    Some(id) => {
                        let mut sent = Ok(());
                        for uri in uris.iter().filter(|uri| ResultUri::parse(uri).is_some_and(|of| of.task() == id)) {
                            sent = context.sink().notify_resource_updated(uri.clone()).await;
                        }
                        sent
                    }
                },
            };
            if let Err(error) = sent {
                tracing::debug!(%error, "a subscription ended");
                return Ok(());
            }
        }
    }

    async fn list_prompts(
        &self,
        _request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        let client = self.client(&context);
        let mut prompts = prompts::all();
        prompts.retain(|prompt| client.access.prompts.covers(&prompt.name));
        Ok(ListPromptsResult::with_all_items(prompts))
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        let client = self.client(&context);
        if !client.access.prompts.covers(&request.name) {
            return Err(client.refused("prompt", &request.name));
        }
        prompts::get(&request.name, request.arguments.as_ref()).map(Into::into)
    }

    async fn get_task(
        &self,
        request: GetTaskParams,
        context: RequestContext<RoleServer>,
    ) -> Result<GetTaskResult, ErrorData> {
        let (client, handle) = (self.client(&context), request.task_id.parse::<TaskHandle>()?);
        let now = self.result_now(&client, handle.id).await?.ok_or_else(|| tasks::unknown(&request.task_id))?;
        let task = tasks::task(handle, &now, &self.server.settings.mailbox);
        let result = if now.is_final() { Some(self.result_of(&client, handle, now, &context).await?) } else { None };
        Ok(GetTaskResult::new(tasks::detailed(task, result.as_ref())))
    }

    /// There is nothing to answer, since no task asks its client for anything.
    async fn update_task(
        &self,
        request: UpdateTaskParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        let (client, handle) = (self.client(&context), request.task_id.parse::<TaskHandle>()?);
        let now = self.result_now(&client, handle.id).await?;
        now.map(|_| ()).ok_or_else(|| tasks::unknown(&request.task_id))
    }

    async fn cancel_task(
        &self,
        request: CancelTaskParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        let (client, handle) = (self.client(&context), request.task_id.parse::<TaskHandle>()?);
        let now = self.result_now(&client, handle.id).await?.ok_or_else(|| tasks::unknown(&request.task_id))?;
        if !now.is_final() {
            let words = vec!["cancel".to_owned(), handle.id.to_string()];
            self.server.turns.call(&self.server.settings, &client, words, String::new()).await?;
        }
        Ok(())
    }

    async fn on_initialized(&self, context: NotificationContext<RoleServer>) {
        if self.server.settings.exposed.is_empty() {
            return;
        }
        if let Err(error) = self.server.exposed.current(&self.server).await {
            tracing::warn!(%error, "the subtools could not be listed");
        }
        let (mut changes, peer) = (self.server.exposed.changes(), context.peer);
        self.server.background.spawn(async move {
            while changes.changed().await.is_ok() && peer.notify_tool_list_changed().await.is_ok() {}
        });
    }
}

/// The one tool, as every model gets it.
fn one_tool() -> Tool {
    let definition = command_executor::definition();
    let schema = definition["parameters"].as_object().cloned().unwrap_or_default();
    let description = definition["description"].as_str().unwrap_or_default().to_owned();
    // Clients that show a model some tools only on request show this one always: it is the only one.
    let mut meta = MetaObject::default();
    meta.insert("anthropic/alwaysLoad".to_owned(), true.into());
    Tool::new(command_executor::NAME, description, schema).with_meta(meta)
}
