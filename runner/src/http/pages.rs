//! Fetches several pages and joins them to one result.

use definition::run::http::{Counter, Pagination, Parameter, endpoint, pointer};
use jq::misplaced;
use protocol::extent::{DataExtent, More};
use protocol::json;
use reqwest::header::{HeaderMap, LINK};
use serde_json::Value;
use url::Url;

use super::call::{HttpCall, RequestTarget};
use super::placement::PlacedValue;
use super::request::{Draft, DraftBody};
use super::{Code, Failure, RunnerOutput, response};

/// What is known after a page.
struct PageWalk<'a> {
    call: &'a HttpCall<'a>,
    pagination: &'a Pagination,
    /// The number that the current page was fetched with, if it has one.
    counter: u64,
    /// How many items the current page has, and the last of them.
    on_page: usize,
    last: Option<Value>,
    /// The next page, if it is on another server.
    elsewhere: Option<String>,
    /// Whether the page names one that was asked for before.
    leads_back: bool,
    /// Whether a page has said so far if there is another one, where the definition says that pages do.
    says_more: bool,
    /// Why it is not known whether the page is the last one.
    doubt: Option<String>,
}

/// Fetches page after page and joins their items.
///
/// The result is the first page with the items of all pages and the other fields of the last one, or just the array of
/// items if the definition has no `items`. If pages are left, `_meta.more_pages` is true, and the fields of the result that name the next page or say
/// that there is one do so. It is `unknown` if the response does not say whether there are.
pub(super) async fn fetch_all(call: &HttpCall<'_>, pagination: &Pagination) -> Result<RunnerOutput, Failure> {
    let items_pointer = pagination.items.as_deref().map(pointer);
    let mut remaining_bytes = response::limit(call.http, call.context);
    let mut target = RequestTarget::Declared;
    let mut walk = PageWalk::start(call, pagination);
    // All pages are never fewer than usual.
    let max_pages = call.draft.max_pages.map_or(pagination.max_pages, |all| all.max(pagination.max_pages));
    let (mut envelope, mut items, mut pages, mut asked) = (Value::Null, Vec::new(), 0, Vec::new());
    // Where each page begins among the items.
    let mut starts: Vec<usize> = Vec::new();
    let (next, facts) = loop {
        let answer = call.send(&target).await?;
        let (headers, url, facts) = (answer.response.headers().clone(), answer.url.clone(), answer.facts());
        let read = call.until_cancelled(response::json(call, answer, remaining_bytes)).await;
        let (mut body, size) = read.map_err(|failure| match failure.error.code {
            Code::ResponseTooLarge if pages > 0 => {
                failure.hint("the pages together are too large: ask for fewer items")
            }
            _ => failure,
        })?;
        remaining_bytes = remaining_bytes.saturating_sub(size);
        pages += 1;
        let found = take_items(&mut body, items_pointer.as_deref(), pages == 1)?;
        let lacks_list = found.is_none();
        let mut taken = found.unwrap_or_default();
        if pages > 1 && !taken.is_empty() && items.ends_with(&taken) && pagination.counts() {
            let message = format!("{} answered twice with the same page", call.summary());
            return Err(Failure::new(Code::BadResponse, message)
                .hint("the API does not know the parameter that `pagination` declares"));
        }
        (walk.on_page, walk.last) = (taken.len(), taken.last().cloned());
        let next = walk.next(&body, &headers, &url)?;
        if lacks_list && next.is_none() && (pages > 1 || says_error(&body)) {
            // An empty list may be left out, but so may be all of an answer that failed.
            walk.doubt =
                Some(format!("page {pages} has no list at `{}`", items_pointer.as_deref().unwrap_or_default()));
        }
        // A page that leads back says nothing about the rest. What it repeats is there already.
        asked.push(target);
        walk.leads_back = next.as_ref().is_some_and(|next| asked.contains(next));
        let next = next.filter(|_| !walk.leads_back);
        // Pages that are alike are joined, unless the walk came to one again.
        let is_repeated = walk.leads_back && starts.iter().any(|start| items[*start..].starts_with(&taken));
        if !is_repeated {
            starts.push(items.len());
            items.append(&mut taken);
        }
        envelope = if pages == 1 { body } else { updated(envelope, body) };
        let is_enough = call.draft.max_items.is_some_and(|enough| items.len() as u64 >= enough);
        match next {
            Some(next) if pages < max_pages && !is_enough => {
                if let RequestTarget::Page(_, Value::Number(number)) = &next {
                    walk.counter = number.as_u64().unwrap_or(walk.counter);
                }
                target = next;
            }
            next => break (next, facts),
        }
    };
    let found = items.len();
    if let Some(enough) = call.draft.max_items.and_then(|enough| usize::try_from(enough).ok()) {
        items.truncate(enough);
    }
    let more = match &next {
        _ if items.len() < found || walk.elsewhere.is_some() => More::Yes,
        _ if walk.leads_back || walk.doubt.is_some() => More::Unknown,
        None => More::No,
        // The request counts on, whether or not there is another page.
        Some(_) if pagination.counts() && pagination.has_more.is_none() => More::Unknown,
        Some(_) => More::Yes,
    };
    let returned = items.len() as u64;
    let extent = DataExtent {
        more,
        limit: Some(returned),
        // `max_pages` ended it before.
        asked_limit: call.draft.max_items.filter(|asked| next.is_some() && *asked > returned),
        truncated: None,
    };
    let next_page = match next {
        Some(RequestTarget::Page(_, token)) => Some(token),
        Some(RequestTarget::Link(url)) => Some(Value::from(url.as_str())),
        Some(RequestTarget::Declared | RequestTarget::Job(_)) | None => walk.elsewhere.clone().map(Value::from),
    };
    let data = joined(envelope, items, pagination, next_page, more);
    let mut success = RunnerOutput { facts: Some(facts.clone()), ..RunnerOutput::json(data) }
        .with_meta("http_status", facts.status)
        .with_meta("url", call.draft.redacted_url().as_str())
        .with_meta("pages", pages);
    if let Some(target) = walk.elsewhere {
        let why = format!("the next page is on another server, which is not asked: `{target}`");
        success = success.with_meta("not_fetched", why);
    } else if let Some(why) = walk.doubt {
        success = success.with_meta("not_fetched", why);
    }
    Ok(success.with_extent(extent))
}

