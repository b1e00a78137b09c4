//! What comes from a source is data: no text of a description becomes a template or a reference to a secret.
//!
//! An importer asks [`text`] before it writes a text of its source where the executor looks for templates and secrets.
//! [`check`] judges what every importer made, whatever it asked: in `run`, a template is one of the forms that importers
//! write, over fields of its own input, and a secret is one that the import itself announced. Variables are filled in
//! everywhere, so no text names one. A pasted `curl` line is judged by the same rule.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use crate::{ImportError, Imported, LeftOut};

/// What begins a template.
const OPENINGS: [&str; 3] = ["{{", "{%", "{#"];
/// What the executor puts another value in place of.
const REFERENCES: [&str; 2] = ["secret:", "env:"];
/// Names a variable in a jq expression.
const VARIABLE: &str = "$vars.";
/// The names that the loops of importers give to their items.
const ITEMS: [&str; 4] = ["part", "segment", "item", "entry"];

const REASON: &str = "it contains a text that would be a template or a secret's name";

/// Returns `text`, which comes from a source, for a place where the executor looks for templates and secrets; or why it
/// cannot stand there.
pub(crate) fn text(text: &str) -> Result<&str, String> {
    if is_plain(text) { Ok(text) } else { Err(REASON.to_owned()) }
}

fn is_plain(text: &str) -> bool {
    !OPENINGS.iter().any(|opening| text.contains(opening))
        && !text.contains(VARIABLE)
        && !REFERENCES.iter().any(|prefix| has_reference(text, prefix))
}

/// Whether `text`, or a word of it, begins with `prefix`.
fn has_reference(text: &str, prefix: &str) -> bool {
    text.match_indices(prefix).any(|(at, _)| {
        text[..at].chars().next_back().is_none_or(|before| !before.is_ascii_alphanumeric() && before != '_')
    })
}

/// Leaves out what has a template or a reference that no importer writes. Fails if all subtools would share it.
pub(crate) fn check(imported: &mut Imported) -> Result<(), ImportError> {
    let secrets = std::mem::take(&mut imported.secrets);
    // What a human wrote on the command line: how a server is reached.
    let is_server = imported.defaults.get("run").is_some_and(|run| run["mcp"]["server"].is_object());
    let shared = imported.defaults.get("run").filter(|_| !is_server);
    if shared.is_some_and(|run| !is_own(run, &BTreeSet::new(), &secrets)) {
        return Err(ImportError::new(format!("it cannot be imported: {REASON}"))
            .hint("look at its server and its authentication; a description from there is not to be trusted"));
    }
    let left_out = &mut imported.left_out;
    imported.subtools.retain(|subtool| {
        let is_own = is_own_definition(&subtool.definition, &secrets);
        if !is_own {
            left_out.push(LeftOut::new(subtool.what.as_str(), REASON));
        }
        is_own
    });
    imported.secrets = secrets;
    Ok(())
}

/// Fails if `definition`, which was made of what someone pasted, has a template or a reference of theirs. `secrets` are
/// those that it announces.
pub(crate) fn check_definition(definition: &Map<String, Value>, secrets: &BTreeSet<String>) -> Result<(), String> {
    if is_own_definition(definition, secrets) { Ok(()) } else { Err(REASON.to_owned()) }
}

fn is_own_definition(definition: &Map<String, Value>, secrets: &BTreeSet<String>) -> bool {
    let fields = fields(definition);
    definition.iter().all(|(key, value)| match key.as_str() {
        "run" | "result" | "verify" | "confirm" => is_own(value, &fields, secrets),
        _ => !names_variable(value),
    })
}

/// Whether a text inside `value` would get the value of a variable when the definition is loaded.
fn names_variable(value: &Value) -> bool {
    match value {
        Value::String(text) => {
            text.contains(VARIABLE) || text.split("{{").skip(1).any(|rest| rest.trim_start().starts_with("vars."))
        }
        Value::Array(items) => items.iter().any(names_variable),
        Value::Object(members) => members.values().any(names_variable),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

/// The secrets that `value` refers to.
pub(crate) fn secrets(value: &Value) -> BTreeSet<String> {
    match value {
        Value::String(text) => {
            let name = text.rsplit(' ').next().and_then(|word| word.strip_prefix("secret:"));
            name.map(str::to_owned).into_iter().collect()
        }
        Value::Array(items) => items.iter().flat_map(secrets).collect(),
        Value::Object(members) => members.values().flat_map(secrets).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) => BTreeSet::new(),
    }
}

/// The names of the fields of the input.
fn fields(definition: &Map<String, Value>) -> BTreeSet<String> {
    let properties = definition.get("input").and_then(|input| input["properties"].as_object());
    properties.into_iter().flatten().map(|(name, _)| name.clone()).collect()
}

fn is_own(value: &Value, fields: &BTreeSet<String>, secrets: &BTreeSet<String>) -> bool {
    match value {
        Value::String(text) => is_own_text(text, fields, secrets),
        Value::Array(items) => items.iter().all(|item| is_own(item, fields, secrets)),
        Value::Object(members) => members.iter().all(|(key, member)| is_plain(key) && is_own(member, fields, secrets)),
        Value::Null | Value::Bool(_) | Value::Number(_) => true,
    }
}

fn is_own_text(text: &str, fields: &BTreeSet<String>, secrets: &BTreeSet<String>) -> bool {
    let word = text.rsplit(' ').next().unwrap_or_default();
    if let Some(name) = word.strip_prefix("secret:") {
        return secrets.contains(name) && is_plain(&text[..text.len() - word.len()]);
    }
    let mut rest = text.to_owned();
    // A loop stands before what it repeats.
    while let Some(start) = rest.find("{%").or_else(|| rest.find("{{")) {
        let Some(length) = own_template(&rest[start..], fields) else { return false };
        rest.replace_range(start..start + length, "\u{0}");
    }
    is_plain(&rest)
}

/// The end of the loops that importers write.
const END: &str = "{% endfor %}";

/// The length of the template at the start of `text`, if importers write it.
fn own_template(text: &str, fields: &BTreeSet<String>) -> Option<usize> {
    if let Some(inner) = text.strip_prefix("{{") {
        let inner = &inner[..inner.find("}}")?];
        let (name, default) =
            inner.trim().split_once('|').map_or((inner.trim(), None), |(name, rest)| (name, Some(rest)));
        let name = name.strip_prefix("input.").unwrap_or(name);
        let is_default = |filter: &str| {
            let value = filter.strip_prefix("default('").and_then(|rest| rest.strip_suffix("')"));
            value.is_some_and(|value| value.chars().all(|it| it.is_ascii_alphanumeric() || "-_.~".contains(it)))
        };
        // The whole input, which is a GraphQL input object written out.
        let is_field = fields.contains(name) || name == "input";
        return (is_field && default.is_none_or(is_default)).then_some(inner.len() + 4);
    }
    let length = text.find(END)? + END.len();
    let body = &text[..length];
    let looped = body.strip_prefix("{% for ")?;
    let (item, rest) = looped.split_once(" in ")?;
    let (list, _) = rest.split_once(" %}")?;
    let field = list.strip_suffix("|split('/')");
    let written = match field {
        Some(field) => format!("{{% for {item} in {field}|split('/') %}}/{{{{ {item} }}}}{END}"),
        None => format!("{{% for {item} in {list} %}}{{% if not loop.first %}},{{% endif %}}{{{{ {item} }}}}{END}"),
    };
    (ITEMS.contains(&item) && fields.contains(field.unwrap_or(list)) && body == written).then_some(length)
}

#[cfg(test)]
mod tests;
