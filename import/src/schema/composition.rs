//! `allOf`, `oneOf` and `anyOf`: merged into one schema where that means the same, or nearly.

use serde_json::{Map, Value};

use super::{Cleaned, Schemas, append_description, keywords};

/// The most alternatives that a model is shown.
const MAX_ALTERNATIVES: usize = 10;

impl<'a> Schemas<'a> {
    /// Adds what the composition keywords of `own` say to `cleaned`.
    pub(super) fn compose(
        &self,
        own: &'a Map<String, Value>,
        level: usize,
        cleaned: &mut Map<String, Value>,
        state: &mut Cleaned,
    ) {
        for member in own.get("allOf").and_then(Value::as_array).into_iter().flatten() {
            let member = self.clean(member, level, state);
            merge(cleaned, member);
        }
        for keyword in ["oneOf", "anyOf"] {
            let Some(Value::Array(members)) = own.get(keyword) else { continue };
            self.alternatives(members, level, cleaned, state);
        }
    }

    fn alternatives(&self, members: &'a [Value], level: usize, cleaned: &mut Map<String, Value>, state: &mut Cleaned) {
        let is_null = |member: &Value| member.get("type") == Some(&Value::from("null"));
        let allows_null = members.iter().any(is_null);
        let mut alternatives: Vec<Map<String, Value>> = Vec::new();
        for member in members.iter().filter(|member| !is_null(member)) {
            let was_unfilled = std::mem::replace(&mut state.is_unfilled, true);
            let member = self.clean(member, level, state);
            state.is_unfilled = was_unfilled;
            if member.is_empty() {
                // An alternative that allows everything.
                state.loosen("an alternative allows everything");
                return;
            }
            if !alternatives.contains(&member) {
                alternatives.push(member);
            }
        }
        // Alternatives that only say which fields are required: `{"required": ["a"]}`.
        if alternatives.iter().all(|member| !member.contains_key("type") && !member.contains_key("anyOf")) {
            alternatives.retain(|member| member.len() > 1 || !member.contains_key("description"));
        }
        match alternatives.len() {
            0 => {}
            1 => {
                let only = alternatives.pop().expect("there is one");
                merge(cleaned, only);
                if allows_null {
                    keywords::allow_null(cleaned);
                }
            }
            _ => match choices(&alternatives) {
                Some((kind, values)) => {
                    cleaned.entry("type").or_insert_with(|| kind.into());
                    cleaned.insert("enum".to_owned(), values.into());
                    if allows_null {
                        keywords::allow_null(cleaned);
                    }
                }
                None if alternatives.len() > MAX_ALTERNATIVES => {
                    state.is_cut = true;
                    let names: Vec<_> = alternatives.iter().filter_map(told_apart).take(12).collect();
                    let listed = if names.is_empty() { String::new() } else { format!(": {}", names.join(", ")) };
                    append_description(cleaned, &format!("One of {} kinds{listed}.", alternatives.len()));
                }
                None => {
                    let mut alternatives: Vec<Value> = alternatives.into_iter().map(Value::Object).collect();
                    if allows_null {
                        alternatives.push(serde_json::json!({"type": "null"}));
                    }
                    // `oneOf` refuses what fits two alternatives, which the loosened ones often are: `anyOf`.
                    cleaned.insert("anyOf".to_owned(), alternatives.into());
                }
            },
        }
    }
}

/// The values of alternatives that are all enumerations of one type.
fn choices(alternatives: &[Map<String, Value>]) -> Option<(String, Vec<Value>)> {
    let kind = alternatives.first()?.get("type").and_then(Value::as_str).unwrap_or("string").to_owned();
    let mut values = Vec::new();
    for alternative in alternatives {
        let is_plain = alternative.keys().all(|key| ["type", "enum", "const", "description"].contains(&key.as_str()));
        if !is_plain || alternative.get("type").is_some_and(|own| *own != kind.as_str()) {
            return None;
        }
        match (alternative.get("const"), alternative.get("enum")) {
            (Some(value), _) => values.push(value.clone()),
            (None, Some(Value::Array(own))) => values.extend(own.iter().cloned()),
            _ => return None,
        }
    }
    values.dedup();
    Some((kind, values))
}

/// What tells an alternative apart: its title, or the value of the field that is the same in all others.
fn told_apart(alternative: &Map<String, Value>) -> Option<String> {
    let fields = alternative.get("properties").and_then(Value::as_object);
    let constant = fields.into_iter().flatten().find_map(|(_, field)| match (field.get("const"), field.get("enum")) {
        (Some(Value::String(value)), _) => Some(value.clone()),
        (None, Some(Value::Array(values))) if values.len() == 1 => values[0].as_str().map(str::to_owned),
        _ => None,
    });
    constant.or_else(|| {
        let text = alternative.get("description").and_then(Value::as_str)?;
        (text.chars().count() <= 30).then(|| text.trim_end_matches('.').to_owned())
    })
}

/// Merges `other` into `schema`: fields and required fields of both, and what only one of them says.
pub(super) fn merge(schema: &mut Map<String, Value>, other: Map<String, Value>) {
    for (key, value) in other {
        match (schema.get_mut(&key), value) {
            (Some(Value::Object(own)), Value::Object(more)) if key == "properties" => {
                for (name, field) in more {
                    own.entry(name).or_insert(field);
                }
            }
            (Some(Value::Array(own)), Value::Array(more)) if key == "required" => {
                for name in more {
                    if !own.contains(&name) {
                        own.push(name);
                    }
                }
            }
            // Each of the merged schemas would forbid the fields of the others.
            (_, Value::Bool(false)) if key == "additionalProperties" => {}
            (None, value) => {
                schema.insert(key, value);
            }
            _ => {}
        }
    }
    if let Some(Value::Array(required)) = schema.get("required").cloned() {
        let fields = schema.get("properties").and_then(Value::as_object);
        let known: Vec<_> = required
            .into_iter()
            .filter(|name| fields.is_none_or(|fields| name.as_str().is_some_and(|name| fields.contains_key(name))))
            .collect();
        schema.insert("required".to_owned(), known.into());
    }
}
