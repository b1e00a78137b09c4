//! An example of your own agent: a loop over any model server that supports `OpenAI`'s chat completions.
//!
//! `MODEL_URL=http://127.0.0.1:11434/v1 MODEL=qwen3 cargo run -p agent-magic-tool-protocol --example own_agent -- "What is new?"`.
//! Needs `agent-magic-tool` in `PATH`, and the server's API key in `MODEL_KEY` if it requires one.

use std::env;
use std::error::Error;
use std::sync::Arc;

use protocol::caller::Caller;
use protocol::command_executor::{CommandExecutor, CommandOutput, Dialect};
use protocol::mailbox::Mailbox;
use protocol::paths::Paths;
use protocol::shell::ProgramShell;
use serde_json::{Value, json};
use tokio::task::JoinError;

const INSTRUCTIONS: &str = "Use command_executor for everything that you have no other tool for.";

pub(crate) struct Model {
    pub(crate) url: String,
    pub(crate) name: String,
    pub(crate) key: String,
}

pub(crate) async fn ask(question: &str, model: &Model, tool: &CommandExecutor) -> Result<String, Box<dyn Error>> {
    let client = reqwest::Client::new();
    let mut messages =
        vec![json!({"role": "system", "content": INSTRUCTIONS}), json!({"role": "user", "content": question})];
    let mut open = Vec::new();
    for _ in 0..50 {
        let body = json!({"model": model.name, "messages": messages, "tools": [Dialect::OpenAi.definition()]});
        let request = client.post(format!("{}/chat/completions", model.url)).bearer_auth(&model.key).json(&body);
        let mut response: Value = request.send().await?.error_for_status()?.json().await?;
        let message = response["choices"][0]["message"].take();
        messages.push(message.clone());
        let calls = message["tool_calls"].as_array().cloned().unwrap_or_default();
        for call in &calls {
            let arguments: Value = call["function"]["arguments"].as_str().unwrap_or_default().parse()?;
            let answer = execute(tool, arguments["command"].as_str().unwrap_or_default()).await?;
            open.extend(answer.opened.iter().map(|task| task.id));
            open.retain(|task| !answer.collected.contains(task));
            messages.push(json!({"role": "tool", "tool_call_id": call["id"], "content": answer.text}));
        }
        if calls.is_empty() && open.is_empty() {
            return Ok(message["content"].as_str().unwrap_or_default().to_owned());
        }
        if calls.is_empty() {
            // The model has nothing to do until these tasks have ended, and waiting here costs no tokens.
            let tasks: Vec<_> = open.drain(..).map(|task| task.to_string()).collect();
            let ended = execute(tool, &format!("agent-magic-tool wait {}", tasks.join(" "))).await?;
            messages.push(json!({"role": "user", "content": format!("Your tasks have ended:\n{}", ended.text)}));
        }
    }
    Err("the model did not finish within 50 turns".into())
}

/// Runs a command line off the async runtime, since it may block until a task has ended.
async fn execute(tool: &CommandExecutor, command: &str) -> Result<CommandOutput, JoinError> {
    let (tool, command) = (tool.clone(), command.to_owned());
    tokio::task::spawn_blocking(move || tool.execute(&command, "")).await
}

#[tokio::main]
#[expect(clippy::print_stdout, reason = "an example program prints its result")]
async fn main() -> Result<(), Box<dyn Error>> {
    drop(rustls::crypto::ring::default_provider().install_default());
    let model =
        Model { url: env::var("MODEL_URL")?, name: env::var("MODEL")?, key: env::var("MODEL_KEY").unwrap_or_default() };
    let caller = Caller { session: Some("own-agent".to_owned()), folder: env::current_dir().ok(), ..Caller::default() };
    let mailbox = Mailbox::open(&Paths::from_env()?.mailbox)?;
    let tool = CommandExecutor::new(Arc::new(ProgramShell::new("agent-magic-tool")), mailbox, caller);
    let question = env::args().skip(1).collect::<Vec<_>>().join(" ");
    println!("{}", ask(&question, &model, &tool).await?);
    Ok(())
}
