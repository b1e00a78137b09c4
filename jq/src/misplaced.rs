//! Paths of a definition that lead nowhere in an answer: what is there instead.
//!
//! Services leave out what is empty, so a missing field alone proves nothing. What does is an answer that has the thing
//! at another place.

use protocol::excerpt;
use protocol::wording::at_most;
use serde_json::Value;

/// The most keys that a message lists, and how much it shows of each.
const MAX_KEYS: usize = 20;
const MAX_KEY_CHARS: usize = 60;
/// How deep an answer is searched.
const MAX_DEPTH: usize = 4;
/// Lists that stand beside the one that is paged, also where that is left out since it is empty.
const BESIDE: [&str; 5] = ["unreachable", "unreachables", "unreachableLocations", "missingZones", "warnings"];
/// Fields that say how many items there are, in lower case and without separators.
const TOTALS: [&str; 6] = ["count", "total", "totalcount", "totalitems", "totalresults", "totalsize"];

/// The keys of `data`, for a message: "it has `a`, `b` and 3 more".
pub fn keys(data: &Value) -> String {
    match data {
        Value::Object(fields) if fields.is_empty() => "it is an empty object".to_owned(),
        Value::Object(fields) => format!("it has {}", named_keys(fields.keys().map(String::as_str))),
        Value::Array(items) => format!("it is a list of {}", items.len()),
        Value::String(_) => "it is a text".to_owned(),
        Value::Null => "it is empty".to_owned(),
        Value::Bool(_) | Value::Number(_) => "it is a plain value".to_owned(),
    }
}

/// Keys for a message: "`a`, `b` and 3 more".
pub(crate) fn named_keys<'a>(keys: impl Iterator<Item = &'a str>) -> String {
    at_most(MAX_KEYS, keys.map(named_key))
}

/// A key for a message.
pub(crate) fn named_key(key: &str) -> String {
    format!("`{}`", excerpt::line(key, MAX_KEY_CHARS))
}

/// Why the list at `pointer`, which `page` does not have, is not just empty; `None` if it may be.
pub fn misplaced_list(page: &Value, pointer: &str, is_first: bool) -> Option<String> {
    if page.is_null() {
        return None;
    }
    if let Some(place) = list(page, MAX_DEPTH) {
        return Some(format!("{}; there is a list at `{place}`", keys(page)));
    }
    let is_flat = page.as_object().is_some_and(|fields| !fields.values().any(has_fields));
    let is_deep = pointer.matches('/').count() > 1;
    let has_total = is_first && total(page);
    (!page.is_object() || has_total || is_deep && !is_flat).then(|| keys(page))
}

/// Where `page`, which has nothing at the declared place, says that there is a next page.
pub fn next_elsewhere(page: &Value) -> Option<String> {
    next(page, 2).map(|place| format!("{}; there is `{place}`", keys(page)))
}

/// Why the plain path `expression`, like `.a.b`, leads nowhere in `data`; `None` if it leads somewhere, or is more.
pub fn of_path(expression: &str, data: &Value) -> Option<String> {
    let path = expression.trim().strip_prefix('.')?;
    let is_word = |word: &str| {
        !word.is_empty()
            && !word.starts_with(|first: char| first.is_ascii_digit())
            && word.chars().all(|it| it.is_ascii_alphanumeric() || it == '_')
    };
    let words: Vec<&str> = path.split('.').collect();
    if !words.iter().all(|word| is_word(word)) {
        return None;
    }
    let mut at = data;
    for word in words {
        match at.as_object()?.get(word) {
            Some(inner) => at = inner,
            None => return Some(format!("there is no `{word}`: {}", keys(at))),
        }
    }
    None
}

fn has_fields(value: &Value) -> bool {
    value.as_object().is_some_and(|fields| !fields.is_empty())
}

