//! A client's request as read: who sent it, its headers, its JSON body, and what it wants to have answered.

use axum::body::to_bytes;
use axum::extract::Request;
use axum::http::{HeaderMap, StatusCode};
use protocol::code::Code;
use serde_json::{Map, Value};

use super::demands::Demands;
use super::failure::ProxyFailure;
use super::message::{ClientText, SenderRole};
use crate::http::HttpClient;

/// The largest body; the server has the same bound for all routes.
const MAX_BODY_BYTES: usize = 4 << 20;

/// A request with a JSON object. Each route sets what it finds in the body: messages, instructions, a model.
#[derive(Debug)]
pub(crate) struct ProxyRequest {
    /// `openai`, `anthropic` or `ollama`.
    pub(crate) interface: &'static str,
    pub(crate) client: HttpClient,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Map<String, Value>,
    /// The field of the messages, for errors.
    pub(crate) messages_field: &'static str,
    pub(crate) messages: Vec<ClientText>,
    /// The client's instructions that are not among its messages.
    pub(crate) system: Option<String>,
    pub(crate) model: Option<String>,
    pub(crate) demands: Demands,
    /// The number of the session that the request goes on with, if it says so.
    pub(crate) goes_on: Option<u32>,
}

impl ProxyRequest {
    pub(crate) async fn read(
        request: Request,
        interface: &'static str,
        messages_field: &'static str,
    ) -> Result<Self, ProxyFailure> {
        let client = client_of(&request);
        let (parts, body) = request.into_parts();
        let too_large = || {
            let message = format!("the request is larger than {MAX_BODY_BYTES} bytes, or broke off; send less at once");
            ProxyFailure::new(StatusCode::PAYLOAD_TOO_LARGE, Code::RequestTooLarge.as_str(), message)
        };
        let bytes = to_bytes(body, MAX_BODY_BYTES).await.map_err(|_| too_large())?;
        let invalid = |message: String| ProxyFailure::new(StatusCode::BAD_REQUEST, Code::InvalidJson.as_str(), message);
        let body = match serde_json::from_slice(&bytes) {
            Ok(Value::Object(body)) => body,
            Ok(_) => return Err(invalid("the body is not a JSON object".to_owned())),
            Err(error) => return Err(invalid(format!("the body is not valid JSON: {error}"))),
        };
        Ok(Self {
            interface,
            client,
            headers: parts.headers,
            body,
            messages_field,
            messages: Vec::new(),
            system: None,
            model: None,
            demands: Demands::default(),
            goes_on: None,
        })
    }

    /// The last message of the user.
    pub(crate) fn question(&self) -> Result<&ClientText, ProxyFailure> {
        let field = self.messages_field;
        if self.messages.is_empty() {
            return Err(ProxyFailure::invalid(field, format!("`{field}` is empty; send a question")));
        }
        let last = self.messages.iter().rfind(|message| message.role == SenderRole::User);
        last.ok_or_else(|| {
            let message =
                format!("`{field}` has no message with the role `user`; the last one of these is the question");
            ProxyFailure::invalid(field, message)
        })
    }

    /// Where the last message of the user stands.
    pub(crate) fn question_place(&self) -> usize {
        self.messages.iter().rposition(|message| message.role == SenderRole::User).unwrap_or_default()
    }

    /// A field; null counts as absent, as it does for the protocols' own servers.
    pub(crate) fn field(&self, name: &str) -> Option<&Value> {
        self.body.get(name).filter(|value| !value.is_null())
    }

    pub(crate) fn text(&self, name: &str) -> Result<Option<&str>, ProxyFailure> {
        let Some(value) = self.field(name) else { return Ok(None) };
        value.as_str().map(Some).ok_or_else(|| ProxyFailure::invalid(name, format!("`{name}` is not a text")))
    }

    pub(crate) fn flag(&self, name: &str) -> Result<Option<bool>, ProxyFailure> {
        let Some(value) = self.field(name) else { return Ok(None) };
        let wrong = || ProxyFailure::invalid(name, format!("`{name}` is neither true nor false"));
        value.as_bool().map(Some).ok_or_else(wrong)
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok().map(str::trim).filter(|value| !value.is_empty())
    }
}

/// The client that the door has let in.
pub(crate) fn client_of(request: &Request) -> HttpClient {
    request.extensions().get::<HttpClient>().cloned().expect("the door names the client of every request")
}
