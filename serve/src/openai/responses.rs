//! `POST /v1/responses`.
//!
//! A response that was answered in a session is kept, and `previous_response_id` goes on with that session.

use std::sync::Arc;

use agent_loop::model::conversation::{StopReason, ToolCall};
use axum::Json;
use axum::extract::{Path, Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use protocol::code::Code;
use serde_json::{Map, Value, json};

use super::errors::OpenAiError;
use super::{OpenAiResult, demands, new_id};
use crate::http::{HistoryKeeper, ServeState};
use crate::proxy::answer::AnswerEnd;
use crate::proxy::failure::ProxyFailure;
use crate::proxy::format::{AnswerFormat, answer};
use crate::proxy::message::{self, ClientText};
use crate::proxy::question::answering_model;
use crate::proxy::request::{ProxyRequest, client_of};
use crate::proxy::unix_seconds;
use crate::service::SessionService;
use crate::service::responses::StoredResponse;
use crate::service::turn::TurnUsage;

/// The beginnings of ids. A message has the id of its response but for this.
const RESPONSE: &str = "resp_";
const MESSAGE: &str = "msg_";

pub(super) async fn create(State(state): State<Arc<ServeState>>, request: Request) -> OpenAiResult {
    let mut request = ProxyRequest::read(request, "openai", "input").await?;
    super::check(&request)?;
    request.messages = match request.field("input") {
        None => return Err(ProxyFailure::invalid("input", "`input` is missing; send a text or a list").into()),
        Some(Value::String(text)) => vec![ClientText::user("input", text)],
        Some(list) => message::read(&resolved(&state, &request, list)?, "input")?,
    };
    request.model = request.text("model")?.map(str::to_owned);
    request.system = request.text("instructions")?.map(str::to_owned);
    request.demands = demands::read(&request)?;
    request.goes_on = previous(&state, &request)?;
    let streams = request.flag("stream")? == Some(true);
    let keeps = request.flag("store")? != Some(false) && request.client.history == HistoryKeeper::Server;
    let id = new_id(RESPONSE);
    let format = ResponseFormat {
        message_id: id.replacen(RESPONSE, MESSAGE, 1),
        id,
        created: unix_seconds(),
        model: answering_model(&request),
        given: echoed(&request),
        sequence: 0,
        text: String::new(),
        keeper: keeps.then(|| ResponseKeeper { service: Arc::clone(&state.service), key: request.client.key.clone() }),
    };
    Ok(answer(&state, &request, format, streams).await?)
}

/// The input with the messages to which it refers by their ids, as clients do that believe all of them to be stored.
fn resolved(state: &ServeState, request: &ProxyRequest, input: &Value) -> Result<Value, ProxyFailure> {
    let mut input = input.clone();
    for (number, item) in input.as_array_mut().into_iter().flatten().enumerate() {
        if item["type"] != "item_reference" {
            continue;
        }
        let id = item["id"].as_str().unwrap_or_default();
        let response = id.replacen(MESSAGE, RESPONSE, 1);
        let stored = state.service.responses().find(&response, request.client.key.as_ref());
        let output = stored.map(|mut stored| stored.response["output"].take());
        let found = output.iter().filter_map(Value::as_array).flatten().find(|item| item["id"] == id);
        *item = found.cloned().ok_or_else(|| {
            let message = format!(
                "no item `{id}` is stored here; send the message itself, as SDKs do if you set `store` to false"
            );
            ProxyFailure::invalid(&format!("input.{number}"), message)
        })?;
    }
    Ok(input)
}

/// The session that the request goes on with: that of the response before.
fn previous(state: &ServeState, request: &ProxyRequest) -> Result<Option<u32>, ProxyFailure> {
    let client = &request.client;
    let Some(id) = request.text("previous_response_id")?.filter(|_| client.history == HistoryKeeper::Server) else {
        return Ok(None);
    };
    let failure = |code: &'static str, message: String| {
        let failure = ProxyFailure::new(StatusCode::BAD_REQUEST, code, message);
        ProxyFailure { param: Some("previous_response_id".to_owned()), ..failure }
    };
    let responses = state.service.responses();
    let stored = responses.find(id, client.key.as_ref()).ok_or_else(|| {
        let message =
            format!("no response `{id}`; leave `previous_response_id` out, and send the conversation in `input`");
        failure("previous_response_not_found", message)
    })?;
    match responses.last_of(stored.session) {
        Some(last) if last != id => {
            let message = format!("the conversation has gone on since `{id}`; its last response is `{last}`");
            Err(failure(Code::InvalidInput.as_str(), message))
        }
        _ => Ok(Some(stored.session)),
    }
}

