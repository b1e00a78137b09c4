//! Finds mistakes in a definition that its types cannot express.

use ground::base::template;
use ground::config::secret::SecretName;
use url::Url;

use super::parts::FormPart;
use super::{Auth, Body, Http, Method};
use crate::run::{DefinitionMistake, DefinitionMistakes, TextKind};

/// Headers that belong to the connection; a definition that set them could break the framing of the request.
const RESERVED_HEADERS: [&str; 9] =
    ["connection", "content-length", "expect", "host", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade"];

/// Returns what the text at `place` in the definition is.
pub(super) fn text_kind(place: &str) -> TextKind {
    let is_below = |prefixes: &[&str]| {
        prefixes
            .iter()
            .any(|prefix| place.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('.')))
    };
    let constants =
        ["method", "array_style", "idempotency_header", "response", "auth", "body.raw.content_type", "poll.interval"];
    let is_constant = is_below(&constants)
        || is_type_of_file(place)
        || (place.starts_with("pagination.") && place != "pagination.max_items");
    if is_constant {
        TextKind::Constant
    } else if is_below(&["headers"]) {
        TextKind::TemplateOrLastSecret
    } else if is_below(&["query", "body.json", "body.form", "body.multipart"]) {
        TextKind::TemplateOrSecret
    } else if place == "error" || place.starts_with("poll.") {
        TextKind::ResponseJq
    } else {
        TextKind::Template
    }
}

/// Whether the text at `place` is the content type of a file, and not a field of that name.
fn is_type_of_file(place: &str) -> bool {
    let Some(body) = place.strip_prefix("body.").and_then(|rest| rest.strip_suffix(".content_type")) else {
        return false;
    };
    body == "file" || body.strip_prefix("multipart.").is_some_and(|part| !part.is_empty())
}

pub(super) fn definition(http: &Http) -> Vec<DefinitionMistake> {
    let mut found = DefinitionMistakes::default();
    found.note(base_url(&http.base_url));
    found.note(path(&http.path));
    for (name, templates) in &http.headers {
        if name.contains(':') {
            // The message must not quote the name: the text after the colon may be a secret.
            found.note(mistake("headers", "a header name must not contain `:`; write \"Name\": \"value\""));
        } else {
            let place = format!("headers.{name}");
            found.note(header_name(&place, name));
            if templates.0.is_empty() {
                found.note(mistake(place, "names no value; leave the header out"));
            }
        }
    }
    if let Some(name) = &http.idempotency_header {
        found.note(header_name("idempotency_header", name));
    }
    if let Some(body) = &http.body {
        found.note(self::body(http, body));
    }
    if let Some(auth) = &http.auth {
        found.note(self::auth(http, auth));
    }
    if let Some(pagination) = &http.pagination {
        found.note(pagination.check(http));
    }
    if http.max_bytes == Some(0) {
        found.note(mistake("max_bytes", "must be at least 1"));
    }
    found.into_vec()
}

fn base_url(base: &str) -> Result<(), DefinitionMistake> {
    if !template::is_constant(base) {
        return Ok(());
    }
    let url = Url::parse(base).map_err(|error| {
        DefinitionMistake::new("base_url", &format!("is not a valid URL, like `https://api.example.com/v1`: {error}"))
    })?;
    if !matches!(url.scheme(), "http" | "https") {
        return mistake("base_url", "must start with `https://` or `http://`");
    }
    if !url.username().is_empty() || url.password().is_some() {
        return mistake("base_url", "must not contain credentials; use `auth`");
    }
    if url.query().is_some() || url.fragment().is_some() {
        return mistake("base_url", "must not have a query or a fragment; use `query`");
    }
    Ok(())
}

fn path(path: &str) -> Result<(), DefinitionMistake> {
    let literal = literal(path);
    if !path.is_empty() && !path.starts_with(['/', '{']) {
        return mistake("path", "must start with `/`");
    }
    if literal.contains(['?', '#', '\\']) {
        return mistake("path", "must not contain `?`, `#` or `\\`; use `query` for parameters");
    }
    if literal.contains("//") || literal.split('/').any(|segment| matches!(segment, "." | "..")) {
        return mistake("path", "must not contain an empty segment, `.` or `..`");
    }
    Ok(())
}

/// Returns the literal text of a template, with a letter in place of each value and nothing in place of each statement.
fn literal(template: &str) -> String {
    let (mut text, mut rest) = (String::new(), template);
    while let Some(start) = rest.find('{') {
        let (before, tag) = rest.split_at(start);
        text.push_str(before);
        let (close, placeholder) = match tag.as_bytes().get(1) {
            Some(b'{') => ("}}", "x"),
            Some(b'%') => ("%}", ""),
            Some(b'#') => ("#}", ""),
            _ => ("{", "{"),
        };
        text.push_str(placeholder);
        rest = tag.find(close).map_or("", |end| &tag[end + close.len()..]);
    }
    text + rest
}

fn body(http: &Http, body: &Body) -> Result<(), DefinitionMistake> {
    if matches!(http.method, Method::Get | Method::Head) {
        return mistake("body", "a GET or HEAD request has no body; set `method`");
    }
    match body {
        Body::Json(_) | Body::Form(_) => Ok(()),
        Body::Multipart(parts) => {
            if http.headers.keys().any(|name| name.eq_ignore_ascii_case("content-type")) {
                return mistake("headers.content-type", "a multipart body sets its own content type");
            }
            parts.0.iter().try_for_each(|(name, part)| match part {
                FormPart::Text(_) => Ok(()),
                FormPart::File(file) => {
                    content_type(&format!("body.multipart.{name}.content_type"), file.content_type.as_deref())
                }
            })
        }
        Body::Raw(raw) => content_type("body.raw.content_type", Some(&raw.content_type)),
        Body::File(file) => content_type("body.file.content_type", file.content_type.as_deref()),
    }
}

