//! Builds the URL from a definition and an input, and refuses values that would change its structure.

use std::collections::BTreeMap;

use definition::run::http::{Http, endpoint};
use ground::base::template::{self, TemplateValues};
use percent_encoding::percent_decode_str;
use serde_json::Value;
use url::Url;

use super::{Code, Failure};

/// Returns the URL without the declared query parameters, at the configured endpoint.
pub(super) fn address(
    http: &Http,
    values: &TemplateValues,
    endpoints: &BTreeMap<String, String>,
) -> Result<Url, Failure> {
    let base = base_url(http, values)?;
    let mut url = Url::parse(&endpoint(&base, endpoints))
        .map_err(|error| Failure::new(Code::Rejected, format!("`{base}` is not a valid URL: {error}")))?;
    if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
        return Err(Failure::new(Code::Rejected, format!("`{base}` is not an http or https URL")));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(Failure::new(Code::Rejected, "a URL must not contain a user name or a password"));
    }
    let path = values.url_part(&http.path)?;
    if !path.is_empty() {
        refuse_unsafe_segments(&path, http.path.ends_with('/'))?;
        let joined = format!("{}{path}", url.path().trim_end_matches('/'));
        url.set_path(&joined);
    }
    url.set_fragment(None);
    Ok(url)
}

/// The URL that the definition names, if the configuration replaces it with another endpoint.
pub(super) fn declared(
    http: &Http,
    values: &TemplateValues,
    endpoints: &BTreeMap<String, String>,
) -> Result<Option<Url>, Failure> {
    let base = base_url(http, values)?;
    Ok(if endpoint(&base, endpoints) == base { None } else { Url::parse(&base).ok() })
}

/// The base of the URL, as the definition names it.
fn base_url(http: &Http, values: &TemplateValues) -> Result<String, Failure> {
    let whole = values.value(&Value::String(http.base_url.clone()))?;
    Ok(match whole {
        // A single reference: the input contains the whole URL. Any other expression could assemble a host from parts, so its
        // values are parts of the URL.
        Some(Value::String(url)) if template::is_reference(&http.base_url) => url,
        _ => {
            let base = values.url_part(&http.base_url)?;
            if let Some((_, path)) = base.split_once("://").and_then(|(_, rest)| rest.split_once('/')) {
                refuse_unsafe_segments(path, true)?;
            }
            base
        }
    })
}

/// Refuses values that would address another resource than the declared one: `.` and `..` lead to another folder, and
/// an empty segment turns `/things/{{ id }}` into `/things/`.
fn refuse_unsafe_segments(path: &str, may_end_empty: bool) -> Result<(), Failure> {
    let mut segments = path.strip_prefix('/').unwrap_or(path).split('/').peekable();
    while let Some(segment) = segments.next() {
        let decoded = percent_decode_str(segment).collect::<Vec<u8>>();
        let is_last = segments.peek().is_none();
        let reason = match decoded.as_slice() {
            b"." | b".." => "a segment `.` or `..`",
            b"" if !(is_last && may_end_empty) => "an empty segment",
            _ => continue,
        };
        return Err(Failure::new(Code::Rejected, format!("the values create {reason} in the path `{path}`"))
            .hint("pass the identifier itself, not a path"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn url(definition: Value, input: Value) -> Result<String, Code> {
        url_at(definition, input, &BTreeMap::new())
    }

    fn url_at(definition: Value, input: Value, endpoints: &BTreeMap<String, String>) -> Result<String, Code> {
        let http: Http = serde_json::from_value(definition).expect("a definition");
        let values = TemplateValues::of_input(&serde_json::from_value(input).expect("an object"));
        address(&http, &values, endpoints).map(|url| url.to_string()).map_err(|failure| failure.error.code)
    }

    #[test]
    fn a_value_cannot_lead_to_another_path() {
        let definition = || json!({"base_url": "https://a.example/api", "path": "/things/{{ id }}"});
        for id in [".", "..", ""] {
            assert_eq!(url(definition(), json!({"id": id})), Err(Code::Rejected), "{id}");
        }
        let climbing = json!({"base_url": "https://a.example", "path": "/%2e{{ id }}/x"});
        assert_eq!(url(climbing, json!({"id": "."})), Err(Code::Rejected));
        let encoded = url(definition(), json!({"id": "%2e%2e/x?y#z\\"})).expect("a URL");
        assert_eq!(encoded, "https://a.example/api/things/%252e%252e%2Fx%3Fy%23z%5C");
        let split =
            json!({"base_url": "https://a.example", "path": "/c{% for part in p|split('/') %}/{{ part }}{% endfor %}"});
        assert_eq!(url(split.clone(), json!({"p": "a b/c"})).expect("a URL"), "https://a.example/c/a%20b/c");
        assert_eq!(url(split, json!({"p": "a/../../c"})), Err(Code::Rejected));
    }

    #[test]
    fn a_value_in_a_host_cannot_lead_to_another_host() {
        let definition = || json!({"base_url": "https://{{ tenant }}.example.com/api"});
        for tenant in ["evil.com/", "evil.com#", "evil.com?", "a@evil.com:1", "evil.com\\"] {
            assert_eq!(url(definition(), json!({"tenant": tenant})), Err(Code::Rejected), "{tenant}");
        }
        assert_eq!(url(definition(), json!({"tenant": "acme"})).expect("a URL"), "https://acme.example.com/api");
    }

    #[test]
    fn a_configured_endpoint_replaces_the_declared_one() {
        let mut endpoints = BTreeMap::new();
        endpoints.insert("https://api.github.com".to_owned(), "https://git.example/api/v3/".to_owned());
        let definition = json!({"base_url": "https://api.github.com", "path": "/user"});
        assert_eq!(url_at(definition, json!({}), &endpoints).expect("a URL"), "https://git.example/api/v3/user");
        let other = json!({"base_url": "https://api.github.com.evil.example", "path": "/user"});
        assert_eq!(url_at(other, json!({}), &endpoints).expect("a URL"), "https://api.github.com.evil.example/user");
    }
}
