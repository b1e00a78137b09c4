//! An HTTP request as a definition: the fields of its input, and where each is placed.
//!
//! OpenAPI and Google's documents are read by modules of their own; what they find is written here, so that both make
//! the same of the same request.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::identifiers::Identifiers;
use crate::literal;

/// Headers that belong to the connection; the runner refuses definitions that set them.
const CONNECTION_HEADERS: [&str; 9] =
    ["connection", "content-length", "expect", "host", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade"];
/// Headers that the runner sets, or that change nothing that a model cares about.
const IDLE_HEADERS: [&str; 16] = [
    "accept",
    "accept-charset",
    "accept-encoding",
    "accept-language",
    "cache-control",
    "content-type",
    "date",
    "if-modified-since",
    "if-none-match",
    "origin",
    "referer",
    "traceparent",
    "tracestate",
    "user-agent",
    "x-correlation-id",
    "x-request-id",
];
/// Names of headers and parameters that carry a credential, in lower case and without separators.
const CREDENTIALS: [&str; 14] = [
    "accesstoken",
    "apikey",
    "apisecret",
    "apitoken",
    "authorization",
    "authtoken",
    "bearertoken",
    "clientsecret",
    "oauthtoken",
    "proxyauthorization",
    "xaccesstoken",
    "xapikey",
    "xapitoken",
    "xauthtoken",
];

/// What a value is placed into a path as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PathValue {
    /// One segment, or a part of one.
    Text,
    /// Several segments: `projects/a/locations/b`.
    Segments,
    /// A list, with commas.
    List,
}

/// A request in the making.
#[derive(Debug, Default)]
pub(crate) struct Request {
    identifiers: Identifiers,
    properties: Map<String, Value>,
    required: Vec<Value>,
    path: String,
    /// The fields that stand in the path, by their names on the wire.
    in_path: BTreeMap<String, String>,
    query: Map<String, Value>,
    headers: Map<String, Value>,
    cookies: Vec<String>,
    /// Whether arrays in the query and in forms are written as `a=1,2`.
    pub(crate) joins_arrays: bool,
    pub(crate) body: Option<Value>,
    pub(crate) auth: Option<Value>,
    pub(crate) idempotency_header: Option<String>,
    pub(crate) response: Option<&'static str>,
    pub(crate) pagination: Option<Value>,
    pub(crate) poll: Option<Value>,
    /// Why a text of the source cannot be sent.
    refused: Option<String>,
}

impl Request {
    /// Declares a field of the input for `wire`, and returns its name.
    pub(crate) fn field(&mut self, wire: &str, role: &str, schema: Map<String, Value>, is_required: bool) -> String {
        let name = self.identifiers.make(wire, role);
        if role == "path" {
            self.in_path.insert(wire.to_owned(), name.clone());
        }
        // What is required and has a default is optional: the executor fills it in.
        if is_required && !schema.contains_key("default") {
            self.required.push(name.as_str().into());
        }
        self.properties.insert(name.clone(), schema.into());
        name
    }

    /// Declares a field of the body for `wire`, and returns its name. The id that stands in the path is that field.
    pub(crate) fn body_field(&mut self, wire: &str, schema: Map<String, Value>, is_required: bool) -> String {
        let kind = |schema: &Map<String, Value>| schema.get("type").and_then(Value::as_str).map(str::to_owned);
        let own_kind = kind(&schema);
        let is_plain = own_kind.as_deref().is_none_or(|kind| ["string", "integer", "number"].contains(&kind));
        let in_path = self.in_path.get(wire).filter(|_| is_id(wire) && is_plain).cloned();
        let Some(name) = in_path else { return self.field(wire, "body", schema, is_required) };
        if let (Some(property), Some(own_kind)) = (self.property_mut(&name), own_kind)
            && kind(property).as_deref() == Some("string")
            && own_kind != "string"
        {
            // A path takes any text; the body takes a number.
            property.retain(|key, _| key == "description");
            property.insert("type".to_owned(), own_kind.into());
        }
        name
    }

    pub(crate) fn path_text(&mut self, text: &str) {
        if let Some(text) = self.literal(text) {
            self.path.push_str(&text);
        }
    }

