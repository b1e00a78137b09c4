//! Finds the mistakes of one definition that its types cannot express, all of them at once.
//!
//! Templates and jq expressions are checked here for every runner, because they may use the same names everywhere; a
//! runner checks only what is its own. What is wrong between two definitions is the matter of `relatives.rs`.

use std::collections::BTreeSet;
use std::time::Duration;

use definition::run::steps::Steps;
use definition::run::{RESPONSE_VARIABLES, Run, TextKind, VARIABLES};
use definition::{Confirm, Definition, ResultShape};
use ground::base::schema::{self, InputSchema};
use ground::base::template::field_uses::JsonType;
use ground::base::template::names::DeclaredNames;
use ground::base::template::{self, TemplateError};
use ground::config::secret::{InvalidReference, SecretName};
use ground::task::effect::EffectClass;
use jq::select;
use serde_json::{Map, Value};

use super::deserialize::LocatedMessage;

mod dry_runs;

/// The longest time that a run waits after its approval.
const MAX_HOLD: Duration = Duration::from_hours(1);

/// More phrases would hardly find more, and longer ones are not what people say.
const MAX_PHRASES: usize = 50;
const MAX_PHRASE_CHARS: usize = 200;

/// Returns the compiled input schema, or every mistake with its place.
pub(super) fn check(definition: &Definition) -> Result<InputSchema, Vec<LocatedMessage>> {
    let mut found = Mistakes::default();
    if definition.description.trim().is_empty() {
        found.add("description", "it is empty; a model finds the subtool by its description");
    }
    phrases(&definition.phrases, &mut found);
    let schema = InputSchema::compile(&definition.input).map_err(|error| found.add("input", error)).ok();
    if let Some(output) = &definition.output {
        schema::check(output).unwrap_or_else(|error| found.add("output", error));
    }
    for mistake in definition.run.check() {
        let dot = if mistake.place.is_empty() || mistake.place.starts_with('[') { "" } else { "." };
        found.add(format!("run.{}{dot}{}", definition.run.name(), mistake.place), mistake.message);
    }
    let names = DeclaredNames {
        fields: declared_fields(&definition.input),
        numbers: declared_numbers(&definition.input),
        steps: definition.run.steps().map(Steps::names),
        ..DeclaredNames::default()
    };
    let has_its_own_message: BTreeSet<_> = found.0.iter().filter_map(|(place, _)| place.clone()).collect();
    let mut in_fields = Mistakes::default();
    fields_of_run(&definition.run, &names, &mut in_fields);
    let is_new = |(place, _): &LocatedMessage| place.as_ref().is_none_or(|place| !has_its_own_message.contains(place));
    found.0.extend(in_fields.0.into_iter().filter(is_new));
    expressions(definition, &names, &mut found);
    if definition.run.repeats_a_change() && !definition.effect_class().repeatable() {
        let message = "sends its POST once for each page; declare `readOnlyHint` if that changes nothing";
        found.add("run.http.pagination", message);
    }
    if definition.annotations.read_only_hint && definition.run.change().is_some() {
        found.add(
            "annotations.readOnlyHint",
            "it changes rows of a database, or no parser understands it, so it does not count as read-only",
        );
    }
    if definition.annotations.read_only_hint && matches!(&definition.run, Run::Builtin(builtin) if builtin.writes()) {
        found.add("annotations.readOnlyHint", "it writes files of yours, so it does not count as read-only");
    }
    if definition.hold.is_some_and(|hold| hold.get() > MAX_HOLD) {
        found.add("hold", "the maximum is 1h: a human who approves wants it done");
    }
    if definition.concurrency == Some(0) {
        found.add("concurrency", "a limit of 0 would run no task; the minimum is 1");
    }
    if definition.retries.is_some_and(|retries| retries.times > 10) {
        found.add("retries.times", "the maximum is 10");
    }
    if let Some(schema) = &schema {
        examples(definition, schema, &mut found);
    }
    match schema {
        Some(schema) if found.0.is_empty() => Ok(schema),
        _ => Err(found.0),
    }
}

#[derive(Default)]
struct Mistakes(Vec<LocatedMessage>);

impl Mistakes {
    #[expect(clippy::needless_pass_by_value, reason = "errors and texts are passed alike")]
    fn add(&mut self, place: impl Into<String>, message: impl ToString) {
        self.0.push((Some(place.into()), message.to_string()));
    }

    fn add_all(&mut self, place: &str, messages: Result<Vec<String>, TemplateError>) {
        match messages {
            Ok(messages) => messages.into_iter().for_each(|message| self.add(place, message)),
            Err(error) => self.add(place, error),
        }
    }
}

