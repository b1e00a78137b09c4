//! The agent2agent protocol (A2A) over JSON-RPC, version 1 and version 0.3: finds the agent's card, sends it the message
//! and follows its task until it ends.

use std::path::Path;

use ground::task::failure::{Failure, Retry, SideEffect};
use net::clients::FetchedPage;
use protocol::code::Code;
use reqwest::header::{ACCEPT, CONTENT_TYPE};
use reqwest::{Method, Response};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use url::Url;

use super::events::RemoteEvents;
use super::remote::{RemoteAnswer, RemoteCall, RemoteEndpoint, RemoteJob, ReturnWait, spent};
use super::task::{RemoteTask, TaskPhase};

/// Where an agent's card is, below its address or its host.
const CARD: &str = "/.well-known/agent-card.json";
/// The largest card.
const MAX_CARD_BYTES: u64 = 1 << 20;
/// The header with the version that we speak.
const VERSION_HEADER: &str = "a2a-version";
/// The extension of an agent that does not answer twice a message that is sent twice.
const REPEATABLE: &str = "urn:agent-magic-tool:repeatable";
/// How long a task is left alone before it is asked for again.
const POLL_PAUSE: std::time::Duration = std::time::Duration::from_secs(1);
/// The codes of errors after which nothing was done: the message was not taken.
const NOT_TAKEN: [i64; 11] = [-32700, -32600, -32601, -32602, -32001, -32003, -32004, -32005, -32007, -32008, -32009];
const TASK_NOT_FOUND: i64 = -32001;

/// Finds the agent's endpoint by its card; `None` if it has no card.
pub(super) async fn find(call: &RemoteCall<'_>, cancel: &CancellationToken) -> Result<Option<RemoteEndpoint>, Failure> {
    let url = &call.question.url;
    let below = |path: &str| {
        let mut card = url.clone();
        card.set_query(None);
        card.set_path(&format!("{}{CARD}", path.trim_end_matches('/')));
        card
    };
    let mut places = vec![below(url.path())];
    if !url.path().trim_end_matches('/').is_empty() {
        places.push(below(""));
    }
    // The card itself.
    if Path::new(url.path()).extension().is_some_and(|extension| extension == "json") {
        places = vec![url.clone()];
    }
    for place in places {
        let FetchedPage { status, body, .. } = if call.question.guarded {
            call.context.http.fetch_guarded(&place, MAX_CARD_BYTES, cancel).await?
        } else {
            call.context.http.fetch_configured(&place, MAX_CARD_BYTES).await?
        };
        let card: Value = serde_json::from_slice(&body).unwrap_or_default();
        if (200..300).contains(&status) && card["name"].is_string() {
            return endpoint(call, &card).map(Some);
        }
    }
    Ok(None)
}

/// The endpoint of an agent that has no card: its address.
pub(super) fn without_card(call: &RemoteCall<'_>) -> RemoteEndpoint {
    RemoteEndpoint { url: call.question.url.clone(), is_legacy: false, streams: true, is_repeatable: false }
}

/// The endpoint in a card, which must be where the card is: the key is for that server alone.
fn endpoint(call: &RemoteCall<'_>, card: &Value) -> Result<RemoteEndpoint, Failure> {
    let offered = card["supportedInterfaces"].as_array().map(Vec::as_slice).unwrap_or_default();
    let find = |version: &str| {
        offered.iter().find(|offer| {
            offer["protocolBinding"] == "JSONRPC"
                && offer["protocolVersion"].as_str().unwrap_or_default().starts_with(version)
        })
    };
    let legacy = || card.get("url").filter(|_| offered.is_empty());
    let (url, is_legacy) = match (find("1"), find("0.3"), legacy()) {
        (Some(offer), ..) => (&offer["url"], false),
        (None, Some(offer), _) => (&offer["url"], true),
        (None, None, Some(url)) if matches!(card["preferredTransport"].as_str(), None | Some("JSONRPC")) => (url, true),
        _ => {
            let message = format!("the agent at {} does not speak A2A over JSON-RPC, as its card says", call.agent());
            return Err(Failure::new(Code::BadResponse, message).hint("only JSON-RPC is spoken here, 1.0 or 0.3"));
        }
    };
    let url = url.as_str().and_then(|url| call.question.url.join(url).ok());
    let Some(url) = url.filter(|url| matches!(url.scheme(), "http" | "https")) else {
        return Err(call.no_sense("its card names no usable address"));
    };
    if url.origin() != call.question.url.origin() {
        let message = format!("the card of the agent at {} sends callers to another server, `{url}`", call.agent());
        return Err(Failure::new(Code::Rejected, message)
            .hint("if that is right, a human writes that address into the definition, as `url`"));
    }
    let extensions = card["capabilities"]["extensions"].as_array().map(Vec::as_slice).unwrap_or_default();
    Ok(RemoteEndpoint {
        url,
        is_legacy,
        streams: card["capabilities"]["streaming"] == true,
        is_repeatable: extensions.iter().any(|extension| extension["uri"] == REPEATABLE),
    })
}

