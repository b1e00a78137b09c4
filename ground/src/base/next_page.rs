//! Whether an answer says that it is only one page, although its definition does not say how the others are fetched.
//!
//! Only names that mean nothing else count, and only beside a list: a field called `next_step` says nothing about pages.

use serde_json::{Map, Value};

/// How deep an answer is searched: GraphQL nests what says it below the query's own fields.
const MAX_DEPTH: usize = 5;
/// Fields that are true if there is more, in lower case and without separators.
const FLAGS: [&str; 8] =
    ["hasmore", "hasnext", "hasnextpage", "morepages", "moreresults", "truncated", "istruncated", "incompleteresults"];
/// Fields that lead to the next page.
const LINKS: [&str; 10] = [
    "nextpage",
    "nextpagetoken",
    "nextpageurl",
    "nexttoken",
    "nextcursor",
    "nextlink",
    "nexturl",
    "nextmarker",
    "odatanextlink",
    "nextpagelink",
];

/// Whether `body`, which came with `headers` by their lower-case names, says that there is a next page.
pub fn is_named(body: &Value, headers: Option<&Map<String, Value>>) -> bool {
    let links = headers.and_then(|headers| headers.get("link")?.as_str());
    links.is_some_and(has_next_link) || (has_list(body, MAX_DEPTH) && names_next(body, MAX_DEPTH))
}

/// Whether a `Link` header (RFC 8288) has the relation `next`.
fn has_next_link(links: &str) -> bool {
    links.split(';').any(|parameter| {
        let plain: String = parameter.chars().filter(|character| !character.is_whitespace()).collect();
        let plain = plain.split(',').next().unwrap_or_default().to_ascii_lowercase();
        plain == "rel=\"next\"" || plain == "rel=next"
    })
}

fn has_list(value: &Value, depth: usize) -> bool {
    match value {
        Value::Array(_) => true,
        Value::Object(fields) if depth > 0 => fields.values().any(|field| has_list(field, depth - 1)),
        _ => false,
    }
}

fn names_next(value: &Value, depth: usize) -> bool {
    let Some(fields) = value.as_object().filter(|_| depth > 0) else { return false };
    fields.iter().any(|(name, value)| says_next(name, value) || names_next(value, depth - 1))
}

/// A name as it is compared: in lower case and without separators.
pub fn plain(name: &str) -> String {
    name.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_ascii_lowercase()
}

fn says_next(name: &str, value: &Value) -> bool {
    let name = plain(name);
    if FLAGS.contains(&name.as_str()) {
        return *value == true;
    }
    if LINKS.contains(&name.as_str()) {
        return value.as_str().is_some_and(|text| !text.is_empty()) || value.is_u64();
    }
    let target = value.as_str().or_else(|| value["href"].as_str()).or_else(|| value["url"].as_str());
    name == "next"
        && target.is_some_and(|target| ["http://", "https://", "/", "?"].iter().any(|it| target.starts_with(it)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_next_page_is_known_by_its_names() {
        for body in [
            json!({"messages": [], "nextPageToken": "a"}),
            json!({"data": [], "has_more": true}),
            json!({"value": [1], "@odata.nextLink": "https://a.example/x"}),
            json!({"data": {"repository": {"issues": {"nodes": [], "pageInfo": {"hasNextPage": true}}}}}),
            json!({"_embedded": {"items": []}, "_links": {"next": {"href": "/x?page=2"}}}),
            json!({"results": [], "next": "https://a.example/?page=2"}),
            json!({"tree": [], "truncated": true}),
            json!({"items": [], "meta": {"next_page": 2}}),
        ] {
            assert!(is_named(&body, None), "{body}");
        }
        for body in [
            json!({"items": [], "nextSyncToken": "a", "next_step": "review", "next": "Tuesday"}),
            json!({"items": [], "has_more": false, "next_page": null, "nextPageToken": "", "next": null}),
            json!({"title": "a", "next_page": "/posts/2"}),
            json!([{"next_cursor": "a"}]),
        ] {
            assert!(!is_named(&body, None), "{body}");
        }
        let link = |text: &str| json!({"link": text}).as_object().cloned();
        let next = r#"<https://a.example/?page=1>; rel="prev", <https://a.example/?page=3>; rel="next", <https://a.example/?page=9>; rel="last""#;
        assert!(is_named(&json!([]), link(next).as_ref()));
        assert!(!is_named(&json!([]), link(r#"<https://a.example/?rel=next>; rel="prev""#).as_ref()));
    }
}
