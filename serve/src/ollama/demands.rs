//! What a request of Ollama's clients demands beside its messages.

use agent_loop::model::answer_options::OutputFormat;
use serde_json::{Map, Value};

use crate::proxy::demands::{self, Demands, NumberFields};
use crate::proxy::failure::ProxyFailure;
use crate::proxy::request::ProxyRequest;

pub(super) fn read(request: &ProxyRequest) -> Result<Demands, ProxyFailure> {
    let mut demands = Demands::default();
    for (place, tool) in demands::list(request, "tools")? {
        demands::add_function(&mut demands, &place, tool)?;
    }
    match request.field("format") {
        None => {}
        Some(Value::String(text)) if text.is_empty() => {}
        Some(Value::String(text)) if text == "json" => demands.set_format("format", OutputFormat::Json),
        Some(schema) => demands.set_strict_schema("format", schema)?,
    }
    match request.field("think") {
        None => {}
        Some(Value::Bool(thinks)) => demands.answers.reasoning = Some(*thinks),
        Some(Value::String(effort)) => demands.set_effort("think", effort)?,
        Some(_) => return Err(ProxyFailure::invalid("think", "`think` is true, false, or how much")),
    }
    let none = Map::new();
    let options = request.field("options").and_then(Value::as_object).unwrap_or(&none);
    demands.set_stop("stop", options.get("stop"))?;
    demands.set_numbers(&NumberFields { place: options, tokens: &["num_predict"] })?;
    demands.checked()
}