/// Returns the fields of the pages so far with those of the page after them. What says which page is next, and is not
/// on that page, would name one that was fetched.
fn updated(envelope: Value, page: Value) -> Value {
    match (envelope, page) {
        (Value::Object(mut fields), Value::Object(of_page)) => {
            fields.retain(|name, _| of_page.contains_key(name) || !name.to_lowercase().starts_with("next"));
            fields.extend(of_page);
            Value::Object(fields)
        }
        (envelope, _) => envelope,
    }
}

/// Puts all items into the fields of the pages, with what says which page is next.
fn joined(mut first: Value, items: Vec<Value>, pagination: &Pagination, next_page: Option<Value>, more: More) -> Value {
    let Some(items_field) = &pagination.items else { return Value::Array(items) };
    put(&mut first, &pointer(items_field), Some(Value::Array(items)));
    let named_by = pagination.next_token.as_ref().map(|token| &token.response).or(pagination.next_url.as_ref());
    if let Some(field) = named_by {
        put(&mut first, &pointer(field), next_page);
    }
    // Where it is not known, what the server says of it stays.
    let has_more = pagination.has_more.as_deref().map(pointer).filter(|_| more != More::Unknown);
    if let Some(field) = has_more.filter(|field| first.pointer(field).is_some()) {
        put(&mut first, &field, Some(Value::Bool(more == More::Yes)));
    }
    first
}

