//! Inputs that do not arrive, or that callers are made to give for nothing.
//!
//! Looks for names in the texts of a definition and evaluates nothing, so it warns only of what is certain.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use catalog::Subtool;
use definition::Definition;
use definition::run::Run;
use protocol::command_names::{AGENT_COMMANDS, OTHER_COMMANDS};
use regex::Regex;
use serde_json::{Map, Value};

use super::{Finding, warning};

/// A model that must fill in more fields guesses some of them.
const MAX_REQUIRED: usize = 6;
/// What a user rarely says, so a model that must give it makes it up.
const RARELY_GIVEN: [&str; 24] = [
    "count",
    "cursor",
    "direction",
    "encoding",
    "fields",
    "format",
    "include",
    "lang",
    "language",
    "limit",
    "locale",
    "max_results",
    "offset",
    "order",
    "order_by",
    "page",
    "page_number",
    "page_size",
    "per_page",
    "sort",
    "sort_by",
    "timezone",
    "tz",
    "verbose",
];
/// The keys whose values are expressions without braces.
const EXPRESSIONS: [&str; 9] = ["each", "error", "for", "happened", "if", "input", "replaces", "select", "shows"];

static TEMPLATE: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"(?s)\{\{.*?\}\}|\{%.*?%\}").expect("a valid pattern"));
static WORD: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"[A-Za-z_][A-Za-z0-9_]*").expect("a valid pattern"));
static FOREIGN: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"\$?\{[A-Za-z_][A-Za-z0-9_.-]*\}|/:[A-Za-z_]\w*").expect("a valid pattern"));
static REFERENCE: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"^\{\{\s*(?:input\.)?([A-Za-z_][A-Za-z0-9_]*)\s*\}\}$").expect("a valid pattern"));

pub(super) fn check(subtool: &Subtool, findings: &mut Vec<Finding>) {
    let name = subtool.name.as_str();
    if AGENT_COMMANDS.contains(&name) || OTHER_COMMANDS.contains(&name) {
        let message = format!("`{name}` is also a command of agent-magic-tool; another name avoids mix-ups");
        findings.push(warning(subtool, "command-name", "", message));
    }
    foreign_templates(subtool, findings);
    let definition = &*subtool.definition;
    let no_properties = Map::new();
    let properties = definition.input.get("properties").and_then(Value::as_object).unwrap_or(&no_properties);
    let required = definition.input.get("required").and_then(Value::as_array).into_iter().flatten();
    let required: BTreeSet<&str> = required.filter_map(Value::as_str).collect();
    let used = names_used(definition);
    for (field, property) in properties {
        let place = format!("input.properties.{field}");
        let has_default = property.get("default").is_some();
        // Only a name that templates can write is looked for.
        let is_plain = WORD.find(field).is_some_and(|word| word.as_str() == field);
        if is_plain && !passes_everything(&definition.run) && !used.contains(field.as_str()) && !used.contains("input")
        {
            let message = format!("nothing uses `{field}`, so what a caller gives is dropped; use it, or leave it out");
            findings.push(warning(subtool, "unused-input", &place, message));
        }
        let is_constant = property.get("const").is_some();
        if required.contains(field.as_str()) && !has_default && !is_constant && RARELY_GIVEN.contains(&field.as_str()) {
            let message = format!(
                "users rarely say `{field}`, so a model makes it up; give it a default instead of requiring it"
            );
            findings.push(warning(subtool, "rarely-given-required", &place, message));
        }
    }
    let without_default =
        |field: &&&str| properties.get(**field).is_some_and(|property| property.get("default").is_none());
    let count = required.iter().filter(without_default).count();
    if count >= MAX_REQUIRED {
        let message = format!(
            "{count} fields are required; a model makes up those that the user did not say; give defaults where there are usual values"
        );
        findings.push(warning(subtool, "many-required", "input.required", message));
    }
    let is_optional = |field: &str| {
        properties.get(field).is_some_and(|property| property.get("default").is_none()) && !required.contains(field)
    };
    for (place, text) in texts_of_run(&definition.run) {
        if let Some(field) = unguarded(&text).into_iter().find(|field| is_optional(field)) {
            let message = format!(
                "`{field}` is not required, and without it this fails; require it, give it a default, or write {{% if {field} %}}"
            );
            findings.push(warning(subtool, "unguarded-optional", &place, message));
        }
    }
}

