//! What a client demands of an answer beside its messages: its own tools, a form, limits.
//!
//! A client that keeps its history gets what it demands from the model, or an error that says what is not possible. A
//! session of the server has one tool and settings of its own: there, what would change the answer is refused, and hints
//! like `temperature` are not used.

use agent_loop::model::answer_options::{AnswerOptions, OutputFormat, OutputSchema, ToolChoice};
use agent_loop::model::provider::ToolDefinition;
use ground::config::ReasoningEffort;
use protocol::command_executor;
use serde_json::{Value, json};

use super::failure::ProxyFailure;
use super::request::ProxyRequest;

/// The demands of one request.
#[derive(Debug, Clone, Default)]
pub(crate) struct Demands {
    pub(crate) tools: Vec<ToolDefinition>,
    pub(crate) answers: AnswerOptions,
    /// The client wants no call of its tools.
    forbids_calls: bool,
    /// The first field that a session of the server cannot fulfil.
    beyond_a_session: Option<String>,
}

impl Demands {
    /// Adds a tool of the client, which stands at `place`.
    pub(crate) fn add_tool(&mut self, place: &str, tool: ClientTool<'_>) -> Result<(), ProxyFailure> {
        let invalid = |message: String| Err(ProxyFailure::invalid(place, message));
        let name = match tool.name.as_str() {
            Some(name) if !name.is_empty() => name,
            _ => return invalid("a tool has no `name`".to_owned()),
        };
        if name == command_executor::NAME {
            return invalid(format!("`{name}` is the name of the tool of the server; give yours another name"));
        }
        if self.tools.iter().any(|known| known.name == name) {
            return invalid(format!("two tools are named `{name}`"));
        }
        let parameters = match tool.parameters {
            Value::Null => json!({"type": "object", "properties": {}}),
            Value::Object(_) => tool.parameters.clone(),
            _ => return invalid(format!("the schema of the tool `{name}` is not an object")),
        };
        let description = tool.description.as_str().unwrap_or_default().to_owned();
        self.tools.push(ToolDefinition {
            name: name.to_owned(),
            description,
            parameters,
            strict: tool.strict.as_bool(),
        });
        self.goes_beyond_a_session("tools");
        Ok(())
    }

    /// Remembers a field that a session of the server cannot fulfil.
    pub(crate) fn goes_beyond_a_session(&mut self, field: &str) {
        self.beyond_a_session.get_or_insert_with(|| field.to_owned());
    }

    pub(crate) fn forbid_calls(&mut self) {
        self.forbids_calls = true;
    }

    /// The model has to call a tool: any, or the one of this name.
    pub(crate) fn require_call(&mut self, field: &str, name: Option<&str>) {
        self.answers.tool_choice = name.map_or(ToolChoice::Required, |name| ToolChoice::Named(name.to_owned()));
        self.goes_beyond_a_session(field);
    }

    pub(crate) fn set_format(&mut self, field: &str, format: OutputFormat) {
        self.answers.format = Some(format);
        self.goes_beyond_a_session(field);
    }

    /// The JSON schema of the answer, with what the client says of it.
    pub(crate) fn set_schema(&mut self, field: &str, wanted: OutputSchema) -> Result<(), ProxyFailure> {
        if !wanted.schema.is_object() {
            return Err(ProxyFailure::invalid(field, format!("`{field}` has no schema that is an object")));
        }
        self.set_format(field, OutputFormat::Schema(wanted));
        Ok(())
    }

    /// The JSON schema of the answer, to which this protocol's own models certainly keep.
    pub(crate) fn set_strict_schema(&mut self, field: &str, schema: &Value) -> Result<(), ProxyFailure> {
        let (name, schema) = ("answer".to_owned(), schema.clone());
        self.set_schema(field, OutputSchema { name, description: None, schema, strict: Some(true) })
    }