/// Whether an answer without a list says why.
fn says_error(body: &Value) -> bool {
    ["error", "errors", "message", "fault", "detail"].iter().any(|name| match &body[*name] {
        Value::Null | Value::Bool(false) => false,
        Value::String(text) => !text.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::Bool(true) | Value::Number(_) | Value::Object(_) => true,
    })
}

/// Takes the array of items out of a page; `None` if it has none there nor elsewhere.
fn take_items(body: &mut Value, items_pointer: Option<&str>, is_first: bool) -> Result<Option<Vec<Value>>, Failure> {
    if let Some(pointer) = items_pointer.filter(|pointer| body.pointer(pointer).is_none())
        && let Some(there) = misplaced::misplaced_list(body, pointer, is_first)
    {
        return Err(misnamed("items", pointer, &there));
    }
    let array = match items_pointer {
        Some(pointer) => body.pointer_mut(pointer),
        None => Some(body),
    };
    match array.map(Value::take) {
        Some(Value::Array(items)) => Ok(Some(items)),
        None | Some(Value::Null) => Ok(None),
        Some(_) => {
            let message = match items_pointer {
                Some(pointer) => format!("the page has no array at `{pointer}`"),
                None => "the page is not an array".to_owned(),
            };
            Err(Failure::new(Code::BadResponse, message))
        }
    }
}

/// The failure of a path of the definition that leads nowhere in a page.
fn misnamed(setting: &str, pointer: &str, there: &str) -> Failure {
    Failure::new(
        Code::BadResponse,
        format!("the page has nothing at `{pointer}`, which `pagination.{setting}` names; {there}"),
    )
    .hint(format!("correct `pagination.{setting}` of the subtool"))
}

/// The failure of a value that the definition does not expect there.
fn unlike(setting: &str, expected: &str, found: &Value) -> Failure {
    let kind = json::type_of(found);
    Failure::new(
        Code::BadResponse,
        format!("the page has a value of type {kind} where `pagination.{setting}` expects {expected}"),
    )
    .hint(format!("correct `pagination.{setting}` of the subtool"))
}

impl<'a> PageWalk<'a> {
    fn start(call: &'a HttpCall<'a>, pagination: &'a Pagination) -> Self {
        let first = |counter: Option<&Counter>, otherwise| {
            counter.map(|counter| declared(call.draft, counter).or(counter.first).unwrap_or(otherwise))
        };
        let counter = first(pagination.page.as_ref(), 1).or(first(pagination.offset.as_ref(), 0)).unwrap_or_default();
        Self {
            call,
            pagination,
            counter,
            on_page: 0,
            last: None,
            elsewhere: None,
            leads_back: false,
            says_more: false,
            doubt: None,
        }
    }

