//! The keys with which a human approves: passkeys and security keys that were enrolled on the page.
//!
//! This module only holds data. `config/key_file.rs` keeps the file, the dispatcher checks what a key signed.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::base::webauthn::{Base64Url, PublicKey};

/// The longest name of a key; longer ones are cut.
pub const MAX_KEY_NAME_CHARS: usize = 60;
/// The most keys.
pub const MAX_KEYS: usize = 20;

/// One enrolled key. Nothing in it is secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ApproverKey {
    /// The human's name for it.
    pub name: String,
    /// Its credential id.
    pub credential: Base64Url,
    /// In COSE form.
    pub public_key: PublicKey,
    /// Its signature counter when it was enrolled.
    pub counter: u32,
    pub enrolled_at: Timestamp,
    pub enrolled_by: EnrolledBy,
}

/// What allowed a key to be enrolled.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EnrolledBy {
    /// It was the first key.
    FirstRun,
    /// A touch of this key.
    Key(Base64Url),
}

/// All enrolled keys.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ApproverKeys {
    #[serde(default)]
    pub keys: Vec<ApproverKey>,
    /// When all keys were removed at once. Grants that are older are void.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reset_at: Option<Timestamp>,
}

impl ApproverKeys {
    pub fn find(&self, credential: &Base64Url) -> Option<&ApproverKey> {
        self.keys.iter().find(|key| key.credential == *credential)
    }

    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }
}
