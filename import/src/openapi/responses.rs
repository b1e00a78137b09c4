//! What responses say about the request: their format, and whether they are pages of a list.

use serde_json::{Value, json};

use super::OpenApi;
use crate::http::{Request, reference};
use crate::schema::append_description;

const PAGE_SIZES: [&str; 10] = [
    "per_page",
    "perPage",
    "page_size",
    "pageSize",
    "page[size]",
    "limit",
    "max_results",
    "maxResults",
    "count",
    "size",
];
const PAGE_NUMBERS: [&str; 3] = ["page", "page_number", "pageNumber"];
/// Query parameters that carry a cursor, and the fields of a response that have the next one.
const CURSORS: [&str; 14] = [
    "cursor",
    "page_token",
    "pageToken",
    "next_token",
    "nextToken",
    "next_cursor",
    "nextCursor",
    "continuation_token",
    "continuationToken",
    "starting_token",
    "start_cursor",
    "page[cursor]",
    "pagination_token",
    "after",
];
const NEXT_CURSORS: [&str; 12] = [
    "next_cursor",
    "nextCursor",
    "next_page_token",
    "nextPageToken",
    "next_token",
    "nextToken",
    "continuation_token",
    "continuationToken",
    "nextContinuationToken",
    "next_page_cursor",
    "cursor_next",
    "cursor",
];
/// Fields of a response, or of an object in it, that have the URL of the next page.
const NEXT_URLS: [&str; 5] = ["next", "next_url", "nextUrl", "next_page_url", "nextPageUrl"];

/// The response of success: its schema, headers and content types.
struct Success<'a> {
    schema: &'a Value,
    headers: &'a Value,
    content_types: Vec<&'a str>,
}

fn success<'a>(api: &OpenApi<'a>, operation: &'a Value) -> Option<Success<'a>> {
    let responses = operation["responses"].as_object()?;
    let (_, response) = ["200", "201", "202", "2XX", "2xx", "206", "default"]
        .iter()
        .find_map(|status| responses.get_key_value(*status))?;
    let response = api.schemas.resolve(response)?;
    let headers = &response["headers"];
    if api.is_swagger {
        let produces = operation.get("produces").or_else(|| api.data.get("produces")).and_then(Value::as_array);
        let content_types = produces.into_iter().flatten().filter_map(Value::as_str).collect();
        return Some(Success { schema: &response["schema"], headers, content_types });
    }
    let content = response["content"].as_object();
    let content_types: Vec<_> = content.into_iter().flatten().map(|(kind, _)| kind.as_str()).collect();
    let json = content.into_iter().flatten().find(|(kind, _)| kind.contains("json"));
    Some(Success { schema: json.map_or(&Value::Null, |(_, media)| &media["schema"]), headers, content_types })
}

/// Adds the format of the response, and its pages, to `request`.
pub(super) fn apply(api: &OpenApi<'_>, method: &str, operation: &Value, request: &mut Request) {
    let Some(success) = success(api, operation) else { return };
    let is_xml = |kind: &&str| kind.contains("xml") && !kind.contains("html");
    if !success.content_types.is_empty() && success.content_types.iter().all(is_xml) {
        request.response = Some("xml");
        return;
    }
    if method == "GET" {
        pages(api, &success, request);
    }
}

fn pages<'a>(api: &OpenApi<'a>, success: &Success<'a>, request: &mut Request) {
    let schema = api.schemas.resolve(success.schema).unwrap_or(&Value::Null);
    let is_array = schema["type"] == "array";
    let fields = api.schemas.fields(schema);
    let lists: Vec<_> = fields
        .iter()
        .filter(|(_, field)| {
            let field = api.schemas.resolve(field).unwrap_or(&Value::Null);
            field["type"] == "array"
        })
        .map(|(name, _)| *name)
        .collect();
    // The list that is paged: the only one, or the one with the usual name.
    let usual = ["data", "items", "results", "records", "entries", "values"];
    let items = match lists.as_slice() {
        [only] => Some(*only),
        several => several.iter().find(|name| usual.contains(*name)).copied(),
    };
    let links = |name: &str| {
        success.headers.as_object().is_some_and(|all| all.keys().any(|key| key.eq_ignore_ascii_case(name)))
    };
    let has_page = || PAGE_NUMBERS.iter().chain(&CURSORS).any(|name| request.has_query(name));
    let pagination = if links("link") && has_page() && (is_array || items.is_some()) {
        let mut pagination = json!({"link_header": true});
        if let Some(items) = items.filter(|_| !is_array) {
            pagination["items"] = items.into();
        }
        Some(pagination)
    } else {
        items.and_then(|items| cursor(api, &fields, items, request).or_else(|| next_url(api, &fields, items)))
    };
    let Some(mut pagination) = pagination else { return };
    if let Some(size) = PAGE_SIZES.iter().find_map(|name| request.field_of_query(name)).map(str::to_owned)
        && let Some(schema) = request.property_mut(&size)
        && schema.get("type") == Some(&"integer".into())
    {
        append_description(schema, "Without it, up to 5 pages are returned.");
        pagination["max_items"] = reference(&size).into();
    }
    request.pagination = Some(pagination);
}

/// A cursor of the response that the next request sends back, at the top or one object below (`meta.next_cursor`).
fn cursor<'a>(api: &OpenApi<'a>, fields: &[(&'a str, &'a Value)], items: &str, request: &Request) -> Option<Value> {
    let query = CURSORS.iter().find(|name| request.has_query(name))?;
    let response = pointer(api, fields, &NEXT_CURSORS, |_| true)?;
    Some(json!({"next_token": {"query": query, "response": response}, "items": items}))
}

fn next_url<'a>(api: &OpenApi<'a>, fields: &[(&'a str, &'a Value)], items: &str) -> Option<Value> {
    let is_url = |schema: &Value| {
        let text = schema["description"].as_str().unwrap_or_default().to_lowercase();
        schema["format"] == "uri" || schema["format"] == "url" || text.contains("url") || text.contains("link")
    };
    let next = pointer(api, fields, &NEXT_URLS, is_url)?;
    Some(json!({"next_url": next, "items": items}))
}

/// The field of that name, as the runner names it: a name, or a JSON pointer to one in an object of the response.
fn pointer<'a>(
    api: &OpenApi<'a>,
    fields: &[(&'a str, &'a Value)],
    names: &[&str],
    fits: impl Fn(&Value) -> bool,
) -> Option<String> {
    let resolved = |schema: &'a Value| api.schemas.resolve(schema).unwrap_or(&Value::Null);
    let is_text = |schema: &Value| {
        let schema = schema.to_string();
        schema.contains("\"string\"") && !schema.contains("\"object\"")
    };
    let found = |fields: &[(&'a str, &'a Value)]| {
        names.iter().find_map(|wanted| {
            let (name, schema) = fields.iter().find(|(name, _)| name == wanted)?;
            let schema = resolved(schema);
            (is_text(schema) && fits(schema)).then(|| (*name).to_owned())
        })
    };
    found(fields).or_else(|| {
        let outer = ["meta", "pagination", "paging", "links", "_links", "response_metadata", "cursor", "page"];
        outer.iter().find_map(|outer| {
            let (_, schema) = fields.iter().find(|(name, _)| name == outer)?;
            let inner = found(&api.schemas.fields(resolved(schema)))?;
            Some(format!("/{outer}/{inner}"))
        })
    })
}
