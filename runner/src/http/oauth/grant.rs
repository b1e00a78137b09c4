//! What an access token is obtained with: a secret that says it all, or a client in the definition and its secret.

use definition::run::http::ClientCredentials;
use ground::config::secret::{Secret, SecretName};
use protocol::nearest::{did_you_mean, nearest};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use url::Url;

use super::{Code, Failure, RunnerContext};

/// The keys of an OAuth secret whose values are texts.
const TEXTS: [&str; 9] = [
    "token_url",
    "token_uri",
    "client_id",
    "client_secret",
    "refresh_token",
    "scope",
    "audience",
    "access_token",
    "auth_style",
];

/// Its further key: seconds since 1970, or RFC 3339.
const EXPIRES_AT: &str = "expires_at";

/// What Google's tools write beside these, which needs no notice.
const UNUSED: [&str; 10] = [
    "type",
    "account",
    "auth_provider_x509_cert_url",
    "auth_uri",
    "expires_in",
    "id_token",
    "project_id",
    "quota_project_id",
    "redirect_uris",
    "universe_domain",
];

/// What an access token is obtained with.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(in crate::http) enum TokenSource {
    /// A bare access token, or JSON with the fields of [`OAuthGrant`].
    Secret(SecretName),
    Client(Box<ClientCredentials>),
}

impl TokenSource {
    /// The secret that a human must check if no token can be had.
    pub(in crate::http) fn secret(&self) -> &SecretName {
        match self {
            Self::Secret(name) => name,
            Self::Client(client) => &client.client_secret,
        }
    }

    /// The token endpoint, if it is not the secret that names it.
    pub(in crate::http) fn named_url(&self) -> Option<Url> {
        match self {
            Self::Secret(_) => None,
            Self::Client(client) => Url::parse(&client.token_url).ok(),
        }
    }

    /// All secrets that the token endpoint gets.
    pub(in crate::http) fn secrets(&self) -> Vec<SecretName> {
        let id = match self {
            Self::Secret(_) => None,
            Self::Client(client) => SecretName::in_reference(&client.client_id),
        };
        id.into_iter().chain([self.secret().clone()]).collect()
    }

    /// The secret as it is now; that of a client in the form of an OAuth secret.
    pub(super) async fn read(&self, context: &RunnerContext) -> Result<Secret, Failure> {
        let Self::Client(client) = self else { return Ok(context.secrets.get(self.secret()).await?) };
        let id = match SecretName::in_reference(&client.client_id) {
            Some(name) => context.secrets.get(&name).await?.expose().to_owned(),
            None => client.client_id.clone(),
        };
        let secret = context.secrets.get(&client.client_secret).await?;
        let fields = json!({
            "token_url": client.token_url, "client_id": id, "client_secret": secret.expose(), "scope": client.scope,
            "audience": client.audience,
        });
        Ok(Secret::new(fields.to_string()))
    }
}

/// The JSON form of an OAuth secret.
#[derive(Clone, Deserialize)]
pub(super) struct OAuthGrant {
    #[serde(alias = "token_uri")]
    pub(super) token_url: Option<String>,
    pub(super) client_id: Option<String>,
    pub(super) client_secret: Option<String>,
    pub(super) refresh_token: Option<String>,
    pub(super) scope: Option<String>,
    pub(super) audience: Option<String>,
    pub(super) access_token: Option<String>,
    pub(super) expires_at: Option<Value>,
    pub(super) auth_style: Option<AuthStyle>,
}

/// Where a token request carries the client's credentials. Without it, the header comes first.
#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum AuthStyle {
    Body,
    Basic,
}

impl OAuthGrant {
    /// Parses the value of `name`. A failure names the key that is wrong, and quotes no value.
    pub(super) fn parse(name: &SecretName, text: &str) -> Result<Self, Failure> {
        let invalid = |reason: &str| {
            let message = format!("`{name}` is not a valid OAuth secret: {reason}");
            Failure::new(Code::SecretMissing, message).hint(
                "use a bare access token, or JSON with \"token_url\", \"client_id\", \"client_secret\" and, as the \
                 server demands, \"refresh_token\", \"scope\" and \"audience\"",
            )
        };
        let fields: Map<String, Value> = serde_json::from_str(text).map_err(|_| invalid("it is not a JSON object"))?;
        for (key, value) in &fields {
            let is_text = TEXTS.contains(&key.as_str());
            if is_text && !value.is_string() && !value.is_null() {
                return Err(invalid(&format!("`{key}` is not a text")));
            }
            if !is_text && key != EXPIRES_AT && !UNUSED.contains(&key.as_str()) {
                let known = TEXTS.iter().copied().chain([EXPIRES_AT]);
                let hint = did_you_mean(nearest(key, known, 1)).map(|hint| format!("; {hint}")).unwrap_or_default();
                return Err(invalid(&format!("unknown key `{key}`{hint}")));
            }
        }
        serde_json::from_value(Value::Object(fields)).map_err(|_| {
            invalid("`auth_style` is neither `basic` nor `body`, or there are both `token_url` and `token_uri`")
        })
    }

    pub(super) fn is_renewable(&self) -> bool {
        self.token_url.is_some() && self.client_id.is_some()
    }
}