/// How one exchange ended that did not fail for good.
enum ExchangeEnd {
    /// The stream ended, or the agent answered; what is known stands in the task.
    Told,
    /// The agent does not know the task anymore.
    NoTask,
    /// The agent was not there, or went away.
    Lost(Failure),
}

/// Sends the message, or goes on with the task that an earlier attempt left, and returns the answer.
pub(super) async fn ask(call: &RemoteCall<'_>, endpoint: RemoteEndpoint) -> Result<RemoteAnswer, Failure> {
    let job = RemoteJob { message: call.message_id(), task: None, a2a: Some(endpoint) };
    let mut exchange = A2aExchange { call, task: RemoteTask::default(), job };
    exchange.task.id = call.left_at.as_ref().and_then(|job| job.task.clone());
    let answer = exchange.run().await?;
    Ok(answer)
}

/// The exchange with one agent about one task.
struct A2aExchange<'a> {
    call: &'a RemoteCall<'a>,
    task: RemoteTask,
    job: RemoteJob,
}

impl A2aExchange<'_> {
    fn endpoint(&self) -> &RemoteEndpoint {
        self.job.a2a.as_ref().expect("a job of this protocol has an endpoint")
    }

    async fn run(&mut self) -> Result<RemoteAnswer, Failure> {
        let call = self.call;
        let mut is_taken = call.left_at.is_some();
        if !is_taken {
            call.sending(self.endpoint().is_repeatable.then(|| self.job.clone())).await?;
        }
        let mut wait = ReturnWait::default();
        let mut must_send = !is_taken || self.task.id.is_none();
        loop {
            if must_send && is_taken && !self.endpoint().is_repeatable {
                return Err(call.lost("it did not say under which id it works"));
            }
            let end = if must_send { self.send().await? } else { self.follow().await? };
            if let Some(answer) = self.settled()? {
                return Ok(answer);
            }
            match end {
                ExchangeEnd::Told => {
                    is_taken = true;
                    wait.found();
                    tokio::time::sleep(POLL_PAUSE).await;
                }
                ExchangeEnd::NoTask if self.endpoint().is_repeatable => self.task = RemoteTask::default(),
                ExchangeEnd::NoTask => return Err(call.lost("it does not know the task anymore")),
                ExchangeEnd::Lost(failure) if !is_taken && failure.side_effect == SideEffect::None => {
                    call.not_sent();
                    return Err(failure);
                }
                ExchangeEnd::Lost(failure) => {
                    is_taken = true;
                    if !wait.again().await {
                        return Err(call.lost(&failure.error.message));
                    }
                }
            }
            must_send = self.task.id.is_none();
        }
    }

    /// Sends the message. Where the agent streams, follows its task until the stream ends.
    async fn send(&mut self) -> Result<ExchangeEnd, Failure> {
        let (question, endpoint) = (&self.call.question, self.endpoint());
        let mut own = json!({"depth": self.call.invocation.caller.depth.saturating_add(1), "commands": false});
        own["limits"] = serde_json::to_value(question.limits).expect("limits are plain JSON");
        if let Some(deadline) = self.call.deadline() {
            own["limits"]["deadline"] = deadline.into();
        }
        if let Some(model) = &question.model {
            own["model"] = model.as_str().into();
        }
        let mut message = json!({
            "messageId": self.job.message,
            "contextId": question.session,
            "role": "ROLE_USER",
            "parts": [{"text": question.prompt}],
            "metadata": {"agent-magic-tool": own},
        });
        let mut configuration = json!({"acceptedOutputModes": ["text/plain", "application/json"]});
        if endpoint.is_legacy {
            message["kind"] = "message".into();
            message["role"] = "user".into();
            message["parts"][0]["kind"] = "text".into();
            configuration["blocking"] = true.into();
        }
        let streams = endpoint.streams;
        let method = if streams { "SendStreamingMessage" } else { "SendMessage" };
        self.exchange(method, json!({"message": message, "configuration": configuration}), streams).await
    }

    /// Asks for the task again. A stream that cannot be had is no reason to give up.
    async fn follow(&mut self) -> Result<ExchangeEnd, Failure> {
        let id = self.task.id.clone().unwrap_or_default();
        if self.endpoint().streams && self.task.phase == TaskPhase::Working {
            match self.exchange("SubscribeToTask", json!({"id": id}), true).await {
                Ok(ExchangeEnd::Told) if self.task.phase != TaskPhase::Working => return Ok(ExchangeEnd::Told),
                Ok(ExchangeEnd::Lost(failure)) => return Ok(ExchangeEnd::Lost(failure)),
                // Also the error of a task that has ended meanwhile.
                Ok(_) | Err(_) => {}
            }
        }
        self.exchange("GetTask", json!({"id": id}), false).await
    }

    /// Makes one call and takes in what the agent says.
    async fn exchange(&mut self, method: &str, params: Value, streams: bool) -> Result<ExchangeEnd, Failure> {
        let response = match self.post(method, params, streams).await {
            Ok(response) => response,
            Err(failure) if is_absence(&failure) => return Ok(ExchangeEnd::Lost(failure)),
            Err(failure) => return Err(failure),
        };
        let url = self.endpoint().url.clone();
        let (status, headers) = (response.status(), response.headers().clone());
        let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        let heard = if status.is_success() && kind.starts_with("text/event-stream") {
            self.hear(response, &url).await
        } else {
            match self.call.json(response, &url).await {
                Ok(body) if status.is_success() || body["error"]["code"].is_i64() => self.take(&body),
                Ok(body) => Err(self.call.refused(status, &headers, &url, &body)),
                Err(failure) if status.is_success() || is_absence(&failure) => Err(failure),
                Err(_) => Err(self.call.refused(status, &headers, &url, &Value::Null)),
            }
        };
        match heard {
            Ok(end) => Ok(end),
            Err(failure) if is_absence(&failure) => Ok(ExchangeEnd::Lost(failure)),
            Err(failure) => Err(failure),
        }
    }

    async fn hear(&mut self, response: Response, url: &Url) -> Result<ExchangeEnd, Failure> {
        let mut events = RemoteEvents::of(response, url, self.call.context.config.executor.output_bytes);
        while let Some(event) = events.next().await? {
            let body =
                serde_json::from_str(&event.data).map_err(|_| self.call.no_sense("one of its events is not JSON"))?;
            if let ExchangeEnd::NoTask = self.take(&body)? {
                return Ok(ExchangeEnd::NoTask);
            }
            if self.task.is_over() {
                break;
            }
        }
        Ok(ExchangeEnd::Told)
    }

    /// Takes in one response of JSON-RPC.
    fn take(&mut self, body: &Value) -> Result<ExchangeEnd, Failure> {
        if let Some(error) = body.get("error").filter(|error| error.is_object()) {
            return self.error(error);
        }
        let Some(result) = body.get("result").filter(|result| result.is_object()) else {
            return Err(self.call.no_sense("it answers with neither `result` nor `error`"));
        };
        let known = self.task.id.clone();
        if !self.task.take(result) {
            return Err(self.call.no_sense("its result is neither a task nor a message"));
        }
        if self.task.id != known {
            let job = RemoteJob { task: self.task.id.clone(), ..self.job.clone() };
            self.call.note(job.clone());
            self.job = job;
        }
        match (self.task.phase, self.task.words()) {
            (TaskPhase::WaitsForHuman, words) => self.call.waits_for_human(words.unwrap_or("it does not say for what")),
            (TaskPhase::Working, words) => {
                self.call.goes_on();
                if let Some(words) = words {
                    self.call.does(words);
                }
            }
            _ => self.call.goes_on(),
        }
        Ok(ExchangeEnd::Told)
    }

    fn error(&self, error: &Value) -> Result<ExchangeEnd, Failure> {
        let code = error["code"].as_i64().unwrap_or_default();
        if code == TASK_NOT_FOUND && self.task.id.is_some() {
            return Ok(ExchangeEnd::NoTask);
        }
        let said = protocol::excerpt::line(error["message"].as_str().unwrap_or("it gives no reason"), 500);
        let message = format!("the agent at {} answers: {said}", self.call.agent());
        let failure = Failure::new(Code::ApiError, message).detail("jsonrpc_code", code);
        // After a task is known, the message was taken, whatever a later call answers.
        let is_without_effect = NOT_TAKEN.contains(&code) && self.task.id.is_none() && self.call.left_at.is_none();
        Err(if is_without_effect { failure } else { failure.answered() })
    }

    async fn post(&self, method: &str, params: Value, streams: bool) -> Result<Response, Failure> {
        let RemoteEndpoint { url, is_legacy, .. } = self.endpoint();
        post(self.call, url, *is_legacy, method, params, streams).await
    }

    /// The answer, or the failure, if the task is over.
    fn settled(&self) -> Result<Option<RemoteAnswer>, Failure> {
        let task = &self.task;
        let agent = self.call.agent();
        let words = || task.words().unwrap_or("it gives no reason").to_owned();
        let failed = |code: Code, message: String| {
            let failure = Failure::new(code, message).detail("agent", agent.as_str());
            spent(failure, &task.own()["usage"])
        };
        match task.phase {
            TaskPhase::Working | TaskPhase::WaitsForHuman => Ok(None),
            TaskPhase::Completed => Ok(Some(task.answer())),
            TaskPhase::Asks => Ok(Some(task.question())),
            TaskPhase::Failed => {
                Err(failed(Code::ModelFailed, format!("the agent at {agent} failed: {}", words())).answered())
            }
            TaskPhase::Canceled => {
                let message = format!("the agent at {agent} stopped before it had an answer: {}", words());
                Err(failed(Code::ApiError, message).answered())
            }
            TaskPhase::Rejected => {
                let is_too_deep = task.own()["error"]["code"] == Code::TooDeep.as_str();
                let code = if is_too_deep { Code::TooDeep } else { Code::ApiError };
                let failure = failed(code, format!("the agent at {agent} does not do it: {}", words()));
                // One that never began has used nothing.
                let began = task.own().get("usage").is_some_and(|usage| usage["requests"] != 0);
                Err(if began || task.own().is_null() { failure.answered() } else { failure })
            }
        }
    }
}

