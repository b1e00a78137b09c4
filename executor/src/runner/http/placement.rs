//! Where values go: headers, and the parameters of queries and forms.
//!
//! A secret is a name here. Only a definition's own literal `secret:NAME` is one: what a template
//! makes of the input is always a text.

use serde_json::{Map, Value};
use url::{Url, form_urlencoded};

use super::{ArrayStyle, Code, Failure};
use crate::base::template::TemplateValues;
use crate::config::secret::SecretName;

/// What stands in a header or a parameter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum PlacedValue {
    Text(String),
    /// `prefix` and then the secret.
    Secret {
        prefix: String,
        name: SecretName,
    },
    /// The credentials of basic authentication.
    Basic {
        username: Box<Self>,
        password: SecretName,
    },
    /// `Bearer ` and the access token that this secret leads to.
    Token(SecretName),
}

impl PlacedValue {
    /// As a human may see it.
    pub(super) fn shown(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Secret { prefix, name } => format!("{prefix}{name}"),
            Self::Basic { username, password } => format!("Basic {}:{password}", username.shown()),
            Self::Token(name) => format!("Bearer {name}"),
        }
    }

    pub(super) fn is_secret(&self) -> bool {
        !matches!(self, Self::Text(_))
    }

    /// A definition's literal `secret:NAME`; nothing that a template made.
    pub(super) fn literal(text: &str) -> Option<Self> {
        SecretName::in_reference(text).map(|name| Self::Secret { prefix: String::new(), name })
    }
}

pub(super) type PlacedPairs = Vec<(String, PlacedValue)>;

/// `pairs` as `application/x-www-form-urlencoded`; `reveal` gives what is not [`PlacedValue::Text`], encoded.
pub(super) fn encoded(pairs: &PlacedPairs, reveal: impl Fn(&PlacedValue) -> String) -> String {
    let pairs: Vec<String> = pairs.iter().map(|(name, value)| format!("{}={}", encode(name), reveal(value))).collect();
    pairs.join("&")
}

/// `url` with `pairs` after the query that it has.
pub(super) fn with_query(mut url: Url, pairs: &PlacedPairs, reveal: impl Fn(&PlacedValue) -> String) -> Url {
    if !pairs.is_empty() {
        let added = encoded(pairs, reveal);
        let query = match url.query() {
            Some(query) if !query.is_empty() => format!("{query}&{added}"),
            _ => added,
        };
        url.set_query(Some(&query));
    }
    url
}

pub(super) fn encode(text: &str) -> String {
    form_urlencoded::byte_serialize(text.as_bytes()).collect()
}

/// A text encoded, a secret by its name.
pub(super) fn encode_shown(value: &PlacedValue) -> String {
    match value {
        PlacedValue::Text(text) => encode(text),
        secret => secret.shown(),
    }
}

/// What a header becomes; `None` where its value is absent.
pub(super) fn header(scope: &TemplateValues, name: &str, template: &str) -> Result<Option<PlacedValue>, Failure> {
    if let Some(secret) = PlacedValue::literal(template) {
        return Ok(Some(secret));
    }
    let value = match scope.value(&Value::String(template.to_owned()))? {
        None | Some(Value::Null) => return Ok(None),
        Some(value) => scalar(&value),
    };
    if value.chars().any(|character| character.is_control() && character != '\t') {
        return Err(Failure::new(Code::Rejected, format!("the header `{name}` would hold a control character"))
            .hint("leave line breaks and control characters out of the value"));
    }
    Ok(Some(PlacedValue::Text(value)))
}

/// What parameters become; those whose value is absent are left out.
pub(super) fn pairs(
    scope: &TemplateValues,
    templates: &Map<String, Value>,
    style: ArrayStyle,
) -> Result<PlacedPairs, Failure> {
    let mut pairs = PlacedPairs::new();
    for (name, template) in templates {
        if let Some(secret) = template.as_str().and_then(PlacedValue::literal) {
            pairs.push((name.clone(), secret));
            continue;
        }
        match scope.value(template)? {
            None | Some(Value::Null) => {}
            Some(Value::Array(items)) => {
                let items = items.iter().map(scalar);
                match style {
                    ArrayStyle::Comma => {
                        let joined: Vec<String> = items.collect();
                        pairs.push((name.clone(), PlacedValue::Text(joined.join(","))));
                    }
                    ArrayStyle::Repeated => pairs.extend(items.map(|item| (name.clone(), PlacedValue::Text(item)))),
                    ArrayStyle::Brackets => {
                        pairs.extend(items.map(|item| (format!("{name}[]"), PlacedValue::Text(item))));
                    }
                }
            }
            Some(value) => pairs.push((name.clone(), PlacedValue::Text(scalar(&value)))),
        }
    }
    Ok(pairs)
}

/// A text as it is, anything else as JSON writes it.
pub(super) fn scalar(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}
