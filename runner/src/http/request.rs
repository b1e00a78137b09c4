//! Builds a request from a definition and an input, before any secret is resolved.
//!
//! The same [`Draft`] is used for the plan and for sending, so a human sees exactly what is sent. Has no side effects:
//! secrets are only names here, and files only paths.

use std::path::{Path, PathBuf};

use definition::run::http::{ArrayStyle, Auth, Body, FormPart, Http, Method, ResponseFormat};
use ground::base::template::{self, TemplateValues};
use ground::config::secret::SecretName;
use reqwest::header::HeaderName;
use serde_json::{Map, Value, json};
use url::Url;

use super::address::{address, declared};
use super::placement::{
    PlacedJson, PlacedPairs, PlacedValue, encode_redacted, encoded, header, pairs, scalar, with_query,
};
use super::{Code, Config, Failure, Invocation, TokenSource};

#[derive(Debug, Clone)]
pub(super) enum DraftBody {
    /// Text that is sent as it is.
    Text(String),
    Json(PlacedJson),
    Form(PlacedPairs),
    Multipart(Vec<(String, DraftPart)>),
    File {
        path: PathBuf,
    },
}

#[derive(Debug, Clone)]
pub(super) enum DraftPart {
    Text(PlacedValue),
    File { path: PathBuf, content_type: String, file_name: String },
}

#[derive(Debug)]
pub(super) struct Draft {
    pub(super) method: Method,
    /// Where the definition says that its secrets go: the configuration may have another endpoint for it.
    pub(super) secrets_for: Url,
    /// The URL without the parameters in `query`.
    pub(super) address: Url,
    pub(super) query: PlacedPairs,
    pub(super) headers: Vec<(HeaderName, PlacedValue)>,
    pub(super) body: Option<DraftBody>,
    /// Whether the host depends on the input, so that private addresses are refused.
    pub(super) guarded: bool,
    pub(super) max_items: Option<u64>,
    /// The most pages, if the definition does not decide it.
    pub(super) max_pages: Option<u32>,
}

impl Draft {
    /// Renders the definition with the input.
    pub(super) fn of(http: &Http, invocation: &Invocation, config: &Config) -> Result<Self, Failure> {
        let values = invocation.values();
        let mut headers = vec![
            (HeaderName::from_static("user-agent"), PlacedValue::Text(config.http.user_agent.clone())),
            (HeaderName::from_static("accept"), PlacedValue::Text(accept_header(http.response).to_owned())),
        ];
        let mut query = pairs(&values, &http.query, http.array_style)?;
        let body = match &http.body {
            None => None,
            Some(body) => {
                let (body, content_type) = draft_body(&values, body, http.array_style)?;
                set(&mut headers, HeaderName::from_static("content-type"), PlacedValue::Text(content_type));
                Some(body)
            }
        };
        for (name, templates) in &http.headers {
            let mut placed = Vec::with_capacity(templates.0.len());
            for template in &templates.0 {
                placed.extend(header(&values, name, template)?);
            }
            if !placed.is_empty() {
                let name = header_name(name)?;
                headers.retain(|(known, _)| *known != name);
                headers.extend(placed.into_iter().map(|value| (name.clone(), value)));
            }
        }
        if let Some(name) = &http.idempotency_header {
            set(&mut headers, header_name(name)?, PlacedValue::Text(invocation.id.clone()));
        }
        match &http.auth {
            None => {}
            Some(Auth::ApiKey(key)) => {
                let value = PlacedValue::Secret { prefix: key.prefix.clone(), name: key.value.clone() };
                match (&key.header, &key.query) {
                    (Some(header), _) => set(&mut headers, header_name(header)?, value),
                    (None, Some(parameter)) => query.push((parameter.clone(), value)),
                    (None, None) => {}
                }
            }
            Some(auth) => set(&mut headers, HeaderName::from_static("authorization"), authorization(auth)),
        }
        let address = address(http, &values, &config.http.endpoints)?;
        Ok(Self {
            method: http.method,
            secrets_for: declared(http, &values, &config.http.endpoints)?.unwrap_or_else(|| address.clone()),
            address,
            query,
            headers,
            body,
            guarded: !template::is_constant(&http.base_url),
            max_items: if invocation.all_pages.is_some() { None } else { max_items(http, &values)? },
            max_pages: invocation.all_pages,
        })
    }

