//! Variables of the configuration: `{{ vars.NAME }}` in any text of a definition, `$vars.NAME` in jq.
//!
//! `run` may be a choice: an object whose `$choose` names one of its other keys, which becomes `run`.
//!
//! They are filled in before a definition is read, so they may stand wherever a text may, also where no template is
//! filled in later; and what a human approves is bound to their values, because these are part of the definition's hash.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use ground::config::DefinitionVariable;
use protocol::nearest::{did_you_mean, nearest};
use protocol::wording::quoted;
use regex::Regex;
use serde_json::Value;

use super::deserialize::LocatedMessage;

static REFERENCE: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"\{\{\s*vars\.(?<braced>[A-Za-z_]\w*)\s*\}\}|\$vars\.(?<jq>[A-Za-z_]\w*)").expect("a valid pattern")
});

/// The variables by name.
pub(super) type Variables = BTreeMap<String, DefinitionVariable>;

/// The key whose value names the key that is chosen.
const CHOOSE: &str = "$choose";

/// The names of the variables that `text` mentions.
pub fn names_in(text: &str) -> BTreeSet<String> {
    let found = REFERENCE.captures_iter(text).filter_map(|found| found.name("braced").or(found.name("jq")));
    found.map(|name| name.as_str().to_owned()).collect()
}

/// Replaces the `run` of `definition`, if it is a choice, by what is chosen. What is not chosen may name variables that
/// are not set.
pub(super) fn choose(definition: &mut Value, variables: &Variables, mistakes: &mut Vec<LocatedMessage>) {
    let Some(Value::Object(choices)) = definition.get_mut("run") else { return };
    let Some(mut chosen) = choices.shift_remove(CHOOSE) else { return };
    let names = quoted(choices.keys());
    let before = mistakes.len();
    fill(&mut chosen, "run", variables, mistakes);
    for (_, message) in &mut mistakes[before..] {
        *message = format!("{message}; one of {names}");
    }
    let run = chosen.as_str().and_then(|name| choices.shift_remove(name));
    if run.is_none() && mistakes.len() == before {
        mistakes.push((Some("run".to_owned()), format!("{chosen} is not one of its choices: {names}")));
    }
    // With a mistake nothing is loaded; a choice without variables avoids further ones that only follow from it.
    let without_variables = || choices.values().find(|choice| !choice.to_string().contains("vars."));
    let any = || without_variables().or(choices.values().next()).cloned();
    definition["run"] = run.or_else(any).unwrap_or_default();
}

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
    format!("{UNKNOWN}`{name}`{}; set it under [vars] in config.toml", hint.unwrap_or_default())
}

/// How the message about an unknown variable begins.
const UNKNOWN: &str = "no variable named ";

/// The variable that `message` says is not set.
pub(super) fn unset_variable(message: &str) -> Option<&str> {
    message.strip_prefix(UNKNOWN)?.strip_prefix('`')?.split('`').next()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_choice_becomes_what_its_variable_names() {
        let run =
            json!({"$choose": "{{ vars.engine }}", "a": {"http": {"base_url": "{{ vars.a_url }}"}}, "b": {"x": 1}});
        let chosen = |variables: Value| {
            let variables: Variables = serde_json::from_value(variables).expect("variables");
            let (mut definition, mut mistakes) = (json!({"run": run}), Vec::new());
            choose(&mut definition, &variables, &mut mistakes);
            (definition["run"].clone(), mistakes.into_iter().map(|(_, message)| message).collect::<Vec<_>>())
        };
        assert_eq!(chosen(json!({"engine": "b"})), (json!({"x": 1}), vec![]), "`a_url` need not be set");
        let message = "no variable named `engine`; set it under [vars] in config.toml; one of `a`, `b`";
        assert_eq!(chosen(json!({})).1, [message]);
        assert_eq!(chosen(json!({"engine": "c"})).1, ["\"c\" is not one of its choices: `a`, `b`"]);
    }

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
