//! Templates: how a value of the input is *placed* into a request.
//!
//! A value is never spliced into a language: it becomes one argument, one percent-encoded part of a path or
//! one JSON value. The engine is minijinja in its semi-strict mode: testing an absent optional value is
//! fine, printing one is an error. Templates know nothing of secrets: runners resolve `secret:NAME` from the
//! definition itself, so a value of the input can never become a secret reference.

use std::borrow::Cow;

use minijinja::value::{Serde, Value as Scoped};
use minijinja::{AutoEscape, Environment, UndefinedBehavior};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Map, Value};

pub mod condition;
mod mail;
pub mod names;

/// Everything but the unreserved characters of RFC 3986.
const PLACED_IN_URL: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// How many instructions one template may execute; a shipped template needs about twenty.
const MAX_FUEL: u64 = 50_000;

/// The autoescape mode in which every placed value is percent-encoded.
const URL_PART: AutoEscape = AutoEscape::Custom(Cow::Borrowed("url-part"));

#[derive(Debug, thiserror::Error)]
#[error("template `{template}`: {reason}")]
pub struct TemplateError {
    template: String,
    reason: String,
}

impl TemplateError {
    fn new(template: &str, error: &minijinja::Error) -> Self {
        let reason = match error.detail() {
            Some(detail) => format!("{}: {detail}", error.kind()),
            None => error.kind().to_string(),
        };
        Self { template: template.to_owned(), reason }
    }
}

/// The values that templates can use.
#[derive(Debug, Clone)]
pub struct TemplateValues(Scoped);

impl TemplateValues {
    /// The fields of the input by name, and the whole input as `input`.
    pub fn of_input(input: &Map<String, Value>) -> Self {
        Self::of_names(input, [("input", Value::Object(input.clone()))])
    }

    /// The fields of the input by name, and `shared` names, which no field can replace.
    pub fn of_names<'a>(input: &Map<String, Value>, shared: impl IntoIterator<Item = (&'a str, Value)>) -> Self {
        let mut names = input.clone();
        names.extend(shared.into_iter().map(|(name, value)| (name.to_owned(), value)));
        Self(Scoped::from(Serde(names)))
    }

    /// The values for conditions (`confirm.when`): `input` and `caller`.
    pub fn of_condition(input: &Map<String, Value>, caller: &Value) -> Self {
        Self(minijinja::context! { input => Scoped::from(Serde(input)), caller => Scoped::from(Serde(caller)) })
    }

    /// Renders `template` without any escaping: for headers, arguments and texts.
    pub fn text(&self, template: &str) -> Result<String, TemplateError> {
        engine(AutoEscape::None).render_str(template, &self.0).map_err(|error| TemplateError::new(template, &error))
    }

    /// Renders `template` with every placed value percent-encoded, including `/`.
    pub fn url_part(&self, template: &str) -> Result<String, TemplateError> {
        engine(URL_PART).render_str(template, &self.0).map_err(|error| TemplateError::new(template, &error))
    }

    /// Renders every string inside `template`.
    ///
    /// A string that is exactly one reference (`"{{ limit }}"`) keeps the JSON type of the value. If the input
    /// has no such field, the object key or array item that holds the reference is dropped; if `template`
    /// itself is that reference, the result is `None`.
    pub fn value(&self, template: &Value) -> Result<Option<Value>, TemplateError> {
        Ok(Some(match template {
            Value::String(text) => match reference(text) {
                Some(expression) => return self.lookup(text, expression),
                None => Value::String(self.text(text)?),
            },
            Value::Array(items) => {
                let mut filled = Vec::with_capacity(items.len());
                for item in items {
                    filled.extend(self.value(item)?);
                }
                Value::Array(filled)
            }
            Value::Object(fields) => Value::Object(self.fields(fields)?),
            Value::Null | Value::Bool(_) | Value::Number(_) => template.clone(),
        }))
    }

    /// Calls [`TemplateValues::value`] for each field of an object.
    pub fn fields(&self, template: &Map<String, Value>) -> Result<Map<String, Value>, TemplateError> {
        let mut filled = Map::with_capacity(template.len());
        for (key, value) in template {
            if let Some(value) = self.value(value)? {
                filled.insert(key.clone(), value);
            }
        }
        Ok(filled)
    }

    /// Evaluates the expression `condition`.
    pub fn holds(&self, condition: &str) -> Result<bool, TemplateError> {
        let engine = engine(AutoEscape::None);
        let outcome = engine.compile_expression(condition).and_then(|expression| expression.eval(&self.0));
        match outcome {
            Ok(value) => Ok(value.is_true()),
            Err(error) => Err(TemplateError::new(condition, &error)),
        }
    }

    fn lookup(&self, template: &str, expression: &str) -> Result<Option<Value>, TemplateError> {
        let engine = engine(AutoEscape::None);
        let value = engine
            .compile_expression(expression)
            .and_then(|expression| expression.eval(&self.0))
            .map_err(|error| TemplateError::new(template, &error))?;
        if value.is_undefined() {
            return Ok(None);
        }
        serde_json::to_value(&value)
            .map(Some)
            .map_err(|error| TemplateError { template: template.to_owned(), reason: error.to_string() })
    }
}

