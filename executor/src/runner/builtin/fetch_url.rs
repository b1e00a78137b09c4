//! Fetches a page and gives its readable text.
//!
//! Which addresses may be reached is the HTTP client's matter; what a page's bytes say is
//! `page.rs`'s.

use protocol::code::Code;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;
use url::Url;

use super::interrupt::blocking;
use super::whole;
use crate::runner::{RunnerContext, RunnerOutput};
use crate::task::failure::{Failure, Retry};
use page::{PageContent, WebPage};

mod page;

/// The most bytes of a page that are taken; text of that size is a library, no page.
const MAX_BYTES: u64 = 10 << 20;

/// How many characters of text are returned where the definition names no other limit, and at most.
const CHARS: usize = 20_000;
const MAX_CHARS: usize = 100_000;

/// How much of an error page is shown.
const ERROR_CHARS: usize = 1_000;

/// Fetches a page as text. Templates.
#[derive(Debug, Clone, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FetchUrl {
    /// An http or https URL.
    pub url: Value,
    /// How many characters of the text; at most 100,000. Absent: 20,000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_chars: Option<Value>,
    /// From which character on. Absent: 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start: Option<Value>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FetchUrlArguments {
    url: String,
    #[serde(default, deserialize_with = "whole")]
    max_chars: Option<u64>,
    #[serde(default, deserialize_with = "whole")]
    start: Option<u64>,
}

pub(super) async fn perform(
    arguments: FetchUrlArguments,
    context: &RunnerContext,
    cancel: &CancellationToken,
) -> Result<RunnerOutput, Failure> {
    let url = Url::parse(&arguments.url)
        .map_err(|error| Failure::new(Code::Rejected, format!("`{}` is no URL: {error}", arguments.url)))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(Failure::new(Code::Rejected, format!("`{url}` is no http or https URL")));
    }
    let max_bytes = context.config.http.max_bytes.min(MAX_BYTES);
    let page = fetch(context, &url, max_bytes, cancel).await?;
    blocking(cancel, move |_| read(&page, &arguments)).await
}

async fn fetch(
    context: &RunnerContext,
    url: &Url,
    max_bytes: u64,
    cancel: &CancellationToken,
) -> Result<WebPage, Failure> {
    let fetched = context.http.fetch_guarded(url, max_bytes, cancel).await?;
    Ok(WebPage {
        url: fetched.final_url,
        status: fetched.status,
        content_type: fetched.content_type.unwrap_or_default(),
        body: fetched.body,
    })
}

fn read(page: &WebPage, arguments: &FetchUrlArguments) -> Result<RunnerOutput, Failure> {
    if !(200..300).contains(&page.status) {
        return Err(refused(page));
    }
    let characters = |wanted: Option<u64>| wanted.and_then(|count| usize::try_from(count).ok());
    let start = characters(arguments.start).unwrap_or(0);
    let max = characters(arguments.max_chars).unwrap_or(CHARS).clamp(1, MAX_CHARS);
    let mut data = Map::new();
    data.insert("url".to_owned(), page.url.as_str().into());
    match page.content()? {
        PageContent::Json { value, text } if start == 0 && text.len() <= max => {
            data.insert("json".to_owned(), value);
        }
        PageContent::Json { text, .. } => put(&mut data, &text, start, max),
        PageContent::Text { title, text } => {
            if let Some(title) = title {
                data.insert("title".to_owned(), title.into());
            }
            put(&mut data, &text, start, max);
        }
    }
    Ok(RunnerOutput::json(Value::Object(data))
        .with_meta("http_status", page.status)
        .with_meta("content_type", page.content_type.as_str()))
}

/// The part of the text that was asked for, and whether there is more.
fn put(data: &mut Map<String, Value>, text: &str, start: usize, max: usize) {
    let total = text.chars().count();
    let part: String = text.chars().skip(start).take(max).collect();
    let next = start.saturating_add(max);
    data.insert("text".to_owned(), part.into());
    data.insert("total_chars".to_owned(), total.into());
    if next < total {
        data.insert("next_start".to_owned(), next.into());
    }
}

fn refused(page: &WebPage) -> Failure {
    let said = match page.content() {
        Ok(PageContent::Text { text, .. } | PageContent::Json { text, .. }) => text.chars().take(ERROR_CHARS).collect(),
        Err(_) => String::new(),
    };
    let again = if page.status == 429 || page.status >= 500 { Retry::Later } else { Retry::Never };
    Failure::new(Code::ApiError, format!("`{}` answered with status {}", page.url, page.status))
        .retry(again)
        .detail("http_status", json!(page.status))
        .detail("text", said)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(status: u16, content_type: &str, body: &[u8]) -> WebPage {
        WebPage {
            url: "https://example.org/a/".parse().expect("a URL"),
            status,
            content_type: content_type.to_owned(),
            body: body.to_vec(),
        }
    }

    fn data(page: &WebPage, start: u64, max_chars: u64) -> Value {
        let arguments = FetchUrlArguments { url: String::new(), max_chars: Some(max_chars), start: Some(start) };
        match read(page, &arguments).expect("it can be read").data {
            crate::runner::OutputData::Json(value) => value,
            other @ crate::runner::OutputData::File { .. } => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_long_text_is_read_in_parts() {
        let page = page(200, "text/plain", "äöüß".as_bytes());
        let url = "https://example.org/a/";
        assert_eq!(data(&page, 0, 3), json!({"url": url, "text": "äöü", "total_chars": 4, "next_start": 3}));
        assert_eq!(data(&page, 3, 3), json!({"url": url, "text": "ß", "total_chars": 4}));
    }

    #[test]
    fn json_stays_json_unless_it_is_too_long() {
        let page = page(200, "application/problem+json; charset=utf-8", br#"{"a": [1, 2]}"#);
        assert_eq!(data(&page, 0, 100)["json"], json!({"a": [1, 2]}));
        assert_eq!(data(&page, 0, 4)["text"], r#"{"a""#);
    }

    #[test]
    fn an_error_status_is_a_failure_that_shows_what_was_said() {
        let arguments = FetchUrlArguments { url: String::new(), max_chars: None, start: None };
        let failure = read(&page(503, "text/html", b"<p>come <b>later</b>"), &arguments).expect_err("a refusal");
        assert_eq!((failure.error.code, failure.retry), (Code::ApiError, Retry::Later));
        assert_eq!(failure.error.details["text"], "come later");
    }
}