/// A response that was answered in a session.
pub(super) async fn stored(
    State(state): State<Arc<ServeState>>,
    Path(id): Path<String>,
    request: Request,
) -> OpenAiResult {
    let client = client_of(&request);
    let stored = state.service.responses().find(&id, client.key.as_ref()).ok_or_else(|| unknown_response(&id))?;
    Ok(Json(stored.response).into_response())
}

pub(super) async fn forget(
    State(state): State<Arc<ServeState>>,
    Path(id): Path<String>,
    request: Request,
) -> OpenAiResult {
    let client = client_of(&request);
    if !state.service.responses().forget(&id, client.key.as_ref()) {
        return Err(unknown_response(&id).into());
    }
    Ok(Json(json!({"id": id, "object": "response", "deleted": true})).into_response())
}

/// What else there is of a response elsewhere: its items, and an end to work in the background.
pub(super) async fn unknown_part(request: Request) -> OpenAiError {
    let message = format!("`{}` is not offered here; a response is read as a whole", request.uri().path());
    ProxyFailure::new(StatusCode::NOT_FOUND, "unknown_url", message).into()
}

fn unknown_response(id: &str) -> ProxyFailure {
    let message = format!("no response `{id}`; those of a client that keeps its history are not kept");
    ProxyFailure::new(StatusCode::NOT_FOUND, "response_not_found", message)
}

/// The fields of the request that a response repeats.
fn echoed(request: &ProxyRequest) -> Map<String, Value> {
    let names = ["instructions", "metadata", "previous_response_id", "prompt_cache_key", "safety_identifier", "user"];
    let value = |name: &str| match (name, request.field(name)) {
        ("metadata", None) => json!({}),
        (_, value) => value.cloned().unwrap_or_default(),
    };
    // What a model is given has a default of its own in `response`.
    let given = ["tools", "tool_choice", "parallel_tool_calls", "text", "temperature", "top_p", "max_output_tokens"];
    let is_used = request.client.history == HistoryKeeper::Client;
    let given = given.into_iter().filter(|name| is_used && request.field(name).is_some());
    names.into_iter().chain(given).map(|name| (name.to_owned(), value(name))).collect()
}

/// A response, or the events of one.
#[derive(Debug)]
struct ResponseFormat {
    id: String,
    message_id: String,
    created: i64,
    model: String,
    given: Map<String, Value>,
    /// The number of the next event.
    sequence: u64,
    /// The text so far, which the last events repeat.
    text: String,
    /// Where the response is kept, if it is.
    keeper: Option<ResponseKeeper>,
}

/// Keeps a response when it has ended.
#[derive(Debug)]
struct ResponseKeeper {
    service: Arc<SessionService>,
    /// The name of the client's API key, if any.
    key: Option<String>,
}

impl ResponseKeeper {
    fn keep(&self, id: &str, end: &AnswerEnd, response: &Value) {
        // An answer that belongs to no session has no number.
        if end.outcome.session > 0 {
            let (key, session) = (self.key.clone(), end.outcome.session);
            self.service.responses().keep(id, &StoredResponse { key, session, response: response.clone() });
        }
    }
}

impl ResponseFormat {
    /// An event, with its name in the stream as well.
    fn event(&mut self, kind: &str, fields: Value) -> String {
        let mut data = json!({"type": kind, "sequence_number": self.sequence});
        self.sequence += 1;
        if let (Value::Object(data), Value::Object(fields)) = (&mut data, fields) {
            data.extend(fields);
        }
        format!("event: {kind}\ndata: {data}\n\n")
    }

    fn part(text: &str) -> Value {
        json!({"type": "output_text", "annotations": [], "logprobs": [], "text": text})
    }

    fn item(&self, status: &str, content: &Value) -> Value {
        json!({"id": self.message_id, "type": "message", "status": status, "role": "assistant", "content": content})
    }

    /// The response in a state; `output` has the message once it is complete.
    fn response(&self, status: &str, output: &Value) -> Value {
        let mut response = json!({
            "id": self.id,
            "object": "response",
            "created_at": self.created,
            "status": status,
            "background": false,
            "error": null,
            "incomplete_details": null,
            "max_output_tokens": null,
            "max_tool_calls": null,
            "model": self.model,
            "output": output,
            "parallel_tool_calls": true,
            "reasoning": {"effort": null, "summary": null},
            "service_tier": "default",
            "temperature": null,
            "text": {"format": {"type": "text"}},
            "tool_choice": "auto",
            "tools": [],
            "top_logprobs": 0,
            "top_p": null,
            "truncation": "disabled",
            "usage": null,
        });
        if let Value::Object(response) = &mut response {
            response.extend(self.given.clone());
        }
        response
    }

