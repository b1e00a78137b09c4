//! Claude Code: a skill, which is loaded on demand, and a `Stop` hook that runs in parallel with the conversation.
//!
//! Follows 2.1.197: skills are in `.claude/skills/NAME/SKILL.md`, hooks and the sandbox's folders in
//! `settings.json`; `CLAUDE_CONFIG_DIR` replaces the user's `~/.claude`.

use serde_json::json;

use super::instruction;
use super::json_file::JsonEdit;
use super::plan::{Edit, SetupPlan, SetupTarget};

pub(super) fn plan(target: &SetupTarget) -> SetupPlan {
    let folder = target.folder(".claude", "CLAUDE_CONFIG_DIR", ".claude");
    let skill =
        format!("---\nname: agent-magic-tool\ndescription: {}\n---\n{}", instruction::DESCRIPTION, instruction::TEXT);
    let mut edits = target.hooks("SessionStart", "Stop", 1, &json!({"asyncRewake": true}));
    let mut plan = SetupPlan::default();
    let mailbox = target.paths.mailbox.display();
    if target.project.is_none() {
        edits.push(JsonEdit::ListItem { path: &["sandbox", "filesystem", "allowWrite"], item: mailbox.to_string() });
    } else {
        plan.next.push(format!(
            "if the sandbox is on, allow it to write the mailbox: \"sandbox\": {{\"filesystem\": {{\"allowWrite\": [\"{mailbox}\"]}}}} in your own settings"
        ));
    }
    plan.file(folder.join("skills/agent-magic-tool/SKILL.md"), Edit::Own(skill));
    plan.file(folder.join("settings.json"), Edit::Json(edits));
    plan.next.push("to be asked less often, allow `Bash(agent-magic-tool *)` under `permissions.allow`".to_owned());
    plan.next.push("start a new session of Claude Code".to_owned());
    plan
}
