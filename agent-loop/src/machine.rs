//! The loop as a pure state machine: an event in, journal entries and effects out.
//!
//! ```text
//! idle --asked--> asking --answered with calls--> calling --called--> asking --answered--> idle
//!                   |  ^                                                        or asleep, while tasks are open
//!                   +--+ retry                     asleep --a task ended--> asking
//! ```
//!
//! Its state follows from its entries, so a machine restored from the journal continues where it was.
//! It touches no file, clock or network; `driver.rs` performs its effects.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use protocol::command_executor::OpenedTask;
use protocol::task::{State as TaskState, TaskId};

use crate::model::conversation::{EndedTask, JournalEntry, ModelTurn, StopReason, ToolCall, ToolResult, TurnEnd};
use crate::model::fallback;
use crate::model::provider::{FailureClass, ModelFailure};
use crate::model::view::CallStyle;

mod client_calls;
mod spending;
mod stopped;
#[cfg(test)]
mod tests;

pub use spending::{Budget, Spending};
use stopped::stopped;

const LAST_STEP: &str = "[agent-magic-tool] No more tool calls are possible for this question. Answer it now from what you have. Say plainly what is not done or not known.";
const REFLECT: &str = "[agent-magic-tool] You have made several calls in a row. Look at what you have: does it answer the question already? If so, answer. If not, say to yourself what is missing, and make the one call that gets it.";
const REPEATED: &str = "[agent-magic-tool] You have made this very call before, and its result has not changed. Do not repeat it: use the result, try another way, or answer.";
const DIAGNOSE: &str = "[agent-magic-tool] A call went wrong. In one or two sentences, without calling anything: what was wrong with it, and what will you do instead?";
const EMPTY: &str = "[agent-magic-tool] Your answer was empty. Answer the question, or make a call.";

/// The settings of a loop.
#[derive(Debug, Clone)]
pub struct LoopSettings {
    /// The most requests for one question, not counting the last one, which is made without tools.
    pub steps: u32,
    /// After this many turns with calls in a row, the model is asked to reflect; 0 turns this off.
    pub reflect_after: u32,
    /// Whether the model explains a failed call in a request of its own.
    pub diagnose: bool,
    /// How often a failed request is retried.
    pub retries: u32,
    pub budget: Budget,
    /// The names of the offered tools.
    pub tools: Vec<String>,
    /// Those of them that the client performs.
    pub client_tools: Vec<String>,
}

/// What happened.
#[derive(Debug, Clone, PartialEq)]
pub enum MachineEvent {
    Asked(String),
    Answered(ModelTurn),
    Failed(ModelFailure),
    /// The delay before a retry is over.
    RetryDue,
    /// All calls of the turn returned.
    Called(Vec<ToolResult>),
    /// These tasks reached a final state.
    Ended(Vec<EndedTask>),
    Cancelled,
    UsesModel(String),
    ShowsAtMost(usize),
    Undone,
    Cleared,
}

impl MachineEvent {
    /// Whether it stops what is running.
    pub fn interrupts(&self) -> bool {
        matches!(self, Self::Asked(_) | Self::Cancelled | Self::Undone | Self::Cleared)
    }
}

/// What the driver has to do.
#[derive(Debug, Clone, PartialEq)]
pub enum MachineEffect {
    /// Append to the journal, before any later effect.
    Record(JournalEntry),
    /// Make a request to the model, with or without tools.
    Ask { tools: bool },
    /// Perform these calls, then report [`MachineEvent::Called`].
    ///
    /// `turn` is the number of the entry with the calls, counting all entries that were ever recorded. It
    /// identifies the calls when they are repeated after a crash.
    Call { turn: usize, calls: Vec<ToolCall> },
    /// Drop the current request, calls or delay.
    Abort,
    /// Wait, then report [`MachineEvent::RetryDue`].
    Pause { delay: Duration, attempt: u32, failure: ModelFailure },
    /// Wait until a task ends.
    Sleep,
    /// The work on the question ended.
    Done(StopReason),
    /// The request failed for good.
    GiveUp(ModelFailure),
}

/// What the loop is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoopPhase {
    Idle,
    Asking {
        purpose: RequestPurpose,
        attempt: u32,
    },
    /// Waits before a retry.
    Pausing {
        purpose: RequestPurpose,
        attempt: u32,
    },
    Calling,
    /// Waits for open tasks.
    Asleep,
}

/// What a request is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestPurpose {
    Step,
    /// The final request, without tools, and why it is the final one.
    Final(StopReason),
    Diagnosis,
}