/// The place of a list.
fn list(value: &Value, depth: usize) -> Option<String> {
    let fields = value.as_object().filter(|_| depth > 0)?;
    let fields = || fields.iter().filter(|(name, _)| !BESIDE.contains(&name.as_str()));
    let own = fields().find(|(_, value)| value.is_array()).map(|(name, _)| place(name));
    own.or_else(|| fields().find_map(|(name, value)| Some(place(name) + &list(value, depth - 1)?)))
}

fn total(page: &Value) -> bool {
    let is_total = |name: &str| TOTALS.contains(&plain(name).as_str());
    page.as_object().is_some_and(|fields| {
        fields.iter().any(|(name, value)| is_total(name) && value.as_u64().is_some_and(|count| count > 0))
    })
}

fn next(value: &Value, depth: usize) -> Option<String> {
    let fields = value.as_object().filter(|_| depth > 0)?;
    let is_next = |name: &str, value: &Value| {
        let name = plain(name);
        let says_more = ["hasmore", "hasnext", "hasnextpage", "morepages"].contains(&name.as_str());
        let is_named = name.starts_with("next") && !name.contains("sync") && !name.contains("run");
        says_more && *value == true
            || is_named && (value.as_str().is_some_and(|text| !text.is_empty()) || value.is_u64())
    };
    let own = fields.iter().find(|(name, value)| is_next(name, value)).map(|(name, _)| place(name));
    own.or_else(|| fields.iter().find_map(|(name, value)| Some(place(name) + &next(value, depth - 1)?)))
}

fn place(name: &str) -> String {
    format!("/{}", protocol::json::pointer_token(name))
}

fn plain(name: &str) -> String {
    name.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_list_that_is_elsewhere_is_not_an_empty_one() {
        for (page, pointer, expected) in [
            (json!({"data": [1]}), "/rows", Some("it has `data`; there is a list at `/data`")),
            (json!({"data": []}), "/rows", Some("it has `data`; there is a list at `/data`")),
            (
                json!({"meta": {}, "data": {"rows": []}}),
                "/rows",
                Some("it has `meta`, `data`; there is a list at `/data/rows`"),
            ),
            (json!({"total": 3}), "/rows", Some("it has `total`")),
            (json!({"result": {"ok": true}}), "/data/rows", Some("it has `result`")),
            (json!("text"), "/rows", Some("it is a text")),
            (json!({}), "/rows", None),
            (Value::Null, "/rows", None),
            (json!({"kind": "x", "resultSizeEstimate": 0}), "/messages", None),
            (json!({"total": 0}), "/rows", None),
            (json!({"unreachable": ["a"]}), "/items", None),
        ] {
            assert_eq!(misplaced_list(&page, pointer, true).as_deref(), expected, "{page}");
        }
        assert_eq!(misplaced_list(&json!({"total": 3}), "/rows", false), None, "a page after the first");
    }

    #[test]
    fn a_next_page_is_found_where_it_is() {
        for (page, expected) in [
            (json!({"meta": {"next_cursor": "a"}}), Some("it has `meta`; there is `/meta/next_cursor`")),
            (json!({"nextPageToken": "a"}), Some("it has `nextPageToken`; there is `/nextPageToken`")),
            (json!({"has_more": true}), Some("it has `has_more`; there is `/has_more`")),
            (json!({"next": null, "has_more": false, "nextSyncToken": "a", "items": [{"next": "a"}]}), None),
        ] {
            assert_eq!(next_elsewhere(&page).as_deref(), expected, "{page}");
        }
    }

    #[test]
    fn a_plain_path_leads_somewhere_or_is_told() {
        let data = json!({"a": {"b": null}, "c": 1});
        assert_eq!(of_path(".a.x", &data).as_deref(), Some("there is no `x`: it has `b`"));
        assert_eq!(of_path(".rows", &data).as_deref(), Some("there is no `rows`: it has `a`, `c`"));
        for fine in [".a.b", ".a", ".", ".rows // []", ".a.b.c", "[.rows]"] {
            assert_eq!(of_path(fine, &data), None, "{fine}");
        }
    }
}
