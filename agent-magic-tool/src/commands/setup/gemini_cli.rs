//! Gemini CLI: a section in GEMINI.md and an `AfterAgent` hook.
//!
//! Follows 0.61: both are in `~/.gemini`, a project's settings in its `.gemini/`; timeouts are in milliseconds.
//! The mailbox is not added to `context.includeDirectories`: Gemini CLI does not start if one of these is
//! missing, as the mailbox is after a reboot, and `agent-magic-tool read` does not need it.

use serde_json::json;

use super::instruction;
use super::plan::{Edit, SetupPlan, SetupTarget};
use super::section::SectionMarks;

pub(super) fn plan(target: &SetupTarget) -> SetupPlan {
    let folder = target.folder(".gemini", "", ".gemini");
    let mut plan = SetupPlan::default();
    let instructions = target.project.as_ref().unwrap_or(&folder).join("GEMINI.md");
    plan.file(instructions, Edit::Section { marks: SectionMarks::Markdown, text: instruction::TEXT.to_owned() });
    let edits = target.hooks("SessionStart", "AfterAgent", 1_000, &json!({"name": "agent-magic-tool"}));
    let mailbox = target.paths.mailbox.display().to_string();
    plan.file(folder.join("settings.json"), Edit::Json(edits));
    plan.next.push("start a new session of Gemini CLI; it asks once whether it may run a project's hooks".to_owned());
    plan.next.push(format!("in its container sandbox, mount the mailbox: SANDBOX_MOUNTS={mailbox}:{mailbox}:rw"));
    plan
}
