//! The http runner's settings: one declared request.
//!
//! [`check`] finds the mistakes that the types cannot express.

use std::collections::BTreeMap;

use ground::config::secret::SecretName;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use serde_with_macros::skip_serializing_none;

use super::{DefinitionMistake, Settings, TextKind};

mod check;
mod client_credentials;
mod endpoint;
mod header_templates;
mod pagination;
mod parts;
mod poll;

pub use client_credentials::ClientCredentials;
pub use endpoint::endpoint;
pub use header_templates::HeaderTemplates;
pub use pagination::{Counter, LastItem, NextToken, Pagination, Parameter, pointer};
pub use parts::{FilePart, FormPart, FormParts};
pub use poll::Poll;

/// An HTTP request.
#[skip_serializing_none]
#[derive(Debug, Clone, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Http {
    /// The method; default: GET.
    #[serde(default)]
    pub method: Method,
    /// The base URL of the API, like `https://api.example.com/v1`; a template. If it depends on the input, private addresses cannot be reached.
    #[schemars(regex(pattern = r"^https?://|\{[{%]"))]
    pub base_url: String,
    /// Appended to the base URL; a template whose values are percent-encoded.
    #[serde(default)]
    #[schemars(regex(pattern = r"^($|[/{])"), example = "/repos/{{ owner }}/{{ repo }}")]
    pub path: String,
    /// The query parameters: JSON templates. `secret:NAME` inserts a secret.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub query: Map<String, Value>,
    /// How arrays are written in the query and in forms.
    #[serde(default)]
    pub array_style: ArrayStyle,
    /// Additional headers: templates, or an array of templates for a header that is sent several times. `secret:NAME`, also after a text as in `Token secret:NAME`, inserts a secret.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, HeaderTemplates>,
    /// The request body.
    pub body: Option<Body>,
    /// How the request is authenticated.
    pub auth: Option<Auth>,
    /// A header, like `Idempotency-Key`, that carries the id of the task, the same in every attempt.
    pub idempotency_header: Option<String>,
    /// How the response body is interpreted.
    #[serde(default)]
    pub response: ResponseFormat,
    /// When a response means that the run failed: jq over its body, with `$status` and `$headers`. A text fails the run with these words, in place of everything that the server says; null leaves it to the status.
    #[schemars(
        example = "if $status == 403 or $status == 404 then \"there is no such note, or you may not read it\" else null end"
    )]
    pub error: Option<String>,
    /// How further pages are fetched and joined.
    pub pagination: Option<Pagination>,
    /// How to wait for a job that the server accepted but has not done yet (status 202).
    pub poll: Option<Poll>,
    /// The largest response body in bytes; cannot exceed the configured limit.
    #[schemars(range(min = 1))]
    pub max_bytes: Option<u64>,
}

/// An HTTP method.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "UPPERCASE")]
pub enum Method {
    #[default]
    Get,
    Head,
    Post,
    Put,
    Patch,
    Delete,
    Options,
}

/// How an array is written in a query or form.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ArrayStyle {
    /// `a=1&a=2`
    #[default]
    Repeated,
    /// `a=1,2`
    Comma,
    /// `a[]=1&a[]=2`
    Brackets,
}

/// Exactly one kind of body.
#[derive(Debug, Clone, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Body {
    /// A JSON template. A string that is `secret:NAME` becomes that secret.
    Json(Value),
    /// URL-encoded form fields (`application/x-www-form-urlencoded`): JSON templates. `secret:NAME` inserts a secret.
    Form(Map<String, Value>),
    /// Form fields and files (`multipart/form-data`).
    Multipart(FormParts),
    /// Plain text with any content type.
    Raw(RawBody),
    /// The content of a file.
    File(Upload),
}

impl Body {
    /// Whether files are sent.
    pub fn has_files(&self) -> bool {
        match self {
            Self::File(_) => true,
            Self::Multipart(FormParts(parts)) => parts.iter().any(|(_, part)| matches!(part, FormPart::File(_))),
            Self::Json(_) | Self::Form(_) | Self::Raw(_) => false,
        }
    }
}

