//! Input schemas of subtools: compiled once, then used for every run.
//!
//! JSON Schema draft 2020-12 unless `$schema` names another draft; validated by the `jsonschema` crate.
//! A `$ref` may only refer to the same schema. Patterns run on a linear-time engine.

use std::collections::BTreeMap;
use std::fmt;

use jsonschema::error::ValidationErrorKind;
use jsonschema::{PatternOptions, ValidationError, Validator};
use protocol::excerpt;
use protocol::json::{self, pointer_token};
use protocol::nearest::nearest;
use protocol::wording::{at_most, in_backticks};
use serde::Serialize;
use serde_json::{Map, Value};
use serde_with_macros::skip_serializing_none;
use work::SchemaWork;

mod work;

/// The most problems that are listed for one input.
pub const MAX_PROBLEMS: usize = 20;
/// The most errors of one input that are looked at.
const MAX_ERRORS: usize = 1_000;
/// How many missing fields of an object are explained one by one; more are only named.
const MAX_MISSING_EXPLAINED: usize = 5;
const MAX_MISSING_NAMED: usize = 40;
/// The most problems that are listed for one output.
const MAX_OUTPUT_PROBLEMS: usize = 5;
/// The most characters of one message; a longer one, which quotes a long value, is cut.
const MAX_VALUE_CHARS: usize = 300;
/// The largest compiled pattern.
const MAX_PATTERN_BYTES: usize = 1 << 20;

/// A compiled schema, with its source.
#[derive(Debug)]
pub struct InputSchema {
    schema: Value,
    validator: Validator,
    work: SchemaWork,
}

/// One problem with an input: what a model needs to correct its call.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Problem {
    /// JSON Pointer (RFC 6901) of the field in the input; empty for the input itself.
    pub pointer: String,
    pub problem: String,
    /// The fields that there are, if it names another one. Not serialized: a list of problems says it once.
    #[serde(skip)]
    pub fields: Option<String>,
    /// The field name that was probably meant.
    pub did_you_mean: Option<String>,
    /// The schema of that field.
    pub schema: Option<Value>,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.problem)?;
        self.fields.as_ref().map_or(Ok(()), |fields| write!(f, "; the fields are {fields}"))
    }
}

#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct SchemaError(String);

/// Returns where `data` differs from `schema`, in a few lines that name the places. Empty if it does not.
pub fn problems_of_output(schema: &Map<String, Value>, data: &Value) -> Vec<String> {
    let (validator, work) = match validator(&Value::Object(schema.clone())) {
        Ok(compiled) => compiled,
        Err(error) => return vec![error.to_string()],
    };
    if let Some(objection) = work.objection(data) {
        return vec![objection];
    }
    let described = |error: ValidationError<'_>| {
        let place = match error.instance_path().as_str() {
            "" => "the data".to_owned(),
            pointer => format!("`{pointer}`"),
        };
        excerpt::line(&format!("{place}: {}", error.masked()), MAX_VALUE_CHARS)
    };
    validator.iter_errors(data).map(described).take(MAX_OUTPUT_PROBLEMS).collect()
}

impl InputSchema {
    /// Compiles `schema`, which must describe an object.
    pub fn compile(schema: &Map<String, Value>) -> Result<Self, SchemaError> {
        if schema.get("type").is_some_and(|kind| kind != "object") {
            return Err(SchemaError("an input schema must have `\"type\": \"object\"`".to_owned()));
        }
        let schema = Value::Object(schema.clone());
        let (validator, work) = validator(&schema)?;
        Ok(Self { schema, validator, work })
    }

    /// Adds the schema's defaults for fields that `input` does not have, and writes an integer such as `5.0` as `5`.
    pub fn normalize(&self, input: &mut Map<String, Value>) {
        normalize(&self.schema, input);
    }

    /// Parses `text`, a command-line word, as a value of `field`: typed by the schema, otherwise a string.
    pub fn parse_word(&self, field: &str, text: &str) -> Value {
        let kinds = json::allowed_types(&self.schema["properties"][field], &self.schema);
        if kinds.is_empty() || kinds.contains(&"string") {
            return Value::String(text.to_owned());
        }
        match json::parse(text.as_bytes()) {
            Ok(value) if kinds.iter().any(|kind| json::is_type(kind, &value)) => value,
            // A single list item, as in `to=ann`.
            _ if kinds.contains(&"array") => Value::Array(vec![Value::String(text.to_owned())]),
            _ => Value::String(text.to_owned()),
        }
    }

