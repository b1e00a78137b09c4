//! The loop as a pure machine: an event in, entries and effects out.
//!
//! ```text
//! idle --asked--> asking --answered with calls--> calling --called--> asking --answered--> idle
//!                   |  ^                                                        or asleep, while tasks are open
//!                   +--+ retry                     asleep --a task ended--> asking
//! ```
//!
//! What it knows is what its entries add up to: restored from the same entries it goes on where it was.
//! Touches no file, clock or network; `driver.rs` carries its effects out.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use protocol::command_executor::OpenedTask;
use protocol::task::{State as TaskState, TaskId};

use crate::model::conversation::{EndedTask, JournalEntry, StopReason, TokenUsage, ToolCall, ToolResult, Turn};
use crate::model::fallback;
use crate::model::provider::{FailureClass, ModelFailure};

#[cfg(test)]
mod tests;

/// The least and the longest pause before a request is repeated.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const MAX_PAUSE: Duration = Duration::from_mins(1);

const LAST_STEP: &str = "[agent-magic-tool] No more tool calls are possible for this question. Answer it now from what you have. Say plainly what is not done or not known.";
const REFLECT: &str = "[agent-magic-tool] You have made several calls in a row. Look at what you have: does it answer the question already? If so, answer. If not, say to yourself what is missing, and make the one call that gets it.";
const REPEATED: &str = "[agent-magic-tool] You have made this very call before, and its result has not changed. Do not repeat it: use the result, try another way, or answer.";
const DIAGNOSE: &str = "[agent-magic-tool] A call went wrong. In one or two sentences, without calling anything: what was wrong with it, and what will you do instead?";
const EMPTY: &str = "[agent-magic-tool] Your answer was empty. Answer the question, or make a call.";
const CANCELLED: &str = "this call was stopped by the user before its result was known";

/// How it works.
#[derive(Debug, Clone)]
pub struct LoopSettings {
    /// Requests for one question, the last one without tools not counted.
    pub steps: u32,
    pub reflect_after: u32,
    pub diagnose: bool,
    pub retries: u32,
    pub budget: Budget,
    /// The tools that exist.
    pub tools: Vec<String>,
}

/// What one question may use up; 0 is no limit.
#[derive(Debug, Clone, Copy, Default)]
pub struct Budget {
    pub tokens: u64,
    pub cost: f64,
}

/// What happened.
#[derive(Debug, Clone, PartialEq)]
pub enum MachineEvent {
    Asked(String),
    Answered(Turn),
    Failed(ModelFailure),
    /// The pause before a repetition is over.
    RetryDue,
    /// Each call of the turn has its result.
    Called(Vec<ToolResult>),
    /// Result files became final.
    Ended(Vec<EndedTask>),
    Cancelled,
    UsesModel(String),
    Undone,
    Cleared,
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq)]
pub enum MachineEffect {
    /// Kept before anything else is done.
    Record(JournalEntry),
    /// Ask the model; without tools where they are not to be offered.
    Ask {
        tools: bool,
    },
    /// Carry these out, and say [`MachineEvent::Called`]. `turn` is the number of the entry that they stand in, of all
    /// that there ever were: with it, carrying them out again after a crash is known as the same.
    Call {
        turn: usize,
        calls: Vec<ToolCall>,
    },
    /// Whatever is under way is of no interest any more.
    Abort,
    Pause {
        length: Duration,
        attempt: u32,
        failed: ModelFailure,
    },
    /// Nothing to do until a task ends.
    Sleep,
    Done(StopReason),
    /// The last failure, for the person.
    GiveUp(ModelFailure),
}

/// What goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoopPhase {
    Idle,
    Asking {
        purpose: RequestPurpose,
        attempt: u32,
    },
    /// Waits before it asks again.
    Pausing {
        purpose: RequestPurpose,
        attempt: u32,
    },
    Calling,
    /// Nothing to do, and tasks are open.
    Asleep,
}

/// What a request is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestPurpose {
    Step,
    /// The last one, without tools, and why it is the last.
    Last(StopReason),
    Diagnosis,
}

#[derive(Debug)]
pub struct Machine {
    settings: LoopSettings,
    entries: Vec<JournalEntry>,
    /// How many entries there ever were, those included that were taken back.
    applied: usize,
    phase: LoopPhase,
    open: BTreeMap<TaskId, OpenedTask>,
    /// Final, and the model has not been told.
    arrived: Vec<EndedTask>,
    known: Progress,
    total: Spending,
}

/// What the entries since the last question add up to.
#[derive(Debug, Default)]
struct Progress {
    requests: u32,
    spent: Spending,
    /// Turns in a row that called something that does not only wait or read.
    calls_in_a_row: u32,
    made: BTreeSet<String>,
    repeated: bool,
    diagnosis: Diagnosis,
    was_empty: bool,
    refusal: Option<StopReason>,
}

