//! Template fields: the fields of a runner's definition that the input of an invocation fills.
//!
//! What a template may contain is the matter of `base/template.rs`.

use ground::base::template::TemplateValues;
use ground::task::failure::Failure;
use protocol::code::Code;
use serde::Serialize;
use serde_json::{Map, Value};

use super::Invocation;

/// Returns the fields of a definition as templates; constants are templates too.
pub(super) fn of(definition: &impl Serialize) -> Map<String, Value> {
    match serde_json::to_value(definition) {
        Ok(Value::Object(fields)) => fields,
        _ => unreachable!("a definition is a JSON object"),
    }
}

/// Fills template fields with the input of one invocation.
///
/// A field has no value if its template is absent, becomes `null`, or is one reference to something that the
/// input does not contain.
#[derive(Debug)]
pub(super) struct FieldValues(TemplateValues);

impl FieldValues {
    pub(super) fn of(invocation: &Invocation) -> Self {
        Self(invocation.values())
    }

    pub(super) fn value(&self, template: Option<&Value>) -> Result<Option<Value>, Failure> {
        let filled = template.map(|template| self.0.value(template)).transpose()?;
        Ok(filled.flatten().filter(|value| !value.is_null()))
    }

    /// Returns a field as text; a value that is not a string becomes its JSON.
    pub(super) fn text(&self, template: Option<&str>) -> Result<Option<String>, Failure> {
        let filled = self.value(template.map(Value::from).as_ref())?;
        Ok(filled.map(as_text))
    }

    pub(super) fn number(&self, field: &str, template: Option<&Value>) -> Result<Option<f64>, Failure> {
        let number = |value: Value| value.as_f64().ok_or_else(|| wrong_type(field, "number"));
        self.value(template)?.map(number).transpose()
    }

    pub(super) fn whole_number(&self, field: &str, template: Option<&Value>) -> Result<Option<u64>, Failure> {
        let number = |value: Value| value.as_u64().ok_or_else(|| wrong_type(field, "whole number"));
        self.value(template)?.map(number).transpose()
    }

    /// Returns all fields of `definition` that are not absent; `null` stays `null` here.
    pub(super) fn all(&self, definition: &impl Serialize) -> Result<Map<String, Value>, Failure> {
        Ok(self.0.fields(&of(definition))?)
    }
}

/// A text as it is, and any other value as its JSON.
pub(super) fn as_text(value: Value) -> String {
    match value {
        Value::String(text) => text,
        other => other.to_string(),
    }
}

/// The failure for a field whose value is not a `kind`.
pub(super) fn wrong_type(field: &str, kind: &str) -> Failure {
    Failure::new(Code::Rejected, format!("`{field}` is not a {kind}"))
}
