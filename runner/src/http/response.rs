//! Reads a response as JSON, text or a file, never more than the limit.

use definition::run::http::{Http, Method, ResponseFormat};
use futures_util::StreamExt as _;
use ground::task::failure::SideEffect;
use net::clients::{body_failure, bytes, header, too_large};
use net::text;
use protocol::json::parse_answer;
use reqwest::Response;
use reqwest::header::CONTENT_TYPE;
use serde_json::Value;
use url::Url;

use super::call::{HttpCall, HttpResponse};
use super::structured::{ndjson, xml};
use super::{Code, Failure, RunnerContext, RunnerOutput, api_error, expression, file_name};
use crate::spool::{self, Spool};
use crate::{OutputData, ResponseFacts};

/// The largest JSON or text body: these are held in memory, where parsed JSON takes several times its size.
const MAX_IN_MEMORY_BYTES: u64 = 16 * 1024 * 1024;

/// How much of an error response is read; its message is near the start.
const MAX_ERROR_BYTES: usize = 64 * 1024;

enum BodyKind {
    Json,
    Ndjson,
    Xml,
    Text,
    File,
    /// No content type: text if it is valid UTF-8, otherwise a file.
    Unknown,
}

/// Returns the largest accepted response body in bytes.
pub(super) fn limit(http: &Http, context: &RunnerContext) -> u64 {
    let configured = context.config.http.max_bytes;
    http.max_bytes.map_or(configured, |declared| declared.min(configured))
}

/// Reads the body of `answer` as the output of the task; fails if the status is not a success.
pub(super) async fn output(call: &HttpCall<'_>, answer: HttpResponse) -> Result<RunnerOutput, Failure> {
    let answer = check_status(call, answer).await?;
    let (facts, url) = (answer.facts(), answer.url);
    let data = data(call, answer.response, &url).await.map_err(|failure| after_success(call, failure))?;
    if let OutputData::Json(data) = &data
        && let Some(meaning) = meaning(call, data, &facts).await.map_err(|failure| after_success(call, failure))?
    {
        let failure = Failure::new(Code::ApiError, "the response says that it failed");
        return Err(after_success(call, api_error::explained(failure, &meaning)));
    }
    let requested = call.draft.redacted_url();
    let unfinished = (facts.status == 202 && call.http.poll.is_none()).then(|| unfinished(call, &facts, &url));
    let data = match (&unfinished, data) {
        (Some(unfinished), OutputData::Json(Value::Null)) => OutputData::Json(unfinished.clone()),
        (_, data) => data,
    };
    let mut success = RunnerOutput { data, meta: serde_json::Map::new(), facts: Some(facts.clone()) }
        .with_meta("http_status", facts.status);
    if let Some(unfinished) = unfinished {
        success = success.with_meta("unfinished", unfinished);
    }
    if let OutputData::File { .. } = &success.data
        && let Some(name) = file_name(&facts, &url)
    {
        success = success.with_meta("file_name", name);
    }
    if url.path() != requested.path() || url.host() != requested.host() {
        success = success.with_meta("final_url", call.context.secrets.redact(url.as_str()).as_ref());
    }
    Ok(success.with_meta("url", requested.as_str()))
}

/// What a 202 says that no `poll` follows: the server took the work, and has not done it.
fn unfinished(call: &HttpCall<'_>, facts: &ResponseFacts, url: &Url) -> Value {
    let header = |name: &str| facts.headers.get(name).and_then(Value::as_str);
    let location = header("location").or_else(|| header("operation-location"));
    let location = location.and_then(|location| url.join(location).ok());
    let location = location.map(|location| call.context.secrets.redact(location.as_str()).into_owned());
    let message = match &location {
        Some(location) => {
            format!("the server accepted the work and has not finished it (202); its state is at {location}")
        }
        None => {
            "the server accepted the work and has not finished it (202); it does not say where its state is".to_owned()
        }
    };
    let mut told = serde_json::json!({"accepted": true, "finished": false, "message": message});
    if let Some(location) = location {
        told["location"] = location.into();
    }
    told
}

/// Returns the name of a download: the one that the server suggests, else the last part of the URL.
fn file_name(facts: &ResponseFacts, url: &Url) -> Option<String> {
    let suggested = facts.headers.get("content-disposition").and_then(Value::as_str).and_then(file_name::suggested);
    suggested.or_else(|| {
        let last = url.path_segments()?.next_back().filter(|last| last.contains('.'))?;
        file_name::harmless(&percent_encoding::percent_decode_str(last).decode_utf8_lossy())
    })
}