    /// Returns the URL, with each query value encoded by `reveal`.
    pub(super) fn url(&self, reveal: impl Fn(&PlacedValue) -> String) -> Url {
        with_query(self.address.clone(), &self.query, reveal)
    }

    /// The secrets that it sends in headers and the query.
    pub(super) fn secrets(&self) -> impl Iterator<Item = &SecretName> {
        let values = self.headers.iter().map(|(_, value)| value).chain(self.query.iter().map(|(_, value)| value));
        values.filter_map(PlacedValue::secret)
    }

    /// All secrets that it sends.
    pub(super) fn sent_secrets(&self) -> impl Iterator<Item = &SecretName> {
        let values = self.headers.iter().map(|(_, value)| value).chain(self.query.iter().map(|(_, value)| value));
        let of_body = self.body.iter().flat_map(|body| match body {
            DraftBody::Text(_) | DraftBody::File { .. } => Vec::new(),
            DraftBody::Json(json) => json.secrets.iter().map(|(_, name)| name).collect(),
            DraftBody::Form(fields) => fields.iter().flat_map(|(_, value)| value.secrets()).collect(),
            DraftBody::Multipart(parts) => {
                let texts = parts.iter().filter_map(|(_, part)| match part {
                    DraftPart::Text(value) => Some(value),
                    DraftPart::File { .. } => None,
                });
                texts.flat_map(PlacedValue::secrets).collect()
            }
        });
        values.flat_map(PlacedValue::secrets).chain(of_body)
    }

    /// What its access token is obtained with.
    pub(super) fn token_source(&self) -> Option<&TokenSource> {
        self.headers.iter().find_map(|(_, value)| match value {
            PlacedValue::Token(source) => Some(source),
            _ => None,
        })
    }

    /// Returns the URL with names in place of secrets.
    pub(super) fn redacted_url(&self) -> Url {
        self.url(encode_redacted)
    }

    /// Returns the plan: the request with names in place of secrets.
    pub(super) fn to_plan(&self) -> Value {
        let mut headers = Map::new();
        for (name, value) in &self.headers {
            let shown = Value::String(value.redacted());
            match headers.entry(name.as_str()).or_insert(Value::Null) {
                Value::Array(several) => several.push(shown),
                absent @ Value::Null => *absent = shown,
                one => *one = json!([one, shown]),
            }
        }
        json!({
            "method": self.method,
            "url": self.redacted_url().as_str(),
            "headers": headers,
            "body": self.body.as_ref().map_or(Value::Null, DraftBody::to_plan),
        })
    }
}

impl DraftBody {
    /// The files that are uploaded.
    pub(super) fn files(&self) -> Vec<&Path> {
        match self {
            Self::Text(_) | Self::Json(_) | Self::Form(_) => Vec::new(),
            Self::File { path } => vec![path],
            Self::Multipart(parts) => {
                let files = parts.iter().filter_map(|(_, part)| match part {
                    DraftPart::File { path, .. } => Some(path.as_path()),
                    DraftPart::Text(_) => None,
                });
                files.collect()
            }
        }
    }

    fn to_plan(&self) -> Value {
        match self {
            Self::Text(text) => Value::String(text.clone()),
            Self::Json(json) => json.value.clone(),
            Self::Form(pairs) => Value::String(encoded(pairs, encode_redacted)),
            Self::File { path } => json!({"file": path}),
            Self::Multipart(parts) => parts
                .iter()
                .map(|(name, part)| match part {
                    DraftPart::Text(text) => json!({"name": name, "text": text.redacted()}),
                    DraftPart::File { path, content_type, file_name } => {
                        json!({"name": name, "file": path, "content_type": content_type, "file_name": file_name})
                    }
                })
                .collect(),
        }
    }
}

fn accept_header(expected: ResponseFormat) -> &'static str {
    match expected {
        ResponseFormat::Json => "application/json",
        ResponseFormat::Xml => "application/xml, text/xml;q=0.9, */*;q=0.1",
        ResponseFormat::Ndjson => "application/x-ndjson, application/jsonl, */*;q=0.1",
        ResponseFormat::Auto | ResponseFormat::Text | ResponseFormat::Binary => "*/*",
    }
}

