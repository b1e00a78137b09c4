//! Template fields: the fields of a runner's definition that the input of an invocation fills.
//!
//! [`check`] is for the loaded definition, [`FieldValues`] for one invocation. What a template may contain is the
//! matter of `base/template.rs`.

use protocol::code::Code;
use serde::Serialize;
use serde_json::{Map, Value};

use super::{DefinitionMistake, Invocation};
use crate::base::template::{self, TemplateValues};
use crate::task::failure::Failure;

/// Returns the fields of a definition as templates; constants are templates too.
pub(super) fn of(definition: &impl Serialize) -> Map<String, Value> {
    match serde_json::to_value(definition) {
        Ok(Value::Object(fields)) => fields,
        _ => unreachable!("a definition is a JSON object"),
    }
}

/// Checks that each field of a definition is a valid template.
pub(super) fn check(definition: &impl Serialize) -> Result<(), DefinitionMistake> {
    for (name, template) in of(definition) {
        template::check_value(&template).map_err(|error| DefinitionMistake::new(name, &error))?;
    }
    Ok(())
}

/// Fills template fields with the input of one invocation.
///
/// A field has no value if its template is absent, becomes `null`, or is one reference to something that the
/// input does not contain.
#[derive(Debug)]
pub(super) struct FieldValues(TemplateValues);

impl FieldValues {
    pub(super) fn of(invocation: &Invocation) -> Self {
        Self(TemplateValues::of_input(&invocation.input))
    }

    pub(super) fn value(&self, template: Option<&Value>) -> Result<Option<Value>, Failure> {
        let filled = template.map(|template| self.0.value(template)).transpose()?;
        Ok(filled.flatten().filter(|value| !value.is_null()))
    }

    /// Returns a field as text; a value that is not a string becomes its JSON.
    pub(super) fn text(&self, template: Option<&str>) -> Result<Option<String>, Failure> {
        let filled = self.value(template.map(Value::from).as_ref())?;
        Ok(filled.map(|value| value.as_str().map_or_else(|| value.to_string(), str::to_owned)))
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

/// The failure for a field whose value is not a `kind`.
pub(super) fn wrong_type(field: &str, kind: &str) -> Failure {
    Failure::new(Code::Rejected, format!("`{field}` is not a {kind}"))
}
