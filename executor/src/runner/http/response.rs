//! Taking what comes back: JSON, a text, or a file; never more than the limit.

use futures_util::StreamExt as _;
use reqwest::Response;
use reqwest::header::CONTENT_TYPE;
use serde_json::Value;
use tokio::io::AsyncWriteExt as _;
use url::Url;

use super::call::{HttpAnswer, HttpCall};
use super::{AnswerFormat, Code, Failure, Http, Method, RunnerContext, RunnerOutput, api_error};
use crate::net::clients::{body_failure, bytes, header, too_large};
use crate::net::text;
use crate::runner::OutputData;
use crate::task::failure::SideEffect;

/// JSON and texts are held in memory, where parsed JSON takes several times its size.
const IN_MEMORY: u64 = 16 * 1024 * 1024;

/// What is read of an error's body; the words that matter come first.
const ERROR_BYTES: usize = 64 * 1024;

enum BodyKind {
    Json,
    Text,
    File,
    /// No content type: a text if it is one.
    Unknown,
}

/// The largest answer that is taken.
pub(super) fn limit(http: &Http, context: &RunnerContext) -> u64 {
    let configured = context.config.http.max_bytes;
    http.max_bytes.map_or(configured, |declared| declared.min(configured))
}

/// The success or the failure that `answer` is.
pub(super) async fn taken(call: &HttpCall<'_>, answer: HttpAnswer) -> Result<RunnerOutput, Failure> {
    let answer = succeeded(call, answer).await?;
    let (status, url) = (answer.response.status().as_u16(), answer.url);
    let data = data(call, answer.response, &url).await.map_err(|failure| after_success(call, failure))?;
    let shown = call.draft.shown_url();
    let mut success = RunnerOutput { data, meta: serde_json::Map::new() }.with_meta("http_status", status);
    if url.path() != shown.path() || url.host() != shown.host() {
        success = success.with_meta("final_url", call.context.secrets.redact(url.as_str()).as_ref());
    }
    Ok(success.with_meta("url", shown.as_str()))
}

/// The JSON that `answer` holds, and its size; for pages.
pub(super) async fn json(call: &HttpCall<'_>, answer: HttpAnswer, limit: u64) -> Result<(Value, u64), Failure> {
    let answer = succeeded(call, answer).await?;
    let content_type = header(answer.response.headers(), CONTENT_TYPE.as_str());
    let body = bytes(answer.response, limit.min(IN_MEMORY), &answer.url).await?;
    Ok((parsed(&body, content_type.as_deref(), call)?, body.len() as u64))
}

/// `answer`, if its status is one of success.
async fn succeeded(call: &HttpCall<'_>, answer: HttpAnswer) -> Result<HttpAnswer, Failure> {
    let status = answer.response.status();
    if status.is_success() {
        return Ok(answer);
    }
    let headers = answer.response.headers().clone();
    let body = text::decode(&first_bytes(answer.response).await, header(&headers, CONTENT_TYPE.as_str()).as_deref());
    let auth = call.http.auth.as_ref();
    Err(api_error::failure(call.draft.method, auth, &call.shown(), status, &headers, &body))
}

/// The far side said yes: whatever is wrong with its answer, what was asked for may be done.
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
        || (response.content_length() == Some(0) && call.http.response != AnswerFormat::Binary);
    if is_empty {
        return Ok(OutputData::Json(Value::Null));
    }
    let kind = kind(call.http.response, content_type.as_deref());
    if let BodyKind::File = kind {
        return spooled(call, response, url, limit, content_type).await;
    }
    let body = bytes(response, limit.min(IN_MEMORY), url).await?;
    if body.is_empty() {
        return Ok(OutputData::Json(Value::Null));
    }
    Ok(match kind {
        BodyKind::Json => OutputData::Json(parsed(&body, content_type.as_deref(), call)?),
        BodyKind::Unknown if std::str::from_utf8(&body).is_err() => {
            let chunk = futures_util::stream::iter([Ok::<_, Failure>(body)]);
            spool(call, chunk, limit, "application/octet-stream".to_owned()).await?
        }
        _ => OutputData::Json(Value::String(text::decode(&body, content_type.as_deref()))),
    })
}

