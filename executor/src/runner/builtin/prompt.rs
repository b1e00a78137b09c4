//! The sections of our own agent's system prompt: shown, and one at a time edited.
//!
//! What a section is, and that only a file can be edited, is `agent/prompt.rs`; that a human agrees first is
//! the definition's.

use std::path::PathBuf;

use protocol::code::Code;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::interrupt::blocking;
use crate::model::prompt::{self, PromptError, PromptSection};
use crate::runner::delegation::Delegation;
use crate::runner::{RunnerContext, RunnerOutput};
use crate::task::failure::Failure;

/// Shows the sections of the system prompt, or one of them. Templates.
#[derive(Debug, Clone, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReadPrompt {
    /// Its name, or its place like `2.1`. Absent: all of them, without their texts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub section: Option<Value>,
}

/// Replaces the text of a section of the system prompt. Templates.
#[derive(Debug, Clone, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EditPrompt {
    /// Its name, or its place like `2.1`.
    pub section: Value,
    /// Its whole new text.
    pub text: Value,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PromptListing {
    #[serde(default)]
    section: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PromptChange {
    section: String,
    text: String,
}

pub(super) async fn show(
    arguments: PromptListing,
    context: &RunnerContext,
    cancel: &CancellationToken,
) -> Result<RunnerOutput, Failure> {
    let folder = folder(context)?;
    let shown = blocking(cancel, move |_| {
        let sections = prompt::sections(&folder)?;
        Ok(match arguments.section {
            None => json!(sections.iter().map(outline).collect::<Vec<_>>()),
            Some(word) => match prompt::find(&sections, &word)? {
                section @ PromptSection { text: None, .. } => outline(section),
                PromptSection { name, path, text, .. } => json!({"name": name, "path": path, "text": text}),
            },
        })
    });
    Ok(RunnerOutput::json(shown.await?))
}

pub(super) async fn change(
    arguments: PromptChange,
    context: &RunnerContext,
    cancel: &CancellationToken,
) -> Result<RunnerOutput, Failure> {
    let folder = folder(context)?;
    let PromptChange { section, text } = arguments;
    let changed = blocking(cancel, move |_| {
        let sections = prompt::sections(&folder)?;
        let before = prompt::find(&sections, &section)?.text.clone();
        let path = prompt::edit(&sections, &section, &text)?;
        Ok(json!({"path": path, "before": before, "after": text}))
    });
    Ok(RunnerOutput::json(changed.await?))
}

fn folder(context: &RunnerContext) -> Result<PathBuf, Failure> {
    context.delegation.as_ref().map(|delegation| delegation.prompts.clone()).ok_or_else(Delegation::is_missing)
}

/// A section without its text.
fn outline(section: &PromptSection) -> Value {
    match &section.text {
        Some(text) => json!({"name": section.name, "bytes": text.len()}),
        None => json!({"name": section.name, "sections": section.sections.iter().map(outline).collect::<Vec<_>>()}),
    }
}

impl From<PromptError> for Failure {
    fn from(error: PromptError) -> Self {
        let message = protocol::error::chain(&error);
        match error {
            PromptError::Unknown { .. } => Self::new(Code::NotFound, message),
            PromptError::NotALeaf { .. } => Self::new(Code::Rejected, message)
                .hint("name one of the sections in it, as `read_prompt_sections` lists them"),
            PromptError::TooLarge { .. } => Self::new(Code::Rejected, message),
            PromptError::Read { .. } => Self::new(Code::Io, message),
            PromptError::Untrusted { .. }
            | PromptError::Twice { .. }
            | PromptError::Loop { .. }
            | PromptError::NoSection { .. } => Self::new(Code::BadConfig, message)
                .hint("tell the user: the folder `prompt/` beside config.toml needs mending"),
        }
    }
}
