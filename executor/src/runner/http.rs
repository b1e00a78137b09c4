//! The http runner: one request of a declared shape, and what came back.
//!
//! This file is the definition's types and the order of the steps; each step is a file beneath it:
//! [`check`] finds mistakes, [`request`] places the values (in the [`address`] and in [`placement`]s), [`call`] sends, [`response`] takes what
//! comes back, [`pages`] joins pages, [`oauth`] keeps tokens, [`guard`] says which addresses a URL
//! from the input may reach. Decides nothing about repetition: it reports what happened.

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
    /// The method; GET where there is none.
    #[serde(default)]
    pub method: Method,
    /// Where the API lives, like `https://api.example.com/v1`; a template. A host that depends on the input reaches no private address.
    #[schemars(regex(pattern = r"^https?://|\{[{%]"))]
    pub base_url: String,
    /// Appended to the base URL; a template whose values are percent-encoded.
    #[serde(default)]
    #[schemars(regex(pattern = r"^($|[/{])"), example = "/repos/{{ owner }}/{{ repo }}")]
    pub path: String,
    /// The query's parameters: JSON templates. `secret:NAME` stands for a secret.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub query: Map<String, Value>,
    /// How an array stands in the query or in a form.
    #[serde(default)]
    pub array_style: ArrayStyle,
    /// Further headers: templates. `secret:NAME` stands for a secret.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    /// What is sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<Body>,
    /// How the request is authenticated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auth: Option<Auth>,
    /// A header, like `Idempotency-Key`, that carries the task's id, the same at each attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotency_header: Option<String>,
    /// What the answer is taken for.
    #[serde(default)]
    pub response: AnswerFormat,
    /// How further pages are had, and joined to one answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pagination: Option<Pagination>,
    /// The largest answer in bytes, if it is to be less than the configured one.
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

/// How an array of values is written.
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
    /// Fields as an HTML form sends them: JSON templates. `secret:NAME` stands for a secret.
    Form(Map<String, Value>),
    /// Fields and files as an HTML form with files sends them.
    Multipart(FormParts),
    /// A text.
    Raw(RawBody),
    /// A file's content.
    File(Upload),
}

/// A text and what it is.
#[derive(Debug, Clone, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RawBody {
    /// Like `text/plain; charset=utf-8`.
    pub content_type: String,
    /// The text: a template.
    pub text: String,
}

/// A file inside the folders that `files.roots` of the configuration names.
#[derive(Debug, Clone, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Upload {
    /// Its path: a template.
    pub path: String,
    /// Absent: guessed from the name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content_type: Option<String>,
}

/// Exactly one way to authenticate.
#[derive(Debug, Clone, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Auth {
    /// `Authorization: Bearer <secret>`.
    Bearer(SecretName),
    /// `Authorization: Basic`, from a user name and a password.
    Basic(Basic),
    /// A key in a header or in the query.
    ApiKey(ApiKey),
    /// A token that is obtained and renewed with what the secret holds: a bare access token, or JSON with `token_url`, `client_id`, `client_secret`, `refresh_token`, `scope`.
    #[serde(rename = "oauth2")]
    OAuth2(SecretName),
}

/// A user name and a password.
#[derive(Debug, Clone, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Basic {
    /// The user name; `secret:NAME` stands for a secret.
    pub username: String,
    /// The password.
    pub password: SecretName,
}

/// A key in exactly one of a header and a query parameter.
#[derive(Debug, Clone, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ApiKey {
    /// The header's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub header: Option<String>,
    /// The query parameter's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub query: Option<String>,
    /// What stands before the key, like `Token `.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub prefix: String,
    /// The key.
    pub value: SecretName,
}

/// What an answer is taken for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AnswerFormat {
    /// What its content type says: JSON, a text, or else a file.
    #[default]
    Auto,
    /// JSON, whatever its content type says.
    Json,
    /// A text, whatever its content type says.
    Text,
    /// A file, whatever its content type says.
    Binary,
}

/// Exactly one of `next_token` and `link_header`.
#[derive(Debug, Clone, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Pagination {
    /// The answer holds a token that the next request sends back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_token: Option<NextToken>,
    /// The answer's `Link` header names the next page (RFC 8288, `rel="next"`).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub link_header: bool,
    /// The field (or JSON pointer) of the array that is joined; absent, the answer itself is the array.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub items: Option<String>,
    /// At most this many pages.
    #[serde(default = "five")]
    #[schemars(range(min = 1))]
    pub max_pages: u32,
    /// At most this many items: a number, or a template of one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_items: Option<Value>,
}

fn five() -> u32 {
    5
}

/// A token that leads from one page to the next.
#[derive(Debug, Clone, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NextToken {
    /// The query parameter that carries the token.
    pub query: String,
    /// The field (or JSON pointer) of the answer that holds it.
    pub response: String,
}

impl Runner for Http {
    fn check(&self) -> Result<(), DefinitionMistake> {
        check::definition(self)
    }

    fn plan(&self, invocation: &Invocation, config: &Config) -> Result<Value, Failure> {
        Ok(request::Draft::of(self, invocation, config)?.shown())
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

    /// RFC 9110's safe methods: whoever answers them changed nothing.
    fn is_safe(self) -> bool {
        match self {
            Self::Get | Self::Head | Self::Options => true,
            Self::Post | Self::Put | Self::Patch | Self::Delete => false,
        }
    }
}

impl Auth {
    /// The secret that a human must look at when the far side refuses it.
    fn secret(&self) -> &SecretName {
        match self {
            Self::Bearer(name) | Self::OAuth2(name) => name,
            Self::Basic(basic) => &basic.password,
            Self::ApiKey(key) => &key.value,
        }
    }
}
