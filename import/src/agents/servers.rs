//! Reads the entries of clients' configurations, which differ in small things.

use serde_json::{Map, Value};

use super::redaction::{command_line, url};
use super::{AgentServer, ReadEntry, Transport};

/// Reads each server of an object with `read`; anything else has none.
pub(super) fn each<T>(servers: Option<&Value>, project: Option<&String>, read: ReadEntry<T>) -> Vec<T> {
    let servers = servers.and_then(Value::as_object).into_iter().flatten();
    servers.filter_map(|(name, entry)| Some(read(name, entry.as_object()?, project))).collect()
}

/// The URL of a server, with the key that it stands under.
pub(super) fn address(entry: &Map<String, Value>) -> Option<(&'static str, &str)> {
    ["httpUrl", "url", "serverUrl"].into_iter().find_map(|key| Some((key, entry.get(key)?.as_str()?)))
}

pub(super) fn transport(entry: &Map<String, Value>) -> Transport {
    let text = |key: &str| entry.get(key).and_then(Value::as_str);
    let (http, command) = (address(entry), command(entry));
    match (text("type").or(text("transport")), http) {
        _ if !command.is_empty() => Transport::Stdio,
        (Some("sse"), Some(_)) => Transport::Sse,
        (Some("http" | "streamable-http" | "streamableHttp" | "remote"), Some(_)) | (None, Some(("httpUrl", _))) => {
            Transport::Http
        }
        (_, Some((_, url))) if url.trim_end_matches('/').ends_with("/sse") => Transport::Sse,
        (_, Some(_)) => Transport::Http,
        _ => Transport::Unknown,
    }
}

pub(super) fn is_disabled(entry: &Map<String, Value>) -> bool {
    entry.get("enabled") == Some(&Value::Bool(false)) || entry.get("disabled") == Some(&Value::Bool(true))
}

/// What may be shown of a server.
pub(super) fn listed(name: &str, entry: &Map<String, Value>, project: Option<&String>) -> AgentServer {
    let text = |key: &str| entry.get(key).and_then(Value::as_str);
    let mut environment = names(entry, &["env", "environment"]);
    environment.extend(variables(entry));
    environment.extend(text("bearer_token_env_var").map(str::to_owned));
    let from_variables = entry.get("env_http_headers").and_then(Value::as_object).into_iter().flatten();
    environment.extend(from_variables.filter_map(|(_, variable)| variable.as_str().map(str::to_owned)));
    let mut headers = names(entry, &["headers", "http_headers", "env_http_headers"]);
    if entry.contains_key("bearer_token_env_var") {
        headers.push("Authorization".to_owned());
    }
    AgentServer {
        name: name.to_owned(),
        transport: transport(entry),
        command: command_line(&command(entry)),
        url: address(entry).map(|(_, address)| url(address)),
        environment,
        headers,
        project: project.cloned(),
        disabled: is_disabled(entry),
    }
}

/// The program and its arguments: `command` is a text beside `args`, a whole list, or Zed's older object.
pub(super) fn command(entry: &Map<String, Value>) -> Vec<String> {
    let texts = |value: Option<&Value>| {
        let items = value.and_then(Value::as_array).into_iter().flatten();
        items.filter_map(|item| item.as_str().map(str::to_owned)).collect::<Vec<_>>()
    };
    match entry.get("command") {
        Some(Value::String(program)) => [vec![program.clone()], texts(entry.get("args"))].concat(),
        Some(list @ Value::Array(_)) => texts(Some(list)),
        Some(Value::Object(command)) => {
            let program = command.get("path").and_then(Value::as_str).map(str::to_owned);
            program.into_iter().chain(texts(command.get("args"))).collect()
        }
        _ => Vec::new(),
    }
}

fn names(entry: &Map<String, Value>, keys: &[&str]) -> Vec<String> {
    fields(entry, keys).map(|(name, _)| name.clone()).collect()
}

/// The fields of the objects under `keys`.
pub(super) fn fields<'a>(
    entry: &'a Map<String, Value>,
    keys: &'a [&str],
) -> impl Iterator<Item = (&'a String, &'a Value)> {
    let nested = entry.get("command").and_then(Value::as_object);
    let objects = keys.iter().filter_map(move |key| entry.get(*key).or_else(|| nested?.get(*key)));
    objects.filter_map(Value::as_object).flatten()
}

/// The variables that Codex passes on: names, or objects with a `name`.
pub(super) fn variables(entry: &Map<String, Value>) -> Vec<String> {
    let items = entry.get("env_vars").and_then(Value::as_array).into_iter().flatten();
    items.filter_map(|item| item.as_str().or_else(|| item["name"].as_str()).map(str::to_owned)).collect()
}
