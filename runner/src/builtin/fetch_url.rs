//! Fetches a web page and returns its readable text.
//!
//! The HTTP client decides which addresses are allowed; `page.rs` decodes the bytes.

use definition::run::builtin::MAX_CHARS;
use ground::task::failure::{Failure, Retry};
use protocol::code::Code;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;
use url::Url;

use super::interrupt::blocking;
use super::{Limit, whole_number};
use crate::{RunnerContext, RunnerOutput};
use body_text::{PageContent, WebPage};

mod body_text;

/// The most bytes of a page that are read: more than any web page has as text.
const MAX_BYTES: u64 = 10 << 20;

/// The most characters of text that are returned unless the input sets another limit.
const DEFAULT_CHARS: u64 = 20_000;
/// The most characters of an error page in a failure.
const MAX_ERROR_CHARS: usize = 1_000;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FetchUrlArguments {
    url: String,
    #[serde(default, deserialize_with = "whole_number")]
    max_chars: Option<u64>,
    #[serde(default, deserialize_with = "whole_number")]
    start: Option<u64>,
}

pub(super) async fn perform(
    arguments: FetchUrlArguments,
    context: &RunnerContext,
    cancel: &CancellationToken,
) -> Result<RunnerOutput, Failure> {
    let url = Url::parse(&arguments.url)
        .map_err(|error| Failure::new(Code::Rejected, format!("`{}` is not a valid URL: {error}", arguments.url)))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(Failure::new(Code::Rejected, format!("`{url}` is not an http or https URL")));
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
        return Err(status_failure(page));
    }
    let start = arguments.start.map_or(0, |start| usize::try_from(start).unwrap_or(usize::MAX));
    let limit = Limit::of(arguments.max_chars, DEFAULT_CHARS, MAX_CHARS);
    let max = limit.count();
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
    let more = data.contains_key("next_start");
    Ok(RunnerOutput::json(Value::Object(data))
        .with_extent(limit.extent(more))
        .with_meta("http_status", page.status)
        .with_meta("content_type", page.content_type.as_str()))
}

/// Adds the requested part of the text, and where the next part starts if there is more.
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

/// The failure for a status that is not a success.
fn status_failure(page: &WebPage) -> Failure {
    let text = match page.content() {
        Ok(PageContent::Text { text, .. } | PageContent::Json { text, .. }) => {
            text.chars().take(MAX_ERROR_CHARS).collect()
        }
        Err(_) => String::new(),
    };
    let retry = if page.status == 429 || page.status >= 500 { Retry::Later } else { Retry::Never };
    Failure::new(Code::ApiError, format!("`{}` answered with status {}", page.url, page.status))
        .retry(retry)
        .detail("http_status", json!(page.status))
        .detail("text", text)
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
        match read(page, &arguments).expect("a readable page").data {
            crate::OutputData::Json(value) => value,
            other @ crate::OutputData::File { .. } => panic!("{other:?}"),
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
    fn the_shipped_subtool_promises_no_more_than_is_returned() {
        let pack: Value = serde_json::from_str(include_str!("../../../subtools/web/web.json")).expect("JSON");
        let maximum = &pack["fetch_url"]["input"]["properties"]["max_chars"]["maximum"];
        assert_eq!(maximum, MAX_CHARS);
    }

    #[test]
    fn json_stays_json_unless_it_is_too_long() {
        let page = page(200, "application/problem+json; charset=utf-8", br#"{"a": [1, 2]}"#);
        assert_eq!(data(&page, 0, 100)["json"], json!({"a": [1, 2]}));
        assert_eq!(data(&page, 0, 4)["text"], r#"{"a""#);
    }

    #[test]
    fn an_error_status_is_a_failure_with_the_text_of_the_page() {
        let arguments = FetchUrlArguments { url: String::new(), max_chars: None, start: None };
        let failure = read(&page(503, "text/html", b"<p>come <b>later</b>"), &arguments).expect_err("a failure");
        assert_eq!((failure.error.code, failure.retry), (Code::ApiError, Retry::Later));
        assert_eq!(failure.error.details["text"], "come later");
    }
}