/// The state of a loop.
#[derive(Debug)]
pub struct Machine {
    settings: LoopSettings,
    /// How the model that answers writes its calls.
    call_style: CallStyle,
    entries: Vec<JournalEntry>,
    /// How many entries were ever recorded, including those that were undone or cleared.
    recorded: usize,
    phase: LoopPhase,
    open: BTreeMap<TaskId, OpenedTask>,
    /// Final tasks that the model has not been told about.
    unreported: Vec<EndedTask>,
    /// The tasks of the calls that are being stopped, and the ids of the calls.
    opened_by_calls: Vec<(String, OpenedTask)>,
    progress: Progress,
    session_spending: Spending,
    /// The tasks whose spending is counted.
    counted: BTreeSet<TaskId>,
}

/// The state of the current question.
#[derive(Debug, Default)]
struct Progress {
    requests: u32,
    spending: Spending,
    /// Turns in a row with a call that does more than wait or read results.
    calls_in_a_row: u32,
    /// The arguments of all calls so far.
    calls: BTreeSet<String>,
    /// Whether the last turn repeated an earlier call.
    repeated: bool,
    diagnosis: Diagnosis,
    /// Whether the model was asked again after an empty answer.
    had_empty_answer: bool,
    /// Set while the last task outcome is a refusal or denial.
    refusal: Option<StopReason>,
}

/// Whether the model should explain a failed call.
#[derive(Debug, Default, PartialEq, Eq)]
enum Diagnosis {
    /// No call failed.
    #[default]
    NotNeeded,
    Due,
    /// Already done; not repeated until a call succeeds.
    Done,
}

impl Machine {
    pub fn new(settings: LoopSettings) -> Self {
        Self {
            settings,
            call_style: CallStyle::Native,
            entries: Vec::new(),
            recorded: 0,
            phase: LoopPhase::Idle,
            open: BTreeMap::new(),
            unreported: Vec::new(),
            opened_by_calls: Vec::new(),
            progress: Progress::default(),
            session_spending: Spending::default(),
            counted: BTreeSet::new(),
        }
    }

    /// Restores the machine from its entries, and returns what it has to do next.
    pub fn restore(settings: LoopSettings, entries: Vec<JournalEntry>) -> (Self, Vec<MachineEffect>) {
        let mut machine = Self::new(settings);
        for entry in entries {
            machine.apply(entry);
        }
        let mut effects = Vec::new();
        match machine.entries.last() {
            Some(JournalEntry::Answered { turn }) if !turn.calls.is_empty() => machine.perform_calls(&mut effects),
            Some(JournalEntry::Answered { turn }) => {
                let end = turn.end;
                machine.finish_answer(end, &mut effects);
            }
            Some(
                JournalEntry::Asked { .. }
                | JournalEntry::Called { .. }
                | JournalEntry::Woken { .. }
                | JournalEntry::Noted { .. }
                | JournalEntry::Discarded { .. }
                | JournalEntry::Diagnosed { .. },
            ) => {
                machine.request_step(&mut effects);
            }
            Some(
                JournalEntry::Stopped { .. }
                | JournalEntry::UsesModel { .. }
                | JournalEntry::ShowsAtMost { .. }
                | JournalEntry::Undone
                | JournalEntry::Cleared,
            )
            | None => {
                if !machine.open.is_empty() {
                    machine.phase = LoopPhase::Asleep;
                    effects.push(MachineEffect::Sleep);
                }
            }
        }
        (machine, effects)
    }

    /// Sets how the model that answers from here on writes its calls.
    pub fn set_call_style(&mut self, style: CallStyle) {
        self.call_style = style;
    }

    /// Sets the limits of the questions from here on.
    pub fn set_limits(&mut self, steps: u32, budget: Budget) {
        (self.settings.steps, self.settings.budget) = (steps, budget);
    }

    /// What the current question may use.
    pub fn budget(&self) -> Budget {
        self.settings.budget
    }

    pub fn entries(&self) -> &[JournalEntry] {
        &self.entries
    }

    pub fn phase(&self) -> LoopPhase {
        self.phase
    }

    /// Returns the tasks whose end the model does not know about.
    pub fn open(&self) -> impl Iterator<Item = &OpenedTask> {
        self.open.values()
    }

    /// Returns the spending since the last question.
    pub fn question_spending(&self) -> Spending {
        self.progress.spending
    }

    /// Returns the spending of the whole session.
    pub fn session_spending(&self) -> Spending {
        self.session_spending
    }

