//! The errors of the agent2agent protocol.

use axum::Json;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use protocol::code::Code;
use protocol::error::ErrorBody;
use serde_json::{Map, Value, json};

use crate::http::retry_seconds;

/// What kind of error it is, as the protocol names them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum A2aErrorKind {
    Parse,
    InvalidRequest,
    MethodNotFound,
    InvalidParams,
    Internal,
    TaskNotFound,
    TaskNotCancelable,
    PushNotificationNotSupported,
    UnsupportedOperation,
    ContentTypeNotSupported,
    VersionNotSupported,
    /// The API key lacks a scope. The protocol has no code of its own for this.
    PermissionDenied,
    /// The body is larger than the server reads.
    TooLarge,
    /// The client has too much at once. The protocol has no code of its own for this.
    ResourceExhausted,
}

impl A2aErrorKind {
    /// The code of JSON-RPC, the status of HTTP, the status of gRPC and the reason.
    fn facts(self) -> (i32, u16, &'static str, &'static str) {
        match self {
            Self::Parse => (-32700, 400, "INVALID_ARGUMENT", "JSON_PARSE"),
            Self::InvalidRequest => (-32600, 400, "INVALID_ARGUMENT", "INVALID_REQUEST"),
            Self::MethodNotFound => (-32601, 404, "NOT_FOUND", "METHOD_NOT_FOUND"),
            Self::InvalidParams => (-32602, 400, "INVALID_ARGUMENT", "INVALID_PARAMS"),
            Self::Internal => (-32603, 500, "INTERNAL", "INTERNAL_ERROR"),
            Self::TaskNotFound => (-32001, 404, "NOT_FOUND", "TASK_NOT_FOUND"),
            Self::TaskNotCancelable => (-32002, 400, "FAILED_PRECONDITION", "TASK_NOT_CANCELABLE"),
            Self::PushNotificationNotSupported => {
                (-32003, 400, "FAILED_PRECONDITION", "PUSH_NOTIFICATION_NOT_SUPPORTED")
            }
            Self::UnsupportedOperation => (-32004, 400, "FAILED_PRECONDITION", "UNSUPPORTED_OPERATION"),
            Self::ContentTypeNotSupported => (-32005, 400, "INVALID_ARGUMENT", "CONTENT_TYPE_NOT_SUPPORTED"),
            Self::VersionNotSupported => (-32009, 400, "FAILED_PRECONDITION", "VERSION_NOT_SUPPORTED"),
            Self::TooLarge => (-32600, 413, "INVALID_ARGUMENT", "REQUEST_TOO_LARGE"),
            Self::PermissionDenied => (-32000, 403, "PERMISSION_DENIED", "NEEDS_SCOPE"),
            Self::ResourceExhausted => (-32000, 429, "RESOURCE_EXHAUSTED", "RATE_LIMIT_EXCEEDED"),
        }
    }
}

/// Why a call has no result.
#[derive(Debug, Clone)]
pub(super) struct A2aError {
    pub kind: A2aErrorKind,
    message: String,
    /// Our own code, if the error is one of ours.
    code: Option<Code>,
}

impl A2aError {
    pub(super) fn new(kind: A2aErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), code: None }
    }

    pub(super) fn no_task(id: &str) -> Self {
        Self::new(
            A2aErrorKind::TaskNotFound,
            format!(
                "no task `{id}`: the last tasks of each client are kept, for a week after they ended; a message with \
                 the same contextId goes on with the conversation"
            ),
        )
    }

    /// The error of a client that has too much at once, and may ask again when some of it has ended.
    pub(super) fn throttled(error: &ErrorBody) -> Self {
        Self { kind: A2aErrorKind::ResourceExhausted, message: words(error), code: Some(error.code) }
    }

    /// The error of a key that may ask, and see nothing but what its own calls return.
    pub(super) fn needs_read() -> Self {
        let message = "this API key may not list tasks; make one with the scope `read`: agent-magic-tool serve key create \
                       NAME";
        Self { kind: A2aErrorKind::PermissionDenied, message: message.to_owned(), code: Some(Code::NeedsScope) }
    }

    /// The headers of a response with this error, besides its type.
    pub(super) fn headers(&self) -> HeaderMap {
        let seconds = self.code.and_then(retry_seconds).map(|seconds| (header::RETRY_AFTER, seconds.into()));
        seconds.into_iter().collect()
    }

    /// The error object of a JSON-RPC response.
    pub(super) fn to_json_rpc(&self) -> Value {
        let (code, ..) = self.kind.facts();
        json!({"code": code, "message": self.message, "data": [self.info()]})
    }

    /// The status and the body of the HTTP+JSON binding.
    pub(super) fn to_http(&self) -> (StatusCode, Value) {
        let (_, number, status, _) = self.kind.facts();
        let error = json!({"code": number, "status": status, "message": self.message, "details": [self.info()]});
        (StatusCode::from_u16(number).expect("a status in the table above"), json!({"error": error}))
    }

    fn info(&self) -> Value {
        let (.., reason) = self.kind.facts();
        let mut metadata = Map::new();
        if let Some(code) = self.code {
            metadata.insert("code".to_owned(), code.as_str().into());
        }
        json!({
            "@type": "type.googleapis.com/google.rpc.ErrorInfo",
            "reason": reason,
            "domain": "a2a-protocol.org",
            "metadata": metadata,
        })
    }
}

/// The answer to a body that is too large to be read, in the form of the binding at `path`. `None` for another error, or
/// a path that is not of the protocol.
pub(crate) fn too_large(path: &str, error: &ErrorBody) -> Option<Response> {
    let is_ours = error.code == Code::RequestTooLarge;
    let below = path.strip_prefix("/a2a").filter(|below| is_ours && (below.is_empty() || below.starts_with('/')))?;
    let failure = A2aError { kind: A2aErrorKind::TooLarge, message: words(error), code: Some(error.code) };
    let (status, body) = failure.to_http();
    let body = match below {
        "" => json!({"jsonrpc": "2.0", "id": null, "error": failure.to_json_rpc()}),
        _ => body,
    };
    Some((status, Json(body)).into_response())
}

impl From<ErrorBody> for A2aError {
    fn from(error: ErrorBody) -> Self {
        Self { kind: A2aErrorKind::Internal, message: words(&error), code: Some(error.code) }
    }
}

/// The message of an error and what to do about it.
pub(super) fn words(error: &ErrorBody) -> String {
    match &error.hint {
        Some(hint) => format!("{}; {hint}", error.message),
        None => error.message.clone(),
    }
}