    /// Returns the problems of `input`; empty if it is valid.
    pub fn problems(&self, input: &Value) -> Vec<Problem> {
        if let Some(problem) = self.work.objection(input) {
            return vec![Problem { pointer: String::new(), problem, fields: None, did_you_mean: None, schema: None }];
        }
        if self.validator.is_valid(input) {
            return Vec::new();
        }
        let errors: Vec<_> = self.validator.iter_errors(input).take(MAX_ERRORS).collect();
        let missing = missing_fields(&errors);
        let mut found = Vec::new();
        for error in &errors {
            let Some(names) = many_missing(error, &missing) else {
                found.extend(self.explain(error));
                continue;
            };
            let pointer = error.instance_path().as_str().to_owned();
            let problem = format!("these are required: {}", at_most(MAX_MISSING_NAMED, names.iter().map(in_backticks)));
            // Once for all of them.
            if found.iter().all(|known: &Problem| (&known.pointer, &known.problem) != (&pointer, &problem)) {
                found.push(Problem { pointer, problem, fields: None, did_you_mean: None, schema: None });
            }
        }
        found.truncate(MAX_PROBLEMS);
        found
    }

    fn explain(&self, error: &ValidationError<'_>) -> Vec<Problem> {
        let pointer = error.instance_path().as_str().to_owned();
        let keyword = error.schema_path().as_str();
        let parent = keyword.rsplit_once('/').map_or("", |(parent, _)| parent);
        let schema = self.schema.pointer(parent);
        match error.kind() {
            ValidationErrorKind::Required { property } => {
                let name = property.as_str().unwrap_or_default();
                vec![Problem {
                    pointer: format!("{pointer}/{}", pointer_token(name)),
                    problem: format!("`{name}` is required"),
                    fields: None,
                    did_you_mean: None,
                    schema: schema.and_then(|schema| schema["properties"].get(name)).cloned(),
                }]
            }
            ValidationErrorKind::AdditionalProperties { unexpected }
            | ValidationErrorKind::UnevaluatedProperties { unexpected } => {
                let known: Vec<_> = schema
                    .and_then(|schema| schema["properties"].as_object())
                    .map(|properties| properties.keys().map(String::as_str).collect())
                    .unwrap_or_default();
                unexpected
                    .iter()
                    .map(|name| Problem {
                        pointer: format!("{pointer}/{}", pointer_token(name)),
                        problem: format!("no field named `{name}`"),
                        fields: Some(named(&known)),
                        did_you_mean: nearest(name, known.iter().copied(), 1).pop(),
                        schema: None,
                    })
                    .collect()
            }
            _ => vec![Problem {
                pointer,
                problem: excerpt::chars(&error.to_string(), MAX_VALUE_CHARS).into_owned(),
                fields: None,
                did_you_mean: None,
                schema: schema.filter(|_| !parent.is_empty()).cloned(),
            }],
        }
    }
}

/// The names of the fields that each object lacks, by its pointer.
fn missing_fields<'a>(errors: &'a [ValidationError<'_>]) -> BTreeMap<String, Vec<&'a str>> {
    let mut missing: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for error in errors {
        if let ValidationErrorKind::Required { property } = error.kind() {
            let names = missing.entry(error.instance_path().as_str().to_owned()).or_default();
            names.push(property.as_str().unwrap_or_default());
        }
    }
    missing
}

/// The fields that an object lacks, if the error is about one of many.
fn many_missing<'a>(error: &ValidationError<'_>, missing: &'a BTreeMap<String, Vec<&str>>) -> Option<&'a Vec<&'a str>> {
    let ValidationErrorKind::Required { .. } = error.kind() else { return None };
    missing.get(error.instance_path().as_str()).filter(|names| names.len() > MAX_MISSING_EXPLAINED)
}

/// Checks that `schema` compiles; unlike an input schema, it may describe any type.
pub fn check(schema: &Map<String, Value>) -> Result<(), SchemaError> {
    validator(&Value::Object(schema.clone())).map(|_| ())
}

fn validator(schema: &Value) -> Result<(Validator, SchemaWork), SchemaError> {
    let work = SchemaWork::of(schema)?;
    let validator = jsonschema::options()
        .with_pattern_options(PatternOptions::regex().size_limit(MAX_PATTERN_BYTES))
        .build(schema)
        .map_err(|error| SchemaError(format!("{}: {error}", location(&error))))?;
    Ok((validator, work))
}

