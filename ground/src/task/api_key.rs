//! An API key, as a decision and its scope refer to it. `config/api_keys.rs` says which keys there are.

use protocol::caller::Caller;
use serde::{Deserialize, Serialize};

/// One API key: its name, and its hash, which is that of nothing else.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ApiKeyRef {
    pub name: String,
    /// SHA-256 of the key, in hexadecimal.
    pub hash: String,
}

impl ApiKeyRef {
    /// Whether this key, or an earlier one of its name, asked: as a client of `serve`, or with an agent that works for it.
    pub fn is_of(&self, caller: &Caller) -> bool {
        let key = caller.api_key().and_then(|key| key.rsplit_once('.'));
        key.is_some_and(|(name, _)| name == self.name)
    }
}

#[cfg(test)]
mod tests {
    use protocol::caller::session_label;

    use super::*;

    #[test]
    fn a_key_is_known_by_its_name_in_the_session_of_its_caller() {
        let key = ApiKeyRef { name: "phone-two".to_owned(), hash: "aa".to_owned() };
        for (client, name, is_own) in [
            (Some("phone-two.1a2b"), None, true),
            (Some("phone-two.3c4d"), Some("api-x"), true),
            (Some("phone.1a2b"), Some("phone-two.1a2b"), false),
            (Some("phone-two"), None, false),
            (Some("slack"), None, false),
            (Some("mcp@phone-two.1a2b"), None, false),
            (None, Some("phone-two.1a2b"), false),
        ] {
            let caller = Caller { session: Some(session_label(client, name, "0123")), ..Caller::default() };
            assert_eq!(key.is_of(&caller), is_own, "{caller:?}");
        }
        assert!(!key.is_of(&Caller::default()));
    }
}