/// Reads one page: returns its JSON and its size in bytes; fails if the status is not a success.
pub(super) async fn json(call: &HttpCall<'_>, answer: HttpResponse, limit: u64) -> Result<(Value, u64), Failure> {
    let answer = check_status(call, answer).await?;
    let content_type = header(answer.response.headers(), CONTENT_TYPE.as_str());
    let body = bytes(answer.response, limit.min(MAX_IN_MEMORY_BYTES), &answer.url).await?;
    Ok((parse_json(&body, content_type.as_deref(), call)?, body.len() as u64))
}

/// Returns `answer` if its status is a success, otherwise the API's error.
async fn check_status(call: &HttpCall<'_>, answer: HttpResponse) -> Result<HttpResponse, Failure> {
    let status = answer.response.status();
    if status.is_success() {
        return Ok(answer);
    }
    let (headers, method, facts) = (answer.response.headers().clone(), answer.method, answer.facts());
    let summary = call.summary_of(&answer);
    let body = text::decode(&first_bytes(answer.response).await, header(&headers, CONTENT_TYPE.as_str()).as_deref());
    // Before it is shortened: a secret that is cut in half is not recognized.
    let body = call.context.secrets.redact(&body);
    let auth = call.http.auth.as_ref();
    let failure = api_error::failure(method, auth, &summary, status, &headers, &body);
    let body: Value = serde_json::from_str(&body).unwrap_or_else(|_| Value::from(body.as_ref()));
    Err(match meaning(call, &body, &facts).await {
        Ok(Some(meaning)) => api_error::explained(failure, &meaning),
        Ok(None) => failure,
        Err(unjudged) => {
            tracing::debug!(error = %unjudged.error.message, "failed to find out what an error response means");
            failure
        }
    })
}

/// Returns the text with which a response fails the run, as the definition says. Fails if that cannot be found out: then
/// nothing says that the response is no error.
async fn meaning(call: &HttpCall<'_>, body: &Value, facts: &ResponseFacts) -> Result<Option<String>, Failure> {
    let Some(expression) = call.http.error.as_deref() else { return Ok(None) };
    let found = expression::evaluate(call, expression, body, Some(facts)).await.map_err(|failure| {
        if failure.error.code != Code::SelectFailed {
            return failure;
        }
        let message = format!("`error` of the subtool cannot judge the response: {}", failure.error.message);
        Failure::new(Code::SelectFailed, message)
            .hint("whether it succeeded is not known; correct `error` of the subtool")
            .detail("response", api_error::shown(body))
    })?;
    Ok(if let Value::String(meaning) = found { Some(meaning) } else { None })
}

/// The server reported success: even if its response cannot be read, the request may have taken effect.
fn after_success(call: &HttpCall<'_>, mut failure: Failure) -> Failure {
    if !call.draft.method.is_safe() {
        failure.side_effect = SideEffect::Possible;
    }
    failure
}

async fn data(call: &HttpCall<'_>, response: Response, url: &Url) -> Result<OutputData, Failure> {
    let limit = limit(call.http, call.context);
    let content_type = header(response.headers(), CONTENT_TYPE.as_str());
    let is_empty = matches!(response.status().as_u16(), 204 | 205)
        || call.draft.method == Method::Head
        || (response.content_length() == Some(0) && call.http.response != ResponseFormat::Binary);
    if is_empty {
        return Ok(OutputData::Json(Value::Null));
    }
    let kind = kind(call.http.response, content_type.as_deref());
    if let BodyKind::File = kind {
        return spool_response(call, response, url, limit, content_type).await;
    }
    let body = bytes(response, limit.min(MAX_IN_MEMORY_BYTES), url).await?;
    if body.is_empty() {
        return Ok(OutputData::Json(Value::Null));
    }
    Ok(match kind {
        BodyKind::Json => OutputData::Json(parse_json(&body, content_type.as_deref(), call)?),
        BodyKind::Ndjson => {
            OutputData::Json(parsed(call, &json_text(&body, content_type.as_deref()), "NDJSON", ndjson)?)
        }
        BodyKind::Xml => OutputData::Json(parsed(call, &xml_text(&body, content_type.as_deref()), "XML", xml)?),
        BodyKind::Unknown if std::str::from_utf8(&body).is_err() => {
            let chunk = futures_util::stream::iter([Ok::<_, Failure>(body)]);
            Spool::of(call.context, call.invocation, limit).store(chunk, spool::BYTES.to_owned()).await?
        }
        _ => OutputData::Json(Value::String(text::decode(&body, content_type.as_deref()))),
    })
}

