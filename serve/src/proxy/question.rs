//! From a client's request to a question for a session, or to a conversation that the client keeps.
//!
//! # Whose history
//!
//! By default the server's. The last message of the user is the question; the client's earlier messages, its system prompt
//! and its choice of a model are ignored, and what would change the answer, like its tools, is refused (`demands.rs`). If
//! the client's API key says so (`history = "client"`), the client's messages and system prompt count, `model` may name a
//! model of ours, the model gets the client's tools beside ours, and nothing is stored.
//!
//! Chat interfaces also ask for titles, tags and suggestions in the name of their user. Such a prompt is answered without
//! history and without tools: it is not part of the conversation.
//!
//! # Which session
//!
//! Its id begins with `llama-ADDRESS`, or `llama-ADDRESS-KEY` with an API key. A client may name its conversation, with the
//! first of: the header `X-Session-Id`; the header `X-OpenWebUI-Chat-Id`; `metadata.session_id`; `conversation`; `user`;
//! `safety_identifier`; `metadata.user_id`; the header `X-OpenWebUI-User-Id`. The name is added with an `@`, which no address and no key
//! contains: whatever a client names, it stays among its own sessions. A conversation without a name is told apart by the
//! messages that the client sends along (`service/conversations.rs`).
//!
//! # A repeated request
//!
//! OpenAI's SDKs repeat a request by themselves when the connection breaks before an answer begins, and a user whose
//! stream broke off asks for the same answer again. [`Question::repeat_key`] makes both get the turn that runs or has
//! ended, instead of asking twice. It is the header `Idempotency-Key` if there is one. Otherwise it is a hash of the
//! session, the number of the user's messages in the request and the last of them. The service compares it only with a
//! question whose answer has not reached its client, so the same words are a new question once they were answered.

use std::sync::Arc;

use agent_loop::model::view;
use protocol::digest;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::demands::Demands;
use super::failure::ProxyFailure;
use super::message::{ClientText, SenderRole};
use super::request::ProxyRequest;
use super::{AGENT_MODEL, conversation};
use crate::http::{HistoryKeeper, HttpClient, ServeState};
use crate::service::SessionService;
use crate::service::conversations::{FoundConversation, SentHistory};
use crate::service::turn::{Asker, ClientConversation, ClientMessage, Question, QuestionLimits, TurnStream};

/// The longest name of a conversation that is used as it is. The whole id has at most 128 characters.
const MAX_NAME_CHARS: usize = 40;

/// What is answered, and how.
#[derive(Debug)]
pub(super) struct AskedTurnStream {
    pub(super) turn: TurnStream,
    /// Whether the model gets one request only.
    pub(super) is_one_step: bool,
    /// What is recorded when the client has its answer.
    pub(super) record: Option<AnswerRecord>,
}

/// Asks, and returns the turn that answers.
pub(super) async fn ask(state: &ServeState, request: &ProxyRequest) -> Result<AskedTurnStream, ProxyFailure> {
    let (client, interface) = (&request.client, request.interface);
    let of = |turn, is_one_step, record| AskedTurnStream { turn, is_one_step, record };
    let question = request.question()?;
    let session = request.goes_on.map(|number| number.to_string()).or_else(|| session_of(request));
    Ok(match client.history {
        HistoryKeeper::Server => {
            let text = question.only_text()?;
            if text.trim().is_empty() {
                return Err(ProxyFailure::invalid(request.messages_field, "the last message of the user is empty"));
            }
            if is_housekeeping(&text) {
                let session = session.unwrap_or_else(|| own_session(request));
                let conversation = housekeeping(client, interface, session, text);
                return Ok(of(Box::pin(state.service.ask_without_history(conversation)).await?, true, None));
            }
            request.demands.fit_a_session()?;
            let named = session.is_some();
            let mut asker = client.asker(interface, session.unwrap_or_else(|| own_session(request)));
            let found = if named { None } else { Some(found_conversation(state, request, &asker, &text).await) };
            let (mut earlier, mut record) = (Vec::new(), None);
            if let Some(found) = found {
                asker.session.clone_from(&found.session);
                if found.is_unknown {
                    // What cannot be read of them is no part of the question.
                    let before = conversation::read(&request.messages[..request.question_place()]);
                    earlier = before.map(|(_, messages)| messages).unwrap_or_default();
                }
                record = Some(AnswerRecord { service: Arc::clone(&state.service), found });
            }
            let repeat_key = Some(repeat_key(request, &asker.session, &text));
            let question = Question { earlier, repeat_key, ..Question::new(asker, text) };
            of(Box::pin(state.service.ask(question)).await?, false, record)
        }
        HistoryKeeper::Client => {
            let conversation = client_conversation(state, request, session.unwrap_or_else(|| own_session(request)))?;
            of(Box::pin(state.service.ask_without_history(conversation)).await?, false, None)
        }
    })
}

