//! Shows the progress of a question: the answer row by row, and a line for each event.
//!
//! Everything is printed above the input line, which only works for whole rows.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, PoisonError};

use agent_loop::driver::{LoopEvent, LoopObserver};
use agent_loop::model::conversation::{EndedTask, StopReason, ToolResult};
use agent_side::result::ResultFile;
use agent_side::sanitized::sanitize;
use ground::results::shown::{preview, result_text};
use protocol::caller::Caller;
use protocol::mailbox::Mailbox;

use super::super::wording;
use super::state::{Activity, ChatState};
use super::text::{format_duration, one_line, prefix_lines, row_end, short_id};

/// The longest line about a call, in characters.
const WIDTH: usize = 120;

/// The output of one session.
#[derive(Debug)]
pub(super) struct Screen {
    lines: Sender<String>,
    state: Arc<ChatState>,
    mailbox: Mailbox,
    /// How many characters of a result are shown; 0 shows all.
    preview: AtomicUsize,
    /// The path of the log.
    log: String,
    /// The end of the answer so far, which does not fill a row yet.
    partial_row: Mutex<String>,
}

impl Screen {
    pub(super) fn new(
        lines: Sender<String>,
        state: Arc<ChatState>,
        mailbox: Mailbox,
        preview: usize,
        log: String,
    ) -> Self {
        Self { lines, state, mailbox, preview: preview.into(), log, partial_row: Mutex::default() }
    }

    pub(super) fn preview(&self) -> usize {
        self.preview.load(Ordering::Relaxed)
    }

    pub(super) fn set_preview(&self, chars: usize) {
        self.preview.store(chars, Ordering::Relaxed);
    }

    /// Prints whole lines, after the current row of the answer.
    pub(super) fn say(&self, text: &str) {
        self.end_row();
        self.print(text);
    }

    fn print(&self, text: &str) {
        // A failure to print cannot be reported anywhere.
        drop(self.lines.send(format!("{}\n", text.trim_end_matches('\n'))));
    }

    /// Prints the rows of the answer that are complete.
    fn stream(&self, text: &str) {
        let columns = self.state.columns();
        let mut row = self.partial_row.lock().unwrap_or_else(PoisonError::into_inner);
        row.push_str(&sanitize(text));
        while let Some(end) = row_end(&row, columns) {
            let rest = row.split_off(end);
            self.print(&row);
            *row = rest;
        }
    }

    fn end_row(&self) {
        let row = std::mem::take(&mut *self.partial_row.lock().unwrap_or_else(PoisonError::into_inner));
        if !row.trim().is_empty() {
            self.print(&row);
        }
    }

    fn result(&self, result: &ToolResult) {
        self.state.remove_tasks(&result.collected);
        if result.opened.is_empty() {
            let status = if result.status == 0 { String::new() } else { format!("  exit status {}\n", result.status) };
            self.say(&format!("{status}{}", prefix_lines("  | ", &preview(&sanitize(&result.text), self.preview()))));
        }
    }

    fn woken(&self, task: &EndedTask) {
        let state = wording::state(task);
        let took = self.state.remove_tasks(&[task.id]);
        let took = took.map_or_else(String::new, |duration| format!(" after {}", format_duration(duration)));
        let result = ResultFile::read(&self.mailbox, task.id, &Caller::default())
            .map(|file| result_text(&file.to_value()))
            .unwrap_or_default();
        let result = prefix_lines("  | ", &preview(&sanitize(&result), self.preview()));
        self.say(&format!("  {} ({}) {state}{took}\n{result}", task.tool, short_id(task.id)));
    }
}

impl LoopObserver for Screen {
    fn observe(&self, event: LoopEvent<'_>) {
        match event {
            LoopEvent::Text(text) => {
                self.state.set_activity(Activity::Working);
                self.stream(text);
            }
            LoopEvent::Turn { question, session, .. } => {
                // Before the end of the answer is shown: the user may ask for the cost next.
                self.state.set_spending(question, session);
                self.end_row();
            }
            LoopEvent::Note(note) => self.say(&format!("  {note}")),
            LoopEvent::Call(call) => {
                self.state.set_activity(Activity::Working);
                self.say(&format!("  > {}", one_line(&wording::command(call), WIDTH)));
            }
            LoopEvent::Opened(task) => {
                self.say(&format!("  {} ({}) started", task.tool, short_id(task.id)));
                self.state.add_tasks([task]);
            }
            LoopEvent::WaitsFor(task) => self.say(&format!("  {}", wording::waiting_for(std::slice::from_ref(task)))),
            LoopEvent::Result(result) => self.result(result),
            LoopEvent::Woken(tasks) => {
                self.state.set_activity(Activity::Working);
                for task in tasks {
                    self.woken(task);
                }
            }
            LoopEvent::Asleep(open) => {
                // A model that was asked once has answered, even though its tasks are still open.
                self.state.switch_back();
                self.state.set_activity(Activity::Sleeping);
                self.say(&format!("  {}; you can ask something else meanwhile", wording::waiting_for(open)));
            }
            LoopEvent::Asked(_) => {}
            LoopEvent::Retry { failure, delay } => self.say(&format!("  {failure}; trying again in {delay:.0?}")),
            LoopEvent::GaveUp(failure) => {
                self.say(&format!("no answer: {failure}; the provider's message is in {}", self.log));
            }
            LoopEvent::Done { reason, .. } => {
                self.end_row();
                let only_slept = reason == StopReason::Cancelled && self.state.activity() == Activity::Sleeping;
                if let Some(note) = stop_note(reason).filter(|_| !only_slept) {
                    self.print(note);
                }
                self.state.finish_question();
            }
        }
    }
}

/// Returns what the user has to know about the end of a question, if anything.
fn stop_note(reason: StopReason) -> Option<&'static str> {
    match reason {
        StopReason::Cancelled => Some("stopped"),
        StopReason::MaxIterations => Some("the answer may be incomplete: this question reached its request limit"),
        StopReason::BudgetExhausted => Some("the answer may be incomplete: this question used up its budget"),
        StopReason::Truncated => Some("the answer is incomplete: it reached the model's limit of tokens"),
        StopReason::Refused => Some("the model or its provider refused to answer"),
        StopReason::Completed
        | StopReason::CallsClient
        | StopReason::PolicyDenied
        | StopReason::ApprovalDenied
        | StopReason::ProviderFailed => None,
    }
}