fn authorization(auth: &Auth) -> PlacedValue {
    match auth {
        Auth::Bearer(name) => PlacedValue::Secret { prefix: "Bearer ".to_owned(), name: name.clone() },
        Auth::OAuth2(name) => PlacedValue::Token(TokenSource::Secret(name.clone())),
        Auth::ClientCredentials(client) => PlacedValue::Token(TokenSource::Client(client.clone())),
        Auth::Basic(basic) => PlacedValue::Basic {
            username: Box::new(
                PlacedValue::secret_reference(&basic.username)
                    .unwrap_or_else(|| PlacedValue::Text(basic.username.clone())),
            ),
            password: basic.password.clone(),
        },
        Auth::ApiKey(key) => PlacedValue::Secret { prefix: key.prefix.clone(), name: key.value.clone() },
    }
}

fn set(headers: &mut Vec<(HeaderName, PlacedValue)>, name: HeaderName, value: PlacedValue) {
    headers.retain(|(known, _)| *known != name);
    headers.push((name, value));
}

fn header_name(name: &str) -> Result<HeaderName, Failure> {
    HeaderName::from_bytes(name.as_bytes())
        .map_err(|_| Failure::new(Code::Rejected, format!("`{name}` is not a valid header name")))
}

fn draft_body(values: &TemplateValues, body: &Body, style: ArrayStyle) -> Result<(DraftBody, String), Failure> {
    Ok(match body {
        Body::Json(template) => (DraftBody::Json(PlacedJson::of(values, template)?), "application/json".to_owned()),
        Body::Form(fields) => {
            (DraftBody::Form(pairs(values, fields, style)?), "application/x-www-form-urlencoded".to_owned())
        }
        Body::Raw(raw) => (DraftBody::Text(values.text(&raw.text)?), raw.content_type.clone()),
        Body::File(file) => {
            let path = PathBuf::from(values.text(&file.path)?);
            let content_type = file.content_type.clone().unwrap_or_else(|| guess_content_type(&path));
            (DraftBody::File { path }, content_type)
        }
        Body::Multipart(parts) => {
            let mut drafts = Vec::with_capacity(parts.0.len());
            for (name, part) in &parts.0 {
                if let Some(draft) = draft_part(values, part)? {
                    drafts.push((name.clone(), draft));
                }
            }
            (DraftBody::Multipart(drafts), "multipart/form-data".to_owned())
        }
    })
}

/// Returns `None` if the part is a single reference to an absent value.
fn draft_part(values: &TemplateValues, part: &FormPart) -> Result<Option<DraftPart>, Failure> {
    let render = |template: &str| -> Result<Option<String>, Failure> {
        Ok(values.value(&Value::String(template.to_owned()))?.filter(|value| !value.is_null()).as_ref().map(scalar))
    };
    let file = match part {
        FormPart::Text(text) => {
            let text = match PlacedValue::secret_reference(text) {
                Some(secret) => Some(secret),
                None => render(text)?.map(PlacedValue::Text),
            };
            return Ok(text.map(DraftPart::Text));
        }
        FormPart::File(file) => file,
    };
    let Some(path) = render(&file.file)?.map(PathBuf::from) else { return Ok(None) };
    let declared = file.file_name.as_deref().map(render).transpose()?.flatten();
    let file_name = declared
        .unwrap_or_else(|| path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned()));
    let content_type = file.content_type.clone().unwrap_or_else(|| guess_content_type(&path));
    Ok(Some(DraftPart::File { path, content_type, file_name }))
}

fn guess_content_type(path: &Path) -> String {
    mime_guess::from_path(path).first_or_octet_stream().to_string()
}

