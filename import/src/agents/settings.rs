//! An entry of a client's configuration as settings of our own, with the secrets taken out.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::{Map, Value, json};

use super::redaction::is_credential_value;
use super::{Transport, servers};
use crate::literal;

/// The longest name of a secret.
const MAX_SECRET_NAME_CHARS: usize = 64;

/// An MCP server as a client is configured to reach it, with its secrets.
#[derive(Clone, PartialEq, Eq)]
pub struct ServerSettings {
    pub name: String,
    pub transport: Transport,
    pub command: Vec<String>,
    pub url: Option<String>,
    /// The folder in which the program runs.
    pub folder: Option<String>,
    /// The project for which alone it is configured, if the file has servers of several.
    pub project: Option<String>,
    pub disabled: bool,
    environment: BTreeMap<String, String>,
    headers: BTreeMap<String, String>,
}

/// Never shows a value.
impl fmt::Debug for ServerSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerSettings").field("name", &self.name).finish_non_exhaustive()
    }
}

/// How a server is reached, without any secret.
#[derive(Debug, PartialEq)]
pub struct ServerConnection {
    /// The settings, as `run.mcp.server` has them.
    pub server: Value,
    /// What they refer to.
    pub secrets: Vec<StoredValue>,
}

/// A secret that a server needs.
#[derive(PartialEq, Eq)]
pub struct StoredValue {
    pub name: String,
    /// Absent: the client's configuration only says where it comes from, like `${env:TOKEN}`.
    pub value: Option<String>,
}

/// Never shows the value.
impl fmt::Debug for StoredValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoredValue").field("name", &self.name).finish_non_exhaustive()
    }
}

pub(super) fn of(name: &str, entry: &Map<String, Value>, project: Option<&String>) -> ServerSettings {
    let text = |key: &str| entry.get(key).and_then(Value::as_str);
    let texts = |keys: &[&str]| -> BTreeMap<String, String> {
        let fields = servers::fields(entry, keys);
        fields.filter_map(|(name, value)| Some((name.clone(), plain(value)?))).collect()
    };
    let from_variable = |variable: &str| format!("${{env:{variable}}}");
    let mut environment = texts(&["env", "environment"]);
    for variable in servers::variables(entry) {
        environment.insert(variable.clone(), from_variable(&variable));
    }
    let mut headers = texts(&["headers", "http_headers"]);
    headers.extend(texts(&["env_http_headers"]).into_iter().map(|(name, variable)| (name, from_variable(&variable))));
    if let Some(variable) = text("bearer_token_env_var") {
        headers.insert("Authorization".to_owned(), format!("Bearer {}", from_variable(variable)));
    }
    ServerSettings {
        name: name.to_owned(),
        transport: servers::transport(entry),
        command: servers::command(entry),
        url: servers::address(entry).map(|(_, address)| address.to_owned()),
        folder: text("cwd").or(text("workingDirectory")).map(str::to_owned),
        project: project.cloned(),
        disabled: servers::is_disabled(entry),
        environment,
        headers,
    }
}

fn plain(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(_) | Value::Bool(_) => Some(value.to_string()),
        _ => None,
    }
}

impl ServerSettings {
    /// Makes the settings of the server `name`. What looks like a credential, also to `is_key`, becomes a secret called
    /// `NAME-VARIABLE`, and so does what the client fills in itself.
    pub fn connection(&self, name: &str, is_key: &dyn Fn(&str) -> bool) -> ServerConnection {
        let mut secrets = Vec::new();
        let mut separate = |variable: &str, value: &str| -> String {
            // A text that our own configuration would take for a reference is a value like any other.
            let is_plain = literal::text(value).is_ok();
            if is_plain && !is_placeholder(value) && !is_credential_value(variable, value) && !is_key(value) {
                return value.to_owned();
            }
            // `Bearer …`: the scheme is no secret.
            let (scheme, secret) = match value.split_once(' ') {
                Some((scheme, rest)) if is_word(scheme) && !rest.contains(' ') => (format!("{scheme} "), rest),
                _ => (String::new(), value),
            };
            let own = secret_name(name, variable);
            let value = (!is_placeholder(secret)).then(|| secret.to_owned());
            secrets.push(StoredValue { name: own.clone(), value });
            format!("{scheme}secret:{own}")
        };
        let mut server = json!({"name": name});
        if let (Some(url), true) = (&self.url, self.command.is_empty()) {
            let headers: BTreeMap<_, _> =
                self.headers.iter().map(|(header, value)| (header, separate(header, value))).collect();
            server["url"] = url.as_str().into();
            if !headers.is_empty() {
                server["headers"] = json!(headers);
            }
            if self.transport == Transport::Sse {
                server["transport"] = "sse".into();
            }
        } else {
            let environment: BTreeMap<_, _> =
                self.environment.iter().map(|(variable, value)| (variable, separate(variable, value))).collect();
            server["command"] = json!(self.command);
            if !environment.is_empty() {
                server["env"] = json!(environment);
            }
            if let Some(folder) = &self.folder {
                server["folder"] = folder.as_str().into();
            }
        }
        ServerConnection { server, secrets }
    }
}

/// `NAME-VARIABLE`, with the characters that the name of a secret may have.
fn secret_name(name: &str, variable: &str) -> String {
    let name = format!("{name}-{variable}");
    let allowed = |it: char| if it.is_ascii_alphanumeric() || it == '_' { it } else { '-' };
    name.chars().map(allowed).take(MAX_SECRET_NAME_CHARS).collect()
}

/// Whether the client fills in the value: `${input:token}`, `$TOKEN`, `{env:TOKEN}`, `<your token>`.
fn is_placeholder(value: &str) -> bool {
    let variable = |text: &str| {
        !text.is_empty() && text.bytes().all(|it| it.is_ascii_uppercase() || it.is_ascii_digit() || it == b'_')
    };
    value.contains("${")
        || value.contains("{env:")
        || value.contains("{file:")
        || value.strip_prefix('$').is_some_and(variable)
        || value.starts_with('<') && value.ends_with('>')
}

fn is_word(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphabetic())
}
