//! Version 0.3 of the protocol, which clients still speak: other names of methods and states, and a `kind` in each
//! object. Only its JSON is translated; everything else is the current version.

use serde_json::{Map, Value, json};

/// The current name of a method of version 0.3.
pub(super) fn method(legacy: &str) -> Option<&'static str> {
    Some(match legacy {
        "message/send" => "SendMessage",
        "message/stream" => "SendStreamingMessage",
        "tasks/get" => "GetTask",
        "tasks/cancel" => "CancelTask",
        "tasks/resubscribe" => "SubscribeToTask",
        "tasks/pushNotificationConfig/set" => "CreateTaskPushNotificationConfig",
        "tasks/pushNotificationConfig/get" => "GetTaskPushNotificationConfig",
        "tasks/pushNotificationConfig/list" => "ListTaskPushNotificationConfigs",
        "tasks/pushNotificationConfig/delete" => "DeleteTaskPushNotificationConfig",
        "agent/getAuthenticatedExtendedCard" => "GetExtendedAgentCard",
        _ => return None,
    })
}

/// The parameters of a call in the current form.
pub(super) fn to_current_params(mut params: Value) -> Value {
    if let Some(parts) = params.pointer_mut("/message/parts").and_then(Value::as_array_mut) {
        parts.iter_mut().for_each(to_current_part);
    }
    if let Some(configuration) = params.get_mut("configuration").and_then(Value::as_object_mut) {
        let waits = configuration.remove("blocking").and_then(|blocking| blocking.as_bool()).unwrap_or(true);
        configuration.insert("returnImmediately".to_owned(), (!waits).into());
        if let Some(push) = configuration.remove("pushNotificationConfig").filter(|push| !push.is_null()) {
            configuration.insert("taskPushNotificationConfig".to_owned(), push);
        }
    }
    params
}

fn to_current_part(part: &mut Value) {
    let Some(file) = part.get_mut("file").map(Value::take) else { return };
    *part = json!({"raw": file.get("bytes"), "url": file.get("uri")});
}

/// What a call returns, in the form of version 0.3.
pub(super) fn to_legacy_result(result: Value) -> Value {
    let Value::Object(mut fields) = result else { return result };
    for (name, kind) in [("task", "task"), ("message", "message")] {
        if let Some(object) = fields.remove(name) {
            return with_kind(object, kind);
        }
    }
    if let Some(update) = fields.remove("statusUpdate") {
        let mut update = with_kind(update, "status-update");
        let state = update["status"]["state"].as_str().unwrap_or_default();
        let is_final = matches!(state, "completed" | "failed" | "canceled" | "rejected");
        update["final"] = is_final.into();
        return update;
    }
    if let Some(update) = fields.remove("artifactUpdate") {
        return with_kind(update, "artifact-update");
    }
    if fields.contains_key("status") { with_kind(Value::Object(fields), "task") } else { Value::Object(fields) }
}

/// An object of the current form, with its messages, parts and states, as one of version 0.3.
fn with_kind(object: Value, kind: &str) -> Value {
    let Value::Object(fields) = object else { return object };
    let mut legacy = Map::new();
    legacy.insert("kind".to_owned(), kind.into());
    for (name, value) in fields {
        let value = match (name.as_str(), value) {
            ("status", Value::Object(mut status)) => {
                let state = status.get("state").and_then(Value::as_str).map(legacy_state);
                status.insert("state".to_owned(), state.into());
                if let Some(message) = status.remove("message") {
                    status.insert("message".to_owned(), with_kind(message, "message"));
                }
                Value::Object(status)
            }
            ("history", Value::Array(messages)) => {
                messages.into_iter().map(|message| with_kind(message, "message")).collect()
            }
            ("artifacts", Value::Array(artifacts)) => artifacts.into_iter().map(legacy_artifact).collect(),
            ("artifact", artifact) => legacy_artifact(artifact),
            ("parts", Value::Array(parts)) => parts.into_iter().map(legacy_part).collect(),
            ("role", role) => if role == "ROLE_AGENT" { "agent" } else { "user" }.into(),
            (_, value) => value,
        };
        legacy.insert(name, value);
    }
    Value::Object(legacy)
}

fn legacy_artifact(mut artifact: Value) -> Value {
    if let Some(Value::Array(parts)) = artifact.get_mut("parts").map(Value::take) {
        artifact["parts"] = parts.into_iter().map(legacy_part).collect();
    }
    artifact
}

fn legacy_part(part: Value) -> Value {
    let kind = if part.get("data").is_some() { "data" } else { "text" };
    with_kind(part, kind)
}

fn legacy_state(state: &str) -> String {
    state.trim_start_matches("TASK_STATE_").to_ascii_lowercase().replace('_', "-")
}