    /// Reads how much the model should reason.
    pub(crate) fn set_effort(&mut self, field: &str, effort: &str) -> Result<(), ProxyFailure> {
        self.answers.effort = Some(match effort {
            "none" => ReasoningEffort::None,
            "minimal" => ReasoningEffort::Minimal,
            "low" => ReasoningEffort::Low,
            "medium" => ReasoningEffort::Medium,
            "high" => ReasoningEffort::High,
            "xhigh" => ReasoningEffort::Xhigh,
            "max" => ReasoningEffort::Max,
            other => return Err(ProxyFailure::invalid(field, format!("there is no effort `{other}`"))),
        });
        Ok(())
    }

    /// Reads numbers that stand in fields of these names; of several, the first that is there counts.
    pub(crate) fn set_numbers(&mut self, of: &NumberFields<'_>) -> Result<(), ProxyFailure> {
        let number = |name: &str| {
            let Some(value) = of.place.get(name).filter(|value| !value.is_null()) else { return Ok(None) };
            value.as_f64().map(Some).ok_or_else(|| ProxyFailure::invalid(name, format!("`{name}` is not a number")))
        };
        self.answers.temperature = number("temperature")?;
        self.answers.top_p = number("top_p")?;
        for name in of.tokens {
            // Ollama's negative numbers mean that there is no limit.
            if let Some(tokens) = number(name)?.filter(|tokens| *tokens > 0.0) {
                let wrong = || ProxyFailure::invalid(name, format!("`{name}` is not a whole number of tokens"));
                let tokens = of.place[*name].as_u64().filter(|_| tokens.fract() == 0.0).ok_or_else(wrong)?;
                self.answers.max_tokens = Some(u32::try_from(tokens).unwrap_or(u32::MAX));
                break;
            }
        }
        Ok(())
    }

    /// Reads texts before which the answer ends: one, or a list.
    pub(crate) fn set_stop(&mut self, field: &str, stop: Option<&Value>) -> Result<(), ProxyFailure> {
        let wrong = || ProxyFailure::invalid(field, format!("`{field}` is neither a text nor a list of texts"));
        self.answers.stop = match stop {
            None | Some(Value::Null) => return Ok(()),
            Some(Value::String(text)) => vec![text.clone()],
            Some(Value::Array(texts)) => {
                texts.iter().map(|text| text.as_str().map(str::to_owned)).collect::<Option<_>>().ok_or_else(wrong)?
            }
            Some(_) => return Err(wrong()),
        };
        Ok(())
    }

    /// Refuses tools where a protocol has no place for their calls.
    pub(crate) fn without_tools(self, elsewhere: &str) -> Result<Self, ProxyFailure> {
        if self.tools.is_empty() {
            return Ok(self);
        }
        Err(ProxyFailure::invalid("tools", format!("a prompt has no tools; ask at `{elsewhere}`")))
    }

    /// The demands, once all of them are read: a choice is one of the tools that are there.
    pub(crate) fn checked(mut self) -> Result<Self, ProxyFailure> {
        match &self.answers.tool_choice {
            ToolChoice::Named(name) if !self.tools.iter().any(|tool| tool.name == *name) => {
                return Err(ProxyFailure::invalid("tool_choice", format!("`tools` has no `{name}`")));
            }
            ToolChoice::Required if self.tools.is_empty() => {
                return Err(ProxyFailure::invalid("tool_choice", "a call is required, and there are no `tools`"));
            }
            _ => {}
        }
        if self.forbids_calls {
            self.tools.clear();
        }
        Ok(self)
    }

    /// Refuses what a session of the server cannot fulfil.
    pub(crate) fn fit_a_session(&self) -> Result<(), ProxyFailure> {
        let Some(field) = &self.beyond_a_session else { return Ok(()) };
        let message = format!("`{field}` cannot be used in a session of the server; {}", super::OWN_HISTORY);
        Err(ProxyFailure::invalid(field, message))
    }
}

/// A tool as a client describes it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ClientTool<'a> {
    pub(crate) name: &'a Value,
    pub(crate) description: &'a Value,
    pub(crate) parameters: &'a Value,
    pub(crate) strict: &'a Value,
}