    /// Returns where the next page is, according to the current one.
    fn next(&mut self, body: &Value, headers: &HeaderMap, url: &Url) -> Result<Option<RequestTarget>, Failure> {
        let pagination = self.pagination;
        // A last page may leave out what names the next one. One that names it elsewhere is not the last.
        let declared = [
            ("has_more", pagination.has_more.as_ref()),
            ("next_token.response", pagination.next_token.as_ref().map(|token| &token.response)),
            ("next_url", pagination.next_url.as_ref()),
        ];
        for (setting, field) in declared {
            if let Some(pointer) = field.map(|field| pointer(field)).filter(|pointer| body.pointer(pointer).is_none())
                && let Some(there) = misplaced::next_elsewhere(body)
            {
                return Err(misnamed(setting, &pointer, &there));
            }
        }
        if let Some(field) = &pagination.has_more {
            match body.pointer(&pointer(field)) {
                Some(Value::Bool(true)) => self.says_more = true,
                Some(Value::Bool(false)) => return Ok(None),
                // One that is false may be left out, where it is there at other times.
                None | Some(Value::Null) => {
                    if !self.says_more {
                        self.doubt =
                            Some(format!("the page does not say at `{}` whether there is another one", pointer(field)));
                    }
                    return Ok(None);
                }
                Some(other) => return Err(unlike("has_more", "true or false", other)),
            }
        }
        if let Some(next_token) = &pagination.next_token {
            let token = match body.pointer(&pointer(&next_token.response)) {
                None | Some(Value::Null | Value::Bool(false)) => None,
                Some(Value::String(token)) if token.is_empty() => None,
                Some(token) if token.is_string() || token.is_number() => Some(token.clone()),
                Some(token) => return Err(unlike("next_token.response", "a text or a number", token)),
            };
            return Ok(page(next_token.parameter(), token));
        }
        if let Some(field) = &pagination.next_url {
            let target = match body.pointer(&pointer(field)) {
                None | Some(Value::Null | Value::Bool(false)) => None,
                Some(Value::String(target)) => Some(target.as_str()).filter(|target| !target.is_empty()),
                Some(other) => return Err(unlike("next_url", "a text", other)),
            };
            return Ok(target.and_then(|target| self.link(target, url)));
        }
        if pagination.link_header {
            let mut links = headers.get_all(LINK).iter().filter_map(|value| value.to_str().ok());
            return Ok(links.find_map(next_link).and_then(|target| self.link(target, url)));
        }
        // One that is empty although there is more is passed over, where the next one has a number of its own.
        if self.on_page == 0 && (pagination.has_more.is_none() || pagination.page.is_none()) {
            return Ok(None);
        }
        if let Some(last_item) = &pagination.last_item {
            let field = pointer(&last_item.field);
            let value = self.last.as_ref().and_then(|last| last.pointer(&field)).cloned();
            if let (None, Some(last)) = (&value, &self.last) {
                let there = format!("the last item: {}", misplaced::keys(last));
                return Err(misnamed("last_item.field", &field, &there));
            }
            return Ok(page(last_item.parameter(), value));
        }
        if let Some(offset) = &pagination.offset {
            return Ok(page(offset.parameter(), Some((self.counter + self.on_page as u64).into())));
        }
        Ok(page(pagination.page.as_ref().and_then(Counter::parameter), Some((self.counter + 1).into())))
    }

    /// Returns the page at `target`, relative to `url`. On another server it is not fetched.
    fn link(&mut self, target: &str, url: &Url) -> Option<RequestTarget> {
        let next = url.join(&endpoint(target, &self.call.context.config.http.endpoints)).ok();
        let mut next = next.filter(|next| next.origin() == url.origin());
        // It is not sent, so it makes no other page.
        if let Some(next) = &mut next {
            next.set_fragment(None);
        }
        if next.is_none() {
            self.elsewhere = Some(target.to_owned());
        }
        next.map(RequestTarget::Link)
    }
}

fn page(parameter: Option<Parameter>, value: Option<Value>) -> Option<RequestTarget> {
    Some(RequestTarget::Page(parameter?, value?))
}

/// Returns the number that the declared request carries at the place of `counter`.
fn declared(draft: &Draft, counter: &Counter) -> Option<u64> {
    match (counter.parameter()?, &draft.body) {
        (Parameter::Query(name), _) => draft.query.iter().find_map(|(known, value)| match value {
            PlacedValue::Text(text) if *known == name => text.trim().parse().ok(),
            _ => None,
        }),
        (Parameter::Body(pointer), Some(DraftBody::Json(json))) => json.value.pointer(&pointer)?.as_u64(),
        (Parameter::Body(_), _) => None,
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

/// Sets or removes the value at `pointer`. Returns false if its parent is not an object.
pub(super) fn put(body: &mut Value, pointer: &str, value: Option<Value>) -> bool {
    let Some((parent, name)) = pointer.rsplit_once('/') else { return false };
    let Some(Value::Object(fields)) = body.pointer_mut(parent) else { return false };
    let name = name.replace("~1", "/").replace("~0", "~");
    match value {
        Some(value) => drop(fields.insert(name, value)),
        None => drop(fields.shift_remove(&name)),
    }
    true
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
