//! Fetches several pages and joins them to one result.

use reqwest::header::{HeaderMap, LINK};
use serde_json::Value;
use url::Url;

use super::address::endpoint;
use super::call::{HttpCall, PageAddress};
use super::{Code, Failure, Pagination, RunnerOutput, response};

/// Fetches page after page and joins their items.
///
/// The result is the first page with the items of all pages, or just the array of items if the definition has no
/// `items`. If pages are left, the result's token is the token of the next page and `_meta.more_pages` is true.
pub(super) async fn fetch_all(call: &HttpCall<'_>, pagination: &Pagination) -> Result<RunnerOutput, Failure> {
    let items_pointer = pagination.items.as_deref().map(pointer);
    let mut remaining_bytes = response::limit(call.http, call.context);
    let mut page = PageAddress::First;
    let (mut first, mut items, mut pages) = (None, Vec::new(), 0);
    let (next, status) = loop {
        let answer = call.send(&page).await?;
        let (headers, url) = (answer.response.headers().clone(), answer.url.clone());
        let status = answer.response.status().as_u16();
        let read = call.until_cancelled(response::json(call, answer, remaining_bytes)).await;
        let (mut body, size) = read.map_err(|failure| match failure.error.code {
            Code::ResponseTooLarge if pages > 0 => {
                failure.hint("the pages together are too large: ask for fewer items")
            }
            _ => failure,
        })?;
        remaining_bytes = remaining_bytes.saturating_sub(size);
        pages += 1;
        let next = next(call, pagination, &body, &headers, &url)?.filter(|next| *next != page);
        items.append(&mut take_items(&mut body, items_pointer.as_deref())?);
        first.get_or_insert(body);
        let is_enough = call.draft.max_items.is_some_and(|enough| items.len() as u64 >= enough);
        match next {
            Some(next) if pages < pagination.max_pages && !is_enough => page = next,
            next => break (next, status),
        }
    };
    let mut more = next.is_some();
    if let Some(enough) = call.draft.max_items.and_then(|enough| usize::try_from(enough).ok())
        && items.len() > enough
    {
        items.truncate(enough);
        more = true;
    }
    let data = joined(first.unwrap_or_default(), items, items_pointer.as_deref(), pagination, next);
    let success = RunnerOutput::json(data)
        .with_meta("http_status", status)
        .with_meta("url", call.draft.redacted_url().as_str())
        .with_meta("pages", pages);
    Ok(if more { success.with_meta("more_pages", true) } else { success })
}

fn joined(
    mut first: Value,
    items: Vec<Value>,
    items_pointer: Option<&str>,
    pagination: &Pagination,
    next: Option<PageAddress>,
) -> Value {
    let Some(items_pointer) = items_pointer else { return Value::Array(items) };
    put(&mut first, items_pointer, Some(Value::Array(items)));
    if let Some(next_token) = &pagination.next_token {
        let token = match next {
            Some(PageAddress::Token(_, token)) => Some(Value::String(token)),
            _ => None,
        };
        put(&mut first, &pointer(&next_token.response), token);
    }
    first
}

/// Takes the array of items out of a page. A missing array counts as empty.
fn take_items(body: &mut Value, items_pointer: Option<&str>) -> Result<Vec<Value>, Failure> {
    let array = match items_pointer {
        Some(pointer) => body.pointer_mut(pointer),
        None => Some(body),
    };
    match array.map(Value::take) {
        Some(Value::Array(items)) => Ok(items),
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(_) => {
            let message = match items_pointer {
                Some(pointer) => format!("the page has no array at `{pointer}`"),
                None => "the page is not an array".to_owned(),
            };
            Err(Failure::new(Code::BadResponse, message))
        }
    }
}

fn next(
    call: &HttpCall<'_>,
    pagination: &Pagination,
    body: &Value,
    headers: &HeaderMap,
    url: &Url,
) -> Result<Option<PageAddress>, Failure> {
    if let Some(next_token) = &pagination.next_token {
        let token = match body.pointer(&pointer(&next_token.response)) {
            Some(Value::String(token)) if !token.is_empty() => token.clone(),
            Some(Value::Number(token)) => token.to_string(),
            _ => return Ok(None),
        };
        return Ok(Some(PageAddress::Token(next_token.query.clone(), token)));
    }
    let links = headers.get_all(LINK).iter().filter_map(|value| value.to_str().ok());
    let Some(target) = links.into_iter().find_map(next_link) else { return Ok(None) };
    let next = url.join(&endpoint(target, &call.context.config.http.endpoints)).ok();
    match next.filter(|next| next.origin() == url.origin()) {
        Some(next) => Ok(Some(PageAddress::Link(next))),
        None => Err(Failure::new(Code::BadResponse, format!("the next page is on another server: `{target}`"))),
    }
}

/// Returns the target with the relation `next` in a `Link` header (RFC 8288).
fn next_link(value: &str) -> Option<&str> {
    let mut rest = value;
    while let Some((_, after)) = rest.split_once('<') {
        let (target, parameters) = after.split_once('>')?;
        let mut quoted = false;
        let end = parameters.find(|character: char| {
            quoted ^= character == '"';
            character == ',' && !quoted
        });
        let (parameters, following) = parameters.split_at(end.unwrap_or(parameters.len()));
        let is_next =
            parameters.split(';').filter_map(|parameter| parameter.split_once('=')).any(|(name, relations)| {
                name.trim().eq_ignore_ascii_case("rel")
                    && relations
                        .trim()
                        .trim_matches('"')
                        .split_whitespace()
                        .any(|relation| relation.eq_ignore_ascii_case("next"))
            });
        if is_next {
            return Some(target);
        }
        rest = following;
    }
    None
}

/// Turns a field name into a JSON pointer; returns a pointer unchanged.
fn pointer(field: &str) -> String {
    if field.starts_with('/') { field.to_owned() } else { format!("/{}", protocol::json::pointer_token(field)) }
}

/// Sets or removes the value at `pointer`, if its parent is an object.
fn put(body: &mut Value, pointer: &str, value: Option<Value>) {
    let Some((parent, name)) = pointer.rsplit_once('/') else { return };
    let Some(Value::Object(fields)) = body.pointer_mut(parent) else { return };
    let name = name.replace("~1", "/").replace("~0", "~");
    match value {
        Some(value) => drop(fields.insert(name, value)),
        None => drop(fields.shift_remove(&name)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_link_is_found_among_others() {
        let github = r#"<https://api.github.com/x?page=1>; rel="prev", <https://api.github.com/x?page=3>; rel="next""#;
        assert_eq!(next_link(github), Some("https://api.github.com/x?page=3"));
        assert_eq!(next_link(r#"</a,b>; title="x, y"; rel="first next""#), Some("/a,b"));
        assert_eq!(next_link(r#"<https://a.example>; rel="last""#), None);
        assert_eq!(next_link("<broken"), None);
    }
}