    /// Returns the model's last answer to the last question that is neither empty nor a call written as text.
    pub fn answer(&self) -> Option<&str> {
        let to_the_last_question =
            self.entries.iter().rev().take_while(|entry| !matches!(entry, JournalEntry::Asked { .. }));
        to_the_last_question.into_iter().find_map(|entry| match entry {
            JournalEntry::Answered { turn } if !turn.text.trim().is_empty() && !turn.in_text => {
                Some(turn.text.as_str())
            }
            _ => None,
        })
    }

    /// Handles an event, and returns the effects that the driver performs in order.
    pub fn handle(&mut self, event: MachineEvent) -> Vec<MachineEffect> {
        let mut effects = Vec::new();
        let was_stopped = event.interrupts() && self.interrupt(&mut effects);
        match event {
            MachineEvent::Asked(text) => {
                self.record(JournalEntry::asked(text), &mut effects);
                self.next_step(&mut effects);
            }
            MachineEvent::Answered(turn) => self.on_answer(turn, &mut effects),
            MachineEvent::Failed(failure) => self.on_failure(failure, &mut effects),
            MachineEvent::RetryDue => {
                if let LoopPhase::Pausing { purpose, attempt } = self.phase {
                    self.request(purpose, attempt, &mut effects);
                }
            }
            MachineEvent::Called(results) => self.on_results(results, &mut effects),
            MachineEvent::Ended(tasks) => {
                self.unreported.extend(tasks.into_iter().filter(|task| self.open.remove(&task.id).is_some()));
                if matches!(self.phase, LoopPhase::Asleep | LoopPhase::Idle) && !self.unreported.is_empty() {
                    self.next_step(&mut effects);
                }
            }
            MachineEvent::Cancelled => {
                if was_stopped {
                    effects.push(MachineEffect::Done(StopReason::Cancelled));
                }
            }
            MachineEvent::UsesModel(name) => self.record(JournalEntry::UsesModel { name }, &mut effects),
            MachineEvent::ShowsAtMost(chars) => self.record(JournalEntry::ShowsAtMost { chars }, &mut effects),
            MachineEvent::Undone => self.record(JournalEntry::Undone, &mut effects),
            MachineEvent::Cleared => self.record(JournalEntry::Cleared, &mut effects),
        }
        effects
    }

    /// Sets the tasks that the calls created which are about to be stopped, and the ids of the calls. The tasks go on, and
    /// wake the loop later.
    pub fn opened(&mut self, opened: Vec<(String, OpenedTask)>) {
        self.opened_by_calls = opened;
    }

    /// Stops the current work so that every call has a result. Returns false if the loop was idle.
    fn interrupt(&mut self, effects: &mut Vec<MachineEffect>) -> bool {
        match self.phase {
            LoopPhase::Idle => return false,
            // The open tasks continue, and wake the loop later.
            LoopPhase::Asleep => {}
            LoopPhase::Asking { .. } | LoopPhase::Pausing { .. } => effects.push(MachineEffect::Abort),
            LoopPhase::Calling => {
                effects.push(MachineEffect::Abort);
                let opened = std::mem::take(&mut self.opened_by_calls);
                let results = self.last_calls().iter().map(|call| stopped(call, &opened)).collect();
                self.record(JournalEntry::Called { results }, effects);
            }
        }
        let was_asleep = self.phase == LoopPhase::Asleep;
        self.phase = LoopPhase::Idle;
        if !was_asleep {
            self.record(JournalEntry::Stopped { reason: StopReason::Cancelled }, effects);
        }
        true
    }

    fn on_answer(&mut self, mut turn: ModelTurn, effects: &mut Vec<MachineEffect>) {
        let LoopPhase::Asking { purpose, .. } = self.phase else { return };
        let may_ask_again = purpose != RequestPurpose::Diagnosis && !self.progress.had_empty_answer;
        if turn.calls.is_empty() && turn.text.trim().is_empty() && turn.end == TurnEnd::Complete && may_ask_again {
            self.record(JournalEntry::Discarded { turn: Box::new(turn) }, effects);
            self.record(JournalEntry::Noted { text: EMPTY.to_owned() }, effects);
            return match purpose {
                RequestPurpose::Final(_) => self.request(purpose, 0, effects),
                RequestPurpose::Step | RequestPurpose::Diagnosis => self.request_step(effects),
            };
        }
        match purpose {
            RequestPurpose::Step => {
                if turn.calls.is_empty() {
                    let offered: Vec<_> = self.settings.tools.iter().map(String::as_str).collect();
                    turn.calls = fallback::parse_calls(&turn.text, &offered, self.call_style);
                    turn.in_text = !turn.calls.is_empty();
                }
                let (end, is_over) = (turn.end, turn.calls.is_empty());
                self.record(JournalEntry::Answered { turn: Box::new(turn) }, effects);
                if is_over {
                    self.finish_answer(end, effects);
                } else if self.calls_only_the_client() {
                    self.stop(StopReason::CallsClient, effects);
                } else {
                    self.perform_calls(effects);
                }
            }
            RequestPurpose::Final(reason) => {
                // The request offered no tools, so it cannot contain calls.
                turn.calls.clear();
                let reason = if turn.end == TurnEnd::Refused { StopReason::Refused } else { reason };
                self.record(JournalEntry::Answered { turn: Box::new(turn) }, effects);
                self.stop(reason, effects);
            }
            RequestPurpose::Diagnosis => {
                turn.calls.clear();
                self.record(JournalEntry::Diagnosed { turn: Box::new(turn) }, effects);
                self.next_step(effects);
            }
        }
    }