async fn post(
    call: &RemoteCall<'_>,
    url: &Url,
    is_legacy: bool,
    method: &str,
    params: Value,
    streams: bool,
) -> Result<Response, Failure> {
    let method = if is_legacy { legacy_method(method) } else { method };
    let body = json!({"jsonrpc": "2.0", "id": call.message_id(), "method": method, "params": params});
    let accept = if streams { "text/event-stream" } else { "application/json" };
    let request = call.request(Method::POST, url).await?;
    let request = request
        .header(CONTENT_TYPE, "application/json")
        .header(ACCEPT, accept)
        .header(VERSION_HEADER, if is_legacy { "0.3" } else { "1.0" });
    call.send(request.body(body.to_string()), url).await
}

/// Stops the task that the agent made of the message.
pub(super) async fn cancel(call: &RemoteCall<'_>, job: &RemoteJob) -> Result<(), Failure> {
    let (Some(endpoint), Some(task)) = (&job.a2a, &job.task) else { return Ok(()) };
    let response = post(call, &endpoint.url, endpoint.is_legacy, "CancelTask", json!({"id": task}), false).await?;
    let body = call.json(response, &endpoint.url).await?;
    match body["error"]["message"].as_str() {
        Some(said) => Err(Failure::new(Code::ApiError, said.to_owned()).retry(Retry::Never)),
        None => Ok(()),
    }
}

/// Whether the agent was not there, or went away while it answered.
fn is_absence(failure: &Failure) -> bool {
    matches!(failure.error.code, Code::ConnectionLost | Code::Unreachable)
}

/// The name of a method in version 0.3.
fn legacy_method(method: &str) -> &str {
    match method {
        "SendMessage" => "message/send",
        "SendStreamingMessage" => "message/stream",
        "GetTask" => "tasks/get",
        "CancelTask" => "tasks/cancel",
        "SubscribeToTask" => "tasks/resubscribe",
        other => other,
    }
}
