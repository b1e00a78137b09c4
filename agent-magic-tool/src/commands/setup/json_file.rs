//! Edits our entries in a client's JSON file, with or without comments. Everything else in the file, including its
//! formatting, stays unchanged.

use agent_side::client::Client;
use jsonc_parser::ParseOptions;
use jsonc_parser::cst::{CstArray, CstInputValue, CstNode, CstObject, CstRootNode};
use serde_json::Value;

/// One entry of ours.
#[derive(Debug)]
pub(super) enum JsonEdit {
    /// An element of the list `hooks.<event>`. Ours is the one whose command calls our hook for this client.
    Hook { event: &'static str, client: Client, entry: Value },
    /// A string in a list.
    ListItem { path: &'static [&'static str], item: String },
    /// An entry of an object at `path`. Ours is the one under this key that calls this program.
    Entry { path: &'static [&'static str], key: &'static str, value: Value },
    /// A field that the format requires, added if it is missing.
    Field { key: &'static str, value: Value },
}

/// Returns `file` with our entries; the error says what is wrong with the file.
pub(super) fn with(file: &str, edits: &[JsonEdit]) -> Result<String, String> {
    let text = if file.trim().is_empty() { "{}\n" } else { file };
    let root = CstRootNode::parse(text, &ParseOptions::default()).map_err(|error| error.to_string())?;
    let object = root.object_value_or_create().ok_or("it is not a JSON object")?;
    for edit in edits {
        match edit {
            JsonEdit::Hook { event, client, entry } => {
                let hooks = object.object_value_or_create("hooks").ok_or("`hooks` is not an object")?;
                let list =
                    hooks.array_value_or_create(event).ok_or_else(|| format!("`hooks.{event}` is not a list"))?;
                put(&list, entry, |found| calls_us(found, *client));
            }
            JsonEdit::ListItem { path, item } => {
                let list = list_at(&object, path).ok_or_else(|| format!("`{}` is not a list", path.join(".")))?;
                put(&list, &Value::from(item.as_str()), |found| found == item);
            }
            JsonEdit::Entry { path, key, value } => put_entry(&object, path, key, value)?,
            JsonEdit::Field { key, value } => {
                if object.get(key).is_none() {
                    object.insert(0, key, input(value));
                }
            }
        }
    }
    Ok(root.to_string())
}

/// Returns `file` without our entries; `None` if nothing is left.
pub(super) fn without(file: &str, edits: &[JsonEdit]) -> Option<String> {
    let unchanged = || Some(file.to_owned());
    let Ok(root) = CstRootNode::parse(file, &ParseOptions::default()) else { return unchanged() };
    let Some(object) = root.object_value() else { return unchanged() };
    for edit in edits {
        match edit {
            JsonEdit::Hook { event, client, .. } => {
                take(&object, &["hooks", *event], |found| calls_us(found, *client));
            }
            JsonEdit::ListItem { path, item } => take(&object, path, |found| found == item),
            JsonEdit::Entry { path, key, .. } => take_entry(&object, path, key),
            // It may have been there before and does no harm.
            JsonEdit::Field { .. } => {}
        }
    }
    let is_ours = |key: &str| edits.iter().any(|edit| matches!(edit, JsonEdit::Field { key: own, .. } if *own == key));
    let is_empty =
        object.properties().iter().all(|property| property.decoded_name().is_some_and(|name| is_ours(&name)));
    let left = root.to_string();
    if is_empty && left != file { None } else { Some(left) }
}

fn list_at(object: &CstObject, path: &[&str]) -> Option<CstArray> {
    let (key, above) = path.split_last()?;
    let mut object = object.clone();
    for step in above {
        object = object.object_value_or_create(step)?;
    }
    object.array_value_or_create(key)
}

/// Sets our entry in the object at `path`; an error if the key has an entry of others.
fn put_entry(object: &CstObject, path: &[&str], key: &str, value: &Value) -> Result<(), String> {
    let mut holder = object.clone();
    for step in path {
        holder = holder.object_value_or_create(step).ok_or_else(|| format!("`{}` is not an object", path.join(".")))?;
    }
    let Some(known) = holder.get(key) else {
        holder.append(key, input(value));
        return Ok(());
    };
    let found = known.value().map(|node| read(&node)).unwrap_or_default();
    if found == *value {
        return Ok(());
    }
    let command = if found["command"].is_array() { &found["command"][0] } else { &found["command"] };
    if !command.as_str().is_some_and(|command| command.contains("agent-magic-tool")) {
        return Err(format!("`{}.{key}` is another server; rename it", path.join(".")));
    }
    known.set_value(input(value));
    Ok(())
}

/// Removes our entry, and then every container that is left empty.
fn take_entry(object: &CstObject, path: &[&str], key: &str) {
    let mut objects = vec![object.clone()];
    for step in path {
        let Some(next) = objects.last().and_then(|object| object.object_value(step)) else { return };
        objects.push(next);
    }
    let keys: Vec<&str> = path.iter().copied().chain([key]).collect();
    for (holder, key) in objects.iter().zip(keys).rev() {
        let Some(property) = holder.get(key) else { return };
        property.remove();
        if !holder.properties().is_empty() {
            return;
        }
    }
}

/// Replaces our element of the list by `value`, or appends `value`.
fn put(list: &CstArray, value: &Value, is_ours: impl Fn(&Value) -> bool) {
    let own = list.elements().into_iter().find(|element| is_ours(&read(element)));
    match own {
        Some(own) if read(&own) == *value => {}
        Some(own) => {
            let index = list.elements().iter().position(|element| is_ours(&read(element))).unwrap_or_default();
            own.remove();
            list.insert(index, input(value));
        }
        None => {
            list.append(input(value));
        }
    }
}

/// Removes our elements from the list, and then every container that is left empty.
fn take(object: &CstObject, path: &[&str], is_ours: impl Fn(&Value) -> bool) {
    let Some((key, above)) = path.split_last() else { return };
    let mut objects = vec![object.clone()];
    for step in above {
        let Some(next) = objects.last().and_then(|object| object.object_value(step)) else { return };
        objects.push(next);
    }
    let Some(list) = objects.last().and_then(|object| object.array_value(key)) else { return };
    let own: Vec<_> = list.elements().into_iter().filter(|element| is_ours(&read(element))).collect();
    let was_ours = !own.is_empty();
    own.into_iter().for_each(CstNode::remove);
    if !was_ours || !list.elements().is_empty() {
        return;
    }
    for (holder, key) in objects.iter().zip(path).rev() {
        if let Some(property) = holder.get(key) {
            property.remove();
        }
        if !holder.properties().is_empty() {
            return;
        }
    }
}

fn read(node: &CstNode) -> Value {
    node.to_serde_value().unwrap_or(Value::Null)
}

/// Whether a hook entry contains, at any depth, a command that calls our hook for this client.
fn calls_us(entry: &Value, client: Client) -> bool {
    match entry {
        Value::String(command) => command.contains("agent-magic-tool") && command.contains(&format!(" hook {client}")),
        Value::Array(items) => items.iter().any(|item| calls_us(item, client)),
        Value::Object(fields) => fields.values().any(|field| calls_us(field, client)),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

fn input(value: &Value) -> CstInputValue {
    match value {
        Value::Null => CstInputValue::Null,
        Value::Bool(value) => CstInputValue::Bool(*value),
        Value::Number(number) => CstInputValue::Number(number.to_string()),
        Value::String(text) => CstInputValue::String(text.clone()),
        Value::Array(items) => CstInputValue::Array(items.iter().map(input).collect()),
        Value::Object(fields) => {
            CstInputValue::Object(fields.iter().map(|(key, field)| (key.clone(), input(field))).collect())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn edits() -> Vec<JsonEdit> {
        let entry = json!({"hooks": [{"type": "command", "command": "agent-magic-tool hook codex", "timeout": 630}]});
        vec![
            JsonEdit::Hook { event: "Stop", client: Client::Codex, entry },
            JsonEdit::ListItem { path: &["sandbox", "allowWrite"], item: "/tmp/box".to_owned() },
        ]
    }

    #[test]
    fn everything_else_in_the_file_stays_unchanged() {
        for file in [
            "{}\n",
            "{\n\t// mine\n\t\"model\": \"x\",   \"list\": [1,2,\n\t3]\n}\n",
            "{\"hooks\": {\"Stop\": [{\"hooks\": [{\"type\": \"command\", \"command\": \"say done\"}]}]}}",
            "{\n  \"hooks\": {\n    \"Other\": []\n  },\n  \"sandbox\": {\"enabled\": true, \"allowWrite\": [\"/x\"]}\n}\n",
        ] {
            let once = with(file, &edits()).expect("an object");
            assert_eq!(with(&once, &edits()).expect("an object"), once, "the second time changes nothing");
            let read = |text: &str| {
                CstRootNode::parse(text, &ParseOptions::default()).expect("JSON").to_serde_value().expect("a value")
            };
            assert!(
                read(&once)["hooks"]["Stop"]
                    .as_array()
                    .expect("a list")
                    .iter()
                    .any(|hook| calls_us(hook, Client::Codex))
            );
            assert!(!file.contains("// mine") || once.contains("// mine") && once.contains("[1,2,\n\t3]"));
            let back = without(&once, &edits()).unwrap_or_else(|| "{}\n".to_owned());
            assert_eq!(read(&back), read(file), "{back}");
        }
        assert_eq!(without(&with("", &edits()).expect("made"), &edits()), None, "nothing is left");
        assert_eq!(with("[]", &edits()), Err("it is not a JSON object".to_owned()));
        assert_eq!(with("{\"hooks\": 1}", &edits()), Err("`hooks` is not an object".to_owned()));
    }
}
