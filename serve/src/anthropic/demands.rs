//! What a request of Anthropic's clients demands beside its messages.

use serde_json::Value;

use crate::proxy::demands::{self, ClientTool, Demands, NumberFields};
use crate::proxy::failure::ProxyFailure;
use crate::proxy::request::ProxyRequest;

pub(super) fn read(request: &ProxyRequest) -> Result<Demands, ProxyFailure> {
    let mut demands = Demands::default();
    for field in ["mcp_servers", "container", "prefill", "thread", "context_management"] {
        let is_nothing = |value: &Value| value.as_array().is_some_and(Vec::is_empty);
        if request.field(field).is_some_and(|value| !is_nothing(value)) {
            return Err(ProxyFailure::invalid(field, format!("`{field}` is not offered here; leave it out")));
        }
    }
    for (place, tool) in demands::list(request, "tools")? {
        match tool["type"].as_str() {
            None | Some("custom") => {
                let (name, description) = (&tool["name"], &tool["description"]);
                let (parameters, strict) = (&tool["input_schema"], &tool["strict"]);
                demands.add_tool(&place, ClientTool { name, description, parameters, strict })?;
            }
            Some(kind) => return Err(demands::foreign_tool(&place, kind)),
        }
    }
    if let Some(choice) = request.field("tool_choice") {
        demands.answers.one_call = choice["disable_parallel_tool_use"] == true;
        match (choice["type"].as_str(), choice["name"].as_str()) {
            (Some("auto"), _) => {}
            (Some("none"), _) => demands.forbid_calls(),
            (Some("any"), _) => demands.require_call("tool_choice", None),
            (Some("tool"), Some(name)) => demands.require_call("tool_choice", Some(name)),
            _ => {
                let message = "the type of `tool_choice` is `auto`, `any`, `none`, or `tool` with a name";
                return Err(ProxyFailure::invalid("tool_choice", message));
            }
        }
    }
    read_form(request, &mut demands)?;
    demands.set_stop("stop_sequences", request.field("stop_sequences"))?;
    demands.set_numbers(&NumberFields { place: &request.body, tokens: &["max_tokens"] })?;
    demands.answers.top_k = match request.field("top_k") {
        None => None,
        Some(count) => {
            let wrong = || ProxyFailure::invalid("top_k", "`top_k` is not a whole number");
            Some(count.as_u64().and_then(|count| u32::try_from(count).ok()).ok_or_else(wrong)?)
        }
    };
    demands.checked()
}

/// Reads the form of the answer, and how the model should think.
fn read_form(request: &ProxyRequest, demands: &mut Demands) -> Result<(), ProxyFailure> {
    let config = request.field("output_config");
    // An earlier name of the same.
    let format = config.and_then(|config| config.get("format")).or(request.field("output_format"));
    if let Some(format) = format.filter(|format| !format.is_null()) {
        if format["type"] != "json_schema" {
            return Err(ProxyFailure::invalid(
                "output_config.format",
                "the type of `format` can only be `json_schema`",
            ));
        }
        demands.set_strict_schema("output_config.format", &format["schema"])?;
    }
    if let Some(effort) = config.and_then(|config| config["effort"].as_str()) {
        demands.set_effort("output_config", effort)?;
    }
    demands.answers.reasoning = match request.field("thinking").map(|thinking| thinking["type"].as_str()) {
        None => None,
        Some(Some("enabled" | "adaptive" | "between_tools")) => Some(true),
        Some(Some("disabled")) => Some(false),
        Some(_) => {
            let message = "the type of `thinking` is `enabled`, `adaptive`, `between_tools` or `disabled`";
            return Err(ProxyFailure::invalid("thinking", message));
        }
    };
    Ok(())
}