/// Whether the runner gets the whole input without a word about it in the definition.
fn passes_everything(run: &Run) -> bool {
    match run {
        Run::Mcp(_) => settings_of(run).get("arguments").is_none(),
        Run::Script(script) => script.input.is_none(),
        _ => false,
    }
}

fn settings_of(run: &Run) -> Value {
    let run_value = serde_json::to_value(run).unwrap_or_default();
    run_value.get(run.name()).cloned().unwrap_or_default()
}

/// Placeholders of other languages, which are sent as they are.
fn foreign_templates(subtool: &Subtool, findings: &mut Vec<Finding>) {
    let Run::Http(_) = &subtool.definition.run else { return };
    let settings = settings_of(&subtool.definition.run);
    for key in ["base_url", "url", "path"] {
        let Some(text) = settings[key].as_str() else { continue };
        let plain = TEMPLATE.replace_all(text, "");
        if let Some(found) = FOREIGN.find(&plain) {
            let name = found.as_str().trim_start_matches(['$', '{', '/', ':']).trim_end_matches('}');
            let message = format!(
                "`{}` is no template and is sent as it is; write {{{{ {name} }}}}",
                found.as_str().trim_start_matches('/')
            );
            findings.push(warning(subtool, "foreign-template", &format!("run.http.{key}"), message));
        }
    }
    for key in ["query", "headers"] {
        for (name, value) in settings[key].as_object().into_iter().flatten() {
            let whole = value.as_str().and_then(|text| FOREIGN.find(text).filter(|found| found.as_str() == text));
            if let Some(found) = whole.filter(|found| !found.as_str().starts_with('/')) {
                let message = format!("`{}` is no template and is sent as it is; write {{{{ NAME }}}}", found.as_str());
                findings.push(warning(subtool, "foreign-template", &format!("run.http.{key}.{name}"), message));
            }
        }
    }
}

/// Every word in the templates and expressions of the definition.
fn names_used(definition: &Definition) -> BTreeSet<String> {
    let mut whole = serde_json::to_value(definition).unwrap_or_default();
    if let Some(fields) = whole.as_object_mut() {
        for shown in ["description", "phrases", "input", "output", "examples", "annotations", "tags"] {
            fields.remove(shown);
        }
    }
    let mut words = BTreeSet::new();
    collect(&whole, "", &mut words);
    words
}

fn collect(value: &Value, key: &str, words: &mut BTreeSet<String>) {
    let mut add = |text: &str| words.extend(WORD.find_iter(text).map(|word| word.as_str().to_owned()));
    match value {
        Value::String(text) if EXPRESSIONS.contains(&key) || key == "when" => add(text),
        Value::String(text) => TEMPLATE.find_iter(text).for_each(|found| add(found.as_str())),
        Value::Array(items) => items.iter().for_each(|item| collect(item, key, words)),
        Value::Object(fields) => {
            for (key, value) in fields {
                TEMPLATE.find_iter(key).for_each(|found| {
                    words.extend(WORD.find_iter(found.as_str()).map(|word| word.as_str().to_owned()));
                });
                collect(value, key, words);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Every word in the templates of a lookup's input.
pub(super) fn words_in_templates(input: &Map<String, Value>) -> BTreeSet<String> {
    let mut words = BTreeSet::new();
    for value in input.values() {
        collect(value, "", &mut words);
    }
    words
}

/// The texts of the settings that are filled in, except those that a condition guards.
fn texts_of_run(run: &Run) -> Vec<(String, String)> {
    let mut texts = Vec::new();
    texts_in(&settings_of(run), &format!("run.{}", run.name()), &mut texts);
    texts
}

fn texts_in(value: &Value, place: &str, texts: &mut Vec<(String, String)>) {
    match value {
        Value::String(text) => texts.push((place.to_owned(), text.clone())),
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                texts_in(item, &format!("{place}[{index}]"), texts);
            }
        }
        Value::Object(fields) if fields.contains_key("if") => {}
        Value::Object(fields) => {
            for (key, value) in fields {
                texts_in(value, &format!("{place}.{key}"), texts);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// The fields that a text prints beside other text, whether they are there or not.
fn unguarded(text: &str) -> Vec<&str> {
    if REFERENCE.is_match(text) || text.contains("{%") {
        return Vec::new();
    }
    TEMPLATE.find_iter(text).filter_map(|found| Some(REFERENCE.captures(found.as_str())?.get(1)?.as_str())).collect()
}
