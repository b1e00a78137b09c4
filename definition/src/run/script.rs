//! The `script` runner's settings: a program that calls other subtools.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_with_macros::skip_serializing_none;

use super::{DefinitionMistake, Settings, TextKind};

/// A program in JavaScript. Each subtool is a function of it, and what it returns is the result.
#[skip_serializing_none]
#[derive(Debug, Clone, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Script {
    /// The program, as the body of an async function: a template.
    #[schemars(example = "{{ source }}")]
    pub source: String,
    /// What the program knows as `input`: a template. Absent: the input of the subtool.
    pub input: Option<Value>,
}

impl Settings for Script {
    fn check(&self) -> Vec<DefinitionMistake> {
        if self.source.trim().is_empty() {
            return vec![DefinitionMistake::new("source", &"there is no program")];
        }
        Vec::new()
    }

    fn text_kind(&self, _: &str) -> TextKind {
        TextKind::Template
    }
}
