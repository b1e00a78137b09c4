//! Shows and edits the sections of the agent's system prompt.
//!
//! `model/prompt.rs` defines what a section is and which of them can be edited. The definition of the subtool
//! requires the confirmation.

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
    /// The name of a section, or its position like `2.1`. Absent: all sections, without their texts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub section: Option<Value>,
}

/// Replaces the text of a section of the system prompt. Templates.
#[derive(Debug, Clone, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EditPrompt {
    /// The name of the section, or its position like `2.1`.
    pub section: Value,
    /// The complete new text.
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
    context.delegation.as_ref().map(|delegation| delegation.prompts.clone()).ok_or_else(Delegation::unavailable)
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
            PromptError::NotAFile { .. } => Self::new(Code::Rejected, message)
                .hint("name one of the sections that it contains, as listed by `read_prompt_sections`"),
            PromptError::TooLarge { .. } => Self::new(Code::Rejected, message),
            PromptError::Io { .. } => Self::new(Code::Io, message),
            PromptError::Untrusted { .. }
            | PromptError::Duplicate { .. }
            | PromptError::Cycle { .. }
            | PromptError::NotASection { .. } => Self::new(Code::BadConfig, message)
                .hint("tell the user to repair the folder `prompt/` beside config.toml"),
        }
    }
}
