//! From a client's request to a question for a session, or to a conversation that the client keeps.
//!
//! # Whose history
//!
//! By default the server's. The last message of the user is the question; the client's earlier messages, its system prompt,
//! its tools and its choice of a model are ignored. If the client's API key says so (`history = "client"`), the client's
//! messages and system prompt count, `model` may name a model of ours, and nothing is stored.
//!
//! Chat interfaces also ask for titles, tags and suggestions in the name of their user. Such a prompt is answered without
//! history and without tools: it is not part of the conversation.
//!
//! # Which session
//!
//! `llama-ADDRESS`, or `llama-ADDRESS-KEY` with an API key. A client that has several conversations names each, with the
//! first of: the header `X-Session-Id`; the header `X-OpenWebUI-Chat-Id`; `metadata.session_id`; `conversation`; `user`;
//! `safety_identifier`; the header `X-OpenWebUI-User-Id`. The name is added with an `@`, which no address and no key
//! contains: whatever a client names, it stays among its own sessions.
//!
//! # A repeated request
//!
//! OpenAI's SDKs repeat a request by themselves when the connection breaks before an answer begins, and a user whose
//! stream broke off asks for the same answer again. [`Question::repeat_key`] makes both get the turn that runs or has
//! ended, instead of asking twice. It is the header `Idempotency-Key` if there is one. Otherwise it is a hash of the
//! session, the number of the user's messages in the request and the last of them. The service compares it only with a
//! question whose answer has not reached its client, so the same words are a new question once they were answered.

use agent_loop::input::InputPlace;
use protocol::digest;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::AGENT_MODEL;
use super::failure::ProxyFailure;
use super::message::SenderRole;
use super::request::ProxyRequest;
use crate::http::{HistoryKeeper, HttpClient, ServeState};
use crate::service::turn::{ClientConversation, ClientMessage, Question, QuestionLimits, TurnStream};

/// The longest name of a conversation that is used as it is. The whole id has at most 128 characters.
const MAX_NAME_CHARS: usize = 40;

/// Asks, and returns the turn that answers; and whether the model gets one request only.
pub(super) async fn ask(state: &ServeState, request: &ProxyRequest) -> Result<(TurnStream, bool), ProxyFailure> {
    let (client, interface) = (&request.client, request.interface);
    let text = request.question()?.only_text()?.to_owned();
    if text.trim().is_empty() {
        return Err(ProxyFailure::invalid(request.messages_field, "the last message of the user is empty"));
    }
    let session = session_of(request);
    let turn = match client.history {
        HistoryKeeper::Server if is_housekeeping(&text) => {
            let conversation = housekeeping(client, interface, session, text);
            return Ok((Box::pin(state.service.ask_without_history(conversation)).await?, true));
        }
        HistoryKeeper::Server => {
            let repeat_key = Some(repeat_key(request, &session, &text));
            let question = Question { repeat_key, ..Question::new(client.asker(interface, session), text) };
            Box::pin(state.service.ask(question)).await?
        }
        HistoryKeeper::Client => {
            if let Some(reply) = reply_to_commands(&text) {
                return Ok((TurnStream::told(0, reply), false));
            }
            let conversation = client_conversation(state, request, session)?;
            Box::pin(state.service.ask_without_history(conversation)).await?
        }
    };
    Ok((turn, false))
}

/// The name by which a client knows the model that answers it.
pub(crate) fn answering_model(request: &ProxyRequest) -> String {
    let client = &request.client;
    match (client.history, &client.model, &request.model) {
        (HistoryKeeper::Client, Some(model), _) | (HistoryKeeper::Client, None, Some(model)) => model.clone(),
        _ => AGENT_MODEL.to_owned(),
    }
}

/// The models that a client may name, the agent itself first.
pub(crate) fn models_for(state: &ServeState, client: &HttpClient) -> Vec<String> {
    let agent = vec![AGENT_MODEL.to_owned()];
    match (client.history, &client.model) {
        (HistoryKeeper::Client, None) => {
            agent.into_iter().chain(state.service.models().into_iter().map(|model| model.name)).collect()
        }
        _ => agent,
    }
}

/// The session of a request.
fn session_of(request: &ProxyRequest) -> String {
    let own = request.client.own_session("llama");
    match conversation_name(request) {
        Some(name) => format!("{own}@{}", plain_name(&name)),
        None => own,
    }
}

