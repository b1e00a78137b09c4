//! Gemini CLI: a section of GEMINI.md and an `AfterAgent` hook.
//!
//! Follows 0.61: both lie below `~/.gemini`, the project's settings below its `.gemini/`; timeouts are in
//! milliseconds. The mailbox is not put among `context.includeDirectories`: Gemini CLI does not start when one of
//! them is missing, as the mailbox is after a reboot; `agent-magic-tool read` needs none of it.

use serde_json::json;

use super::instruction;
use super::plan::{Edit, SetupPlan, SetupTarget};
use super::section::SectionMarks;

pub(super) fn plan(site: &SetupTarget) -> SetupPlan {
    let folder = site.folder(".gemini", "", ".gemini");
    let mut plan = SetupPlan::default();
    let instructions = site.project.as_ref().unwrap_or(&folder).join("GEMINI.md");
    plan.file(instructions, Edit::Section { marks: SectionMarks::Markdown, text: instruction::TEXT.to_owned() });
    let edits = site.hooks("SessionStart", "AfterAgent", 1_000, &json!({"name": "agent-magic-tool"}));
    let mailbox = site.paths.mailbox.display().to_string();
    plan.file(folder.join("settings.json"), Edit::Json(edits));
    plan.next.push("start a new session of Gemini CLI; it asks once whether it may run a project's hooks".to_owned());
    plan.next.push(format!("in its container sandbox, mount the mailbox: SANDBOX_MOUNTS={mailbox}:{mailbox}:rw"));
    plan
}