fn kind(expected: ResponseFormat, content_type: Option<&str>) -> BodyKind {
    match expected {
        ResponseFormat::Json => return BodyKind::Json,
        ResponseFormat::Text => return BodyKind::Text,
        ResponseFormat::Ndjson => return BodyKind::Ndjson,
        ResponseFormat::Xml => return BodyKind::Xml,
        ResponseFormat::Binary => return BodyKind::File,
        ResponseFormat::Auto => {}
    }
    let Some(content_type) = content_type else { return BodyKind::Unknown };
    let essence = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    match essence.as_str() {
        "application/json" | "text/json" => BodyKind::Json,
        _ if essence.ends_with("+json") => BodyKind::Json,
        "application/x-ndjson" | "application/ndjson" | "application/jsonl" | "application/x-jsonlines" => {
            BodyKind::Ndjson
        }
        "application/xml"
        | "application/javascript"
        | "application/x-www-form-urlencoded"
        | "application/yaml"
        | "application/graphql" => BodyKind::Text,
        _ if essence.starts_with("text/") || essence.ends_with("+xml") || essence.ends_with("+yaml") => BodyKind::Text,
        "" => BodyKind::Unknown,
        _ => BodyKind::File,
    }
}

fn parse_json(body: &[u8], content_type: Option<&str>, call: &HttpCall<'_>) -> Result<Value, Failure> {
    let decoded = json_text(body, content_type);
    if decoded.trim().is_empty() {
        return Ok(Value::Null);
    }
    parsed(call, &decoded, "JSON", |text| parse_answer(text).map_err(|error| error.to_string()))
}

fn parsed(
    call: &HttpCall<'_>,
    text: &str,
    format: &str,
    parse: impl Fn(&str) -> Result<Value, String>,
) -> Result<Value, Failure> {
    parse(text).map_err(|reason| {
        let start: String = call.context.secrets.redact(text).trim_start().chars().take(200).collect();
        Failure::new(Code::BadResponse, format!("{} answered with invalid {format}: {reason}", call.summary()))
            .detail("starts_with", start)
    })
}

/// Decodes JSON, which is UTF-8 unless the content type says otherwise.
fn json_text(body: &[u8], content_type: Option<&str>) -> String {
    text::decode(body, content_type.filter(|content_type| text::charset(content_type).is_some()).or(Some("")))
}

/// Decodes XML, whose declaration may name its encoding.
fn xml_text(body: &[u8], content_type: Option<&str>) -> String {
    let declared = content_type.filter(|content_type| text::charset(content_type).is_some()).map(str::to_owned);
    let declared = declared.or_else(|| {
        let head = String::from_utf8_lossy(&body[..body.len().min(200)]).into_owned();
        let (_, label) = head.strip_prefix("<?xml")?.split_once("?>")?.0.split_once("encoding=")?;
        Some(format!("text/xml; charset={}", label.split(['"', '\'']).nth(1)?))
    });
    text::decode(body, declared.as_deref().or(Some("")))
}

async fn spool_response(
    call: &HttpCall<'_>,
    response: Response,
    url: &Url,
    limit: u64,
    content_type: Option<String>,
) -> Result<OutputData, Failure> {
    if response.content_length().is_some_and(|length| length > limit) {
        return Err(too_large(limit));
    }
    let content_type = content_type.unwrap_or_else(|| spool::BYTES.to_owned());
    let chunks = response.bytes_stream().map(|chunk| chunk.map_err(|error| body_failure(&error, url)));
    let spool = Spool::of(call.context, call.invocation, limit);
    spool.store(chunks, content_type).await
}

/// Reads the start of an error response; a lost connection just ends it.
async fn first_bytes(response: Response) -> Vec<u8> {
    let mut body = Vec::new();
    let mut stream = response.bytes_stream();
    while let Some(Ok(chunk)) = stream.next().await {
        body.extend_from_slice(&chunk);
        if body.len() >= MAX_ERROR_BYTES {
            body.truncate(MAX_ERROR_BYTES);
            break;
        }
    }
    body
}
