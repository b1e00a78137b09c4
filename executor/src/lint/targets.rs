//! What a definition names and that is not there: a database, a model, the item of a step without `each`; and SQL that the
//! parser of the database does not understand.

use catalog::Subtool;
use definition::run::Run;
use ground::base::template::names::{ITEM, uses_in_expression, uses_in_template};
use ground::config::Config;
use protocol::wording::quoted;
use serde_json::Value;

use super::{Finding, Level, finding};

pub(super) fn check(subtool: &Subtool, config: &Config, findings: &mut Vec<Finding>) {
    let mut error = |code, place: &str, message| findings.push(finding(subtool, Level::Error, code, place, message));
    let definition = &subtool.definition;
    if let Run::Sql(sql) = &definition.run {
        if !config.databases.contains_key(&sql.database) {
            let there = listed(config.databases.keys());
            let message = format!("the configuration has no database `{}`; {there}", sql.database);
            error("unknown-database", "run.sql.database", message);
        }
        if let Some((field, why)) = sql.mistake_in_text(config) {
            error("unreadable-sql", &format!("run.sql.{field}"), why);
        }
    }
    let Ok(run) = serde_json::to_value(&definition.run) else { return };
    for kind in ["llm", "agent"] {
        let model = run[kind]["model"].as_str().filter(|model| !model.contains("{{") && !model.contains("{%"));
        if let Some(model) = model.filter(|model| !config.models.contains_key(*model)) {
            let message = format!("the configuration has no model `{model}`; {}", listed(config.models.keys()));
            error("unknown-model", &format!("run.{kind}.model"), message);
        }
    }
    for (index, step) in run["steps"].as_array().into_iter().flatten().enumerate() {
        let place = |field: &str| format!("run.steps[{index}].{field}");
        let has_each = step["each"].is_string();
        if !has_each && step["input"].as_object().is_some_and(|input| input.values().any(uses_item)) {
            let message = "`item` is known only to a step with `each`, which names the list of items".to_owned();
            error("item-without-each", &place("input"), message);
        }
        if step["when"].as_str().is_some_and(|when| uses_in_expression(when, ITEM)) {
            let message = "`when` decides about the step as a whole, so it knows no `item`".to_owned();
            error("item-without-each", &place("when"), message);
        }
    }
}

fn listed<'a>(names: impl Iterator<Item = &'a String>) -> String {
    match quoted(names) {
        none if none.is_empty() => "it has none".to_owned(),
        names => format!("it has {names}"),
    }
}

fn uses_item(value: &Value) -> bool {
    match value {
        Value::String(text) => uses_in_template(text, ITEM),
        Value::Array(items) => items.iter().any(uses_item),
        Value::Object(fields) => fields.values().any(uses_item),
        _ => false,
    }
}