    /// The events of the calls of the client's tools, which stand behind the message.
    fn calls(&mut self, calls: &[ToolCall]) -> String {
        let mut events = String::new();
        for (index, call) in (1..).zip(calls) {
            let done = function_call(call, "completed");
            let mut begun = function_call(call, "in_progress");
            begun["arguments"] = "".into();
            let place = json!({"item_id": done["id"], "output_index": index});
            let (mut delta, mut whole) = (place.clone(), place);
            delta["delta"] = done["arguments"].clone();
            whole["arguments"] = done["arguments"].clone();
            whole["name"] = done["name"].clone();
            events += &self.event("response.output_item.added", json!({"output_index": index, "item": begun}));
            events += &self.event("response.function_call_arguments.delta", delta);
            events += &self.event("response.function_call_arguments.done", whole);
            events += &self.event("response.output_item.done", json!({"output_index": index, "item": done}));
        }
        events
    }

    /// The response at its end, and its status.
    fn ended(&self, end: &AnswerEnd) -> (&'static str, Value) {
        let (status, reason) = match end.outcome.stop_reason {
            StopReason::Refused => ("incomplete", Some("content_filter")),
            reason if reason.is_truncated() => ("incomplete", Some("max_output_tokens")),
            _ => ("completed", None),
        };
        let item = self.item(status, &json!([Self::part(&self.text)]));
        let calls = end.outcome.calls.iter().map(|call| function_call(call, "completed"));
        let output: Vec<_> = [item].into_iter().chain(calls).collect();
        let mut response = self.response(status, &output.into());
        if let Some(reason) = reason {
            response["incomplete_details"] = json!({ "reason": reason });
        } else {
            response["completed_at"] = unix_seconds().into();
        }
        response["usage"] = usage(end.outcome.usage);
        if let Some(keeper) = &self.keeper {
            keeper.keep(&self.id, end, &response);
        }
        (status, response)
    }
}

impl AnswerFormat for ResponseFormat {
    fn begin(&mut self) -> String {
        let response = self.response("in_progress", &json!([]));
        let item = self.item("in_progress", &json!([]));
        let part = json!({
            "item_id": self.message_id, "output_index": 0, "content_index": 0, "part": Self::part(""),
        });
        self.event("response.created", json!({"response": response}))
            + &self.event("response.in_progress", json!({"response": response}))
            + &self.event("response.output_item.added", json!({"output_index": 0, "item": item}))
            + &self.event("response.content_part.added", part)
    }

    fn text(&mut self, text: &str) -> String {
        self.text.push_str(text);
        let fields = json!({
            "item_id": self.message_id, "output_index": 0, "content_index": 0, "delta": text, "logprobs": [],
        });
        self.event("response.output_text.delta", fields)
    }

    fn end(&mut self, end: &AnswerEnd) -> String {
        let (status, response) = self.ended(end);
        let place = json!({"item_id": self.message_id, "output_index": 0, "content_index": 0});
        let (mut text, mut part) = (place.clone(), place);
        text["text"] = self.text.as_str().into();
        text["logprobs"] = json!([]);
        part["part"] = Self::part(&self.text);
        let item = response["output"][0].clone();
        self.event("response.output_text.done", text)
            + &self.event("response.content_part.done", part)
            + &self.event("response.output_item.done", json!({"output_index": 0, "item": item}))
            + &self.calls(&end.outcome.calls)
            + &self.event(&format!("response.{status}"), json!({"response": response}))
    }

    fn fail(&mut self, failure: &ProxyFailure) -> String {
        let mut response = self.response("failed", &json!([]));
        let code = match failure.status {
            StatusCode::TOO_MANY_REQUESTS => "rate_limit_exceeded",
            _ => "server_error",
        };
        response["error"] = json!({"code": code, "message": failure.message});
        self.event("response.failed", json!({"response": response}))
    }

    fn refusal(&self, failure: ProxyFailure) -> Response {
        OpenAiError::from(failure).into_response()
    }

    fn whole(&mut self, text: &str, end: &AnswerEnd) -> Value {
        text.clone_into(&mut self.text);
        self.ended(end).1
    }
}

/// A call of a tool of the client, as an item.
fn function_call(call: &ToolCall, status: &str) -> Value {
    json!({
        "id": format!("fc_{}", call.id.trim_start_matches("call_")),
        "type": "function_call",
        "status": status,
        "call_id": call.id,
        "name": call.name,
        "arguments": call.arguments.to_string(),
    })
}

fn usage(used: TurnUsage) -> Value {
    json!({
        "input_tokens": used.input_tokens,
        "input_tokens_details": {"cached_tokens": used.cached_tokens, "cache_write_tokens": 0},
        "output_tokens": used.output_tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": used.input_tokens + used.output_tokens,
    })
}

#[cfg(test)]
mod tests;
