//! What an HTTP response says beside its body, for the jq expressions of a definition.

use std::time::Duration;

use definition::run::RESPONSE_VARIABLES;
use reqwest::StatusCode;
use reqwest::header::{HeaderMap, SET_COOKIE};
use serde_json::{Map, Value};

use super::api_error::retry_after;

/// The status and the headers of a response.
#[derive(Debug, Clone)]
pub struct ResponseFacts {
    pub status: u16,
    /// By lower-case name; several headers of one name are joined with a comma (RFC 9110, section 5.3). Without
    /// cookies, which are credentials.
    pub headers: Map<String, Value>,
    /// How long the server asks to wait.
    pub retry_after: Option<Duration>,
}

impl ResponseFacts {
    /// The variables that expressions may use.
    pub const NAMES: [&str; 2] = RESPONSE_VARIABLES;

    pub(super) fn of(status: StatusCode, headers: &HeaderMap) -> Self {
        let mut known = Map::new();
        for name in headers.keys().filter(|name| **name != SET_COOKIE) {
            let values = headers.get_all(name).iter().map(|value| String::from_utf8_lossy(value.as_bytes()));
            known.insert(name.as_str().to_owned(), values.collect::<Vec<_>>().join(", ").into());
        }
        Self { status: status.as_u16(), headers: known, retry_after: retry_after(headers) }
    }

    /// Returns the values of [`ResponseFacts::NAMES`]: `null` and an empty object without a response.
    pub fn values(facts: Option<&Self>) -> (Value, Value) {
        match facts {
            Some(facts) => (facts.status.into(), Value::Object(facts.headers.clone())),
            None => (Value::Null, Value::Object(Map::new())),
        }
    }
}
