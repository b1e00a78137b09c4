//! An API key, as a decision and its scope refer to it. `config/api_keys.rs` says which keys there are.

use serde::{Deserialize, Serialize};

/// One API key: its name, and its hash, which is that of nothing else.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ApiKeyRef {
    pub name: String,
    /// SHA-256 of the key, in hexadecimal.
    pub hash: String,
}
