//! OpenCode: a section in AGENTS.md and a plugin, which OpenCode loads from its folder without configuration.
//!
//! Follows 1.18: `~/.config/opencode/` and a project's `.opencode/`, each with `plugins/`.

use super::instruction;
use super::plan::{Edit, SetupPlan, SetupTarget};
use super::section::SectionMarks;

/// The plugin; the hook's command line replaces `HOOK`.
const PLUGIN: &str = include_str!("opencode.js");

pub(super) fn plan(target: &SetupTarget) -> SetupPlan {
    let folder = match &target.project {
        Some(project) => project.join(".opencode"),
        None => target.paths.config_of("opencode"),
    };
    let mut plan = SetupPlan::default();
    let instructions = target.project.as_ref().unwrap_or(&folder).join("AGENTS.md");
    plan.file(instructions, Edit::Section { marks: SectionMarks::Markdown, text: instruction::TEXT.to_owned() });
    let hook = serde_json::Value::from(target.command()).to_string();
    plan.file(folder.join("plugins/agent-magic-tool.js"), Edit::Own(PLUGIN.replace("\"HOOK\"", &hook)));
    plan.next.push(
        "restart OpenCode; `opencode run` ends with its first turn, so there `run` tells it to `wait`".to_owned(),
    );
    plan.next.push(format!(
        "to let the model open result files itself, allow \"permission\": {{\"external_directory\": {{\"{}/**\": \"allow\"}}}} in opencode.json",
        target.paths.mailbox.display()
    ));
    plan
}
