//! The llm runner's settings: one question to a language model.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_with_macros::skip_serializing_none;

use super::{DefinitionMistake, Settings, TextKind};

/// One question to a language model.
#[skip_serializing_none]
#[derive(Debug, Clone, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Llm {
    /// The question: a template. The model sees nothing else.
    pub prompt: Option<String>,
    /// A name in `[models]`: a template. Without a value: the model of `[agent]`.
    pub model: Option<String>,
    /// The system prompt: a template. Absent: no system prompt.
    pub system: Option<String>,
    /// The temperature: a number, or a template. Absent: the setting of the model.
    pub temperature: Option<Value>,
    /// The most tokens of an answer: a number, or a template. Absent: the setting of the model.
    pub max_tokens: Option<Value>,
    /// The subtool that the model calls, once: a template.
    pub tool: Option<String>,
    /// The arguments of the call: a template for an object. Absent: the model takes them from the prompt.
    pub arguments: Option<Value>,
    /// How to read the answer. Absent: `text`.
    #[serde(default)]
    pub output: AnswerForm,
}

/// How to read an answer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AnswerForm {
    /// As text, unchanged.
    #[default]
    Text,
    /// As a JSON document, which may be in a code block.
    Json,
}

impl Settings for Llm {
    fn check(&self) -> Vec<DefinitionMistake> {
        let mistake = match (&self.prompt, &self.tool, &self.arguments) {
            (None, None, _) => DefinitionMistake::new("prompt", &"it is missing: there is nothing to ask"),
            (_, None, Some(_)) => DefinitionMistake::new("arguments", &"there is no `tool` to call with them"),
            (None, Some(_), None) => {
                DefinitionMistake::new("prompt", &"it is missing, and so are `arguments`: the call has no input")
            }
            _ => return Vec::new(),
        };
        vec![mistake]
    }

    fn text_kind(&self, place: &str) -> TextKind {
        if place == "output" { TextKind::Constant } else { TextKind::Template }
    }
}

impl Llm {
    /// Whether the model calls a subtool.
    pub fn calls(&self) -> bool {
        self.tool.is_some()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn llm(definition: Value) -> Llm {
        serde_json::from_value(definition).expect("a runner")
    }

    #[test]
    fn a_definition_without_a_question_is_a_mistake() {
        for wrong in [json!({}), json!({"prompt": "a", "arguments": {}}), json!({"tool": "x"})] {
            assert!(!llm(wrong.clone()).check().is_empty(), "{wrong}");
        }
    }
}
