//! The http runner: sends one declared request and returns the response.
//!
//! This file has the types of the definition and the order of the steps; each step is a submodule: [`check`] finds
//! mistakes in a definition, [`request`] builds the request (with [`address`], [`placement`] and [`parts`]), [`call`]
//! sends it, [`response`] reads the response, [`api_error`] interprets an error response, [`pages`] joins pages,
//! [`oauth`] keeps tokens and [`upload`] opens files. Never retries an attempt: it reports what happened.

use std::collections::BTreeMap;

use super::{
    CancellationToken, Code, Config, DefinitionMistake, Deserialize, Failure, Invocation, JsonSchema, Map, Retry,
    Runner, RunnerContext, RunnerOutput, Serialize, Value,
};
use crate::config::secret::SecretName;

mod address;
mod api_error;
mod call;
mod check;
mod oauth;
mod pages;
mod parts;
mod placement;
mod request;
mod response;
mod upload;

pub use oauth::OAuthTokens;
pub use parts::FormParts;

/// An HTTP request.
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
    /// Additional headers: templates. `secret:NAME` inserts a secret.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    /// The request body.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<Body>,
    /// How the request is authenticated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auth: Option<Auth>,
    /// A header, like `Idempotency-Key`, that carries the id of the task, the same in every attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotency_header: Option<String>,
    /// How the response body is interpreted.
    #[serde(default)]
    pub response: ResponseFormat,
    /// How further pages are fetched and joined.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pagination: Option<Pagination>,
    /// The largest response body in bytes; cannot exceed the configured limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
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
    /// A JSON template.
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
    /// An OAuth 2.0 access token. The secret is a bare access token, or JSON with `token_url`, `client_id`, `client_secret`, `refresh_token` and `scope`, with which tokens are obtained and renewed.
    #[serde(rename = "oauth2")]
    OAuth2(SecretName),
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
#[derive(Debug, Clone, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ApiKey {
    /// The name of the header.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub header: Option<String>,
    /// The name of the query parameter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
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
    /// By its content type: JSON, text, or otherwise a file.
    #[default]
    Auto,
    /// As JSON, regardless of its content type.
    Json,
    /// As text, regardless of its content type.
    Text,
    /// As a file, regardless of its content type.
    Binary,
}

/// Exactly one of `next_token` and `link_header`.
#[derive(Debug, Clone, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Pagination {
    /// The response contains a token that the next request sends back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_token: Option<NextToken>,
    /// The `Link` header of the response has the URL of the next page (RFC 8288, `rel="next"`).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub link_header: bool,
    /// The field (or JSON pointer) of the array to join; default: the response itself is the array.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub items: Option<String>,
    /// The most pages to fetch.
    #[serde(default = "default_max_pages")]
    #[schemars(range(min = 1))]
    pub max_pages: u32,
    /// The most items to return: a number, or a template that renders to one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_items: Option<Value>,
}

fn default_max_pages() -> u32 {
    5
}

/// A token for the next page.
#[derive(Debug, Clone, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NextToken {
    /// The query parameter that carries the token.
    pub query: String,
    /// The field (or JSON pointer) of the response that contains the token.
    pub response: String,
}

impl Runner for Http {
    fn check(&self) -> Result<(), DefinitionMistake> {
        check::definition(self)
    }

    fn plan(&self, invocation: &Invocation, config: &Config) -> Result<Value, Failure> {
        Ok(request::Draft::of(self, invocation, config)?.to_plan())
    }

    async fn perform(
        &self,
        invocation: &Invocation,
        context: &RunnerContext,
        cancel: &CancellationToken,
    ) -> Result<RunnerOutput, Failure> {
        let outcome = match request::Draft::of(self, invocation, &context.config) {
            Ok(draft) => call::HttpCall::new(self, invocation, context, cancel, &draft).perform().await,
            Err(failure) => Err(failure),
        };
        outcome.map_err(|mut failure| {
            context.secrets.redact_error(&mut failure.error);
            failure
        })
    }
}

impl Method {
    fn to_reqwest(self) -> reqwest::Method {
        match self {
            Self::Get => reqwest::Method::GET,
            Self::Head => reqwest::Method::HEAD,
            Self::Post => reqwest::Method::POST,
            Self::Put => reqwest::Method::PUT,
            Self::Patch => reqwest::Method::PATCH,
            Self::Delete => reqwest::Method::DELETE,
            Self::Options => reqwest::Method::OPTIONS,
        }
    }

    /// Whether the method is safe as defined in RFC 9110: such a request changes nothing.
    fn is_safe(self) -> bool {
        match self {
            Self::Get | Self::Head | Self::Options => true,
            Self::Post | Self::Put | Self::Patch | Self::Delete => false,
        }
    }
}

impl Auth {
    /// The secret that a human must check if the server refuses the credentials.
    fn secret(&self) -> &SecretName {
        match self {
            Self::Bearer(name) | Self::OAuth2(name) => name,
            Self::Basic(basic) => &basic.password,
            Self::ApiKey(key) => &key.value,
        }
    }
}
