//! The result of a call whose work was stopped.

use protocol::command_executor::OpenedTask;

use crate::model::conversation::{ToolCall, ToolResult};

const CANCELLED: &str = "this call was stopped by the user before its result was known";

/// The result of a call that is stopped; its tasks go on.
pub(super) fn stopped(call: &ToolCall, opened: &[(String, OpenedTask)]) -> ToolResult {
    let of_this = opened.iter().filter(|(id, _)| *id == call.id);
    let opened: Vec<_> = of_this.map(|(_, task)| task.clone()).collect();
    let ids = opened.iter().map(|task| task.id.to_string()).collect::<Vec<_>>().join(" ");
    let text = if ids.is_empty() { CANCELLED.to_owned() } else { format!("{CANCELLED}; its task goes on: {ids}") };
    ToolResult { opened, ..ToolResult::new(call, text, 1) }
}
