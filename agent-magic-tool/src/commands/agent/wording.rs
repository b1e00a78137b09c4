//! The words in which the plain output and the chat tell of the same things.

use agent_loop::model::conversation::{EndedTask, ToolCall};
use protocol::command_executor::OpenedTask;
use serde_json::Value;

/// The command of a call, or the whole call if it has none.
pub(super) fn command(call: &ToolCall) -> String {
    match call.arguments.get("command").and_then(Value::as_str) {
        Some(command) => command.to_owned(),
        None => format!("{}: {}", call.name, call.arguments),
    }
}

/// How a task ended.
pub(super) fn state(task: &EndedTask) -> String {
    task.state.map_or_else(|| "was removed".to_owned(), |state| state.to_string().replace('_', " "))
}

/// What the loop waits for.
pub(super) fn waiting_for(open: &[OpenedTask]) -> String {
    let names: Vec<_> = open.iter().map(|task| task.tool.as_str()).collect();
    format!("waiting for {}", names.join(", "))
}