fn normalize(schema: &Value, input: &mut Map<String, Value>) {
    let Some(properties) = schema["properties"].as_object() else { return };
    for (name, property) in properties {
        match (input.get_mut(name), property.get("default")) {
            (Some(Value::Object(nested)), _) => normalize(property, nested),
            (Some(Value::Array(items)), _) => {
                let items = items.iter_mut().filter_map(Value::as_object_mut);
                items.for_each(|item| normalize(&property["items"], item));
            }
            (Some(number @ Value::Number(_)), _) => {
                let kinds = json::named_types(property.get("type"));
                if kinds.contains(&"integer") && !kinds.contains(&"number") {
                    *number = without_fraction(number);
                }
            }
            (None, Some(default)) => {
                input.insert(name.clone(), default.clone());
            }
            _ => {}
        }
    }
}

/// A number whose fraction is zero, without it: `5.0` is an integer to JSON Schema, and to hardly anything that reads one.
fn without_fraction(number: &Value) -> Value {
    // Beyond it, not each integer is a number of this type.
    const MAX_EXACT: f64 = 9_007_199_254_740_992.0;
    let whole = number.as_f64().filter(|whole| whole.fract() == 0.0 && whole.abs() < MAX_EXACT);
    match whole.filter(|_| !(number.is_i64() || number.is_u64())) {
        #[expect(clippy::cast_possible_truncation, reason = "it has no fraction and is small enough")]
        Some(whole) => (whole as i64).into(),
        None => number.clone(),
    }
}

fn location(error: &ValidationError<'_>) -> String {
    match error.instance_path().as_str() {
        "" => "the schema".to_owned(),
        pointer => format!("the schema at `{pointer}`"),
    }
}

