//! Claude Code: a skill, which is loaded when it is needed, and a `Stop` hook that runs beside the conversation.
//!
//! Follows 2.1.197: skills lie in `skills/NAME/SKILL.md` below `.claude/`, hooks and the sandbox's folders in
//! `settings.json`; `CLAUDE_CONFIG_DIR` moves the user's own.

use serde_json::json;

use super::instruction;
use super::json_file::JsonEdit;
use super::plan::{Edit, SetupPlan, SetupTarget};

pub(super) fn plan(site: &SetupTarget) -> SetupPlan {
    let folder = site.folder(".claude", "CLAUDE_CONFIG_DIR", ".claude");
    let skill =
        format!("---\nname: agent-magic-tool\ndescription: {}\n---\n{}", instruction::DESCRIPTION, instruction::TEXT);
    let mut edits = site.hooks("SessionStart", "Stop", 1, &json!({"asyncRewake": true}));
    let mut plan = SetupPlan::default();
    let mailbox = site.paths.mailbox.display();
    if site.project.is_none() {
        edits.push(JsonEdit::Word { path: &["sandbox", "filesystem", "allowWrite"], word: mailbox.to_string() });
    } else {
        plan.next.push(format!(
            "with the sandbox on, let it write the mailbox: \"sandbox\": {{\"filesystem\": {{\"allowWrite\": [\"{mailbox}\"]}}}} in your own settings"
        ));
    }
    plan.file(folder.join("skills/agent-magic-tool/SKILL.md"), Edit::Own(skill));
    plan.file(folder.join("settings.json"), Edit::Json(edits));
    plan.next.push("to be asked less often, allow `Bash(agent-magic-tool *)` under `permissions.allow`".to_owned());
    plan.next.push("start a new session of Claude Code".to_owned());
    plan
}
