//! One call of a tool, to its end: questions in between are answered, tasks are followed.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use rmcp::ServiceError;
use rmcp::model::{
    CallToolRequest, CallToolRequestParams, CancelTaskParams, ClientRequest, GetTaskParams, InputRequest,
    InputRequests, RequestId, ServerResult, TaskPayload, UpdateTaskParams,
};
use rmcp::service::{Peer, PeerRequestOptions, RequestHandle, RoleClient};
use serde_json::{Map, Value, json};
use tokio::sync::broadcast;
use tokio_util::sync::CancellationToken;

use super::answer::ToolAnswer;
use super::connection::{Connection, EnteredCall};
use super::error::ClientError;
use super::host::{CallHandle, CallHost, CallProgress, InputAnswers, QuestionForm, ServerQuestion};

/// The most times that a server may ask something before it gives a result.
const MAX_ROUNDS: u32 = 20;
/// How long the message that cancels may take to be sent.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(1);
/// The bounds of the interval in which a task is asked for.
const MIN_POLL: Duration = Duration::from_millis(100);
const MAX_POLL: Duration = Duration::from_secs(30);
const DEFAULT_POLL: Duration = Duration::from_secs(1);
/// The longest that a task is followed whose server sets no end to it.
const MAX_TASK: Duration = Duration::from_hours(24);
/// A server of 2025-11-25 needs the human at a URL first.
const URL_NEEDED: i64 = -32_042;

/// A call of a tool.
pub struct ToolCall {
    pub tool: String,
    pub arguments: Map<String, Value>,
    /// Where an earlier process left the call.
    pub handle: Option<CallHandle>,
    pub host: Arc<dyn CallHost>,
    pub cancel: CancellationToken,
}

impl std::fmt::Debug for ToolCall {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ToolCall").field("tool", &self.tool).field("handle", &self.handle).finish_non_exhaustive()
    }
}

impl Connection {
    /// Calls a tool and waits for its answer.
    pub async fn call(&self, call: ToolCall) -> Result<ToolAnswer, ClientError> {
        let entered = self.calls.enter(Arc::clone(&call.host));
        let mut params = CallToolRequestParams::new(call.tool.clone());
        params.arguments = Some(call.arguments.clone());
        let (mut round, mut next) = match call.handle.clone() {
            None => (0, None),
            Some(CallHandle::Task(id)) => return self.follow(&call, &id).await,
            Some(CallHandle::Input { requests, state, round }) => (round, Some((requests, state))),
        };
        loop {
            if let Some((requests, state)) = next.take() {
                let requests = requests.unwrap_or_default();
                let prefix = format!("round-{round}");
                params.input_responses =
                    if requests.is_empty() { None } else { Some(answers(&call, &prefix, requests).await?) };
                params.request_state = state;
            }
            let request = CallToolRequest::new(params.clone());
            let result = self.send(&call, &entered, ClientRequest::CallToolRequest(request)).await;
            let asked = match result {
                Err(ClientError::Refused { code: URL_NEEDED, data: Some(data), .. }) => {
                    round += 1;
                    ask_for_urls(&call, round, &data).await?;
                    None
                }
                Err(error) => return Err(error),
                Ok(ServerResult::InputRequiredResult(asked)) => Some(asked),
                Ok(ServerResult::CreateTaskResult(created)) => {
                    let id = created.task.task_id;
                    call.host.remember(&CallHandle::Task(id.clone()));
                    return self.follow(&call, &id).await;
                }
                Ok(ServerResult::CallToolResult(result)) => {
                    return Ok(ToolAnswer::of(&serde_json::to_value(result).unwrap_or_default()));
                }
                Ok(other) => return unusual(other),
            };
            if round >= MAX_ROUNDS {
                return Err(ClientError::AsksForever(round));
            }
            if let Some(asked) = asked {
                round += 1;
                let (requests, state) = (asked.input_requests, asked.request_state);
                if requests.as_ref().is_none_or(InputRequests::is_empty) {
                    pause(&call, DEFAULT_POLL).await?;
                }
                let handle = CallHandle::Input { requests: requests.clone(), state: state.clone(), round };
                call.host.remember(&handle);
                next = Some((requests, state));
            }
        }
    }