fn auth(http: &Http, auth: &Auth) -> Result<(), DefinitionMistake> {
    let header = match auth {
        Auth::Bearer(_) | Auth::OAuth2(_) => "authorization",
        Auth::ClientCredentials(client) => {
            token_url(&client.token_url)?;
            if SecretName::is_malformed_reference(&client.client_id) {
                return mistake("auth.client_credentials.client_id", "is not a valid reference to a secret");
            }
            "authorization"
        }
        Auth::Basic(basic) => {
            if basic.username.contains(':') && SecretName::in_reference(&basic.username).is_none() {
                return mistake("auth.basic.username", "a user name must not contain `:`");
            }
            "authorization"
        }
        Auth::ApiKey(key) => match (&key.header, &key.query) {
            (Some(header), None) => {
                header_name("auth.api_key.header", header)?;
                header
            }
            (None, Some(query)) if http.query.contains_key(query) => {
                return mistake("auth.api_key.query", "is also in `query`");
            }
            (None, Some(_)) => return Ok(()),
            _ => return mistake("auth.api_key", "must have exactly one of `header` and `query`"),
        },
    };
    if let Some(duplicate) = http.headers.keys().find(|name| name.eq_ignore_ascii_case(header)) {
        return mistake(format!("headers.{duplicate}"), "`auth` already sets this header");
    }
    Ok(())
}

fn token_url(text: &str) -> Result<(), DefinitionMistake> {
    const PLACE: &str = "auth.client_credentials.token_url";
    let url =
        Url::parse(text).map_err(|error| DefinitionMistake::new(PLACE, &format!("is not a valid URL: {error}")))?;
    if !matches!(url.scheme(), "http" | "https") {
        return mistake(PLACE, "must start with `https://` or `http://`");
    }
    if !url.username().is_empty() || url.password().is_some() {
        return mistake(PLACE, "must not contain credentials; use `client_id` and `client_secret`");
    }
    Ok(())
}

fn header_name(place: &str, name: &str) -> Result<(), DefinitionMistake> {
    if ::http::HeaderName::from_bytes(name.as_bytes()).is_err() {
        return mistake(place, format!("`{name}` is not a valid header name"));
    }
    if RESERVED_HEADERS.iter().any(|reserved| name.eq_ignore_ascii_case(reserved)) {
        return mistake(place, format!("definitions cannot set the header `{name}`"));
    }
    Ok(())
}

fn content_type(place: &str, value: Option<&str>) -> Result<(), DefinitionMistake> {
    match value {
        Some(value) if !value.contains('/') || value.chars().any(char::is_control) => {
            mistake(place, format!("`{value}` is not a valid content type"))
        }
        _ => Ok(()),
    }
}

fn mistake(place: impl Into<String>, message: impl Into<String>) -> Result<(), DefinitionMistake> {
    Err(DefinitionMistake::new(place, &message.into()))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::run::Settings as _;

    fn mistake_location(changes: Value) -> Option<String> {
        let mut definition = json!({"base_url": "https://api.example.com"});
        let (Value::Object(definition), Value::Object(changes)) = (&mut definition, changes) else { panic!("objects") };
        definition.extend(changes);
        let http: Http = serde_json::from_value(Value::Object(definition.clone())).expect("it fits the types");
        http.check().into_iter().next().map(|mistake| mistake.place)
    }

    fn client(token_url: &str) -> Value {
        let client = json!({"token_url": token_url, "client_id": "id", "client_secret": "secret:a"});
        json!({"auth": {"client_credentials": client}})
    }

    #[test]
    fn a_mistake_names_its_location() {
        for (changes, place) in [
            (json!({"base_url": "ftp://a.example"}), "base_url"),
            (json!({"base_url": "https://u:p@a.example"}), "base_url"),
            (json!({"base_url": "https://a.example/?key=1"}), "base_url"),
            (json!({"path": "messages"}), "path"),
            (json!({"path": "/a/../b"}), "path"),
            (json!({"path": "/a?b={{ c }}"}), "path"),
            (json!({"headers": {"X Y": "z"}}), "headers.X Y"),
            (json!({"headers": {"Host": "z"}}), "headers.Host"),
            (json!({"body": {"json": {}}}), "body"),
            (json!({"auth": {"bearer": "secret:a"}, "headers": {"authorization": "x"}}), "headers.authorization"),
            (json!({"auth": {"api_key": {"value": "secret:a"}}}), "auth.api_key"),
            (client("ftp://a.example/token"), "auth.client_credentials.token_url"),
            (client("https://u:p@a.example/token"), "auth.client_credentials.token_url"),
            (client("token"), "auth.client_credentials.token_url"),
            (json!({"pagination": {}}), "pagination"),
            (json!({"method": "POST", "pagination": {"link_header": true}}), "pagination"),
            (json!({"pagination": {"next_token": {"query": "t", "response": "n"}}}), "pagination"),
        ] {
            assert_eq!(mistake_location(changes.clone()).as_deref(), Some(place), "{changes}");
        }
    }

    #[test]
    fn valid_definitions_have_no_mistakes() {
        for changes in [
            json!({}),
            json!({"base_url": "{{ url }}"}),
            json!({"path": "/a/{{ b }}{% if c %}/{{ c }}{% endif %}", "query": {"key": "secret:key", "n": 1}}),
            json!({"method": "DELETE", "auth": {"basic": {"username": "u", "password": "secret:p"}}}),
            json!({"pagination": {"link_header": true, "max_items": "{{ limit }}"}}),
        ] {
            assert_eq!(mistake_location(changes.clone()), None, "{changes}");
        }
    }
}
