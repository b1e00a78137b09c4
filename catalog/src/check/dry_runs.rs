//! Mistakes in `dry_run`: what must never happen is that a dry run does what it is to show.

use definition::run::{Run, TextKind};
use definition::{Definition, DryRun};
use ground::base::schema::InputSchema;
use ground::base::template::{self, names};
use ground::task::effect::EffectClass;
use serde_json::{Map, Value, json};

use super::Mistakes;

pub(super) fn check(definition: &Definition, dry_run: &DryRun, found: &mut Mistakes) {
    if definition.annotations.effect_class() == EffectClass::Read {
        found.add("dry_run", "its annotations say that it changes nothing, so there is nothing to show");
    }
    if definition.run.change().is_some() {
        found.add("dry_run", "a change of a database is shown by trying it; leave this out");
    }
    if dry_run.is_own_request() {
        own_request(definition, dry_run, found);
    }
}

/// Checks the fields that tell the service to change nothing: they must reach it, and no run can set them so.
fn own_request(definition: &Definition, dry_run: &DryRun, found: &mut Mistakes) {
    match &definition.run {
        Run::Http(_) | Run::Process(_) | Run::Mcp(_) => {}
        run => {
            let message = format!(
                "without `subtool` it is its own request, which `{}` does not have; name a read-only subtool that shows it",
                run.name()
            );
            return found.add("dry_run", message);
        }
    }
    if dry_run.input.is_empty() {
        let message = "it needs `subtool`, a read-only subtool that shows it, or `input`, the fields of its own input with \
                       which the service changes nothing";
        return found.add("dry_run", message);
    }
    for (field, value) in &dry_run.input {
        let place = format!("dry_run.input.{field}");
        let Some(schema) = definition.input.get("properties").and_then(|properties| properties.get(field)) else {
            let message = format!("`{field}` is not declared in `input.properties`, so it would not be sent");
            found.add(place, message);
            continue;
        };
        if !is_constant(value) {
            found.add(
                place,
                "without `subtool` it is a constant: what the caller gives must not decide whether this is a dry run",
            );
        } else if let Some(problem) = problem_of(definition, field, schema, value) {
            found.add(place, format!("the schema of `{field}` does not allow it: {problem}"));
        } else if schema.get("default") == Some(value) || schema.get("const") == Some(value) {
            let message = format!(
                "`{field}` has this value without being given, so each run would be a dry run; leave out its default"
            );
            found.add(place, message);
        } else if !reaches(&definition.run, field) {
            let message = format!("nothing in `run` uses `{field}`, so a dry run would do what it is to show");
            found.add(place, message);
        }
    }
}

fn is_constant(value: &Value) -> bool {
    match value {
        Value::String(text) => template::is_constant(text),
        Value::Array(items) => items.iter().all(is_constant),
        Value::Object(fields) => fields.values().all(is_constant),
        Value::Null | Value::Bool(_) | Value::Number(_) => true,
    }
}

/// What the schema of one field has against a value.
fn problem_of(definition: &Definition, field: &str, schema: &Value, value: &Value) -> Option<String> {
    let mut alone = Map::from_iter([("type".to_owned(), "object".into())]);
    for shared in ["$schema", "$defs", "definitions"] {
        alone.extend(definition.input.get(shared).map(|known| (shared.to_owned(), known.clone())));
    }
    alone.insert("properties".to_owned(), json!({ field: schema }));
    let compiled = InputSchema::compile(&alone).ok()?;
    compiled.problems(&json!({ field: value })).into_iter().next().map(|problem| problem.problem)
}

/// Whether a field of the input gets to what the runner does.
fn reaches(run: &Run, field: &str) -> bool {
    let settings = serde_json::to_value(run).unwrap_or_default();
    let settings = settings.get(run.name()).cloned().unwrap_or_default();
    let is_whole = matches!(run, Run::Mcp(_)) && settings.get("arguments").is_none();
    is_whole || uses(run, &settings, "", field)
}

fn uses(run: &Run, value: &Value, place: &str, field: &str) -> bool {
    match value {
        Value::String(text) => match run.text_kind(place.trim_start_matches('.')) {
            TextKind::Constant | TextKind::ResponseJq => false,
            TextKind::Condition => [field, "input"].iter().any(|name| names::uses_in_expression(text, name)),
            TextKind::Template | TextKind::TemplateOrSecret | TextKind::TemplateOrLastSecret => {
                [field, "input"].iter().any(|name| names::uses_in_template(text, name))
            }
        },
        Value::Array(items) => {
            items.iter().enumerate().any(|(index, item)| uses(run, item, &format!("{place}[{index}]"), field))
        }
        Value::Object(fields) => fields.iter().any(|(key, value)| uses(run, value, &format!("{place}.{key}"), field)),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}
