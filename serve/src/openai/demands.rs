//! What a request of OpenAI's clients demands beside its messages.

use agent_loop::model::answer_options::{OutputFormat, OutputSchema};
use serde_json::Value;

use crate::proxy::demands::{self, Demands, NumberFields};
use crate::proxy::failure::ProxyFailure;
use crate::proxy::request::ProxyRequest;

/// The demands of a chat, or of a response, which has some of them elsewhere.
pub(super) fn read(request: &ProxyRequest) -> Result<Demands, ProxyFailure> {
    let mut demands = Demands::default();
    for field in ["functions", "function_call"] {
        if request.field(field).is_some() {
            return Err(ProxyFailure::invalid(
                field,
                format!("`{field}` is an old name; send `tools` and `tool_choice`"),
            ));
        }
    }
    for (place, tool) in demands::list(request, "tools")? {
        demands::add_function(&mut demands, &place, tool)?;
    }
    choice(&mut demands, request.field("tool_choice"))?;
    demands.answers.one_call = request.flag("parallel_tool_calls")? == Some(false);
    match request.field("response_format") {
        None => {}
        Some(format) => set_format(&mut demands, "response_format", format, &format["json_schema"])?,
    }
    if let Some(format) = request.field("text").and_then(|text| text.get("format")) {
        set_format(&mut demands, "text.format", format, format)?;
    }
    let effort = request.field("reasoning").and_then(|reasoning| reasoning.get("effort")).and_then(Value::as_str);
    if let Some(effort) = request.text("reasoning_effort")?.or(effort) {
        demands.set_effort("reasoning_effort", effort)?;
    }
    demands.set_stop("stop", request.field("stop"))?;
    let tokens = ["max_completion_tokens", "max_output_tokens", "max_tokens"];
    demands.set_numbers(&NumberFields { place: &request.body, tokens: &tokens })?;
    demands.checked()
}

fn choice(demands: &mut Demands, choice: Option<&Value>) -> Result<(), ProxyFailure> {
    let Some(choice) = choice else { return Ok(()) };
    let name = choice["function"]["name"].as_str().or(choice["name"].as_str());
    match (choice.as_str(), choice["type"].as_str(), name) {
        (Some("auto"), ..) => {}
        (Some("none"), ..) => demands.forbid_calls(),
        (Some("required"), ..) => demands.require_call("tool_choice", None),
        (None, Some("function"), Some(name)) => demands.require_call("tool_choice", Some(name)),
        _ => {
            let message = "`tool_choice` is `auto`, `none`, `required`, or names a function of `tools`";
            return Err(ProxyFailure::invalid("tool_choice", message));
        }
    }
    Ok(())
}

/// Reads a form of the answer; `described` has the name and the schema of one with a schema.
fn set_format(demands: &mut Demands, field: &str, format: &Value, described: &Value) -> Result<(), ProxyFailure> {
    match format["type"].as_str() {
        Some("text") | None => Ok(()),
        Some("json_object") => {
            demands.set_format(field, OutputFormat::Json);
            Ok(())
        }
        Some("json_schema") => {
            let text = |name: &str| described[name].as_str().map(str::to_owned);
            let (name, description) = (text("name").unwrap_or_else(|| "answer".to_owned()), text("description"));
            let (schema, strict) = (described["schema"].clone(), described["strict"].as_bool());
            demands.set_schema(field, OutputSchema { name, description, schema, strict })
        }
        Some(other) => {
            let message = format!("no format `{other}`; there are text, json_object and json_schema");
            Err(ProxyFailure::invalid(field, message))
        }
    }
}

#[cfg(test)]
mod tests;