fn max_items(http: &Http, values: &TemplateValues) -> Result<Option<u64>, Failure> {
    let Some(template) = http.pagination.as_ref().and_then(|pagination| pagination.max_items.as_ref()) else {
        return Ok(None);
    };
    match values.value(template)? {
        None | Some(Value::Null) => Ok(None),
        Some(value) => scalar(&value).trim().parse().map(Some).map_err(|_| {
            Failure::new(
                Code::Rejected,
                format!("`pagination.max_items` is {value}, which is not a valid number of items"),
            )
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(definition: Value, input: Value) -> Result<Value, Code> {
        plan_with(definition, input, &Config::default())
    }

    fn plan_with(definition: Value, input: Value, config: &Config) -> Result<Value, Code> {
        let http: Http = serde_json::from_value(definition).expect("a definition");
        let input = serde_json::from_value(input).expect("an object");
        let invocation = Invocation { id: "task-1".to_owned(), attempt: 1, input, ..Invocation::default() };
        Draft::of(&http, &invocation, config).map(|draft| draft.to_plan()).map_err(|failure| failure.error.code)
    }

    #[test]
    fn the_plan_is_what_is_sent_with_names_in_place_of_secrets() {
        let definition = json!({
            "method": "POST", "base_url": "https://api.example.com/v1/", "path": "/things/{{ id }}",
            "query": {"q": "{{ q }}", "n": "{{ n }}", "absent": "{{ absent }}", "key": "secret:key"},
            "headers": {"X-Trace": "{{ trace }}", "X-None": "{{ none }}"},
            "auth": {"bearer": "secret:token"}, "idempotency_header": "Idempotency-Key",
            "body": {"json": {"a": "{{ n }}", "b": ["{{ absent }}"]}}
        });
        let input = json!({"id": "a/b", "q": "年 度", "n": 3, "trace": "secret:token"});
        assert_eq!(
            plan(definition, input).expect("a plan"),
            json!({
                "method": "POST",
                "url": "https://api.example.com/v1/things/a%2Fb?q=%E5%B9%B4+%E5%BA%A6&n=3&key=secret:key",
                "headers": {
                    "user-agent": "agent-magic-tool", "accept": "*/*", "content-type": "application/json",
                    "x-trace": "secret:token", "idempotency-key": "task-1", "authorization": "Bearer secret:token"
                },
                "body": {"a": 3, "b": []}
            })
        );
    }

    #[test]
    fn a_value_that_looks_like_a_secret_reference_stays_text() {
        let http: Http = serde_json::from_value(json!({
            "base_url": "https://a.example", "query": {"q": "{{ q }}"}, "headers": {"x-q": "{{ q }}"}
        }))
        .expect("a definition");
        let Value::Object(input) = json!({"q": "secret:google"}) else { panic!("an object") };
        let invocation = Invocation { id: String::new(), attempt: 1, input, ..Invocation::default() };
        let draft = Draft::of(&http, &invocation, &Config::default()).expect("a draft");
        assert!(draft.query.iter().all(|(_, value)| !value.is_secret()));
        assert!(draft.headers.iter().all(|(_, value)| !value.is_secret()));
        assert_eq!(draft.redacted_url().as_str(), "https://a.example/?q=secret%3Agoogle");
    }

    #[test]
    fn the_plan_names_the_secrets_of_bodies_and_repeated_headers() {
        let json_body = json!({
            "method": "POST", "base_url": "https://a.example",
            "headers": {"x-key": "Token secret:key", "x-tag": ["a", "{{ tag }}", "{{ absent }}"], "x-all": "{{ all }}"},
            "body": {"json": {"a": ["{{ absent }}", "secret:key"], "b/c": {"key": "secret:other"}}}
        });
        let input = json!({"tag": "b", "all": ["c", "d"]});
        let planned = plan(json_body, input).expect("a plan");
        assert_eq!(planned["body"], json!({"a": ["secret:key"], "b/c": {"key": "secret:other"}}));
        assert_eq!(planned["headers"]["x-key"], "Token secret:key");
        assert_eq!(planned["headers"]["x-tag"], json!(["a", "b"]));
        assert_eq!(planned["headers"]["x-all"], json!(["c", "d"]));
        let parts = json!({
            "method": "POST", "base_url": "https://a.example", "body": {"multipart": {"key": "secret:key", "t": "{{ t }}"}}
        });
        let expected = json!([{"name": "key", "text": "secret:key"}, {"name": "t", "text": "secret:key"}]);
        assert_eq!(plan(parts, json!({"t": "secret:key"})).expect("a plan")["body"], expected);
    }

    #[test]
    fn a_header_value_cannot_inject_another_header() {
        let definition = json!({"base_url": "https://a.example", "headers": {"x-a": "{{ a }}"}});
        assert_eq!(plan(definition, json!({"a": "b\r\nx-c: d"})), Err(Code::Rejected));
    }

    #[test]
    fn arrays_are_written_in_the_declared_style() {
        for (style, query) in [
            ("repeated", "a=1&a=x%26y&flag=true"),
            ("comma", "a=1%2Cx%26y&flag=true"),
            ("brackets", "a%5B%5D=1&a%5B%5D=x%26y&flag=true"),
        ] {
            let definition = json!({
                "base_url": "https://a.example", "array_style": style, "query": {"a": "{{ a }}", "flag": "{{ flag }}"}
            });
            let plan = plan(definition, json!({"a": [1, "x&y"], "flag": true})).expect("a plan");
            assert_eq!(plan["url"], format!("https://a.example/?{query}"));
        }
    }
}
