//! Interprets an error response: the API's own message, and whether a retry could help.

use std::time::{Duration, SystemTime};

use definition::run::http::{Auth, Method};
use ground::task::failure::SideEffect;
use net::clients::header;
use protocol::excerpt;
use reqwest::StatusCode;
use reqwest::header::HeaderMap;
use serde_json::Value;

use super::{Code, Failure, Retry};

/// The longest message; enough for the first lines of an error page.
pub(super) const MAX_MESSAGE_CHARS: usize = 500;

/// The largest error object that is included in the details, in bytes of JSON.
const MAX_DETAIL_BYTES: usize = 4_000;

/// A response as a detail.
pub(super) fn shown(data: &Value) -> Value {
    if data.to_string().len() <= MAX_DETAIL_BYTES { data.clone() } else { "…".into() }
}

/// The detail with the seconds that a server asks to wait.
const RETRY_AFTER: &str = "retry_after_seconds";

/// The longest wait that a server can ask for; longer ones are shortened.
const MAX_WAIT: Duration = Duration::from_hours(24);

/// Returns the failure for a response with an error `status`. `request` names the request, like `GET https://…`.
pub(super) fn failure(
    method: Method,
    auth: Option<&Auth>,
    request: &str,
    status: StatusCode,
    headers: &HeaderMap,
    body: &str,
) -> Failure {
    let answer: Value = serde_json::from_str(body).unwrap_or_default();
    let detail = match header(headers, "location").filter(|_| status.is_redirection()) {
        Some(location) => {
            Some(format!("redirect to `{location}`, followed only for GET and HEAD requests, except for a 303"))
        }
        None => message(&answer, if answer.is_null() { body } else { "" }),
    };
    let name = status
        .canonical_reason()
        .map_or_else(|| status.as_str().to_owned(), |reason| format!("{} {reason}", status.as_str()));
    let message = match detail {
        Some(detail) => format!("{request} answered {name}: {detail}"),
        None => format!("{request} answered {name}"),
    };
    let mut failure = Failure::new(Code::ApiError, message).detail("http_status", status.as_u16());
    if !answer.is_null() && body.len() <= MAX_DETAIL_BYTES {
        failure = failure.detail("response", answer);
    }
    failure.error.hint = hint(status, headers, auth);
    if let Some(wait) = retry_after(headers) {
        failure = failure.detail(RETRY_AFTER, wait.as_secs());
        let told = format!("the server asks to wait {} s before the next request", wait.as_secs());
        failure.error.hint = Some(failure.error.hint.map_or_else(|| told.clone(), |hint| format!("{hint}; {told}")));
    }
    failure.retry = retry(status, headers);
    failure.side_effect = side_effect(method, status);
    failure
}

/// Returns `failure` with `meaning` in place of everything that the server said, but for how long it asks to wait.
pub(super) fn explained(mut failure: Failure, meaning: &str) -> Failure {
    let message = excerpt::chars(meaning.trim(), MAX_MESSAGE_CHARS).into_owned();
    let wait = failure.error.details.get(RETRY_AFTER).cloned();
    failure.error = Failure::new(failure.error.code, message).error;
    failure.error.details.extend(wait.map(|wait| (RETRY_AFTER.to_owned(), wait)));
    failure
}

/// Returns the API's own message: from the error formats of Google, GitHub, RFC 9457, OAuth and JSON:API, else `text`.
pub(super) fn message(answer: &Value, text: &str) -> Option<String> {
    let found = |pointer: &str| answer.pointer(pointer).and_then(Value::as_str).filter(|text| !text.trim().is_empty());
    let both = |first: &str, second: &str| match (found(first), found(second)) {
        (Some(first), Some(second)) => Some(format!("{first}: {second}")),
        (first, second) => first.or(second).map(str::to_owned),
    };
    let message = found("/error/message")
        .map(|message| match found("/error/status").or_else(|| found("/error/type")) {
            Some(status) => format!("{message} ({status})"),
            None => message.to_owned(),
        })
        .or_else(|| found("/message").map(|message| format!("{message}{}", github_errors(answer))))
        .or_else(|| both("/title", "/detail"))
        .or_else(|| both("/error", "/error_description"))
        .or_else(|| both("/errors/0/title", "/errors/0/detail"))
        .or_else(|| found("/errors/0/message").map(str::to_owned))
        .or_else(|| found("/errorMessages/0").map(str::to_owned))
        .or_else(|| answer.as_str().map(str::to_owned))
        .unwrap_or_else(|| without_markup(text));
    Some(excerpt::chars(message.trim(), MAX_MESSAGE_CHARS).into_owned()).filter(|message| !message.is_empty())
}

