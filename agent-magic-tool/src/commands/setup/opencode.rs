//! OpenCode: a section of AGENTS.md and a plugin, which is loaded from its folder; no configuration is edited.
//!
//! Follows 1.18: `~/.config/opencode/` and a project's `.opencode/`, each with `plugins/`.

use super::instruction;
use super::plan::{Edit, SetupPlan, SetupTarget};
use super::section::SectionMarks;

/// With the program's words in the place of `HOOK`.
const PLUGIN: &str = include_str!("opencode.js");

pub(super) fn plan(site: &SetupTarget) -> SetupPlan {
    let folder = match &site.project {
        Some(project) => project.join(".opencode"),
        None => site.paths.config_of("opencode"),
    };
    let mut plan = SetupPlan::default();
    let instructions = site.project.as_ref().unwrap_or(&folder).join("AGENTS.md");
    plan.file(instructions, Edit::Section { marks: SectionMarks::Markdown, text: instruction::TEXT.to_owned() });
    let hook = serde_json::Value::from(site.command()).to_string();
    plan.file(folder.join("plugins/agent-magic-tool.js"), Edit::Own(PLUGIN.replace("\"HOOK\"", &hook)));
    plan.next
        .push("start OpenCode anew; `opencode run` ends with its first turn, so there `run` says `wait`".to_owned());
    plan.next.push(format!(
        "for the model to open result files itself, allow \"permission\": {{\"external_directory\": {{\"{}/**\": \"allow\"}}}} in opencode.json",
        site.paths.mailbox.display()
    ));
    plan
}