    fn on_failure(&mut self, failure: ModelFailure, effects: &mut Vec<MachineEffect>) {
        let LoopPhase::Asking { purpose, attempt } = self.phase else { return };
        if failure.class.is_transient() && attempt < self.settings.retries {
            let delay = failure.retry_delay(attempt);
            self.phase = LoopPhase::Pausing { purpose, attempt: attempt + 1 };
            effects.push(MachineEffect::Pause { delay, attempt: attempt + 1, failure });
            return;
        }
        if purpose == RequestPurpose::Diagnosis && !matches!(failure.class, FailureClass::Auth | FailureClass::Budget) {
            // A diagnosis is optional.
            return self.next_step(effects);
        }
        let reason = match failure.class {
            FailureClass::Budget => StopReason::BudgetExhausted,
            _ => StopReason::ProviderFailed,
        };
        effects.push(MachineEffect::GiveUp(failure));
        self.stop(reason, effects);
    }

    fn on_results(&mut self, results: Vec<ToolResult>, effects: &mut Vec<MachineEffect>) {
        if self.phase != LoopPhase::Calling {
            return;
        }
        let has_effect = !results.iter().all(|result| result.only_reads);
        let repeated = has_effect && self.progress.repeated;
        self.record(JournalEntry::Called { results }, effects);
        if repeated {
            self.record(JournalEntry::Noted { text: REPEATED.to_owned() }, effects);
        } else if self.settings.reflect_after > 0 && self.progress.calls_in_a_row >= self.settings.reflect_after {
            self.record(JournalEntry::Noted { text: REFLECT.to_owned() }, effects);
        }
        if self.settings.diagnose && self.progress.diagnosis == Diagnosis::Due {
            self.record(JournalEntry::Noted { text: DIAGNOSE.to_owned() }, effects);
            return self.request(RequestPurpose::Diagnosis, 0, effects);
        }
        self.next_step(effects);
    }

    /// Reports ended tasks to the model, and makes the next request.
    fn next_step(&mut self, effects: &mut Vec<MachineEffect>) {
        if !self.unreported.is_empty() {
            let tasks = std::mem::take(&mut self.unreported);
            self.record(JournalEntry::Woken { tasks }, effects);
        }
        self.request_step(effects);
    }

    /// Makes the next request, or stops if the request limit or the budget is reached.
    fn request_step(&mut self, effects: &mut Vec<MachineEffect>) {
        let Budget { tokens, cost, .. } = self.settings.budget;
        let spending = self.progress.spending;
        let is_used_up = (tokens > 0 && spending.usage.input.saturating_add(spending.usage.output) >= tokens)
            || (cost > 0.0 && spending.cost >= cost);
        if is_used_up {
            return self.stop(StopReason::BudgetExhausted, effects);
        }
        if self.progress.requests >= self.settings.steps {
            self.record(JournalEntry::Noted { text: LAST_STEP.to_owned() }, effects);
            return self.request(RequestPurpose::Final(StopReason::MaxIterations), 0, effects);
        }
        self.request(RequestPurpose::Step, 0, effects);
    }

    fn request(&mut self, purpose: RequestPurpose, attempt: u32, effects: &mut Vec<MachineEffect>) {
        self.phase = LoopPhase::Asking { purpose, attempt };
        effects.push(MachineEffect::Ask { tools: purpose == RequestPurpose::Step });
    }

    fn perform_calls(&mut self, effects: &mut Vec<MachineEffect>) {
        self.phase = LoopPhase::Calling;
        effects.push(MachineEffect::Call { turn: self.recorded - 1, calls: self.last_calls().to_vec() });
    }