/// A text and its content type.
#[derive(Debug, Clone, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RawBody {
    /// The content type, like `text/plain; charset=utf-8`.
    pub content_type: String,
    /// The text: a template.
    pub text: String,
}

/// A file inside the folders of `files.roots` in the configuration.
#[derive(Debug, Clone, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Upload {
    /// The path of the file: a template.
    pub path: String,
    /// The content type; default: guessed from the file name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content_type: Option<String>,
}

/// Exactly one way to authenticate.
#[derive(Debug, Clone, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Auth {
    /// `Authorization: Bearer <secret>`.
    Bearer(SecretName),
    /// `Authorization: Basic`, with a user name and a password.
    Basic(Basic),
    /// A key in a header or in the query.
    ApiKey(ApiKey),
    /// An OAuth 2.0 access token. The secret is a bare access token, or JSON with `token_url`, `client_id`, `client_secret`, `refresh_token`, `scope` and `audience`, with which tokens are obtained and renewed.
    #[serde(rename = "oauth2")]
    OAuth2(SecretName),
    /// An OAuth 2.0 access token that a client gets for itself, with its id and secret.
    ClientCredentials(Box<ClientCredentials>),
}

/// A user name and a password.
#[derive(Debug, Clone, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Basic {
    /// The user name; `secret:NAME` inserts a secret.
    pub username: String,
    /// The password.
    pub password: SecretName,
}

/// A key in either a header or a query parameter.
#[skip_serializing_none]
#[derive(Debug, Clone, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ApiKey {
    /// The name of the header.
    pub header: Option<String>,
    /// The name of the query parameter.
    pub query: Option<String>,
    /// Text before the key, like `Token `.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub prefix: String,
    /// The key.
    pub value: SecretName,
}

/// How a response body is interpreted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ResponseFormat {
    /// By its content type: JSON, NDJSON, text (XML too), or otherwise a file.
    #[default]
    Auto,
    /// As JSON, regardless of its content type.
    Json,
    /// As text, regardless of its content type.
    Text,
    /// As an array of the JSON values of its lines.
    Ndjson,
    /// As XML: an object of the root element, with `@name` for attributes, `#text` for text beside them, and an array for several children of one name.
    Xml,
    /// As a file, regardless of its content type.
    Binary,
}

impl Settings for Http {
    fn check(&self) -> Vec<DefinitionMistake> {
        check::definition(self)
    }

    fn text_kind(&self, place: &str) -> TextKind {
        check::text_kind(place)
    }
}

impl Http {
    /// Returns the base URL of the definition, replaced by the configured one if there is one. It may be a template.
    pub fn configured_base_url(&self, endpoints: &BTreeMap<String, String>) -> String {
        endpoint(&self.base_url, endpoints)
    }

    /// Whether one attempt sends a request several times that could change something.
    pub fn repeats_a_change(&self) -> bool {
        self.pagination.is_some() && !self.method.is_safe()
    }
}

impl Method {
    /// Its name on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Head => "HEAD",
            Self::Post => "POST",
            Self::Put => "PUT",
            Self::Patch => "PATCH",
            Self::Delete => "DELETE",
            Self::Options => "OPTIONS",
        }
    }

    /// Whether the method is safe as defined in RFC 9110: such a request changes nothing.
    pub fn is_safe(self) -> bool {
        match self {
            Self::Get | Self::Head | Self::Options => true,
            Self::Post | Self::Put | Self::Patch | Self::Delete => false,
        }
    }
}

impl Auth {
    /// The secret that a human must check if the server refuses the credentials.
    pub fn secret(&self) -> &SecretName {
        match self {
            Self::Bearer(name) | Self::OAuth2(name) => name,
            Self::Basic(basic) => &basic.password,
            Self::ApiKey(key) => &key.value,
            Self::ClientCredentials(client) => &client.client_secret,
        }
    }
}