/// Parses `Retry-After`: seconds or an HTTP date (RFC 9110, section 10.2.3).
pub(super) fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let value = header(headers, "retry-after")?;
    let wait = match value.trim().parse() {
        Ok(seconds) => Duration::from_secs(seconds),
        Err(_) => until(httpdate::parse_http_date(value.trim()).ok()?),
    };
    Some(wait.min(MAX_WAIT))
}

/// Returns how long GitHub's rate limit stays exhausted; `None` if it is not.
fn rate_limit_reset(headers: &HeaderMap) -> Option<Duration> {
    if header(headers, "x-ratelimit-remaining")?.trim() != "0" {
        return None;
    }
    let reset = header(headers, "x-ratelimit-reset")?.trim().parse().ok()?;
    SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(reset)).map(|reset| until(reset).min(MAX_WAIT))
}

fn until(moment: SystemTime) -> Duration {
    moment.duration_since(SystemTime::now()).unwrap_or_default()
}

fn retry(status: StatusCode, headers: &HeaderMap) -> Retry {
    let wait = retry_after(headers);
    match status.as_u16() {
        403 | 429 => match wait.or_else(|| rate_limit_reset(headers)) {
            Some(wait) => Retry::After(wait),
            None if status.as_u16() == 429 => Retry::Later,
            None => Retry::Never,
        },
        // Not implemented, HTTP version not supported: waiting does not change these.
        501 | 505 => Retry::Never,
        408 | 425 | 500.. => wait.map_or(Retry::Later, Retry::After),
        _ => Retry::Never,
    }
}

fn side_effect(method: Method, status: StatusCode) -> SideEffect {
    match status.as_u16() {
        _ if method.is_safe() => SideEffect::None,
        // A gateway answers in place of the server, which may be at work or done: bad gateway, gateway timeout, and two
        // of a common proxy's own.
        502 | 504 | 520 | 524 => SideEffect::Possible,
        // 301 to 303 may be the response to a completed change; 307 and 308 mean that nothing was changed.
        301..=303 | 408 | 500.. => SideEffect::Answered,
        _ => SideEffect::None,
    }
}

fn hint(status: StatusCode, headers: &HeaderMap, auth: Option<&Auth>) -> Option<String> {
    match (status.as_u16(), auth) {
        (403 | 429, _) if rate_limit_reset(headers).is_some() => Some("the API's rate limit is exhausted".to_owned()),
        (401, Some(auth)) => Some(format!(
            "the server refused the credentials; a human sets new ones with: agent-magic-tool secret set {}",
            auth.secret().as_str()
        )),
        (401, None) => Some("the API requires credentials, but the subtool declares no `auth`".to_owned()),
        (403, Some(auth)) => Some(format!("the credentials in `{}` may lack a required permission", auth.secret())),
        (404, _) => Some(
            "check the identifiers in the input; if they are right, this server lacks it or hides it from you"
                .to_owned(),
        ),
        _ => None,
    }
}

fn github_errors(answer: &Value) -> String {
    let errors = answer.get("errors").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let listed: Vec<String> = errors
        .iter()
        .filter_map(|error| match error {
            Value::String(text) => Some(text.clone()),
            Value::Object(fields) => {
                let words: Vec<&str> = ["resource", "field", "code", "message"]
                    .iter()
                    .filter_map(|key| fields.get(*key)?.as_str())
                    .collect();
                Some(words.join(" "))
            }
            _ => None,
        })
        .collect();
    if listed.is_empty() { String::new() } else { format!(" ({})", listed.join("; ")) }
}