fn phrases(phrases: &[String], found: &mut Mistakes) {
    if phrases.len() > MAX_PHRASES {
        found.add("phrases", format!("{} phrases; the maximum is {MAX_PHRASES}", phrases.len()));
    }
    for (index, phrase) in phrases.iter().enumerate() {
        let place = format!("phrases[{index}]");
        if phrase.trim().is_empty() {
            found.add(place, "it is empty; write what a user says who wants this");
        } else if phrase.chars().count() > MAX_PHRASE_CHARS {
            found.add(
                place,
                format!("it has more than {MAX_PHRASE_CHARS} characters; write what a user says, in a few words"),
            );
        }
    }
}

fn expressions(definition: &Definition, names: &DeclaredNames, found: &mut Mistakes) {
    if let Some(template) = &definition.type_to_approve {
        found.add_all("type_to_approve", names.mistakes_in_template(template));
    }
    for (index, required) in definition.requires.iter().enumerate() {
        found.add_all(&format!("requires[{index}]"), names.mistakes_in_template(required));
    }
    if let Some(Confirm::When(condition)) = &definition.confirm {
        found.add_all("confirm.when", names.mistakes_in_condition(condition));
    }
    if let Some(shape) = &definition.result {
        shape.check(&definition.run).unwrap_or_else(|(place, message)| found.add(place, message));
        for (place, expression) in [("result.select", &shape.select), ("result.part", &shape.part)] {
            if let Some(expression) = expression {
                jq(place, expression, &ResultShape::VARIABLES, names, found);
            }
        }
    }
    if let Some(verify) = &definition.verify {
        if definition.effect_class() != EffectClass::Verifiable {
            found.add("verify", "its annotations say that it is safe to repeat, so it needs no lookup");
        }
        templates_of("verify.input", &verify.input, names, found);
        jq("verify.happened", &verify.happened, &[], names, found);
    }
    if let Some(preview) = &definition.preview {
        templates_of("preview.input", &preview.input, names, found);
        jq("preview.replaces", &preview.replaces, &[], names, found);
    }
    if let Some(dry_run) = &definition.dry_run {
        dry_runs::check(definition, dry_run, found);
        templates_of("dry_run.input", &dry_run.input, names, found);
        dry_run.shows.iter().for_each(|shows| jq("dry_run.shows", shows, &[], names, found));
    }
    if let Some(undo) = &definition.undo {
        jq("undo.input", &undo.input, &[], names, found);
    }
}

fn jq(place: &str, expression: &str, variables: &[&str], names: &DeclaredNames, found: &mut Mistakes) {
    if expression.contains("{{") {
        let message = "`{{ }}` is not filled in in a jq expression; write `$input.NAME` for a field of the input";
        return found.add(place, message);
    }
    let known: Vec<_> = VARIABLES.iter().chain(variables).copied().collect();
    match select::check_with(expression, &known) {
        Ok(()) => names.mistakes_in_jq(expression).into_iter().for_each(|message| found.add(place, message)),
        Err(error) => found.add(place, error),
    }
}

fn examples(definition: &Definition, schema: &InputSchema, found: &mut Mistakes) {
    for (index, example) in definition.examples.iter().enumerate() {
        let mut input = example.input.clone();
        schema.normalize(&mut input);
        for problem in schema.problems(&Value::Object(input)) {
            found.add(format!("examples[{index}].input{}", problem.pointer), problem.problem);
        }
    }
}

/// Checks every string in the settings of the runner.
fn fields_of_run(run: &Run, names: &DeclaredNames, found: &mut Mistakes) {
    let settings = serde_json::to_value(run).expect("a runner's settings are plain JSON");
    let Some(settings) = settings.get(run.name()) else { return };
    let kind = |place: &str| run.text_kind(place);
    fields(&format!("run.{}", run.name()), "", settings, &kind, names, found);
}

/// Checks the templates of the input of a lookup.
fn templates_of(place: &str, input: &Map<String, Value>, names: &DeclaredNames, found: &mut Mistakes) {
    for (key, value) in input {
        fields(place, &format!(".{key}"), value, &|_| TextKind::Template, names, found);
    }
}