    /// Returns the calls of the last answer.
    fn last_calls(&self) -> &[ToolCall] {
        match self.entries.last() {
            Some(JournalEntry::Answered { turn }) => &turn.calls,
            _ => &[],
        }
    }

    /// Ends the question after an answer without calls, unless the answer is complete and tasks are open.
    fn finish_answer(&mut self, end: TurnEnd, effects: &mut Vec<MachineEffect>) {
        match end {
            TurnEnd::Complete => self.finish_turn(self.progress.refusal.unwrap_or(StopReason::Completed), effects),
            TurnEnd::Truncated => self.stop(StopReason::Truncated, effects),
            TurnEnd::Refused => self.stop(StopReason::Refused, effects),
        }
    }

    /// Handles an answer without calls: reports ended tasks, waits for open ones, or ends the question.
    fn finish_turn(&mut self, reason: StopReason, effects: &mut Vec<MachineEffect>) {
        if !self.unreported.is_empty() {
            self.next_step(effects);
        } else if self.open.is_empty() {
            self.stop(reason, effects);
        } else {
            self.phase = LoopPhase::Asleep;
            effects.push(MachineEffect::Sleep);
        }
    }

    fn stop(&mut self, reason: StopReason, effects: &mut Vec<MachineEffect>) {
        self.record(JournalEntry::Stopped { reason }, effects);
        self.phase = LoopPhase::Idle;
        effects.push(MachineEffect::Done(reason));
    }

    fn record(&mut self, entry: JournalEntry, effects: &mut Vec<MachineEffect>) {
        effects.push(MachineEffect::Record(entry.clone()));
        self.apply(entry);
    }

    /// Updates the state with `entry`, in the same way for a new entry and one read from the journal.
    fn apply(&mut self, entry: JournalEntry) {
        match &entry {
            JournalEntry::Asked { .. } => self.progress = Progress::default(),
            JournalEntry::Answered { turn } => {
                self.add_spending(turn);
                self.progress.repeated = false;
                for call in &turn.calls {
                    self.progress.repeated |= !self.progress.calls.insert(call.arguments.to_string());
                }
            }
            JournalEntry::Called { results } => self.apply_results(results),
            JournalEntry::Woken { tasks } => {
                for task in tasks {
                    self.open.remove(&task.id);
                    self.add_task_spending(task.spent.as_ref());
                    match task.state {
                        Some(TaskState::Denied | TaskState::Expired) => {
                            self.progress.refusal = Some(StopReason::ApprovalDenied);
                        }
                        Some(TaskState::Succeeded) => self.progress.refusal = None,
                        _ => {}
                    }
                }
            }
            JournalEntry::Noted { text } => {
                if text == REFLECT || text == REPEATED {
                    self.progress.calls_in_a_row = 0;
                    self.progress.repeated = false;
                }
            }
            JournalEntry::Discarded { turn } => {
                self.add_spending(turn);
                self.progress.had_empty_answer = true;
            }
            JournalEntry::Diagnosed { turn } => {
                self.add_spending(turn);
                self.progress.diagnosis = Diagnosis::Done;
            }
            JournalEntry::Stopped { .. } | JournalEntry::UsesModel { .. } | JournalEntry::ShowsAtMost { .. } => {}
            JournalEntry::Undone => {
                let question = self.entries.iter().rposition(|entry| matches!(entry, JournalEntry::Asked { .. }));
                self.entries.truncate(question.unwrap_or(0));
            }
            JournalEntry::Cleared => self.entries.clear(),
        }
        self.entries.push(entry);
        self.recorded += 1;
    }

    fn apply_results(&mut self, results: &[ToolResult]) {
        for result in results {
            result.spent.iter().for_each(|spent| self.add_task_spending(Some(spent)));
            self.open.extend(result.opened.iter().map(|task| (task.id, task.clone())));
            for id in &result.collected {
                self.open.remove(id);
                self.unreported.retain(|task| task.id != *id);
            }
        }
        let has_failed = results.iter().any(|result| result.status != 0 && !result.only_reads);
        self.progress.diagnosis = match (has_failed, &self.progress.diagnosis) {
            (false, _) => Diagnosis::NotNeeded,
            (true, Diagnosis::Done) => Diagnosis::Done,
            (true, _) => Diagnosis::Due,
        };
        if results.iter().any(|result| result.status == protocol::code::Exit::Refused as u8) {
            self.progress.refusal.get_or_insert(StopReason::PolicyDenied);
        } else if results.iter().any(|result| result.status == 0 && !result.only_reads) {
            self.progress.refusal = None;
        }
        if !results.iter().all(|result| result.only_reads) {
            self.progress.calls_in_a_row += 1;
        }
    }
}
