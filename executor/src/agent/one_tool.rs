//! The one tool as the loop offers it: a model's call in, what the model reads of it out.
//!
//! Whatever the model wrote, there is a result: a wrong name or wrong arguments say how to do it right.

use std::pin::Pin;

use protocol::code::Code;
use protocol::command_executor::{self, CommandExecutor, CommandOutput, NAME};
use protocol::error::ErrorBody;
use serde_json::Value;

use super::driver::Tools;
use crate::model::conversation::{ToolCall, ToolResult};
use crate::model::provider::ToolDefinition;

/// `command_executor`, for one session.
#[derive(Debug)]
pub struct OneTool {
    executor: CommandExecutor,
}

const NOTHING: &str = "(no output)";

/// Any command revives an executor that went away and left open tasks.
const NUDGE: &str = "agent-magic-tool tasks --state pending --limit 1";

impl OneTool {
    pub fn new(executor: CommandExecutor) -> Self {
        Self { executor }
    }

    /// Carries `command` out on a thread where it may block. Dropped before its end, it goes on unseen.
    async fn answer(&self, command: &str, key: &str) -> CommandOutput {
        let (executor, command, key) = (self.executor.clone(), command.to_owned(), key.to_owned());
        tokio::task::spawn_blocking(move || executor.carry_out(&command, &key)).await.unwrap_or_else(|error| {
            let error = ErrorBody::new(Code::Internal, format!("the command did not come to its end: {error}"))
                .hint("what it delegated goes on: agent-magic-tool tasks");
            CommandOutput::refused(&error)
        })
    }
}

impl Tools for OneTool {
    fn offered(&self) -> Vec<ToolDefinition> {
        vec![tool()]
    }

    fn call<'a>(&'a self, call: &'a ToolCall, key: &'a str) -> Pin<Box<dyn Future<Output = ToolResult> + Send + 'a>> {
        Box::pin(async move {
            let command = match command(call) {
                Ok(command) => command,
                Err(error) => return refused(call, &error),
            };
            let answer = self.answer(command, key).await;
            ToolResult {
                call: call.id.clone(),
                name: call.name.clone(),
                // Some providers refuse a result without words.
                text: if answer.text.is_empty() { NOTHING.to_owned() } else { answer.text },
                status: answer.status,
                opened: answer.opened,
                collected: answer.collected,
                only_reads: answer.only_reads,
            }
        })
    }

    fn nudge(&self) {
        let executor = self.executor.clone();
        drop(tokio::task::spawn_blocking(move || executor.carry_out(NUDGE, "")));
    }
}

/// The tool's definition.
pub fn tool() -> ToolDefinition {
    let definition = command_executor::definition();
    let text = |key: &str| definition[key].as_str().expect("the definition has words").to_owned();
    ToolDefinition {
        name: text("name"),
        description: text("description"),
        parameters: definition["parameters"].clone(),
    }
}

fn command(call: &ToolCall) -> Result<&str, ErrorBody> {
    if call.name != NAME {
        return Err(ErrorBody::new(Code::UnknownSubtool, format!("there is no tool `{}` here", call.name)).hint(format!(
            "the one tool is `{NAME}`; if `{}` is a subtool, its command is: agent-magic-tool run {} --input='{{...}}'",
            call.name, call.name
        )));
    }
    call.arguments.get("command").and_then(Value::as_str).ok_or_else(|| {
        ErrorBody::new(Code::InvalidInput, format!("the arguments of `{NAME}` are no object with a text `command`"))
            .hint("write them like: {\"command\": \"agent-magic-tool list tools --query=mail\"}")
    })
}

fn refused(call: &ToolCall, error: &ErrorBody) -> ToolResult {
    ToolResult::new(call, serde_json::json!({ "error": error }).to_string(), error.code.exit() as u8)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_a_model_gets_wrong_tells_it_how_to_do_it_right() {
        let call = |name: &str, arguments: Value| ToolCall { id: "c".to_owned(), name: name.to_owned(), arguments };
        let error = command(&call("gmail_send", json!({}))).map(str::to_owned).expect_err("another tool");
        assert!(error.hint.expect("a hint").contains("agent-magic-tool run gmail_send"));
        for arguments in [json!("{\"command\": \"x"), json!({}), json!({"command": 5}), json!(null)] {
            command(&call(NAME, arguments)).expect_err("no command");
        }
        assert_eq!(command(&call(NAME, json!({"command": "x"}))).expect("a command"), "x");
    }
}
