//! Variables of the configuration: `{{ vars.NAME }}` in any text of a definition, `$vars.NAME` in jq.
//!
//! They are filled in before a definition is read, so they may stand wherever a text may, also where no template is
//! filled in later; and what a human approves is bound to their values, because these are part of the definition's hash.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use protocol::nearest::{did_you_mean, nearest};
use regex::Regex;
use serde_json::Value;

use super::deserialize::LocatedMessage;
use crate::config::DefinitionVariable;

static REFERENCE: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"\{\{\s*vars\.(?<braced>[A-Za-z_]\w*)\s*\}\}|\$vars\.(?<jq>[A-Za-z_]\w*)").expect("a valid pattern")
});

/// The variables by name.
pub(super) type Variables = BTreeMap<String, DefinitionVariable>;

/// Fills in the variables in every text inside `value`, which lies at `place`. Adds a mistake for each unknown one.
pub(super) fn fill(value: &mut Value, place: &str, variables: &Variables, mistakes: &mut Vec<LocatedMessage>) {
    match value {
        Value::String(text) if text.contains("vars.") => {
            if let Some(filled) = filled(text, place, variables, mistakes) {
                *value = filled;
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter_mut().enumerate() {
                fill(item, &format!("{place}[{index}]"), variables, mistakes);
            }
        }
        Value::Object(fields) => {
            for (key, field) in fields {
                let place = if place.is_empty() { key.clone() } else { format!("{place}.{key}") };
                fill(field, &place, variables, mistakes);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Returns `text` with its variables filled in. If it is nothing but one of them, it keeps the type of the variable.
fn filled(text: &str, place: &str, variables: &Variables, mistakes: &mut Vec<LocatedMessage>) -> Option<Value> {
    let found = REFERENCE.captures(text)?;
    let whole = found.get(0)?;
    if let Some(name) = found.name("braced").filter(|_| whole.as_str().len() == text.len())
        && let Some(variable) = variables.get(name.as_str())
    {
        return Some(variable.value().clone());
    }
    let replaced = REFERENCE.replace_all(text, |found: &regex::Captures<'_>| {
        let (name, is_jq) = match (found.name("braced"), found.name("jq")) {
            (Some(name), _) => (name.as_str(), false),
            (None, name) => (name.map_or("", |name| name.as_str()), true),
        };
        match (variables.get(name).map(DefinitionVariable::value), is_jq) {
            (Some(Value::String(text)), false) => text.clone(),
            // JSON text is a literal of jq too, and has no interpolation: a backslash in it is always doubled.
            (Some(value), _) => value.to_string(),
            (None, _) => {
                mistakes.push((Some(place.to_owned()).filter(|place| !place.is_empty()), unknown(name, variables)));
                found[0].to_owned()
            }
        }
    });
    Some(replaced.into_owned().into())
}

fn unknown(name: &str, variables: &Variables) -> String {
    let hint = did_you_mean(nearest(name, variables.keys().map(String::as_str), 1)).map(|hint| format!("; {hint}"));
    format!("no variable named `{name}`{}; set it under [vars] in config.toml", hint.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn variables_are_filled_in_everywhere_and_unknown_ones_are_mistakes() {
        let variables: Variables = serde_json::from_value(json!({"team": "a\"b", "limit": 3})).expect("variables");
        let mut definition = json!({"a": ["{{ vars.team }}/x", "{{vars.limit}}"], "b": "{{ name }}",
            "c": ".[] | select(.team == $vars.team) | .[:$vars.limit]", "d": {"e": "{{ vars.taem }}"}});
        let mut mistakes = Vec::new();
        fill(&mut definition, "", &variables, &mut mistakes);
        assert_eq!(
            definition,
            json!({"a": ["a\"b/x", 3], "b": "{{ name }}", "c": ".[] | select(.team == \"a\\\"b\") | .[:3]",
                "d": {"e": "{{ vars.taem }}"}})
        );
        let message = "no variable named `taem`; did you mean `team`?; set it under [vars] in config.toml";
        assert_eq!(mistakes, [(Some("d.e".to_owned()), message.to_owned())]);
    }
}