/// Where the numbers of a request are.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NumberFields<'a> {
    /// The object that has them.
    pub(crate) place: &'a serde_json::Map<String, Value>,
    /// The names of the most tokens.
    pub(crate) tokens: &'a [&'static str],
}

/// The entries of the list `field`, with their places.
pub(crate) fn list<'a>(
    request: &'a ProxyRequest,
    field: &str,
) -> Result<impl Iterator<Item = (String, &'a Value)> + use<'a>, ProxyFailure> {
    let entries = match request.field(field) {
        None => &[],
        Some(Value::Array(entries)) => entries.as_slice(),
        Some(_) => return Err(ProxyFailure::invalid(field, format!("`{field}` is not a list"))),
    };
    let field = field.to_owned();
    Ok(entries.iter().enumerate().map(move |(number, entry)| (format!("{field}.{number}"), entry)))
}

/// A tool in the form that OpenAI's chat and Ollama share: `{"type": "function", "function": {…}}`.
pub(crate) fn add_function(demands: &mut Demands, place: &str, tool: &Value) -> Result<(), ProxyFailure> {
    let function = match tool["type"].as_str() {
        Some("function") | None if tool["function"].is_object() => &tool["function"],
        // The form of OpenAI's responses.
        Some("function") => tool,
        other => return Err(foreign_tool(place, other.unwrap_or("no type"))),
    };
    let tool = ClientTool {
        name: &function["name"],
        description: &function["description"],
        parameters: &function["parameters"],
        strict: &function["strict"],
    };
    demands.add_tool(place, tool)
}

/// The failure of a tool of a type that is not passed on; most are for the provider to perform.
pub(crate) fn foreign_tool(place: &str, kind: &str) -> ProxyFailure {
    let message = match kind {
        "custom" => "a tool of the type `custom` takes a free text, which is not passed on; describe it as a function"
            .to_owned(),
        kind => format!("a tool of the type `{kind}` is one of the provider's own, and is not offered here"),
    };
    ProxyFailure::invalid(place, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(tools: &Value) -> Result<Demands, ProxyFailure> {
        let mut demands = Demands::default();
        for tool in tools.as_array().expect("a list") {
            add_function(&mut demands, "tools.0", tool)?;
        }
        demands.checked()
    }

    #[test]
    fn tools_are_read_in_both_forms() {
        let demands = of(&json!([
            {"type": "function", "function": {"name": "a", "description": "A.", "parameters": {"type": "object"}}},
            {"type": "function", "name": "b"},
        ]))
        .expect("read");
        let names: Vec<_> = demands.tools.iter().map(|tool| tool.name.as_str()).collect();
        assert_eq!(names, ["a", "b"]);
        assert!(demands.tools[1].parameters["properties"].is_object());
        demands.fit_a_session().expect_err("a session has its own tool");
    }

    #[test]
    fn a_tool_that_cannot_be_offered_is_refused() {
        for (tools, words) in [
            (json!([{"type": "web_search"}]), "`web_search`"),
            (json!([{"type": "function", "function": {"name": "command_executor"}}]), "another name"),
            (json!([{"type": "function", "function": {}}]), "no `name`"),
            (json!([{"type": "function", "name": "a"}, {"type": "function", "name": "a"}]), "two tools"),
            (json!([{"type": "function", "name": "a", "parameters": 7}]), "not an object"),
        ] {
            let failure = of(&tools).expect_err("refused");
            assert!(failure.message.contains(words), "{tools}: {}", failure.message);
        }
    }

    #[test]
    fn a_choice_is_one_of_the_tools() {
        let mut demands = Demands::default();
        demands.require_call("tool_choice", Some("a"));
        demands.clone().checked().expect_err("no such tool");
        add_function(&mut demands, "tools.0", &json!({"type": "function", "name": "a"})).expect("read");
        assert_eq!(demands.clone().checked().expect("fits").answers.tool_choice, ToolChoice::Named("a".to_owned()));
        let mut none = Demands::default();
        add_function(&mut none, "tools.0", &json!({"type": "function", "name": "a"})).expect("read");
        none.forbid_calls();
        assert!(none.checked().expect("fits").tools.is_empty());
    }
}