    /// Sends a request and waits for its answer; cancels it if told so.
    async fn send(
        &self,
        call: &ToolCall,
        entered: &EnteredCall,
        request: ClientRequest,
    ) -> Result<ServerResult, ClientError> {
        let mut too_long = self.dropped.too_long();
        if call.cancel.is_cancelled() {
            return Err(ClientError::Cancelled);
        }
        let sent = self.peer().send_request_with_option(request, PeerRequestOptions::no_options()).await;
        let mut handle = sent.map_err(|error| ClientError::of_service(error, self.max_bytes))?;
        entered.set_token(handle.progress_token.clone());
        let id = handle.id.clone();
        let answered = tokio::select! {
            biased;
            answer = &mut handle.rx => Some(answer),
            () = call.cancel.cancelled() => None,
            () = lost(&mut too_long, &id) => return Err(ClientError::TooLarge { max_bytes: self.max_bytes }),
        };
        let has_none = matches!(&answered, Some(Err(_) | Ok(Err(_))));
        // An answer that is too long may also end the connection.
        if has_none && lost(&mut too_long, &id).now_or_never().is_some() {
            return Err(ClientError::TooLarge { max_bytes: self.max_bytes });
        }
        match answered {
            Some(Ok(answer)) => answer.map_err(|error| ClientError::of_service(error, self.max_bytes)),
            Some(Err(_)) => Err(ClientError::of_service(ServiceError::TransportClosed, self.max_bytes)),
            None => {
                cancel(handle).await;
                Err(ClientError::Cancelled)
            }
        }
    }

    /// Asks for a task until it has ended.
    async fn follow(&self, call: &ToolCall, id: &str) -> Result<ToolAnswer, ClientError> {
        if let Ok(outcome) = tokio::time::timeout(MAX_TASK, self.follow_on(call, id)).await {
            return outcome;
        }
        cancel_task(self.peer(), id).await;
        Err(ClientError::TaskEnded(format!("it took longer than {} hours", MAX_TASK.as_secs() / 3_600)))
    }

    async fn follow_on(&self, call: &ToolCall, id: &str) -> Result<ToolAnswer, ClientError> {
        let peer = self.peer();
        let mut answered = std::collections::BTreeSet::new();
        loop {
            let asked = tokio::select! {
                biased;
                asked = peer.get_task(GetTaskParams::new(id)) => asked,
                () = call.cancel.cancelled() => return Err(cancel_task(peer, id).await),
            };
            let task = asked.map_err(|error| ClientError::of_service(error, self.max_bytes))?.task;
            if let Some(message) = &task.task.status_message {
                call.host.progress(&CallProgress { progress: 0.0, total: None, message: Some(message.clone()) });
            }
            match task.payload {
                TaskPayload::Completed { result } => return Ok(ToolAnswer::of(&Value::Object(result))),
                TaskPayload::Failed { error } => {
                    let error = Value::Object(error);
                    return Err(ClientError::Refused {
                        code: error["code"].as_i64().unwrap_or_default(),
                        message: error["message"].as_str().unwrap_or("the task failed").to_owned(),
                        data: error.get("data").cloned(),
                    });
                }
                TaskPayload::Cancelled => return Err(ClientError::TaskEnded("it was cancelled there".to_owned())),
                TaskPayload::InputRequired { mut input_requests } => {
                    // What was answered may be listed until the server has taken it in.
                    input_requests.retain(|key, _| !answered.contains(key));
                    if !input_requests.is_empty() {
                        answered.extend(input_requests.keys().cloned());
                        let answers = tokio::select! {
                            biased;
                            answers = answers(call, "task", input_requests) => answers?,
                            () = call.cancel.cancelled() => return Err(cancel_task(peer, id).await),
                        };
                        let updated = peer.update_task(UpdateTaskParams::new(id, answers)).await;
                        updated.map_err(|error| ClientError::of_service(error, self.max_bytes))?;
                        continue;
                    }
                }
                _ => {}
            }
            let interval = task.task.poll_interval_ms.map_or(DEFAULT_POLL, Duration::from_millis);
            if pause(call, interval.clamp(MIN_POLL, MAX_POLL)).await.is_err() {
                return Err(cancel_task(peer, id).await);
            }
        }
    }
}

