//! The http runner: sends one declared request and returns the response.
//!
//! This file has the types of the definition and the order of the steps; each step is a submodule: [`check`] finds
//! mistakes in a definition, [`request`] builds the request (with [`address`], [`placement`] and [`parts`]), [`call`]
//! sends it (with [`assembly`]), [`response`] reads the response, [`api_error`] interprets an error response, [`pages`]
//! joins pages, [`job`] waits for a job, [`expression`] evaluates jq over a response, [`structured`] reads XML and NDJSON, and [`oauth`] keeps tokens. Never retries an attempt: it
//! reports what happened.

use std::collections::BTreeMap;

use ground::config::secret::SecretName;
use ground::task::fingerprint::Fingerprint;
use url::Url;

use super::{
    CancellationToken, Code, Config, DefinitionMistake, DefinitionMistakes, Deserialize, Failure, Invocation,
    JsonSchema, Map, Retry, Runner, RunnerContext, RunnerOutput, Serialize, TextKind, Value,
};
use crate::runner::input_file;

mod address;
mod api_error;
mod assembly;
mod call;
mod check;
mod expression;
mod facts;
mod file_name;
mod header_templates;
mod job;
mod oauth;
mod pages;
mod pagination;
mod parts;
mod placement;
mod request;
mod response;
mod structured;

pub(super) use address::endpoint;
pub use facts::ResponseFacts;
pub use header_templates::HeaderTemplates;
pub use job::Poll;
use oauth::TokenSource;
pub use oauth::{ClientCredentials, OAuthTokens};
pub use pagination::{Counter, LastItem, NextToken, Pagination};
use parts::FormPart;
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
    /// Additional headers: templates, or an array of templates for a header that is sent several times. `secret:NAME`, also after a text as in `Token secret:NAME`, inserts a secret.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, HeaderTemplates>,
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
    /// When a response means that the run failed: jq over its body, with `$status` and `$headers`. A text fails the run with these words, in place of everything that the server says; null leaves it to the status.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(
        example = "if $status == 403 or $status == 404 then \"there is no such note, or you may not read it\" else null end"
    )]
    pub error: Option<String>,
    /// How further pages are fetched and joined.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pagination: Option<Pagination>,
    /// How to wait for a job that the server accepted but has not done yet (status 202).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub poll: Option<Poll>,
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

impl Runner for Http {
    fn check(&self) -> Vec<DefinitionMistake> {
        check::definition(self)
    }

    fn text_kind(&self, place: &str) -> TextKind {
        check::text_kind(place)
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
            Ok(draft) => {
                let call = call::HttpCall::new(self, invocation, context, cancel, &draft);
                call.settled(Box::pin(self.fetch(&call)).await)
            }
            Err(failure) => Err(failure),
        };
        outcome.map_err(|mut failure| {
            context.secrets.redact_error(&mut failure.error);
            failure
        })
    }
}

impl Http {
    async fn fetch(&self, call: &call::HttpCall<'_>) -> Result<RunnerOutput, Failure> {
        if let Some(pagination) = &self.pagination {
            return pages::fetch_all(call, pagination).await;
        }
        if let (Some(poll), Some(job)) = (&self.poll, &call.invocation.job) {
            return job::resume(call, poll, job).await;
        }
        let answer = call.send(&call::RequestTarget::Declared).await?;
        match &self.poll {
            Some(poll) => job::follow(call, poll, answer).await,
            None => call.until_cancelled(response::output(call, answer)).await,
        }
    }

    /// Returns the base URL of the definition, replaced by the configured one if there is one. It may be a template.
    pub fn configured_base_url(&self, endpoints: &BTreeMap<String, String>) -> String {
        endpoint(&self.base_url, endpoints)
    }

    /// Fails if the request cannot be built, goes to a private address, or uploads a file that cannot be read.
    pub(super) fn check_before(&self, invocation: &Invocation, context: &RunnerContext) -> Result<(), Failure> {
        let draft = request::Draft::of(self, invocation, &context.config)?;
        if draft.guarded {
            context.http.check_literal(&draft.address)?;
        }
        self.files(invocation, context).map(drop)
    }

    /// The secrets that its request sends, and those that its token endpoint gets if the definition names that.
    pub(super) fn sent_secrets(
        &self,
        invocation: &Invocation,
        config: &Config,
    ) -> Result<Vec<(SecretName, Url)>, Failure> {
        let draft = request::Draft::of(self, invocation, config)?;
        let mut sent: Vec<_> = draft.sent_secrets().map(|name| (name.clone(), draft.secrets_for.clone())).collect();
        if let Some(token_url) = draft.token_source().and_then(TokenSource::named_url) {
            let source = draft.token_source().map(TokenSource::secrets).unwrap_or_default();
            sent.extend(source.into_iter().map(|name| (name, token_url.clone())));
        }
        Ok(sent)
    }

    /// The files that are uploaded.
    pub(super) fn files(&self, invocation: &Invocation, context: &RunnerContext) -> Result<Vec<Fingerprint>, Failure> {
        let draft = request::Draft::of(self, invocation, &context.config)?;
        let files = draft.body.iter().flat_map(request::DraftBody::files);
        files.map(|path| input_file::fingerprint(&path.to_string_lossy(), invocation, context)).collect()
    }

    /// Whether one attempt sends a request several times that could change something.
    pub fn repeats_a_change(&self) -> bool {
        self.pagination.is_some() && !self.method.is_safe()
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

    /// Its name on the wire.
    pub(crate) fn as_str(self) -> &'static str {
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
            Self::ClientCredentials(client) => &client.client_secret,
        }
    }
}