/// Removes the markup of an HTML error page.
fn without_markup(text: &str) -> String {
    let trimmed = text.trim();
    if trimmed.starts_with('<')
        && let Ok(rendered) = html2text::from_read(trimmed.as_bytes(), 200)
    {
        return rendered.split_whitespace().collect::<Vec<_>>().join(" ");
    }
    trimmed.to_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_message_of_the_api_is_found() {
        for (answer, text, expected) in [
            (
                json!({"error": {"code": 404, "message": "Not here.", "status": "NOT_FOUND"}}),
                "",
                "Not here. (NOT_FOUND)",
            ),
            (
                json!({"message": "Validation Failed", "errors": [{"resource": "Issue", "field": "title", "code": "missing_field"}]}),
                "",
                "Validation Failed (Issue title missing_field)",
            ),
            (
                json!({"type": "about:blank", "title": "Out of credit", "detail": "You have 30."}),
                "",
                "Out of credit: You have 30.",
            ),
            (
                json!({"error": "invalid_grant", "error_description": "Token revoked."}),
                "",
                "invalid_grant: Token revoked.",
            ),
            (json!({"errors": [{"title": "Bad", "detail": "worse"}]}), "", "Bad: worse"),
            (Value::Null, "no such thing\n", "no such thing"),
            (Value::Null, "<html><body><h1>502</h1><p>Bad Gateway</p></body></html>", "# 502 Bad Gateway"),
        ] {
            assert_eq!(message(&answer, text).as_deref(), Some(expected), "{answer} {text}");
        }
        assert_eq!(message(&Value::Null, ""), None);
        assert!(message(&Value::Null, &"报".repeat(9_000)).is_some_and(|message| message.chars().count() == 501));
    }

    #[test]
    fn the_status_decides_retry_and_side_effect() {
        let cases = [
            (Method::Post, 400, "", Retry::Never, SideEffect::None),
            (Method::Post, 429, "", Retry::Later, SideEffect::None),
            (Method::Post, 429, "7", Retry::After(Duration::from_secs(7)), SideEffect::None),
            (Method::Post, 503, "7", Retry::After(Duration::from_secs(7)), SideEffect::Answered),
            (Method::Post, 408, "", Retry::Later, SideEffect::Answered),
            (Method::Post, 500, "", Retry::Later, SideEffect::Answered),
            (Method::Post, 502, "", Retry::Later, SideEffect::Possible),
            (Method::Post, 504, "", Retry::Later, SideEffect::Possible),
            (Method::Post, 524, "", Retry::Later, SideEffect::Possible),
            (Method::Get, 504, "", Retry::Later, SideEffect::None),
            (Method::Get, 500, "", Retry::Later, SideEffect::None),
            (Method::Post, 501, "", Retry::Never, SideEffect::Answered),
            (Method::Post, 303, "", Retry::Never, SideEffect::Answered),
            (Method::Post, 307, "", Retry::Never, SideEffect::None),
        ];
        for (method, status, wait, expected_retry, expected_effect) in cases {
            let mut headers = HeaderMap::new();
            if !wait.is_empty() {
                headers.insert("retry-after", wait.parse().expect("a value"));
            }
            let status = StatusCode::from_u16(status).expect("a status");
            assert_eq!(
                (retry(status, &headers), side_effect(method, status)),
                (expected_retry, expected_effect),
                "{status}"
            );
        }
    }

    #[test]
    fn retry_after_dates_and_rate_limit_resets_are_parsed() {
        let mut headers = HeaderMap::new();
        let moment = SystemTime::now() + Duration::from_mins(2);
        headers.insert("retry-after", httpdate::fmt_http_date(moment).parse().expect("a value"));
        let wait = retry_after(&headers).expect("a wait").as_secs();
        assert!((115..=120).contains(&wait), "{wait}");
        headers.clear();
        headers.insert("x-ratelimit-remaining", "0".parse().expect("a value"));
        let reset = moment.duration_since(SystemTime::UNIX_EPOCH).expect("after 1970").as_secs();
        headers.insert("x-ratelimit-reset", reset.to_string().parse().expect("a value"));
        assert!(matches!(retry(StatusCode::FORBIDDEN, &headers), Retry::After(_)));
    }
}