/// Whether the model looked at what went wrong.
#[derive(Debug, Default, PartialEq, Eq)]
enum Diagnosis {
    /// Nothing did.
    #[default]
    NotNeeded,
    Due,
    /// Once is enough until something goes right.
    Made,
}

/// What was used up.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Spending {
    pub requests: u32,
    pub usage: TokenUsage,
    pub cost: f64,
}

impl Machine {
    pub fn new(settings: LoopSettings) -> Self {
        Self {
            settings,
            entries: Vec::new(),
            applied: 0,
            phase: LoopPhase::Idle,
            open: BTreeMap::new(),
            arrived: Vec::new(),
            known: Progress::default(),
            total: Spending::default(),
        }
    }

    /// The machine that these entries led to, and what it has to do now.
    pub fn restore(settings: LoopSettings, entries: Vec<JournalEntry>) -> (Self, Vec<MachineEffect>) {
        let mut machine = Self::new(settings);
        for entry in entries {
            machine.apply(entry);
        }
        let mut effects = Vec::new();
        match machine.entries.last() {
            Some(JournalEntry::Answered { turn }) if !turn.calls.is_empty() => machine.call(&mut effects),
            Some(JournalEntry::Answered { .. }) => machine.rest(StopReason::Completed, &mut effects),
            Some(
                JournalEntry::Asked { .. }
                | JournalEntry::Called { .. }
                | JournalEntry::Woken { .. }
                | JournalEntry::Noted { .. }
                | JournalEntry::Diagnosed { .. },
            ) => {
                machine.step(&mut effects);
            }
            Some(
                JournalEntry::Stopped { .. }
                | JournalEntry::UsesModel { .. }
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

    pub fn entries(&self) -> &[JournalEntry] {
        &self.entries
    }

    pub fn phase(&self) -> LoopPhase {
        self.phase
    }

    /// The tasks whose end the model does not know.
    pub fn open(&self) -> impl Iterator<Item = &OpenedTask> {
        self.open.values()
    }

    /// Since the last question.
    pub fn spent(&self) -> Spending {
        self.known.spent
    }

    /// In the whole session.
    pub fn total(&self) -> Spending {
        self.total
    }

    /// What the model said last.
    pub fn answer(&self) -> Option<&str> {
        self.entries.iter().rev().find_map(|entry| match entry {
            JournalEntry::Answered { turn } if !turn.text.trim().is_empty() && !turn.in_text => {
                Some(turn.text.as_str())
            }
            _ => None,
        })
    }

    pub fn handle(&mut self, event: MachineEvent) -> Vec<MachineEffect> {
        let mut effects = Vec::new();
        match event {
            MachineEvent::Asked(text) => {
                self.interrupt(&mut effects);
                self.record(JournalEntry::Asked { text }, &mut effects);
                self.boundary(&mut effects);
            }
            MachineEvent::Answered(turn) => self.answered(turn, &mut effects),
            MachineEvent::Failed(failed) => self.failed(failed, &mut effects),
            MachineEvent::RetryDue => {
                if let LoopPhase::Pausing { purpose, attempt } = self.phase {
                    self.ask(purpose, attempt, &mut effects);
                }
            }
            MachineEvent::Called(results) => self.called(results, &mut effects),
            MachineEvent::Ended(tasks) => {
                self.arrived.extend(tasks.into_iter().filter(|task| self.open.remove(&task.id).is_some()));
                if matches!(self.phase, LoopPhase::Asleep | LoopPhase::Idle) && !self.arrived.is_empty() {
                    self.boundary(&mut effects);
                }
            }
            MachineEvent::Cancelled => {
                if self.interrupt(&mut effects) {
                    effects.push(MachineEffect::Done(StopReason::Cancelled));
                }
            }
            MachineEvent::UsesModel(name) => self.record(JournalEntry::UsesModel { name }, &mut effects),
            MachineEvent::Undone | MachineEvent::Cleared => {
                self.interrupt(&mut effects);
                let entry = if event == MachineEvent::Undone { JournalEntry::Undone } else { JournalEntry::Cleared };
                self.record(entry, &mut effects);
            }
        }
        effects
    }

    /// Ends what is under way, leaving whole pairs behind; false if nothing was.
    fn interrupt(&mut self, effects: &mut Vec<MachineEffect>) -> bool {
        match self.phase {
            LoopPhase::Idle => return false,
            // Its tasks go on, and wake it later.
            LoopPhase::Asleep => {}
            LoopPhase::Asking { .. } | LoopPhase::Pausing { .. } => effects.push(MachineEffect::Abort),
            LoopPhase::Calling => {
                effects.push(MachineEffect::Abort);
                let stopped = |call: &ToolCall| ToolResult::new(call, CANCELLED, 1);
                let results = self.calls().iter().map(stopped).collect();
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

    fn answered(&mut self, mut turn: Turn, effects: &mut Vec<MachineEffect>) {
        let LoopPhase::Asking { purpose, .. } = self.phase else { return };
        match purpose {
            RequestPurpose::Step => {
                if turn.calls.is_empty() {
                    let offered: Vec<_> = self.settings.tools.iter().map(String::as_str).collect();
                    turn.calls = fallback::calls(&turn.text, &offered);
                    turn.in_text = !turn.calls.is_empty();
                }
                if turn.calls.is_empty() && turn.text.trim().is_empty() && !self.known.was_empty {
                    self.known.was_empty = true;
                    self.spend(&turn);
                    self.record(JournalEntry::Noted { text: EMPTY.to_owned() }, effects);
                    return self.step(effects);
                }
                let is_over = turn.calls.is_empty();
                self.record(JournalEntry::Answered { turn: Box::new(turn) }, effects);
                if is_over {
                    self.rest(self.known.refusal.unwrap_or(StopReason::Completed), effects);
                } else {
                    self.call(effects);
                }
            }
            RequestPurpose::Last(reason) => {
                // Nothing was offered: what looks like a call is none.
                turn.calls.clear();
                self.record(JournalEntry::Answered { turn: Box::new(turn) }, effects);
                self.done(reason, effects);
            }
            RequestPurpose::Diagnosis => {
                turn.calls.clear();
                self.record(JournalEntry::Diagnosed { turn: Box::new(turn) }, effects);
                self.boundary(effects);
            }
        }
    }

    fn failed(&mut self, failed: ModelFailure, effects: &mut Vec<MachineEffect>) {
        let LoopPhase::Asking { purpose, attempt } = self.phase else { return };
        if failed.class.may_pass() && attempt < self.settings.retries {
            let usual = FIRST_PAUSE.saturating_mul(1 << attempt.min(10)).min(MAX_PAUSE);
            let length = failed.retry_after.map_or(usual, |wanted| wanted.max(FIRST_PAUSE).min(MAX_PAUSE * 10));
            self.phase = LoopPhase::Pausing { purpose, attempt: attempt + 1 };
            effects.push(MachineEffect::Pause { length, attempt: attempt + 1, failed });
            return;
        }
        if purpose == RequestPurpose::Diagnosis && failed.class != FailureClass::Auth {
            // It was a help, nothing more.
            return self.boundary(effects);
        }
        effects.push(MachineEffect::GiveUp(failed));
        self.done(StopReason::ProviderFailed, effects);
    }

    fn called(&mut self, results: Vec<ToolResult>, effects: &mut Vec<MachineEffect>) {
        if self.phase != LoopPhase::Calling {
            return;
        }
        let worked = !results.iter().all(|result| result.only_reads);
        let repeated = worked && self.known.repeated;
        self.record(JournalEntry::Called { results }, effects);
        if repeated {
            self.record(JournalEntry::Noted { text: REPEATED.to_owned() }, effects);
        } else if self.settings.reflect_after > 0 && self.known.calls_in_a_row >= self.settings.reflect_after {
            self.record(JournalEntry::Noted { text: REFLECT.to_owned() }, effects);
        }
        if self.settings.diagnose && self.known.diagnosis == Diagnosis::Due {
            self.record(JournalEntry::Noted { text: DIAGNOSE.to_owned() }, effects);
            return self.ask(RequestPurpose::Diagnosis, 0, effects);
        }
        self.boundary(effects);
    }

    /// Between two steps: what arrived is told, and the next request made.
    fn boundary(&mut self, effects: &mut Vec<MachineEffect>) {
        if !self.arrived.is_empty() {
            let tasks = std::mem::take(&mut self.arrived);
            self.record(JournalEntry::Woken { tasks }, effects);
        }
        self.step(effects);
    }

    /// The next request, as far as steps and budget allow.
    fn step(&mut self, effects: &mut Vec<MachineEffect>) {
        let Budget { tokens, cost } = self.settings.budget;
        let spent = self.known.spent;
        let over =
            (tokens > 0 && spent.usage.input + spent.usage.output >= tokens) || (cost > 0.0 && spent.cost >= cost);
        if over {
            return self.done(StopReason::BudgetExhausted, effects);
        }
        if self.known.requests >= self.settings.steps {
            self.record(JournalEntry::Noted { text: LAST_STEP.to_owned() }, effects);
            return self.ask(RequestPurpose::Last(StopReason::MaxIterations), 0, effects);
        }
        self.ask(RequestPurpose::Step, 0, effects);
    }

    fn ask(&mut self, purpose: RequestPurpose, attempt: u32, effects: &mut Vec<MachineEffect>) {
        self.phase = LoopPhase::Asking { purpose, attempt };
        effects.push(MachineEffect::Ask { tools: purpose == RequestPurpose::Step });
    }

    fn call(&mut self, effects: &mut Vec<MachineEffect>) {
        self.phase = LoopPhase::Calling;
        effects.push(MachineEffect::Call { turn: self.applied - 1, calls: self.calls().to_vec() });
    }

    /// The calls of the last answer.
    fn calls(&self) -> &[ToolCall] {
        match self.entries.last() {
            Some(JournalEntry::Answered { turn }) => &turn.calls,
            _ => &[],
        }
    }

    /// The model has nothing more to do for now.
    fn rest(&mut self, reason: StopReason, effects: &mut Vec<MachineEffect>) {
        if !self.arrived.is_empty() {
            self.boundary(effects);
        } else if self.open.is_empty() {
            self.done(reason, effects);
        } else {
            self.phase = LoopPhase::Asleep;
            effects.push(MachineEffect::Sleep);
        }
    }

    fn done(&mut self, reason: StopReason, effects: &mut Vec<MachineEffect>) {
        self.record(JournalEntry::Stopped { reason }, effects);
        self.phase = LoopPhase::Idle;
        effects.push(MachineEffect::Done(reason));
    }

    fn record(&mut self, entry: JournalEntry, effects: &mut Vec<MachineEffect>) {
        effects.push(MachineEffect::Record(entry.clone()));
        self.apply(entry);
    }

    /// What `entry` adds to what is known; the same live and when it is read again.
    fn apply(&mut self, entry: JournalEntry) {
        match &entry {
            JournalEntry::Asked { .. } => self.known = Progress::default(),
            JournalEntry::Answered { turn } => {
                self.spend(turn);
                self.known.repeated = false;
                for call in &turn.calls {
                    self.known.repeated |= !self.known.made.insert(call.arguments.to_string());
                }
            }
            JournalEntry::Called { results } => self.learn(results),
            JournalEntry::Woken { tasks } => {
                for task in tasks {
                    self.open.remove(&task.id);
                    match task.state {
                        Some(TaskState::Denied | TaskState::Expired) => {
                            self.known.refusal = Some(StopReason::ApprovalDenied);
                        }
                        Some(TaskState::Succeeded) => self.known.refusal = None,
                        _ => {}
                    }
                }
            }
            JournalEntry::Noted { text } => {
                if text == REFLECT || text == REPEATED {
                    self.known.calls_in_a_row = 0;
                    self.known.repeated = false;
                }
            }
            JournalEntry::Diagnosed { turn } => {
                self.spend(turn);
                self.known.diagnosis = Diagnosis::Made;
            }
            JournalEntry::Stopped { .. } | JournalEntry::UsesModel { .. } => {}
            JournalEntry::Undone => {
                let question = self.entries.iter().rposition(|entry| matches!(entry, JournalEntry::Asked { .. }));
                self.entries.truncate(question.unwrap_or(0));
            }
            JournalEntry::Cleared => self.entries.clear(),
        }
        self.entries.push(entry);
        self.applied += 1;
    }

    fn learn(&mut self, results: &[ToolResult]) {
        for result in results {
            self.open.extend(result.opened.iter().map(|task| (task.id, task.clone())));
            for id in &result.collected {
                self.open.remove(id);
                self.arrived.retain(|task| task.id != *id);
            }
        }
        let is_wrong = results.iter().any(|result| result.status != 0 && !result.only_reads);
        self.known.diagnosis = match (is_wrong, &self.known.diagnosis) {
            (false, _) => Diagnosis::NotNeeded,
            (true, Diagnosis::Made) => Diagnosis::Made,
            (true, _) => Diagnosis::Due,
        };
        if results.iter().any(|result| result.status == protocol::code::Exit::Refused as u8) {
            self.known.refusal.get_or_insert(StopReason::PolicyDenied);
        } else if results.iter().any(|result| result.status == 0 && !result.only_reads) {
            self.known.refusal = None;
        }
        if !results.iter().all(|result| result.only_reads) {
            self.known.calls_in_a_row += 1;
        }
    }

    fn spend(&mut self, turn: &Turn) {
        self.known.requests += 1;
        for spent in [&mut self.known.spent, &mut self.total] {
            spent.requests += 1;
            spent.usage += turn.usage;
            spent.cost += turn.cost;
        }
    }
}
