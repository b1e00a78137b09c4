//! Reads the entries of clients' configurations, which differ in small things.

use serde_json::{Map, Value};

use super::redaction::{command_line, url};
use super::{AgentServer, Transport};

/// Reads an object of servers; anything else has none.
pub(super) fn of(servers: Option<&Value>, project: Option<&String>) -> Vec<AgentServer> {
    let servers = servers.and_then(Value::as_object).into_iter().flatten();
    servers.filter_map(|(name, entry)| Some(server(name, entry.as_object()?, project))).collect()
}

fn server(name: &str, entry: &Map<String, Value>, project: Option<&String>) -> AgentServer {
    let text = |key: &str| entry.get(key).and_then(Value::as_str);
    let http = ["httpUrl", "url", "serverUrl"].iter().find_map(|key| text(key).map(|it| (*key, it)));
    let command = command(entry);
    let transport = match (text("type").or(text("transport")), http) {
        _ if !command.is_empty() => Transport::Stdio,
        (Some("sse"), Some(_)) => Transport::Sse,
        (Some("http" | "streamable-http" | "streamableHttp" | "remote"), Some(_)) | (None, Some(("httpUrl", _))) => {
            Transport::Http
        }
        (_, Some((_, url))) if url.trim_end_matches('/').ends_with("/sse") => Transport::Sse,
        (_, Some(_)) => Transport::Http,
        _ => Transport::Unknown,
    };
    let mut environment = names(entry, &["env", "environment"]);
    environment.extend(listed(entry, "env_vars"));
    environment.extend(text("bearer_token_env_var").map(str::to_owned));
    let from_variables = entry.get("env_http_headers").and_then(Value::as_object).into_iter().flatten();
    environment.extend(from_variables.filter_map(|(_, variable)| variable.as_str().map(str::to_owned)));
    let mut headers = names(entry, &["headers", "http_headers", "env_http_headers"]);
    if entry.contains_key("bearer_token_env_var") {
        headers.push("Authorization".to_owned());
    }
    let is = |key: &str, value: bool| entry.get(key) == Some(&Value::Bool(value));
    AgentServer {
        name: name.to_owned(),
        transport,
        command: command_line(&command),
        url: http.map(|(_, address)| url(address)),
        environment,
        headers,
        project: project.cloned(),
        disabled: is("enabled", false) || is("disabled", true),
    }
}

/// The program and its arguments: `command` is a text beside `args`, a whole list, or Zed's older object.
fn command(entry: &Map<String, Value>) -> Vec<String> {
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
    let nested = entry.get("command").and_then(Value::as_object);
    let objects = keys.iter().filter_map(|key| entry.get(*key).or_else(|| nested?.get(*key)));
    objects.filter_map(Value::as_object).flat_map(|object| object.keys().cloned()).collect()
}

/// Codex: names, or objects with a `name`.
fn listed(entry: &Map<String, Value>, key: &str) -> Vec<String> {
    let items = entry.get(key).and_then(Value::as_array).into_iter().flatten();
    items.filter_map(|item| item.as_str().or_else(|| item["name"].as_str()).map(str::to_owned)).collect()
}
