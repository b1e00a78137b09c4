//! Shows and edits the sections of the agent's system prompt.
//!
//! `model/prompt.rs` defines what a section is and which of them can be edited. The definition of the subtool
//! requires the confirmation.

use std::path::{Path, PathBuf};

use agent_loop::model::prompt::{self, PromptSection, SectionChange};
use ground::task::failure::Failure;
use protocol::code::Code;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::interrupt::blocking;
use crate::delegation::Delegation;
use crate::{RunnerContext, RunnerOutput};

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
    #[serde(default)]
    text: Option<String>,
    #[serde(default)]
    change: SectionChange,
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
    let done = blocking(cancel, move |_| {
        let sections = prompt::sections(&folder)?;
        let (section, after) = arguments.apply(&sections)?;
        prompt::write(section, after.as_deref())?;
        Ok(json!({"path": section.path, "before": section.text, "after": after}))
    });
    Ok(RunnerOutput::json(done.await?))
}

impl PromptChange {
    fn apply<'a>(&self, sections: &'a [PromptSection]) -> Result<(&'a PromptSection, Option<String>), Failure> {
        if self.text.is_none() && self.change != SectionChange::Delete {
            return Err(Failure::new(Code::Rejected, "`text` is missing").hint("only `delete` needs no text"));
        }
        Ok(prompt::changed(sections, &self.section, self.change, self.text.as_deref().unwrap_or_default())?)
    }

    /// Returns why the change can only fail, so that no human is asked to approve it.
    pub(super) fn refusal(&self, folder: &Path) -> Option<Failure> {
        prompt::sections(folder).map_err(Failure::from).and_then(|sections| self.apply(&sections).map(drop)).err()
    }
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