fn conversation_name(request: &ProxyRequest) -> Option<String> {
    let text = |value: Option<&Value>| value.and_then(Value::as_str).filter(|text| !text.is_empty()).map(str::to_owned);
    let header = |name| request.header(name).map(str::to_owned);
    let conversation = || request.field("conversation");
    header("x-session-id")
        .or_else(|| header("x-openwebui-chat-id"))
        .or_else(|| text(request.field("metadata").and_then(|metadata| metadata.get("session_id"))))
        .or_else(|| {
            text(conversation()).or_else(|| text(conversation().and_then(|conversation| conversation.get("id"))))
        })
        .or_else(|| text(request.field("user")))
        .or_else(|| text(request.field("safety_identifier")))
        .or_else(|| header("x-openwebui-user-id"))
}

/// A name with the characters that an id may have: itself, or its hash.
fn plain_name(name: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.:".contains(c);
    if name.len() <= MAX_NAME_CHARS && name.chars().all(is_plain) {
        return name.to_owned();
    }
    hash(name)[..32].to_owned()
}

/// What is equal for a request and its repetition, as the module says.
fn repeat_key(request: &ProxyRequest, session: &str, text: &str) -> String {
    if let Some(key) = request.header("idempotency-key") {
        return format!("key:{}", hash(key));
    }
    let asked = request.messages.iter().filter(|message| message.role == SenderRole::User).count();
    format!("asked:{}", hash(&format!("{session}\n{asked}\n{text}")))
}

fn hash(text: &str) -> String {
    digest::hex(&Sha256::digest(text.as_bytes()))
}

/// Whether a chat interface asks for itself. These are the prompts of Open Web UI for titles, tags, suggestions and search
/// terms; its prompt for a question about documents begins in the same way, and has no history in it.
fn is_housekeeping(text: &str) -> bool {
    text.trim_start().starts_with("### Task:") && text.contains("<chat_history>")
}

fn housekeeping(client: &HttpClient, interface: &str, session: String, text: String) -> ClientConversation {
    ClientConversation {
        asker: client.asker(interface, session),
        system: None,
        messages: vec![ClientMessage::User(text)],
        model: client.model.clone(),
        // One request, the last one, which has no tools.
        limits: QuestionLimits { steps: Some(0), ..QuestionLimits::default() },
    }
}

fn client_conversation(
    state: &ServeState,
    request: &ProxyRequest,
    session: String,
) -> Result<ClientConversation, ProxyFailure> {
    let client = &request.client;
    if let Some(field) = ["tools", "functions"].into_iter().find(|name| request.has_list(name)) {
        let message = format!(
            "`{field}` of the client cannot be used: the model here has one tool, its shell; leave `{field}` out"
        );
        return Err(ProxyFailure::invalid(field, message));
    }
    if request.field("previous_response_id").is_some() {
        let message =
            "no response is stored, because this client keeps the history; send the whole conversation in `input`";
        return Err(ProxyFailure::invalid("previous_response_id", message));
    }
    let known = models_for(state, client);
    let model = match (&client.model, request.model.clone()) {
        (Some(model), _) => Some(model.clone()),
        (None, Some(name)) if !known.contains(&name) => return Err(ProxyFailure::unknown_model(&name, &known)),
        (None, Some(name)) => Some(name).filter(|name| name != AGENT_MODEL),
        (None, None) => None,
    };
    let mut system: Vec<String> = request.system.iter().cloned().collect();
    let mut messages = Vec::new();
    for message in &request.messages {
        let text = message.only_text()?.to_owned();
        match message.role {
            SenderRole::System => system.push(text),
            SenderRole::User => messages.push(ClientMessage::User(text)),
            SenderRole::Assistant => messages.push(ClientMessage::Assistant(text)),
            SenderRole::Other => {
                let failure = "it is neither of the user nor of the assistant; only their messages can be continued";
                return Err(ProxyFailure::invalid(&message.place, failure));
            }
        }
    }
    if !matches!(messages.last(), Some(ClientMessage::User(_))) {
        return Err(ProxyFailure::invalid(
            request.messages_field,
            "the last message is not the user's; it is the question",
        ));
    }
    let system = Some(system.join("\n\n")).filter(|system| !system.trim().is_empty());
    let asker = client.asker(request.interface, session);
    Ok(ClientConversation { asker, system, messages, model, limits: QuestionLimits::default() })
}

/// What is said to commands of a client that has no session; `None` if the message has no commands.
fn reply_to_commands(text: &str) -> Option<String> {
    match InputPlace::Client.parse(text) {
        Err(message) => Some(message),
        Ok(input) if !input.commands.is_empty() => {
            Some("Commands are for sessions of the server. This client keeps its history itself.".to_owned())
        }
        Ok(_) => None,
    }
}

#[cfg(test)]
mod tests;
