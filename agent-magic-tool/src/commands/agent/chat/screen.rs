//! What a person sees while a question is worked on: the answer row by row, a line for what happens.
//!
//! Everything goes above the line that is being typed, so an answer is shown by whole rows.

use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, PoisonError};

use executor::agent::driver::{LoopEvent, LoopObserver};
use executor::model::conversation::{EndedTask, StopReason, ToolCall, ToolResult};
use protocol::command_executor::OpenedTask;
use protocol::mailbox::Mailbox;
use serde_json::Value;

use super::state::{Activity, ChatState};
use super::words::{behind, cut, line, plain, row, short, span};
use crate::result::ResultFile;

/// The longest line about a call.
const WIDTH: usize = 120;

/// One session's screen.
#[derive(Debug)]
pub(super) struct Screen {
    to: Sender<String>,
    board: Arc<ChatState>,
    mailbox: Mailbox,
    /// How many characters of a result are shown; 0 is all.
    preview: usize,
    log: String,
    /// What of the answer fills no row yet.
    begun: Mutex<String>,
}

impl Screen {
    pub(super) fn new(
        to: Sender<String>,
        board: Arc<ChatState>,
        mailbox: Mailbox,
        preview: usize,
        log: String,
    ) -> Self {
        Self { to, board, mailbox, preview, log, begun: Mutex::default() }
    }

    /// Prints whole lines.
    pub(super) fn say(&self, text: &str) {
        self.end_row();
        self.print(text);
    }

    fn print(&self, text: &str) {
        // There is nobody left to tell if this fails.
        drop(self.to.send(format!("{}\n", text.trim_end_matches('\n'))));
    }

    fn stream(&self, text: &str) {
        let columns = self.board.columns();
        let mut begun = self.begun.lock().unwrap_or_else(PoisonError::into_inner);
        begun.push_str(&plain(text));
        while let Some(end) = row(&begun, columns) {
            let rest = begun.split_off(end);
            self.print(&begun);
            *begun = rest;
        }
    }

    fn end_row(&self) {
        let begun = std::mem::take(&mut *self.begun.lock().unwrap_or_else(PoisonError::into_inner));
        if !begun.trim().is_empty() {
            self.print(&begun);
        }
    }

    fn result(&self, result: &ToolResult) {
        self.board.closed(&result.collected);
        for task in &result.opened {
            self.say(&format!("  {} ({}) is under way", task.tool, short(task.id)));
        }
        self.board.opened(&result.opened);
        if result.opened.is_empty() {
            let failed = if result.status == 0 { String::new() } else { format!("  exit status {}\n", result.status) };
            self.say(&format!("{failed}{}", behind("  | ", &cut(&plain(&result.text), self.preview))));
        }
    }

    fn woken(&self, task: &EndedTask) {
        let state = task.state.map_or_else(|| "is gone".to_owned(), |state| state.to_string().replace('_', " "));
        let took = self.board.closed(&[task.id]).map_or_else(String::new, |since| format!(" after {}", span(since)));
        let result = ResultFile::read(&self.mailbox, task.id).map(|file| shown(&file)).unwrap_or_default();
        let result = behind("  | ", &cut(&plain(&result), self.preview));
        self.say(&format!("  {} ({}) {state}{took}\n{result}", task.tool, short(task.id)));
    }
}

impl LoopObserver for Screen {
    fn observe(&self, news: LoopEvent<'_>) {
        match news {
            LoopEvent::Text(text) => {
                self.board.does(Activity::Works);
                self.stream(text);
            }
            LoopEvent::Turn { spent, total } => {
                // Whoever sees the end of an answer may ask what it cost.
                self.board.spent(spent, total);
                self.end_row();
            }
            LoopEvent::Call(call) => {
                self.board.does(Activity::Works);
                self.say(&format!("  > {}", line(&command(call), WIDTH)));
            }
            LoopEvent::Result(result) => self.result(result),
            LoopEvent::Woken(tasks) => {
                self.board.does(Activity::Works);
                for task in tasks {
                    self.woken(task);
                }
            }
            LoopEvent::Asleep(open) => {
                // The turn of a model that was asked once is over, though its tasks are not.
                self.board.give_back();
                self.board.does(Activity::Sleeps);
                self.say(&asleep(open));
            }
            LoopEvent::Retry { failed, pause } => self.say(&format!("  {failed}; trying again in {pause:.0?}")),
            LoopEvent::GaveUp(failed) => {
                self.say(&format!("no answer: {failed}; what the provider said: {}", self.log));
            }
            LoopEvent::Done { reason, .. } => {
                self.end_row();
                let only_slept = reason == StopReason::Cancelled && self.board.doing() == Activity::Sleeps;
                if let Some(words) = ended(reason).filter(|_| !only_slept) {
                    self.print(words);
                }
                self.board.done();
            }
        }
    }
}

fn ended(reason: StopReason) -> Option<&'static str> {
    match reason {
        StopReason::Cancelled => Some("stopped"),
        StopReason::MaxIterations => Some("that is not the whole answer: it took as many requests as it may"),
        StopReason::BudgetExhausted => Some("that is not the whole answer: the budget of this question is used up"),
        StopReason::Completed | StopReason::PolicyDenied | StopReason::ApprovalDenied | StopReason::ProviderFailed => {
            None
        }
    }
}

fn command(call: &ToolCall) -> String {
    match call.arguments.get("command").and_then(Value::as_str) {
        Some(command) => command.to_owned(),
        None => format!("{}: {}", call.name, call.arguments),
    }
}

fn asleep(open: &[OpenedTask]) -> String {
    let names: Vec<_> = open.iter().map(|task| task.tool.as_str()).collect();
    format!("  waiting for {}; what you ask meanwhile is answered first", names.join(", "))
}

/// What a result file holds for a person.
fn shown(file: &ResultFile) -> String {
    let error = &file.field("error")["message"];
    let data = [file.field("data"), error, &file.field("_meta")["preview"]];
    match data.into_iter().find(|value| !value.is_null()) {
        None => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(value) => serde_json::to_string_pretty(value).unwrap_or_default(),
    }
}
