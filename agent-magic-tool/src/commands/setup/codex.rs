//! Codex CLI: a section of AGENTS.md, `hooks.json`, and the mailbox among the folders that its sandbox may write.
//!
//! Follows 0.169: `CODEX_HOME` moves `~/.codex`; a project's `.codex/` counts once the project is trusted, and
//! every new or changed hook once its user trusts it with `/hooks`.

use serde_json::json;

use super::instruction;
use super::plan::{Edit, SetupPlan, SetupTarget};
use super::section::SectionMarks;

pub(super) fn plan(site: &SetupTarget) -> SetupPlan {
    let folder = site.folder(".codex", "CODEX_HOME", ".codex");
    let mut plan = SetupPlan::default();
    let instructions = site.project.as_ref().unwrap_or(&folder).join("AGENTS.md");
    plan.file(instructions, Edit::Section { marks: SectionMarks::Markdown, text: instruction::TEXT.to_owned() });
    plan.file(folder.join("hooks.json"), Edit::Json(site.hooks("SessionStart", "Stop", 1, &json!({}))));
    let word = site.paths.mailbox.display().to_string();
    if site.project.is_none() {
        let edit = Edit::TomlList { table: "sandbox_workspace_write", key: "writable_roots", word };
        plan.file(folder.join("config.toml"), edit);
    } else {
        plan.next.push(format!(
            "let the sandbox write the mailbox: [sandbox_workspace_write] writable_roots = [\"{word}\"] in ~/.codex/config.toml"
        ));
    }
    plan.next.push("start Codex, open /hooks, and trust the two hooks of agent-magic-tool: until then it is not woken, and `run` says `wait`".to_owned());
    plan
}
