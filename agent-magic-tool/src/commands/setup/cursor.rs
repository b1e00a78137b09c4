//! Cursor: a rule and a `stop` hook in the project. The user's own rules are in Cursor's settings, not in files.
//!
//! Follows its documentation of 2026 and has not been tested with Cursor itself.

use serde_json::json;

use super::instruction;
use super::json_file::JsonEdit;
use super::plan::{Edit, SetupPlan, SetupTarget};

/// How often Cursor lets the hook continue one turn.
const LOOP_LIMIT: u32 = 20;

pub(super) fn plan(target: &SetupTarget) -> SetupPlan {
    let folder = target.folder(".cursor", "", ".cursor");
    let mut plan = SetupPlan::default();
    let rule = format!("---\ndescription: {}\nalwaysApply: true\n---\n{}", instruction::DESCRIPTION, instruction::TEXT);
    plan.file(folder.join("rules/agent-magic-tool.mdc"), Edit::Own(rule));
    let start = json!({"command": target.command()});
    let end = json!({"command": target.command(), "timeout": target.timeout_seconds(), "loop_limit": LOOP_LIMIT});
    let edits = vec![
        JsonEdit::Field { key: "version", value: json!(1) },
        JsonEdit::Hook { event: "sessionStart", client: target.client, entry: start },
        JsonEdit::Hook { event: "stop", client: target.client, entry: end },
    ];
    plan.file(folder.join("hooks.json"), Edit::Json(edits));
    plan.next.push("check that Cursor's settings show both hooks under Hooks".to_owned());
    plan.next.push(format!("allow its sandbox to write the mailbox: {}", target.paths.mailbox.display()));
    plan
}
