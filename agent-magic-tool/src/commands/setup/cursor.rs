//! Cursor: a rule and a `stop` hook of the project. A user's own rules live in its settings, not in files.
//!
//! Follows its documents of 2026, and was not tried.

use serde_json::json;

use super::instruction;
use super::json_file::JsonEdit;
use super::plan::{Edit, SetupPlan, SetupTarget};

/// The client's own bound on how often one turn goes on.
const LOOPS: u32 = 20;

pub(super) fn plan(site: &SetupTarget) -> SetupPlan {
    let folder = site.folder(".cursor", "", ".cursor");
    let mut plan = SetupPlan::default();
    let rule = format!("---\ndescription: {}\nalwaysApply: true\n---\n{}", instruction::DESCRIPTION, instruction::TEXT);
    plan.file(folder.join("rules/agent-magic-tool.mdc"), Edit::Own(rule));
    let start = json!({"command": site.command()});
    let end = json!({"command": site.command(), "timeout": site.timeout_seconds(), "loop_limit": LOOPS});
    let edits = vec![
        JsonEdit::Field { key: "version", value: json!(1) },
        JsonEdit::Hook { event: "sessionStart", client: site.client, entry: start },
        JsonEdit::Hook { event: "stop", client: site.client, entry: end },
    ];
    plan.file(folder.join("hooks.json"), Edit::Json(edits));
    plan.next.push("look in Cursor's settings under Hooks whether both are there".to_owned());
    plan.next.push(format!("in its sandbox, allow the mailbox: {}", site.paths.mailbox.display()));
    plan
}
