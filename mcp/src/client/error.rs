//! Why a connection or a call failed.

use std::error::Error as _;

use protocol::error::{causes, innermost_cause};
use rmcp::ServiceError;
use rmcp::service::ClientInitializeError;
use rmcp::transport::DynamicTransportError;
use rmcp::transport::auth::AuthError;
use rmcp::transport::streamable_http_client::StreamableHttpError;
use serde_json::Value;

/// What went wrong between us and a server.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ClientError {
    /// No connection: nothing was called.
    #[error("{0}")]
    Connect(String),
    /// The server wants a sign-in. Has its `WWW-Authenticate` header, if it sent one.
    #[error("the server wants a sign-in")]
    NeedsSignIn(Option<String>),
    /// The server answered with a JSON-RPC error.
    #[error("{message}")]
    Refused { code: i64, message: String, data: Option<Value> },
    /// The connection ended before the answer.
    #[error("the connection ended before the answer: {0}")]
    Closed(String),
    /// The answer makes no sense.
    #[error("{0}")]
    Malformed(String),
    /// The answer has more bytes than allowed.
    #[error("the answer is larger than {max_bytes} bytes")]
    TooLarge { max_bytes: usize },
    /// The server keeps asking.
    #[error("the server asked {0} times and gave no result")]
    AsksForever(u32),
    /// The server ended its task without a result.
    #[error("the server ended its task: {0}")]
    TaskEnded(String),
    /// We were told to stop.
    #[error("cancelled")]
    Cancelled,
}

impl ClientError {
    /// Whether the call certainly had no effect.
    pub fn is_without_effect(&self) -> bool {
        match self {
            Self::Connect(_) | Self::NeedsSignIn(_) => true,
            // Not JSON, not a request, no such method, wrong parameters: by JSON-RPC and by MCP.
            Self::Refused { code, .. } => matches!(code, -32_700 | -32_602..=-32_600 | -32_022..=-32_020),
            Self::Closed(_)
            | Self::Malformed(_)
            | Self::TooLarge { .. }
            | Self::AsksForever(_)
            | Self::TaskEnded(_)
            | Self::Cancelled => false,
        }
    }

    pub(super) fn of_service(error: ServiceError, max_bytes: usize) -> Self {
        let challenge = error.auth_challenge().map(str::to_owned);
        if challenge.is_some() || error.is_authorization_required() {
            return Self::NeedsSignIn(challenge);
        }
        match error {
            ServiceError::McpError(error) => {
                Self::Refused { code: i64::from(error.code.0), message: error.message.into_owned(), data: error.data }
            }
            ServiceError::TransportSend(error) => Self::of_transport(&error, max_bytes),
            ServiceError::TransportClosed => Self::Closed("the server closed it".to_owned()),
            ServiceError::UnexpectedResponse => Self::Malformed("the answer is of no known shape".to_owned()),
            ServiceError::Cancelled { .. } => Self::Cancelled,
            other => Self::Malformed(other.to_string()),
        }
    }

    fn of_transport(error: &DynamicTransportError, max_bytes: usize) -> Self {
        let outermost: &(dyn std::error::Error + 'static) = error.error.as_ref();
        let errors: Vec<_> = std::iter::once(outermost).chain(causes(outermost)).collect();
        let is_too_large = errors.iter().any(|cause| {
            matches!(
                cause.downcast_ref::<StreamableHttpError<reqwest::Error>>(),
                Some(StreamableHttpError::ResponseBodyTooLarge { .. })
            )
        });
        if is_too_large {
            return Self::TooLarge { max_bytes };
        }
        // Without a token nothing was sent, or the server did not accept what was sent without one.
        if let Some(error) = errors.iter().find_map(|cause| cause.downcast_ref::<AuthError>()) {
            return match error {
                AuthError::AuthorizationRequired => Self::NeedsSignIn(None),
                other => Self::Connect(format!("the access token cannot be renewed: {other}")),
            };
        }
        let of_http = http_error(&errors);
        let reason = match of_http {
            Some(error) if error.source().is_some() => innermost_cause(error),
            _ => errors.last().map(ToString::to_string).unwrap_or_default(),
        };
        // A server that names no way to sign in.
        if ["HTTP 401", "HTTP 403"].iter().any(|status| reason.contains(status)) {
            return Self::NeedsSignIn(None);
        }
        if of_http.is_some_and(reqwest::Error::is_connect) { Self::Connect(reason) } else { Self::Closed(reason) }
    }

    pub(super) fn of_greeting(error: &ClientInitializeError, max_bytes: usize) -> Self {
        let challenge = error.auth_challenge().map(str::to_owned);
        if challenge.is_some() || error.is_authorization_required() {
            return Self::NeedsSignIn(challenge);
        }
        match error {
            ClientInitializeError::TransportError { error, .. } => match Self::of_transport(error, max_bytes) {
                Self::Closed(reason) => Self::Connect(reason),
                other => other,
            },
            ClientInitializeError::JsonRpcError(error) => {
                Self::Connect(format!("it refused the handshake: {} ({})", error.message, error.code.0))
            }
            ClientInitializeError::ConnectionClosed(_) => {
                Self::Connect("it closed the connection during the handshake".to_owned())
            }
            ClientInitializeError::NoCompatibleProtocolVersion { server_supported, .. } => {
                let versions: Vec<_> = server_supported.iter().map(ToString::to_string).collect();
                Self::Connect(format!("it speaks only the protocol versions {}", versions.join(", ")))
            }
            ClientInitializeError::LegacyFallbackFailed { fallback, .. } => Self::of_greeting(fallback, max_bytes),
            ClientInitializeError::Cancelled => Self::Cancelled,
            other => Self::Connect(format!("the handshake failed: {other}")),
        }
    }
}

/// The error of the HTTP client, which the SDK wraps in one that does not name it as its source.
fn http_error<'a>(causes: &[&'a (dyn std::error::Error + 'static)]) -> Option<&'a reqwest::Error> {
    causes.iter().find_map(|cause| match cause.downcast_ref::<StreamableHttpError<reqwest::Error>>() {
        Some(StreamableHttpError::Client(error)) => Some(error),
        _ => cause.downcast_ref::<reqwest::Error>(),
    })
}
