//! The one tool that the loop offers: takes a model's call, and returns the text that the model reads.
//!
//! Every call gets a result. The result of a wrong name or wrong arguments says how to write the call.

use std::pin::Pin;
use std::sync::{Mutex, PoisonError};

use ground::base::credential;
use protocol::code::Code;
use protocol::command_executor::{self, CommandExecutor, CommandOutput, NAME};
use protocol::data_class::DataClass;
use protocol::error::ErrorBody;
use serde_json::Value;

use super::driver::{CallOrigin, TaskReporter, Tools};
use crate::model::conversation::{ToolCall, ToolResult};
use crate::model::provider::ToolDefinition;

/// The tool `command_executor` for one session.
#[derive(Debug)]
pub struct OneTool {
    executor: CommandExecutor,
    /// The most sensitive data that the current model may get.
    trust: Mutex<DataClass>,
}

const NO_OUTPUT: &str = "(no output)";

/// A harmless command: any command starts an executor if none is running.
const ENSURE_EXECUTOR_COMMAND: &str = "agent-magic-tool tasks --state pending --limit 1";

impl OneTool {
    pub fn new(executor: CommandExecutor, trust: DataClass) -> Self {
        Self { executor, trust: Mutex::new(trust) }
    }

    fn executor(&self) -> CommandExecutor {
        self.executor.clone().trusted_with(*self.trust.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Runs `command` on a thread where it may block. The command continues if the future is dropped.
    /// Also returns the class of the results that it names.
    async fn run(&self, command: &str, origin: CallOrigin, report: TaskReporter) -> (CommandOutput, Option<DataClass>) {
        let CallOrigin { key, budget } = origin;
        let (executor, command) = (self.executor().for_question(budget), command.to_owned());
        let execute = move || {
            let output = executor.execute_and_report(&command, &key, &*report);
            (output, executor.class_of_named(&command))
        };
        tokio::task::spawn_blocking(execute).await.unwrap_or_else(|error| {
            let error = ErrorBody::new(Code::Internal, format!("the command panicked or was cancelled: {error}"))
                .hint("tasks that it started continue; to list them: agent-magic-tool tasks");
            (CommandOutput::refused(&error), None)
        })
    }
}

impl Tools for OneTool {
    fn definitions(&self) -> Vec<ToolDefinition> {
        vec![definition()]
    }

    fn call<'a>(
        &'a self,
        call: &'a ToolCall,
        origin: CallOrigin,
        report: TaskReporter,
    ) -> Pin<Box<dyn Future<Output = ToolResult> + Send + 'a>> {
        Box::pin(async move {
            let command = match command(call) {
                Ok(command) => command,
                Err(error) => return refused(call, &error),
            };
            let (output, data_class) = self.run(command, origin, report).await;
            let text = match output.status {
                // Some providers reject an empty result.
                _ if output.text.is_empty() => NO_OUTPUT.to_owned(),
                0 => output.text,
                // An error may quote what the model's provider must not see.
                _ => credential::mask(&output.text).into_owned(),
            };
            ToolResult {
                call: call.id.clone(),
                name: call.name.clone(),
                text,
                status: output.status,
                opened: output.opened,
                collected: output.collected,
                only_reads: output.only_reads,
                spent: Vec::new(),
                data_class,
            }
        })
    }

    fn needs_human<'a>(&'a self, call: &'a ToolCall) -> Pin<Box<dyn Future<Output = bool> + Send + 'a>> {
        Box::pin(async move {
            let Ok(command) = command(call) else { return false };
            let (executor, command) = (self.executor(), command.to_owned());
            tokio::task::spawn_blocking(move || executor.needs_human(&command)).await.unwrap_or(false)
        })
    }

    fn trust(&self, trust: DataClass) {
        *self.trust.lock().unwrap_or_else(PoisonError::into_inner) = trust;
    }

    fn ensure_executor(&self) {
        let executor = self.executor.clone();
        drop(tokio::task::spawn_blocking(move || executor.execute(ENSURE_EXECUTOR_COMMAND, "")));
    }
}

/// Returns the definition of the tool.
pub fn definition() -> ToolDefinition {
    let definition = command_executor::definition();
    let text = |key: &str| definition[key].as_str().expect("the definition has this text").to_owned();
    ToolDefinition {
        name: text("name"),
        description: text("description"),
        parameters: definition["parameters"].clone(),
        strict: None,
    }
}

fn command(call: &ToolCall) -> Result<&str, ErrorBody> {
    if call.name != NAME {
        return Err(ErrorBody::new(Code::UnknownSubtool, format!("no tool named `{}`", call.name)).hint(format!(
            "the only tool is `{NAME}`; if `{}` is a subtool, run it with the command: agent-magic-tool run {} key=value",
            call.name, call.name
        )));
    }
    call.arguments.get("command").and_then(Value::as_str).ok_or_else(|| {
        ErrorBody::new(
            Code::InvalidInput,
            format!("the arguments of `{NAME}` are not an object with a string `command`"),
        )
        .hint("write them like this: {\"command\": \"agent-magic-tool list tools --query=mail\"}")
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
    fn a_wrong_call_gets_a_hint_how_to_write_it() {
        let call = |name: &str, arguments: Value| ToolCall { id: "c".to_owned(), name: name.to_owned(), arguments };
        let error = command(&call("gmail_send", json!({}))).map(str::to_owned).expect_err("another tool");
        assert!(error.hint.expect("a hint").contains("agent-magic-tool run gmail_send"));
        for arguments in [json!("{\"command\": \"x"), json!({}), json!({"command": 5}), json!(null)] {
            command(&call(NAME, arguments)).expect_err("no command");
        }
        assert_eq!(command(&call(NAME, json!({"command": "x"}))).expect("a command"), "x");
    }
}
