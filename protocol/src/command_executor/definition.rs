//! The definition of the one tool. It does not depend on the subtools.

use serde_json::{Value, json};

/// The name of the tool.
pub const NAME: &str = "command_executor";

/// The description that the model reads, and pays for, at every turn.
const DESCRIPTION: &str = "\
Runs a command line of `agent-magic-tool`, which has tools for everything:
1. agent-magic-tool list tools --query=\"search mail\"  (two or three English words) prints signatures, best first
2. agent-magic-tool run NAME key=value  delegates a task; returns its id at once
3. agent-magic-tool wait ID  waits and prints the result; never poll, never run it again
2 and 3 at once: run NAME key=value --wait; --all: every page. Part of a large result: read ID --jq EXPR.
Many calls, a loop, a sum: one JavaScript program; first: help script.
Quotes or line breaks in a value: run NAME --input=- <<'EOF', the JSON, EOF. cat, head, tail, grep \
and jq read result files. |, ;, && and || work; nothing is expanded or written.";

/// The format in which a model provider expects a tool definition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    /// `OpenAI`'s chat completions, which most model servers support.
    OpenAi,
    Anthropic,
    Gemini,
}

/// Returns the tool as `{name, description, parameters}`.
pub fn definition() -> Value {
    json!({"name": NAME, "description": DESCRIPTION, "parameters": parameters()})
}

impl Dialect {
    /// Returns the tool as an element of the `tools` of a request, or of Gemini's `functionDeclarations`.
    pub fn definition(self) -> Value {
        match self {
            Self::OpenAi => json!({"type": "function", "function": definition()}),
            Self::Anthropic => json!({"name": NAME, "description": DESCRIPTION, "input_schema": parameters()}),
            Self::Gemini => definition(),
        }
    }
}

fn parameters() -> Value {
    json!({
        "type": "object",
        "properties": {"command": {"type": "string", "description": "The command line."}},
        "required": ["command"],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definition_takes_less_than_a_thousand_bytes() {
        let bytes = Dialect::OpenAi.definition().to_string().len();
        assert!(bytes < 1_000, "{bytes} bytes");
        assert_eq!(definition().to_string().len(), 896);
    }

    #[test]
    fn every_dialect_has_the_same_content() {
        let [openai, anthropic, gemini] =
            [Dialect::OpenAi, Dialect::Anthropic, Dialect::Gemini].map(Dialect::definition);
        assert_eq!(openai["function"], gemini);
        assert_eq!((&anthropic["name"], &anthropic["description"]), (&gemini["name"], &gemini["description"]));
        assert_eq!(anthropic["input_schema"], gemini["parameters"]);
    }
}