/// Reads a result of an unknown kind: servers send structured content alone, or nothing at all.
fn unusual(result: ServerResult) -> Result<ToolAnswer, ClientError> {
    let result = serde_json::to_value(result).unwrap_or_default();
    let known = ["content", "structuredContent", "isError"];
    let is_call = result.as_object().is_some_and(|it| it.is_empty() || known.iter().any(|key| it.contains_key(*key)));
    if is_call {
        return Ok(ToolAnswer::of(&result));
    }
    let kind = result["resultType"].as_str().map(|kind| format!(": `{kind}`")).unwrap_or_default();
    Err(ClientError::Malformed(format!("the answer is no result of a tool{kind}")))
}

async fn cancel(handle: RequestHandle<RoleClient>) {
    let reason = Some("cancelled by the caller".to_owned());
    // A server that does not read anymore is not waited for.
    drop(tokio::time::timeout(CANCEL_TIMEOUT, handle.cancel(reason)).await);
}

async fn cancel_task(peer: &Peer<RoleClient>, id: &str) -> ClientError {
    drop(tokio::time::timeout(CANCEL_TIMEOUT, peer.cancel_task(CancelTaskParams::new(id))).await);
    ClientError::Cancelled
}

async fn pause(call: &ToolCall, duration: Duration) -> Result<(), ClientError> {
    tokio::select! {
        () = tokio::time::sleep(duration) => Ok(()),
        () = call.cancel.cancelled() => Err(ClientError::Cancelled),
    }
}

/// Returns when the answer to the request `id` was too long to be kept.
async fn lost(too_long: &mut broadcast::Receiver<Option<String>>, id: &RequestId) {
    loop {
        match too_long.recv().await {
            Ok(Some(lost)) if lost != id.to_string() => {}
            Ok(_) => return,
            Err(_) => std::future::pending().await,
        }
    }
}

/// Answers what a server asks, one after another; `prefix` tells its rounds apart.
async fn answers(call: &ToolCall, prefix: &str, requests: InputRequests) -> Result<InputAnswers, ClientError> {
    let mut answers = InputAnswers::new();
    for (key, request) in requests {
        let written = serde_json::to_value(&request).map_err(|error| ClientError::Malformed(error.to_string()))?;
        let params = written["params"].clone();
        let answer = match request {
            InputRequest::Elicitation(_) => {
                let question = question_of(format!("{prefix}-{key}"), &params).map_err(ClientError::Malformed)?;
                tokio::select! {
                    biased;
                    answer = call.host.ask(&question) => answer.into_result(),
                    () = call.cancel.cancelled() => return Err(ClientError::Cancelled),
                }
            }
            // The connection offers no language model.
            InputRequest::CreateMessage(_) => {
                return Err(ClientError::Malformed(
                    "the server asks for a language model, which it is not given".to_owned(),
                ));
            }
            // No folder is shared with servers: they get paths as arguments.
            InputRequest::ListRoots(_) => json!({"roots": []}),
            _ => return Err(ClientError::Malformed("the server asks something that is not known".to_owned())),
        };
        answers.insert(key, answer);
    }
    Ok(answers)
}

/// Has the human open the URLs that `data` of the error names, and then the call is made again.
async fn ask_for_urls(call: &ToolCall, round: u32, data: &Value) -> Result<(), ClientError> {
    for (number, elicitation) in data["elicitations"].as_array().into_iter().flatten().enumerate() {
        let question = question_of(format!("url-{round}-{number}"), elicitation).map_err(ClientError::Malformed)?;
        let answer = tokio::select! {
            biased;
            answer = call.host.ask(&question) => answer,
            () = call.cancel.cancelled() => return Err(ClientError::Cancelled),
        };
        if answer.into_result()["action"] != "accept" {
            let message = "the human did not open the page that the server needs".to_owned();
            return Err(ClientError::Refused { code: URL_NEEDED, message, data: None });
        }
    }
    Ok(())
}

/// Reads the parameters of `elicitation/create`.
pub(super) fn question_of(key: String, params: &Value) -> Result<ServerQuestion, String> {
    let message = params["message"].as_str().unwrap_or_default().to_owned();
    let form = if params["mode"] == "url" {
        let url = params["url"].as_str().ok_or("the server asks to open a URL and names none")?;
        QuestionForm::Url(url.to_owned())
    } else {
        let schema = params["requestedSchema"].as_object().ok_or("the server asks without a schema")?;
        QuestionForm::Fields(schema.clone())
    };
    Ok(ServerQuestion { key, message, form })
}