fn kind(expected: AnswerFormat, content_type: Option<&str>) -> BodyKind {
    match expected {
        AnswerFormat::Json => return BodyKind::Json,
        AnswerFormat::Text => return BodyKind::Text,
        AnswerFormat::Binary => return BodyKind::File,
        AnswerFormat::Auto => {}
    }
    let Some(content_type) = content_type else { return BodyKind::Unknown };
    let essence = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    match essence.as_str() {
        "application/json" | "text/json" => BodyKind::Json,
        _ if essence.ends_with("+json") => BodyKind::Json,
        "application/xml"
        | "application/javascript"
        | "application/x-www-form-urlencoded"
        | "application/yaml"
        | "application/x-ndjson"
        | "application/graphql" => BodyKind::Text,
        _ if essence.starts_with("text/") || essence.ends_with("+xml") || essence.ends_with("+yaml") => BodyKind::Text,
        "" => BodyKind::Unknown,
        _ => BodyKind::File,
    }
}

fn parsed(body: &[u8], content_type: Option<&str>, call: &HttpCall<'_>) -> Result<Value, Failure> {
    let decoded =
        text::decode(body, content_type.filter(|content_type| text::charset(content_type).is_some()).or(Some("")));
    if decoded.trim().is_empty() {
        return Ok(Value::Null);
    }
    serde_json::from_str(&decoded).map_err(|error| {
        let start: String = decoded.trim_start().chars().take(200).collect();
        Failure::new(Code::BadResponse, format!("{} answered something that is no JSON: {error}", call.shown()))
            .detail("starts_with", start)
    })
}

async fn spooled(
    call: &HttpCall<'_>,
    response: Response,
    url: &Url,
    limit: u64,
    content_type: Option<String>,
) -> Result<OutputData, Failure> {
    if response.content_length().is_some_and(|length| length > limit) {
        return Err(too_large(limit));
    }
    let content_type = content_type.unwrap_or_else(|| "application/octet-stream".to_owned());
    let chunks = response.bytes_stream().map(|chunk| chunk.map_err(|error| body_failure(&error, url)));
    spool(call, chunks, limit, content_type).await
}

/// Writes `chunks` to a file of the spool, which is gone again unless all came.
async fn spool<B: AsRef<[u8]>>(
    call: &HttpCall<'_>,
    chunks: impl futures_util::Stream<Item = Result<B, Failure>>,
    limit: u64,
    content_type: String,
) -> Result<OutputData, Failure> {
    let folder = &call.context.spool;
    let unwritable = |error: &dyn std::fmt::Display| {
        Failure::new(Code::Io, format!("failed to write `{}`: {error}", folder.display()))
    };
    tokio::fs::create_dir_all(folder).await.map_err(|error| unwritable(&error))?;
    let (file, path) =
        tempfile::Builder::new().prefix("http-").tempfile_in(folder).map_err(|error| unwritable(&error))?.into_parts();
    let mut file = tokio::fs::File::from_std(file);
    let mut written = 0;
    let mut chunks = std::pin::pin!(chunks);
    while let Some(chunk) = chunks.next().await {
        let chunk = chunk?;
        written += chunk.as_ref().len() as u64;
        if written > limit {
            return Err(too_large(limit));
        }
        file.write_all(chunk.as_ref()).await.map_err(|error| unwritable(&error))?;
    }
    file.flush().await.map_err(|error| unwritable(&error))?;
    let path = path.keep().map_err(|error| unwritable(&error))?;
    Ok(OutputData::File { path, content_type, bytes: written })
}

/// As much of an error's body as matters; a connection that breaks ends it.
async fn first_bytes(response: Response) -> Vec<u8> {
    let mut body = Vec::new();
    let mut stream = response.bytes_stream();
    while let Some(Ok(chunk)) = stream.next().await {
        body.extend_from_slice(&chunk);
        if body.len() >= ERROR_BYTES {
            body.truncate(ERROR_BYTES);
            break;
        }
    }
    body
}
