//! The `ask_user` runner's settings: a question to the human on the page.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with_macros::skip_serializing_none;

use super::{DefinitionMistake, Settings, TextKind};

/// A question to the human.
#[skip_serializing_none]
#[derive(Debug, Clone, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AskUser {
    /// The question: a template.
    pub question: String,
    /// The options to choose from: a template for a list of texts. Absent: any answer.
    pub options: Option<String>,
    /// Whether the human may choose several options: a template for true or false.
    pub multiple: Option<String>,
    /// The type of an answer without options: a template for `text`, `number` or `boolean`.
    #[serde(rename = "type")]
    pub kind: Option<String>,
    /// A form with several fields: a template for the JSON Schema of an object.
    pub form: Option<String>,
}

impl Settings for AskUser {
    fn check(&self) -> Vec<DefinitionMistake> {
        Vec::new()
    }

    fn text_kind(&self, _: &str) -> TextKind {
        TextKind::Template
    }
}
