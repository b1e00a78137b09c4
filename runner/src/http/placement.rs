//! Places values into headers and the parameters of queries and forms.
//!
//! Secrets are only names here. Only a literal `secret:NAME` in the definition is a secret: the output of a template
//! is always text.

use definition::run::http::ArrayStyle;
use ground::base::template::{self, TemplateValues};
use ground::config::secret::SecretName;
use serde_json::{Map, Value};
use url::{Url, form_urlencoded};

use super::{Code, Failure, TokenSource};

/// The value of a header or parameter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum PlacedValue {
    Text(String),
    /// `prefix` followed by the secret.
    Secret {
        prefix: String,
        name: SecretName,
    },
    /// `Basic ` followed by the encoded credentials.
    Basic {
        username: Box<Self>,
        password: SecretName,
    },
    /// `Bearer ` followed by the access token that is obtained with this.
    Token(TokenSource),
}

impl PlacedValue {
    /// Returns the value with `secret:NAME` in place of each secret.
    pub(super) fn redacted(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Secret { prefix, name } => format!("{prefix}{name}"),
            Self::Basic { username, password } => format!("Basic {}:{password}", username.redacted()),
            Self::Token(source) => format!("Bearer {}", source.secret()),
        }
    }

    pub(super) fn is_secret(&self) -> bool {
        !matches!(self, Self::Text(_))
    }

    /// The secret in it, apart from that of a user name.
    pub(super) fn secret(&self) -> Option<&SecretName> {
        match self {
            Self::Text(_) => None,
            Self::Secret { name, .. } | Self::Basic { password: name, .. } => Some(name),
            Self::Token(source) => Some(source.secret()),
        }
    }

    /// All secrets in it.
    pub(super) fn secrets(&self) -> Vec<&SecretName> {
        let of_user = match self {
            Self::Basic { username, .. } => username.secrets(),
            Self::Text(_) | Self::Secret { .. } | Self::Token(_) => Vec::new(),
        };
        of_user.into_iter().chain(self.secret()).collect()
    }

    /// Parses a literal `secret:NAME` of a definition. Must not be called with the output of a template.
    pub(super) fn secret_reference(text: &str) -> Option<Self> {
        SecretName::in_reference(text).map(|name| Self::Secret { prefix: String::new(), name })
    }

    /// Like [`PlacedValue::secret_reference`], also for a reference after a literal prefix, as in `Token secret:NAME`.
    pub(super) fn prefixed_secret_reference(text: &str) -> Option<Self> {
        let start = text.rfind(' ').map_or(0, |space| space + 1);
        let (prefix, reference) = text.split_at(start);
        let name = SecretName::in_reference(reference).filter(|_| template::is_constant(prefix))?;
        Some(Self::Secret { prefix: prefix.to_owned(), name })
    }
}

/// A JSON value in which secrets are still names.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct PlacedJson {
    /// The value, with `secret:NAME` in place of each secret.
    pub(super) value: Value,
    /// The secrets, each with the JSON pointer of its place.
    pub(super) secrets: Vec<(String, SecretName)>,
}

impl PlacedJson {
    /// Renders `template`. Only a literal `secret:NAME` in it is a secret.
    pub(super) fn of(values: &TemplateValues, template: &Value) -> Result<Self, Failure> {
        let mut secrets = Vec::new();
        let value = placed(values, template, "", &mut secrets)?.unwrap_or(Value::Null);
        Ok(Self { value, secrets })
    }
}

/// Renders `template`, whose place is `pointer`; `None` if it is one reference to an absent value.
fn placed(
    values: &TemplateValues,
    template: &Value,
    pointer: &str,
    secrets: &mut Vec<(String, SecretName)>,
) -> Result<Option<Value>, Failure> {
    Ok(Some(match template {
        Value::String(text) => match SecretName::in_reference(text) {
            Some(name) => {
                secrets.push((pointer.to_owned(), name));
                template.clone()
            }
            None => return Ok(values.value(template)?),
        },
        Value::Array(items) => {
            let mut filled = Vec::with_capacity(items.len());
            for item in items {
                let place = format!("{pointer}/{}", filled.len());
                filled.extend(placed(values, item, &place, secrets)?);
            }
            Value::Array(filled)
        }
        Value::Object(fields) => {
            let mut filled = Map::with_capacity(fields.len());
            for (key, field) in fields {
                let place = format!("{pointer}/{}", protocol::json::pointer_token(key));
                if let Some(value) = placed(values, field, &place, secrets)? {
                    filled.insert(key.clone(), value);
                }
            }
            Value::Object(filled)
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => template.clone(),
    }))
}

pub(super) type PlacedPairs = Vec<(String, PlacedValue)>;

/// Encodes `pairs` as `application/x-www-form-urlencoded`; `reveal` returns the encoded form of a value.
pub(super) fn encoded(pairs: &PlacedPairs, reveal: impl Fn(&PlacedValue) -> String) -> String {
    let pairs: Vec<String> = pairs.iter().map(|(name, value)| format!("{}={}", encode(name), reveal(value))).collect();
    pairs.join("&")
}

/// Appends `pairs` to the query of `url`.
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

/// Encodes a text; writes a secret as its name.
pub(super) fn encode_redacted(value: &PlacedValue) -> String {
    match value {
        PlacedValue::Text(text) => encode(text),
        secret => secret.redacted(),
    }
}

/// Renders the values of a header: none if it refers to an absent value, several if it refers to an array.
pub(super) fn header(values: &TemplateValues, name: &str, template: &str) -> Result<Vec<PlacedValue>, Failure> {
    if let Some(secret) = PlacedValue::prefixed_secret_reference(template) {
        return Ok(vec![secret]);
    }
    let texts: Vec<String> = match values.value(&Value::String(template.to_owned()))? {
        None | Some(Value::Null) => Vec::new(),
        Some(Value::Array(items)) => items.iter().map(scalar).collect(),
        Some(value) => vec![scalar(&value)],
    };
    let is_control = |character: char| character.is_control() && character != '\t';
    if texts.iter().any(|text| text.contains(is_control)) {
        return Err(Failure::new(
            Code::Rejected,
            format!("the value of the header `{name}` contains a control character"),
        )
        .hint("remove line breaks and control characters from the value"));
    }
    Ok(texts.into_iter().map(PlacedValue::Text).collect())
}

/// Renders parameters; omits those that refer to an absent value.
pub(super) fn pairs(
    values: &TemplateValues,
    templates: &Map<String, Value>,
    style: ArrayStyle,
) -> Result<PlacedPairs, Failure> {
    let mut pairs = PlacedPairs::new();
    for (name, template) in templates {
        if let Some(secret) = template.as_str().and_then(PlacedValue::secret_reference) {
            pairs.push((name.clone(), secret));
            continue;
        }
        match values.value(template)? {
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

/// Returns a string as it is, and any other value as JSON text.
pub(super) fn scalar(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}
