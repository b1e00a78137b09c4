//! The prompts: what a person picks in a client to make the model use the tool.

use rmcp::ErrorData;
use rmcp::model::{GetPromptResult, JsonObject, Prompt, PromptArgument, PromptMessage, Role};
use serde_json::Value;

/// What a model is told about the server.
pub(super) const INSTRUCTIONS: &str = "Use the tool command_executor for everything you have no other tool for; it \
    explains itself when called with the command `agent-magic-tool`.";

const HOW_TO_USE: &str = "how-to-use";
const DO: &str = "do";

/// How the one tool is used, by example.
const EXAMPLES: &str = "\
For example:
1. `agent-magic-tool list tools --query=\"search mail\"` finds tools; two or three words, in English.
2. `agent-magic-tool run NAME key=value` delegates a task and returns its id at once; with `--in=2h` or `--at=09:00` it starts later.
3. `agent-magic-tool wait ID` returns the result as soon as it is there. Never poll, and never run a task again.
What changes something waits until I have approved it on a page of mine. If a result says so, tell me.";

pub(super) fn all() -> Vec<Prompt> {
    let task =
        PromptArgument::new("task").with_description("What is to be done, in your own words").with_required(true);
    vec![
        Prompt::new(HOW_TO_USE, Some("How to find and run tools with command_executor"), None)
            .with_title("How to use agent-magic-tool"),
        Prompt::new(DO, Some("Do a task with the tools that command_executor finds"), Some(vec![task]))
            .with_title("Do it with agent-magic-tool"),
    ]
}

pub(super) fn get(name: &str, arguments: Option<&JsonObject>) -> Result<GetPromptResult, ErrorData> {
    let text = match name {
        HOW_TO_USE => format!("{INSTRUCTIONS}\n\n{EXAMPLES}"),
        DO => {
            let task = arguments.and_then(|arguments| arguments.get("task")).and_then(Value::as_str);
            let task = task.ok_or_else(|| ErrorData::invalid_params("the argument `task` is missing", None))?;
            format!("{task}\n\nUse the tool command_executor for it. {EXAMPLES}")
        }
        _ => return Err(ErrorData::invalid_params(format!("no prompt named `{name}`; see prompts/list"), None)),
    };
    Ok(GetPromptResult::new(vec![PromptMessage::new_text(Role::User, text)]))
}
