//! What a person or a program is told while a question is worked on: one line for what happens, on standard
//! error; the words of the model as they come, where somebody looks on.

use std::sync::{Mutex, PoisonError};

use executor::agent::driver::{LoopEvent, LoopObserver};
use executor::model::conversation::{EndedTask, ToolCall, ToolResult};
use executor::model::provider::ModelFailure;
use protocol::command_executor::OpenedTask;
use protocol::excerpt;

use crate::output::Output;

/// The longest line about a call.
const WIDTH: usize = 120;

/// Tells in lines.
#[derive(Debug)]
pub(crate) struct PlainObserver {
    output: Output,
    /// Whether the model's words are printed as they come.
    streams: bool,
    heard: Mutex<PrintedState>,
}

#[derive(Debug, Default)]
pub(crate) struct PrintedState {
    /// The model's words are in the middle of a line.
    in_line: bool,
    /// Why there is no answer, if there is none.
    pub(crate) failed: Option<ModelFailure>,
}

impl PlainObserver {
    pub(crate) fn new(output: Output, streams: bool) -> Self {
        Self { output, streams, heard: Mutex::default() }
    }

    pub(crate) fn heard(&self) -> std::sync::MutexGuard<'_, PrintedState> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn line(&self, text: &str) {
        self.end_line();
        self.output.note(text);
    }

    fn end_line(&self) {
        if std::mem::take(&mut self.heard().in_line) {
            // A reader that went away is noticed at the end.
            drop(self.output.text("\n"));
        }
    }
}

impl LoopObserver for PlainObserver {
    fn observe(&self, news: LoopEvent<'_>) {
        match news {
            LoopEvent::Text(text) if self.streams && !text.is_empty() => {
                drop(self.output.text(text));
                self.heard().in_line = !text.ends_with('\n');
            }
            LoopEvent::Text(_) => {}
            LoopEvent::Turn { .. } => self.end_line(),
            LoopEvent::Call(call) => self.line(&format!("> {}", excerpt::line(&command(call), WIDTH))),
            LoopEvent::Result(result) => self.result(result),
            LoopEvent::Woken(tasks) => tasks.iter().for_each(|task| self.line(&woken(task))),
            LoopEvent::Asleep(open) => self.line(&asleep(open)),
            LoopEvent::Retry { failed, pause } => self.line(&format!("{failed}; trying again in {pause:.0?}")),
            LoopEvent::GaveUp(failed) => {
                self.end_line();
                self.heard().failed = Some(failed.clone());
            }
            LoopEvent::Done { .. } => self.end_line(),
        }
    }
}

impl PlainObserver {
    fn result(&self, result: &ToolResult) {
        for task in &result.opened {
            self.line(&format!("{} is under way ({})", task.tool, task.id));
        }
        if result.status != 0 && result.opened.is_empty() {
            self.line(&format!("exit status {}", result.status));
        }
    }
}

fn command(call: &ToolCall) -> String {
    match call.arguments.get("command").and_then(serde_json::Value::as_str) {
        Some(command) => command.to_owned(),
        None => format!("{}: {}", call.name, call.arguments),
    }
}

fn woken(task: &EndedTask) -> String {
    let state = task.state.map_or("is gone".to_owned(), |state| state.to_string());
    format!("{} {state} ({})", task.tool, task.id)
}

fn asleep(open: &[OpenedTask]) -> String {
    let names: Vec<_> = open.iter().map(|task| task.tool.as_str()).collect();
    format!("waiting for {}; where a yes is needed, a human gives it: agent-magic-tool executor page", names.join(", "))
}