    /// A text of the source, for a place where templates and secrets are filled in; `None` if that would happen to it.
    fn literal(&mut self, text: &str) -> Option<String> {
        match literal::text(text) {
            Ok(text) => Some(text.to_owned()),
            Err(reason) => {
                self.refused.get_or_insert(reason);
                None
            }
        }
    }

    /// Fails if a text of the source cannot be sent as it is.
    pub(crate) fn check(&self) -> Result<(), String> {
        self.refused.clone().map_or(Ok(()), Err)
    }

    /// Sends `text` of the source in the query.
    pub(crate) fn literal_query(&mut self, wire: &str, text: &str) {
        if let Some(text) = self.literal(text) {
            self.query(wire, text);
        }
    }

    /// Sends `text` of the source in a header.
    pub(crate) fn literal_header(&mut self, wire: &str, text: &str) {
        if let Some(text) = self.literal(text) {
            self.header(wire, text);
        }
    }

    /// Appends the value of the field `name` to the path.
    pub(crate) fn path_value(&mut self, name: &str, kind: PathValue) {
        match kind {
            PathValue::Text => self.path.push_str(&reference(name)),
            PathValue::Segments => {
                // The loop writes the slash before each segment.
                let kept = self.path.trim_end_matches('/').len();
                self.path.truncate(kept);
                let part = if name == "part" { "segment" } else { "part" };
                self.path.push_str("{% for ");
                let looped = format!("{part} in {name}|split('/') %}}/{{{{ {part} }}}}{{% endfor %}}");
                self.path.push_str(&looped);
            }
            PathValue::List => {
                let item = if name == "item" { "entry" } else { "item" };
                let looped = format!(
                    "{{% for {item} in {name} %}}{{% if not loop.first %}},{{% endif %}}{{{{ {item} }}}}{{% endfor %}}"
                );
                self.path.push_str(&looped);
            }
        }
    }

    /// Appends the value of the optional field `name`, or its default, to the path.
    pub(crate) fn path_value_or(&mut self, name: &str, default: &str) {
        let is_plain = default.chars().all(|it| it.is_ascii_alphanumeric() || matches!(it, '-' | '_' | '.' | '~'));
        let default = if is_plain { default } else { "" };
        let template = format!("{{{{ {name}|default('{default}') }}}}");
        self.path.push_str(&template);
    }

    pub(crate) fn query(&mut self, wire: &str, template: impl Into<Value>) {
        self.query.insert(wire.to_owned(), template.into());
    }

    pub(crate) fn has_query(&self, wire: &str) -> bool {
        self.query.contains_key(wire)
    }

    pub(crate) fn header(&mut self, wire: &str, template: impl Into<Value>) {
        self.headers.insert(wire.to_owned(), template.into());
    }

    /// Adds a cookie, whose value must be of characters that end no cookie.
    pub(crate) fn cookie(&mut self, wire: &str, template: &str) {
        if let Some(wire) = self.literal(wire) {
            self.cookies.push(format!("{wire}={template}"));
        }
    }

    /// The field of the input that the query parameter `wire` is filled from.
    pub(crate) fn field_of_query(&self, wire: &str) -> Option<&str> {
        let template = self.query.get(wire)?.as_str()?;
        template.strip_prefix("{{ ").and_then(|rest| rest.strip_suffix(" }}"))
    }

    pub(crate) fn property_mut(&mut self, name: &str) -> Option<&mut Map<String, Value>> {
        self.properties.get_mut(name).and_then(Value::as_object_mut)
    }

    pub(crate) fn input_bytes(&self) -> usize {
        Value::Object(self.properties.clone()).to_string().len()
    }

    /// The input schema.
    pub(crate) fn input(&mut self) -> Value {
        let mut properties = std::mem::take(&mut self.properties);
        // What is required comes first: models read from the start.
        let mut ordered = Map::new();
        for name in self.required.iter().filter_map(Value::as_str) {
            if let Some(property) = properties.shift_remove(name) {
                ordered.insert(name.to_owned(), property);
            }
        }
        ordered.extend(properties);
        let mut input = json!({"type": "object", "properties": ordered});
        if !self.required.is_empty() {
            input["required"] = std::mem::take(&mut self.required).into();
        }
        input["additionalProperties"] = false.into();
        input
    }