/// Checks the strings inside `value`, which lies at `inside` below `root`.
fn fields(
    root: &str,
    inside: &str,
    value: &Value,
    kind: &dyn Fn(&str) -> TextKind,
    names: &DeclaredNames,
    found: &mut Mistakes,
) {
    match value {
        Value::String(text) => {
            field(&format!("{root}{inside}"), text, kind(inside.trim_start_matches('.')), names, found);
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                fields(root, &format!("{inside}[{index}]"), item, kind, names, found);
            }
        }
        Value::Object(members) => {
            for (key, member) in members {
                if key.contains("{{") {
                    found.add(format!("{root}{inside}"), "`{{ }}` is not filled in in a name, only in a value");
                }
                fields(root, &format!("{inside}.{key}"), member, kind, names, found);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn field(place: &str, text: &str, kind: TextKind, names: &DeclaredNames, found: &mut Mistakes) {
    match kind {
        TextKind::Constant if !template::is_constant(text) => {
            found.add(place, "`{{ }}` is not filled in here; this field takes a constant");
        }
        TextKind::Constant => {}
        TextKind::Condition => found.add_all(place, names.mistakes_in_expression(text)),
        TextKind::ResponseJq => jq(place, text, &RESPONSE_VARIABLES, names, found),
        TextKind::Template | TextKind::TemplateOrSecret | TextKind::TemplateOrLastSecret => {
            if !template::is_constant(text) {
                found.add_all(place, names.mistakes_in_template(text));
            }
            secrets(place, text, kind, found);
        }
    }
}

/// Finds references to secrets that would be sent as they are written.
fn secrets(place: &str, text: &str, kind: TextKind, found: &mut Mistakes) {
    let is_template = !template::is_constant(text);
    let reference = match kind {
        TextKind::TemplateOrLastSecret if !is_template => text.rsplit(' ').next().unwrap_or_default(),
        _ => text,
    };
    let is_named = |name: &str| name.starts_with(|first: char| first.is_ascii_alphanumeric());
    match (kind, reference.strip_prefix("secret:")) {
        (TextKind::Template, Some(name)) if is_named(name) => {
            let message = "a secret is not filled in here, so this text itself would be sent; secrets are filled in in \
                           `auth`, `headers`, `query` and `body` of `http`, and in `env` of `process`";
            found.add(place, message);
        }
        (TextKind::TemplateOrSecret | TextKind::TemplateOrLastSecret, Some(_)) if is_template => {
            found.add(place, "the name of a secret cannot come from a template; write it out");
        }
        (TextKind::TemplateOrSecret | TextKind::TemplateOrLastSecret, Some(_))
            if SecretName::in_reference(reference).is_none() =>
        {
            found.add(place, InvalidReference);
        }
        (TextKind::TemplateOrSecret, None) if mentions_secret(text) => {
            let message = "a secret is filled in only if `secret:NAME` is the whole value; text before it is allowed in \
                           `headers`, as in \"Token secret:NAME\"";
            found.add(place, message);
        }
        (TextKind::TemplateOrLastSecret, None) if mentions_secret(text) => {
            found.add(place, "a secret is filled in only at the end of a header and without a template beside it");
        }
        _ => {}
    }
}

/// Whether `text` has a reference to a secret after other text.
fn mentions_secret(text: &str) -> bool {
    text.match_indices("secret:").any(|(at, _)| {
        let before = text[..at].chars().next_back();
        let after = text[at + "secret:".len()..].chars().next();
        before.is_none_or(|it| it.is_whitespace() || it == ':' || it == '=')
            && after.is_some_and(|it| it.is_ascii_alphanumeric())
    })
}

/// The fields that can only be numbers.
fn declared_numbers(input: &Map<String, Value>) -> BTreeSet<String> {
    let properties = input.get("properties").and_then(Value::as_object);
    let is_number = |schema: &Value| matches!(schema["type"].as_str(), Some("integer" | "number"));
    properties.into_iter().flatten().filter(|(_, schema)| is_number(schema)).map(|(name, _)| name.clone()).collect()
}

/// Returns the names of the fields that an input may have; `None` if the schema allows others than it declares.
pub fn declared_fields(input: &Map<String, Value>) -> Option<BTreeSet<String>> {
    /// Keywords whose schemas apply to the same object.
    const SAME_OBJECT: [&str; 8] = ["allOf", "anyOf", "oneOf", "if", "then", "else", "dependentSchemas", "not"];
    let is_open = input.get("additionalProperties").is_some_and(|more| *more != Value::Bool(false));
    if is_open || input.contains_key("patternProperties") || input.contains_key("$ref") {
        return None;
    }
    let mut fields: BTreeSet<_> =
        input.get("properties").and_then(Value::as_object).into_iter().flat_map(Map::keys).cloned().collect();
    for keyword in SAME_OBJECT {
        let schemas = match (keyword, input.get(keyword)) {
            (_, Some(Value::Array(schemas))) => schemas.iter().collect(),
            ("dependentSchemas", Some(Value::Object(schemas))) => schemas.values().collect(),
            (_, Some(schema)) => vec![schema],
            (_, None) => Vec::new(),
        };
        for schema in schemas.into_iter().filter_map(Value::as_object) {
            fields.extend(declared_fields(schema)?);
        }
    }
    Some(fields)
}

/// Returns the types that a field can have in an input; `None` if the schema does not bound them.
pub fn declared_types(input: &Map<String, Value>, field: &str) -> Option<BTreeSet<JsonType>> {
    let schema = input.get("properties")?.get(field)?;
    match (&schema["type"], &schema["enum"], schema.get("const")) {
        (Value::String(name), _, _) => Some(JsonType::of_schema(name).into_iter().collect()),
        (Value::Array(names), _, _) => {
            Some(names.iter().filter_map(Value::as_str).filter_map(JsonType::of_schema).collect())
        }
        (_, Value::Array(values), _) => Some(values.iter().filter_map(JsonType::of).collect()),
        (_, _, Some(value)) => Some(JsonType::of(value).into_iter().collect()),
        _ => None,
    }
}
