//! Limits of the input that are higher than what is returned at most: a caller who reads the schema should know the maximum.

use serde_json::Value;

use super::{Finding, Level, finding};
use crate::catalog::Subtool;
use crate::config::Config;
use crate::runner::Run;

pub(super) fn check(subtool: &Subtool, config: &Config, findings: &mut Vec<Finding>) {
    let definition = &subtool.definition;
    let (template, most) = match &definition.run {
        Run::Builtin(builtin) => match builtin.limit() {
            Some((template, most)) => (template, Some(most)),
            None => return,
        },
        Run::Sql(sql) => (sql.limit.as_ref(), config.databases.get(&sql.database).map(|settings| settings.max_rows)),
        _ => return,
    };
    let (Some(field), Some(most)) = (template.and_then(field), most) else { return };
    let declared = &definition.input["properties"][field];
    let (is_described, maximum) = (declared["description"].is_string(), declared["maximum"].as_u64());
    let is_stated = maximum.is_some_and(|maximum| maximum <= most)
        // What a database returns at most may change with the configuration, so words do as well.
        || (maximum.is_none() && is_described && matches!(definition.run, Run::Sql(_)));
    if declared.is_object() && !is_stated {
        let message = format!("at most {most} are returned; declare `\"maximum\": {most}`, or less");
        findings.push(finding(
            subtool,
            Level::Warning,
            "limit-too-high",
            &format!("input.properties.{field}"),
            message,
        ));
    }
}

/// The field that a template is nothing but.
fn field(template: &Value) -> Option<&str> {
    let name = template.as_str()?.trim().strip_prefix("{{")?.strip_suffix("}}")?.trim();
    name.chars().all(|it| it.is_ascii_alphanumeric() || it == '_').then_some(name)
}