    /// `run.http`, without what all requests of the description have in common.
    pub(crate) fn http(self, method: &str, server: Option<&str>) -> Map<String, Value> {
        let mut http = Map::new();
        if method != "GET" {
            http.insert("method".to_owned(), method.into());
        }
        if let Some(server) = server {
            http.insert("base_url".to_owned(), server.into());
        }
        if !self.path.is_empty() && self.path != "/" {
            http.insert("path".to_owned(), self.path.into());
        }
        if !self.query.is_empty() {
            http.insert("query".to_owned(), self.query.into());
        }
        if self.joins_arrays {
            http.insert("array_style".to_owned(), "comma".into());
        }
        let mut headers = self.headers;
        if !self.cookies.is_empty() {
            headers.insert("Cookie".to_owned(), self.cookies.join("; ").into());
        }
        if !headers.is_empty() {
            http.insert("headers".to_owned(), headers.into());
        }
        if let Some(body) = self.body {
            http.insert("body".to_owned(), body);
        }
        if let Some(auth) = self.auth {
            http.insert("auth".to_owned(), auth);
        }
        if let Some(header) = self.idempotency_header {
            http.insert("idempotency_header".to_owned(), header.into());
        }
        if let Some(response) = self.response {
            http.insert("response".to_owned(), response.into());
        }
        if let Some(pagination) = self.pagination {
            http.insert("pagination".to_owned(), pagination);
        }
        if let Some(poll) = self.poll {
            http.insert("poll".to_owned(), poll);
        }
        http
    }
}

/// Whether a name is that of an identifier, which no request changes. A name or a key may be changed.
fn is_id(wire: &str) -> bool {
    let last = crate::names::words(wire).pop().unwrap_or_default();
    ["id", "uuid", "guid"].contains(&last.as_str())
}

/// The template that is the value of a field.
pub(crate) fn reference(name: &str) -> String {
    format!("{{{{ {name} }}}}")
}

/// Whether the runner lets a definition set this header.
pub(crate) fn may_set_header(name: &str) -> bool {
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !name.is_empty() && name.bytes().all(is_token) && !CONNECTION_HEADERS.contains(&name.to_ascii_lowercase().as_str())
}

/// Whether a model never needs to set this header.
pub(crate) fn is_idle_header(name: &str) -> bool {
    IDLE_HEADERS.contains(&name.to_ascii_lowercase().as_str())
}

/// Whether a header or parameter of this name carries a credential, which a model must not know.
pub(crate) fn is_credential(name: &str) -> bool {
    let letters: String = name.chars().filter(char::is_ascii_alphanumeric).collect();
    CREDENTIALS.contains(&letters.to_ascii_lowercase().as_str())
}

/// The dry run of a request that changes something and whose input says so: the first switch with which a service, by its
/// name, checks everything and changes nothing (AIP-163).
pub(crate) fn dry_run(method: &str, input: &Value) -> Option<Value> {
    const NAMES: [&str; 4] = ["dryRun", "dry_run", "validateOnly", "validate_only"];
    if matches!(method, "GET" | "HEAD" | "OPTIONS") {
        return None;
    }
    let is_switch = |name: &&str| {
        let schema = &input["properties"][*name];
        schema["type"] == "boolean" && schema["default"] != true && schema.get("const").is_none()
    };
    NAMES.iter().find(|name| is_switch(name)).map(|name| json!({"input": {*name: true}}))
}

/// The annotations that the method of a request implies (RFC 9110).
pub(crate) fn annotations(method: &str, is_idempotent: bool) -> Value {
    match method {
        "GET" | "HEAD" | "OPTIONS" => json!({"readOnlyHint": true}),
        "DELETE" => json!({"destructiveHint": true, "idempotentHint": true}),
        "PUT" => json!({"idempotentHint": true}),
        _ if is_idempotent => json!({"idempotentHint": true}),
        _ => json!({}),
    }
}