/// Checks the syntax of the expression `condition`.
pub fn check_condition(condition: &str) -> Result<(), TemplateError> {
    engine(AutoEscape::None)
        .compile_expression(condition)
        .map(|_| ())
        .map_err(|error| TemplateError::new(condition, &error))
}

/// Whether `template` always renders to the same text, whatever the input is.
pub fn is_constant(template: &str) -> bool {
    !template.contains("{{") && !template.contains("{%")
}

/// Whether `template` is exactly one reference, like `{{ limit }}`.
pub fn is_reference(template: &str) -> bool {
    reference(template).is_some()
}

/// Returns the `a.b` of a template that is exactly `{{ a.b }}`.
fn reference(template: &str) -> Option<&str> {
    let inner = template.strip_prefix("{{")?.strip_suffix("}}")?.trim();
    let is_path = !inner.is_empty()
        && inner.split('.').all(|part| {
            part.starts_with(|first: char| first.is_alphabetic() || first == '_')
                && part.chars().all(|character| character.is_alphanumeric() || character == '_')
        });
    is_path.then_some(inner)
}

fn engine(escape: AutoEscape) -> Environment<'static> {
    let mut engine = Environment::new();
    engine.set_undefined_behavior(UndefinedBehavior::SemiStrict);
    engine.set_fuel(Some(MAX_FUEL));
    engine.add_function("mime_message", mail::message);
    engine.add_filter("b64url", mail::base64url);
    engine.set_auto_escape_callback(move |_| escape.clone());
    engine.set_formatter(|out, state, value| {
        if *state.auto_escape() != URL_PART || value.is_undefined() {
            return minijinja::escape_formatter(out, state, value);
        }
        let text = value.to_string();
        write!(out, "{}", utf8_percent_encode(&text, PLACED_IN_URL)).map_err(minijinja::Error::from)
    });
    engine
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn values(input: Value) -> TemplateValues {
        let Value::Object(input) = input else { panic!("an input must be an object") };
        TemplateValues::of_input(&input)
    }

    #[test]
    fn a_single_reference_keeps_its_type_and_an_absent_one_drops_its_key() {
        let template =
            json!({"maxResults": "{{ limit }}", "labelIds": ["{{ label }}", "INBOX"], "deep": {"a": "{{ deep.a }}"}});
        let filled = values(json!({"limit": 9_007_199_254_740_993_i64, "deep": {"a": [1, null]}})).value(&template);
        assert_eq!(
            filled.expect("it renders"),
            Some(json!({"maxResults": 9_007_199_254_740_993_i64, "labelIds": ["INBOX"], "deep": {"a": [1, null]}}))
        );
    }

    #[test]
    fn testing_an_absent_value_is_fine_and_printing_one_is_an_error() {
        let values = values(json!({"q": "年度报告"}));
        assert_eq!(values.text("{{ q }}{% if label %} label:{{ label }}{% endif %}").expect("it renders"), "年度报告");
        assert!(values.text("label:{{ label }}").is_err());
    }

    #[test]
    fn a_value_placed_in_a_path_cannot_leave_its_segment() {
        let values = values(json!({"id": "../a b?c#d/%2e"}));
        assert_eq!(values.url_part("/m/{{ id }}/x").expect("it renders"), "/m/..%2Fa%20b%3Fc%23d%2F%252e/x");
        assert!(values.url_part("/m/{{ absent }}").is_err());
    }

    #[test]
    fn a_value_of_the_input_is_never_rendered_as_a_template() {
        let values = values(json!({"q": "{{ 1 + 1 }}"}));
        assert_eq!(values.value(&json!("{{ q }}!")).expect("it renders"), Some(json!("{{ 1 + 1 }}!")));
    }

    #[test]
    fn an_endless_template_stops() {
        let template = "{% for a in range(9999) %}{% for b in range(9999) %}x{% endfor %}{% endfor %}";
        assert!(values(json!({})).text(template).is_err());
    }
}
