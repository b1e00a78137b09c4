//! Prints the progress of a question: one line per event on standard error and, on a terminal, the model's
//! answer as it arrives.

use std::sync::{Mutex, PoisonError};

use agent_loop::driver::{LoopEvent, LoopObserver};
use agent_loop::model::provider::ModelFailure;
use agent_side::output::Output;
use protocol::command_executor::OpenedTask;
use protocol::excerpt;

use super::wording;

/// The longest line about a call, in characters.
const WIDTH: usize = 120;

/// Prints the events of a loop as plain lines.
#[derive(Debug)]
pub(crate) struct PlainObserver {
    output: Output,
    /// Whether the answer is printed as it arrives.
    streams: bool,
    state: Mutex<ObserverState>,
}

#[derive(Debug, Default)]
pub(crate) struct ObserverState {
    /// Whether the streamed answer ends in the middle of a line.
    in_line: bool,
    /// The failure that ended the question, if any.
    pub(crate) failure: Option<ModelFailure>,
}

impl PlainObserver {
    pub(crate) fn new(output: Output, streams: bool) -> Self {
        Self { output, streams, state: Mutex::default() }
    }

    pub(crate) fn state(&self) -> std::sync::MutexGuard<'_, ObserverState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn line(&self, text: &str) {
        self.end_line();
        self.output.note(text);
    }

    fn end_line(&self) {
        if std::mem::take(&mut self.state().in_line) {
            // The final write reports a closed output.
            drop(self.output.text("\n"));
        }
    }
}

impl LoopObserver for PlainObserver {
    fn observe(&self, event: LoopEvent<'_>) {
        match event {
            LoopEvent::Text(text) if self.streams && !text.is_empty() => {
                drop(self.output.answer(text));
                self.state().in_line = !text.ends_with('\n');
            }
            LoopEvent::Text(_) | LoopEvent::Asked(_) => {}
            LoopEvent::Turn { .. } => self.end_line(),
            LoopEvent::Note(note) => self.line(note),
            LoopEvent::Call(call) => self.line(&format!("> {}", excerpt::line(&wording::command(call), WIDTH))),
            LoopEvent::Opened(task) => self.line(&format!("{} started ({})", task.tool, task.id)),
            LoopEvent::WaitsFor(task) => self.waiting_for(std::slice::from_ref(task)),
            LoopEvent::Result(result) if result.status != 0 && result.opened.is_empty() => {
                self.line(&format!("exit status {}", result.status));
            }
            LoopEvent::Result(_) => {}
            LoopEvent::Woken(tasks) => tasks.iter().for_each(|task| {
                self.line(&format!("{} {} ({})", task.tool, wording::state(task), task.id));
            }),
            LoopEvent::Asleep(open) => self.waiting_for(open),
            LoopEvent::Retry { failure, delay } => self.line(&format!("{failure}; trying again in {delay:.0?}")),
            LoopEvent::GaveUp(failure) => {
                self.end_line();
                self.state().failure = Some(failure.clone());
            }
            LoopEvent::Done { .. } => self.end_line(),
        }
    }
}

impl PlainObserver {
    fn waiting_for(&self, open: &[OpenedTask]) {
        self.line(&format!(
            "{}; a human approves tasks on the page: agent-magic-tool executor page",
            wording::waiting_for(open)
        ));
    }
}
