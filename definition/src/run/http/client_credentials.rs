//! A client that gets its own access tokens.

use ground::config::secret::SecretName;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with_macros::skip_serializing_none;

/// A client that gets access tokens for itself with the client credentials grant (RFC 6749, section 4.4).
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Hash, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ClientCredentials {
    /// The URL of the token endpoint. The secrets must be allowed to go to its host as well as to that of the API.
    #[schemars(regex(pattern = r"^https?://|\{[{%]"))]
    pub token_url: String,
    /// The id of the client; `secret:NAME` inserts a secret.
    pub client_id: String,
    /// The secret of the client. It is sent to the token endpoint alone.
    pub client_secret: SecretName,
    /// The scopes to ask for, separated by spaces.
    pub scope: Option<String>,
    /// The API for which the token is meant, as some servers demand.
    pub audience: Option<String>,
}
