//! Reads parameters of a request's path and query, and refuses wrong ones with the API's own error object.

use std::error::Error as _;

use axum::extract::path::ErrorKind;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{FromRequestParts, Path, Query};
use axum::http::request::Parts;
use protocol::code::Code;
use protocol::error::ErrorBody;
use serde::de::DeserializeOwned;

use super::error::ApiError;

/// The parameters in the path.
pub(super) struct ApiPath<T>(pub(super) T);

/// The parameters after the `?`.
pub(super) struct ApiQuery<T>(pub(super) T);

impl<S: Send + Sync, T: DeserializeOwned + Send> FromRequestParts<S> for ApiPath<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        match Path::from_request_parts(parts, state).await {
            Ok(Path(read)) => Ok(Self(read)),
            Err(rejection) => Err(refuse(path_reason(&rejection))),
        }
    }
}

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for ApiQuery<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        match Query::try_from_uri(&parts.uri) {
            Ok(Query(read)) => Ok(Self(read)),
            Err(rejection) => Err(refuse(query_reason(&rejection))),
        }
    }
}

fn refuse(reason: String) -> ApiError {
    ErrorBody::new(Code::InvalidInput, reason).hint("the description of all paths: GET /openapi.json").into()
}

fn path_reason(rejection: &PathRejection) -> String {
    if let PathRejection::FailedToDeserializePathParams(error) = rejection
        && let ErrorKind::InvalidUtf8InPathParam { key } = error.kind()
    {
        return format!("`{key}` in the path is not valid UTF-8");
    }
    format!("the path cannot be read: {}", rejection.body_text())
}

fn query_reason(rejection: &QueryRejection) -> String {
    let reason = rejection.source().map_or_else(|| rejection.body_text(), ToString::to_string);
    if let Some((_, name)) = reason.split_once("duplicate field ") {
        return format!("{name} is in the query more than once");
    }
    match reason.split_once(": ") {
        Some((name, reason)) => match reason.strip_prefix("provided string was not ") {
            Some(values) => format!("`{name}` in the query must be {values}"),
            None => format!("`{name}` in the query cannot be read: {reason}"),
        },
        None => format!("the query cannot be read: {reason}"),
    }
}

#[cfg(test)]
mod tests {
    use axum::http::Request;
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Deserialize)]
    #[expect(dead_code, reason = "only whether it can be read is tested")]
    struct Parameters {
        #[serde(default)]
        tasks: bool,
        #[serde(default)]
        until: Option<String>,
    }

    async fn reason(query: &str) -> String {
        let (mut parts, ()) = Request::builder().uri(format!("/x?{query}")).body(()).expect("a request").into_parts();
        match ApiQuery::<Parameters>::from_request_parts(&mut parts, &()).await {
            Ok(_) => String::new(),
            Err(ApiError(status, error)) => format!("{status} {} {}", error.code, error.message),
        }
    }

    #[tokio::test]
    async fn a_wrong_query_is_refused_by_the_name_of_its_parameter() {
        assert_eq!(reason("tasks=true&until=turn").await, "");
        assert_eq!(
            reason("tasks=1").await,
            "400 Bad Request invalid-input `tasks` in the query must be `true` or `false`"
        );
        assert_eq!(
            reason("until=a&until=b").await,
            "400 Bad Request invalid-input `until` is in the query more than once"
        );
    }
}