/// The first names; more would be a listing of their own.
fn named(names: &[&str]) -> String {
    const MAX_NAMED: usize = 15;
    if names.is_empty() { "none".to_owned() } else { at_most(MAX_NAMED, names.iter().map(in_backticks)) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn compiled(schema: Value) -> InputSchema {
        let Value::Object(schema) = schema else { panic!("a schema must be an object") };
        InputSchema::compile(&schema).expect("it compiles")
    }

    fn mail() -> InputSchema {
        compiled(json!({
            "type": "object",
            "properties": {
                "query": {"type": "string"},
                "limit": {"type": "integer", "minimum": 1, "default": 10},
                "to": {"type": "array", "items": {"type": "string"}},
                "flags": {"type": "object", "properties": {"unread": {"type": "boolean", "default": false}}}
            },
            "required": ["query"],
            "additionalProperties": false
        }))
    }

    #[test]
    fn of_many_missing_fields_all_are_named_at_once() {
        let names: Vec<_> = (0..21).map(|number| format!("field_{number}")).collect();
        let stock = json!({"type": "object", "required": names, "properties": {}});
        let schema = compiled(json!({"type": "object", "required": ["sku"], "properties": {"stock": stock}}));
        let problems = schema.problems(&json!({"stock": {"field_3": 1}}));
        let said: Vec<_> = problems.iter().map(|it| (it.pointer.as_str(), it.problem.as_str())).collect();
        assert_eq!(said.len(), 2, "{said:?}");
        let (pointer, all) = said.into_iter().find(|(pointer, _)| *pointer != "/sku").expect("that of the stock");
        assert!(pointer == "/stock" && all.starts_with("these are required: `field_0`"), "{all}");
        assert!(all.ends_with("`field_20`") && !all.contains("`field_3`"), "{all}");
    }

    #[test]
    fn all_problems_are_listed_at_once_with_the_schema_of_the_field() {
        let problems = mail().problems(&json!({"limit": 0, "qury": "x"}));
        let listed: Vec<_> =
            problems.iter().map(|p| (p.pointer.as_str(), p.did_you_mean.as_deref(), p.schema.is_some())).collect();
        assert_eq!(listed, [("/limit", None, true), ("/qury", Some("query"), false), ("/query", None, true)]);
    }

    #[test]
    fn defaults_are_filled_at_every_depth() {
        let Value::Object(mut input) = json!({"query": "x", "flags": {}}) else { unreachable!() };
        mail().normalize(&mut input);
        assert_eq!(Value::Object(input), json!({"query": "x", "flags": {"unread": false}, "limit": 10}));
    }

    #[test]
    fn an_integer_has_no_fraction() {
        for (limit, expected) in [
            (json!(5.0), json!(5)),
            (json!(-0.0), json!(0)),
            (json!(5.5), json!(5.5)),
            (json!(7), json!(7)),
            (json!(1e300), json!(1e300)),
            (json!("5.0"), json!("5.0")),
        ] {
            let Value::Object(mut input) = json!({"limit": limit}) else { unreachable!() };
            mail().normalize(&mut input);
            assert_eq!(input["limit"], expected, "{limit}");
        }
    }

    #[test]
    fn a_word_is_parsed_as_the_type_in_the_schema() {
        let schema = mail();
        assert_eq!(schema.parse_word("limit", "5"), json!(5));
        assert_eq!(schema.parse_word("limit", "many"), json!("many"));
        assert_eq!(schema.parse_word("query", "5"), json!("5"));
        assert_eq!(schema.parse_word("flags", "{\"unread\": true}"), json!({"unread": true}));
        assert_eq!(schema.parse_word("to", "ann"), json!(["ann"]));
        assert_eq!(schema.parse_word("to", "[\"ann\"]"), json!(["ann"]));
    }

    #[test]
    fn a_word_is_typed_by_choices_values_and_references() {
        let schema = compiled(json!({"type": "object", "$defs": {"count": {"type": "integer"}},
        "properties": {
            "days": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
            "both": {"anyOf": [{"type": "integer"}, {"type": "string"}]},
            "flag": {"oneOf": [{"type": "boolean"}]},
            "count": {"$ref": "#/$defs/count"},
            "wrapped": {"allOf": [{"$ref": "#/$defs/count"}, {"minimum": 1}]},
            "level": {"enum": [1, 2]},
            "any": {"anyOf": [{"type": "integer"}, {}]},
        }}));
        for (field, text, expected) in [
            ("days", "5", json!(5)),
            ("days", "null", Value::Null),
            ("days", "many", json!("many")),
            ("both", "5", json!("5")),
            ("flag", "true", json!(true)),
            ("count", "5", json!(5)),
            ("wrapped", "5", json!(5)),
            ("level", "2", json!(2)),
            ("any", "5", json!("5")),
        ] {
            assert_eq!(schema.parse_word(field, text), expected, "{field}={text}");
        }
    }

    #[test]
    fn an_external_reference_and_an_invalid_schema_are_refused() {
        for schema in [
            json!({"type": "object", "properties": {"a": {"$ref": "https://example.com/a.json"}}}),
            json!({"type": "object", "properties": {"a": {"type": "strin"}}}),
            json!({"type": "array"}),
        ] {
            let Value::Object(schema) = schema else { unreachable!() };
            assert!(InputSchema::compile(&schema).is_err(), "{schema:?}");
        }
    }

    #[test]
    fn a_pattern_matches_in_linear_time() {
        let pattern = |pattern: &str| json!({"type": "object", "properties": {"a": {"pattern": pattern}}});
        let schema = compiled(pattern("^(a+)+$"));
        let started = std::time::Instant::now();
        assert_eq!(schema.problems(&json!({"a": "a".repeat(100_000) + "!"})).len(), 1);
        assert!(started.elapsed() < std::time::Duration::from_secs(5), "{:?}", started.elapsed());
        // Patterns that need a backtracking engine, and one that is too large when compiled.
        for wrong in [r"^(a+)+\1$", "^(?=(a+)+$)", "^(?!a).*$", "^((a{1000}){1000}){1000}$"] {
            let Value::Object(schema) = pattern(wrong) else { unreachable!() };
            assert!(InputSchema::compile(&schema).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_schema_that_refers_to_itself_does_not_loop() {
        for schema in [
            json!({"type": "object", "properties": {"a": {"$ref": "#"}}}),
            json!({"type": "object", "$defs": {"x": {"$ref": "#/$defs/y"}, "y": {"$ref": "#/$defs/x"}}, "properties": {"a": {"$ref": "#/$defs/x"}}}),
            json!({"type": "object", "properties": {"a": {"$ref": "#/properties/a"}}}),
        ] {
            let Value::Object(schema) = schema else { unreachable!() };
            // It may be refused or accept anything, but it must terminate.
            if let Ok(schema) = InputSchema::compile(&schema) {
                assert_eq!(schema.problems(&json!({"a": {"a": {}}})), []);
            }
        }
    }

    #[test]
    fn large_integers_are_compared_exactly() {
        let schema = compiled(json!({"type": "object", "properties": {"id": {"maximum": 9_007_199_254_740_992_i64}}}));
        assert_eq!(schema.problems(&json!({"id": 9_007_199_254_740_993_i64})).len(), 1);
        assert!(schema.problems(&json!({"id": 9_007_199_254_740_992_i64})).is_empty());
    }

    #[test]
    fn a_schema_may_name_an_older_draft() {
        let old = compiled(json!({"$schema": "http://json-schema.org/draft-04/schema#", "type": "object",
            "properties": {"n": {"type": "integer", "minimum": 0, "exclusiveMinimum": true}}}));
        assert_eq!(old.problems(&json!({"n": 0})).len(), 1);
    }
}
