//! Limits of the input that are higher than what a builtin returns at most: a caller who reads the schema should know the
//! maximum. That of a database stands in the configuration, so a schema may leave it out.

use catalog::Subtool;
use definition::run::Run;
use serde_json::Value;

use super::{Finding, Level, finding};

pub(super) fn check(subtool: &Subtool, findings: &mut Vec<Finding>) {
    let Run::Builtin(builtin) = &subtool.definition.run else { return };
    let Some((Some(template), most)) = builtin.limit() else { return };
    let Some(field) = field(template) else { return };
    let Some(declared) = subtool.definition.input.get("properties").and_then(|fields| fields.get(field)) else {
        return;
    };
    if declared["maximum"].as_u64().is_none_or(|maximum| maximum > most) {
        let message = format!("at most {most} are returned; declare `\"maximum\": {most}`, or less");
        let place = format!("input.properties.{field}");
        findings.push(finding(subtool, Level::Warning, "limit-too-high", &place, message));
    }
}

/// The field that a template is nothing but.
fn field(template: &Value) -> Option<&str> {
    let name = template.as_str()?.trim().strip_prefix("{{")?.strip_suffix("}}")?.trim();
    name.chars().all(|it| it.is_ascii_alphanumeric() || it == '_').then_some(name)
}