/// Records the answer of a conversation that is told apart by its history.
#[derive(Debug, Clone)]
pub(super) struct AnswerRecord {
    service: Arc<SessionService>,
    found: FoundConversation,
}

impl AnswerRecord {
    /// Records that the client has its answer.
    pub(super) fn delivered(&self) {
        self.service.conversations().delivered(&self.found.session, &self.found.asked);
    }

    /// Records what the client gets, before it gets all of it.
    pub(super) fn answered(&self, text: &str) {
        self.service.conversations().answered(&self.found.session, &self.found.asked, text);
    }
}

/// The session of a conversation without a name.
async fn found_conversation(
    state: &ServeState,
    request: &ProxyRequest,
    asker: &Asker,
    question: &str,
) -> FoundConversation {
    let before = &request.messages[..request.question_place()];
    let is_said = |message: &&ClientText| matches!(message.role, SenderRole::User | SenderRole::Assistant);
    let said: Vec<_> = before.iter().filter(is_said).map(|message| (message.role, message.session_text())).collect();
    let said = said.iter().map(|(role, text)| (*role == SenderRole::User, text.as_str()));
    let messages = said.chain([(true, question)]).collect();
    let retries = request.header("x-stainless-retry-count").is_some_and(|count| count != "0");
    let is_retry = retries || request.header("idempotency-key").is_some();
    state.service.conversation(asker, &SentHistory { messages, is_retry }).await
}

/// The name by which a client knows the model that answers it.
pub(crate) fn answering_model(request: &ProxyRequest) -> String {
    let client = &request.client;
    match (client.history, &client.model, &request.model) {
        (HistoryKeeper::Client, Some(model), _) | (HistoryKeeper::Client, None, Some(model)) => model.clone(),
        _ => AGENT_MODEL.to_owned(),
    }
}

/// About how many tokens the request has: with our own prompt and tool if the client keeps the history.
pub(crate) fn estimate_tokens(state: &ServeState, request: &ProxyRequest) -> Result<u64, ProxyFailure> {
    /// About what a large picture counts.
    const IMAGE: u64 = 1_600;
    let own = match request.client.history {
        HistoryKeeper::Client => state.service.prompt_tokens(request.client.model.as_deref())?,
        HistoryKeeper::Server => 0,
    };
    let messages = request.messages.iter().map(|message| {
        let calls = message.calls.iter().map(|call| view::estimate_tokens(&call.arguments.to_string()));
        let results = message.results.iter().map(|result| view::estimate_tokens(&result.text));
        view::estimate_tokens(&message.text)
            + message.images.len() as u64 * IMAGE
            + calls.sum::<u64>()
            + results.sum::<u64>()
    });
    let tools = request
        .demands
        .tools
        .iter()
        .map(|tool| view::estimate_tokens(&tool.description) + view::estimate_tokens(&tool.parameters.to_string()));
    let system = view::estimate_tokens(request.system.as_deref().unwrap_or_default());
    Ok(own + system + messages.sum::<u64>() + tools.sum::<u64>())
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

/// The session of a request that names its conversation.
fn session_of(request: &ProxyRequest) -> Option<String> {
    conversation_name(request).map(|name| format!("{}@{}", own_session(request), plain_name(&name)))
}

/// What the sessions of a client begin with.
fn own_session(request: &ProxyRequest) -> String {
    request.client.own_session("llama")
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
        .or_else(|| text(request.field("metadata").and_then(|metadata| metadata.get("user_id"))))
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
        messages: vec![ClientMessage::User { text, images: Vec::new() }],
        model: client.model.clone(),
        // One request, the last one, which has no tools.
        limits: QuestionLimits { steps: Some(0), ..QuestionLimits::default() },
        ..ClientConversation::default()
    }
}

fn client_conversation(
    state: &ServeState,
    request: &ProxyRequest,
    session: String,
) -> Result<ClientConversation, ProxyFailure> {
    let client = &request.client;
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
    let (instructions, messages) = conversation::read(&request.messages)?;
    if matches!(messages.last(), None | Some(ClientMessage::Assistant { .. })) {
        return Err(ProxyFailure::invalid(
            request.messages_field,
            "the last message is not the user's; it is the question",
        ));
    }
    let system: Vec<String> = request.system.iter().cloned().chain(instructions).collect();
    let system = Some(system.join("\n\n")).filter(|system| !system.trim().is_empty());
    let asker = client.asker(request.interface, session);
    let Demands { tools, answers, .. } = request.demands.clone();
    let limits = QuestionLimits::default();
    Ok(ClientConversation { asker, system, messages, model, limits, tools, answers })
}

#[cfg(test)]
mod tests;
