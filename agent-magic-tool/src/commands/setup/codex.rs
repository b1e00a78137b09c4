//! Codex CLI: a section in AGENTS.md, `hooks.json`, and the mailbox as a writable root of its sandbox.
//!
//! Follows 0.169: `CODEX_HOME` replaces `~/.codex`. Codex reads a project's `.codex/` only if the project is
//! trusted, and runs a new or changed hook only after the user has trusted it with `/hooks`.

use serde_json::json;

use super::instruction;
use super::plan::{Edit, SetupPlan, SetupTarget};
use super::section::SectionMarks;

pub(super) fn plan(target: &SetupTarget) -> SetupPlan {
    let folder = target.folder(".codex", "CODEX_HOME", ".codex");
    let mut plan = SetupPlan::default();
    let instructions = target.project.as_ref().unwrap_or(&folder).join("AGENTS.md");
    plan.file(instructions, Edit::Section { marks: SectionMarks::Markdown, text: instruction::TEXT.to_owned() });
    plan.file(folder.join("hooks.json"), Edit::Json(target.hooks("SessionStart", "Stop", 1, &json!({}))));
    let mailbox = target.paths.mailbox.display().to_string();
    if target.project.is_none() {
        let edit = Edit::TomlList { table: "sandbox_workspace_write", key: "writable_roots", item: mailbox };
        plan.file(folder.join("config.toml"), edit);
    } else {
        plan.next.push(format!(
            "allow the sandbox to write the mailbox: [sandbox_workspace_write] writable_roots = [\"{mailbox}\"] in ~/.codex/config.toml"
        ));
    }
    plan.next.push("start Codex, open /hooks, and trust the two hooks of agent-magic-tool; until then it is not woken, and `run` tells it to `wait`".to_owned());
    plan
}
