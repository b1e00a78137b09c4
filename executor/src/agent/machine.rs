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

use protocol::command_executor::Opened;
use protocol::task::{State as TaskState, TaskId};

use crate::model::conversation::{Call, CallResult, Ended, Entry, Termination, Turn, Usage};
use crate::model::fallback;
use crate::model::provider::{Failed, FailureClass};

#[cfg(test)]
mod tests;

/// The least and the longest pause before a request is repeated.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_mins(1);

const LAST_STEP: &str = "[agent-magic-tool] No more tool calls are possible for this question. Answer it now from what you have. Say plainly what is not done or not known.";
const REFLECT: &str = "[agent-magic-tool] You have made several calls in a row. Look at what you have: does it answer the question already? If so, answer. If not, say to yourself what is missing, and make the one call that gets it.";
const REPEATED: &str = "[agent-magic-tool] You have made this very call before, and its result has not changed. Do not repeat it: use the result, try another way, or answer.";
const DIAGNOSE: &str = "[agent-magic-tool] A call went wrong. In one or two sentences, without calling anything: what was wrong with it, and what will you do instead?";
const EMPTY: &str = "[agent-magic-tool] Your answer was empty. Answer the question, or make a call.";
const CANCELLED: &str = "this call was stopped by the user before its result was known";

/// How it works.
#[derive(Debug, Clone)]
pub struct Settings {
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
pub enum Event {
    Asked(String),
    Answered(Turn),
    Failed(Failed),
    /// The pause before a repetition is over.
    RetryDue,
    /// Each call of the turn has its result.
    Called(Vec<CallResult>),
    /// Result files became final.
    Ended(Vec<Ended>),
    Cancelled,
    UsesModel(String),
    Undone,
    Cleared,
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    /// Kept before anything else is done.
    Record(Entry),
    /// Ask the model; without tools where they are not to be offered.
    Ask {
        tools: bool,
    },
    /// Carry these out, and say [`Event::Called`]. `turn` is the number of the entry that they stand in, of all
    /// that there ever were: with it, carrying them out again after a crash is known as the same.
    Call {
        turn: usize,
        calls: Vec<Call>,
    },
    /// Whatever is under way is of no interest any more.
    Abort,
    Pause {
        length: Duration,
        attempt: u32,
        failed: Failed,
    },
    /// Nothing to do until a task ends.
    Sleep,
    Done(Termination),
    /// The last failure, for the person.
    GiveUp(Failed),
}

/// What goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    Idle,
    Asking {
        purpose: Purpose,
        attempt: u32,
    },
    /// Waits before it asks again.
    Pausing {
        purpose: Purpose,
        attempt: u32,
    },
    Calling,
    /// Nothing to do, and tasks are open.
    Asleep,
}

/// What a request is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    Step,
    /// The last one, without tools, and why it is the last.
    Last(Termination),
    Diagnosis,
}

#[derive(Debug)]
pub struct Machine {
    settings: Settings,
    entries: Vec<Entry>,
    /// How many entries there ever were, those included that were taken back.
    applied: usize,
    phase: Phase,
    open: BTreeMap<TaskId, Opened>,
    /// Final, and the model has not been told.
    arrived: Vec<Ended>,
    known: Known,
    total: Spent,
}

/// What the entries since the last question add up to.
#[derive(Debug, Default)]
struct Known {
    requests: u32,
    spent: Spent,
    /// Turns in a row that called something that does not only wait or read.
    calls_in_a_row: u32,
    made: BTreeSet<String>,
    repeated: bool,
    diagnosis: Diagnosis,
    was_empty: bool,
    refusal: Option<Termination>,
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
pub struct Spent {
    pub requests: u32,
    pub usage: Usage,
    pub cost: f64,
}

impl Machine {
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            entries: Vec::new(),
            applied: 0,
            phase: Phase::Idle,
            open: BTreeMap::new(),
            arrived: Vec::new(),
            known: Known::default(),
            total: Spent::default(),
        }
    }

    /// The machine that these entries led to, and what it has to do now.
    pub fn restore(settings: Settings, entries: Vec<Entry>) -> (Self, Vec<Effect>) {
        let mut machine = Self::new(settings);
        for entry in entries {
            machine.apply(entry);
        }
        let mut effects = Vec::new();
        match machine.entries.last() {
            Some(Entry::Answered { turn }) if !turn.calls.is_empty() => machine.call(&mut effects),
            Some(Entry::Answered { .. }) => machine.rest(Termination::Completed, &mut effects),
            Some(
                Entry::Asked { .. }
                | Entry::Called { .. }
                | Entry::Woken { .. }
                | Entry::Noted { .. }
                | Entry::Diagnosed { .. },
            ) => {
                machine.step(&mut effects);
            }
            Some(Entry::Stopped { .. } | Entry::UsesModel { .. } | Entry::Undone | Entry::Cleared) | None => {
                if !machine.open.is_empty() {
                    machine.phase = Phase::Asleep;
                    effects.push(Effect::Sleep);
                }
            }
        }
        (machine, effects)
    }

    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    pub fn phase(&self) -> Phase {
        self.phase
    }

    /// The tasks whose end the model does not know.
    pub fn open(&self) -> impl Iterator<Item = &Opened> {
        self.open.values()
    }

    /// Since the last question.
    pub fn spent(&self) -> Spent {
        self.known.spent
    }

    /// In the whole session.
    pub fn total(&self) -> Spent {
        self.total
    }

    /// What the model said last.
    pub fn answer(&self) -> Option<&str> {
        self.entries.iter().rev().find_map(|entry| match entry {
            Entry::Answered { turn } if !turn.text.trim().is_empty() && !turn.in_text => Some(turn.text.as_str()),
            _ => None,
        })
    }

    pub fn handle(&mut self, event: Event) -> Vec<Effect> {
        let mut effects = Vec::new();
        match event {
            Event::Asked(text) => {
                self.interrupt(&mut effects);
                self.record(Entry::Asked { text }, &mut effects);
                self.boundary(&mut effects);
            }
            Event::Answered(turn) => self.answered(turn, &mut effects),
            Event::Failed(failed) => self.failed(failed, &mut effects),
            Event::RetryDue => {
                if let Phase::Pausing { purpose, attempt } = self.phase {
                    self.ask(purpose, attempt, &mut effects);
                }
            }
            Event::Called(results) => self.called(results, &mut effects),
            Event::Ended(tasks) => {
                self.arrived.extend(tasks.into_iter().filter(|task| self.open.remove(&task.id).is_some()));
                if matches!(self.phase, Phase::Asleep | Phase::Idle) && !self.arrived.is_empty() {
                    self.boundary(&mut effects);
                }
            }
            Event::Cancelled => {
                if self.interrupt(&mut effects) {
                    effects.push(Effect::Done(Termination::Cancelled));
                }
            }
            Event::UsesModel(name) => self.record(Entry::UsesModel { name }, &mut effects),
            Event::Undone | Event::Cleared => {
                self.interrupt(&mut effects);
                let entry = if event == Event::Undone { Entry::Undone } else { Entry::Cleared };
                self.record(entry, &mut effects);
            }
        }
        effects
    }

    /// Ends what is under way, leaving whole pairs behind; false if nothing was.
    fn interrupt(&mut self, effects: &mut Vec<Effect>) -> bool {
        match self.phase {
            Phase::Idle => return false,
            // Its tasks go on, and wake it later.
            Phase::Asleep => {}
            Phase::Asking { .. } | Phase::Pausing { .. } => effects.push(Effect::Abort),
            Phase::Calling => {
                effects.push(Effect::Abort);
                let stopped = |call: &Call| CallResult::new(call, CANCELLED, 1);
                let results = self.calls().iter().map(stopped).collect();
                self.record(Entry::Called { results }, effects);
            }
        }
        let was_asleep = self.phase == Phase::Asleep;
        self.phase = Phase::Idle;
        if !was_asleep {
            self.record(Entry::Stopped { reason: Termination::Cancelled }, effects);
        }
        true
    }

    fn answered(&mut self, mut turn: Turn, effects: &mut Vec<Effect>) {
        let Phase::Asking { purpose, .. } = self.phase else { return };
        match purpose {
            Purpose::Step => {
                if turn.calls.is_empty() {
                    let offered: Vec<_> = self.settings.tools.iter().map(String::as_str).collect();
                    turn.calls = fallback::calls(&turn.text, &offered);
                    turn.in_text = !turn.calls.is_empty();
                }
                if turn.calls.is_empty() && turn.text.trim().is_empty() && !self.known.was_empty {
                    self.known.was_empty = true;
                    self.spend(&turn);
                    self.record(Entry::Noted { text: EMPTY.to_owned() }, effects);
                    return self.step(effects);
                }
                let is_over = turn.calls.is_empty();
                self.record(Entry::Answered { turn: Box::new(turn) }, effects);
                if is_over {
                    self.rest(self.known.refusal.unwrap_or(Termination::Completed), effects);
                } else {
                    self.call(effects);
                }
            }
            Purpose::Last(reason) => {
                // Nothing was offered: what looks like a call is none.
                turn.calls.clear();
                self.record(Entry::Answered { turn: Box::new(turn) }, effects);
                self.done(reason, effects);
            }
            Purpose::Diagnosis => {
                turn.calls.clear();
                self.record(Entry::Diagnosed { turn: Box::new(turn) }, effects);
                self.boundary(effects);
            }
        }
    }

    fn failed(&mut self, failed: Failed, effects: &mut Vec<Effect>) {
        let Phase::Asking { purpose, attempt } = self.phase else { return };
        if failed.class.may_pass() && attempt < self.settings.retries {
            let usual = FIRST_PAUSE.saturating_mul(1 << attempt.min(10)).min(LONGEST_PAUSE);
            let length = failed.retry_after.map_or(usual, |wanted| wanted.max(FIRST_PAUSE).min(LONGEST_PAUSE * 10));
            self.phase = Phase::Pausing { purpose, attempt: attempt + 1 };
            effects.push(Effect::Pause { length, attempt: attempt + 1, failed });
            return;
        }
        if purpose == Purpose::Diagnosis && failed.class != FailureClass::Auth {
            // It was a help, nothing more.
            return self.boundary(effects);
        }
        effects.push(Effect::GiveUp(failed));
        self.done(Termination::ProviderFailed, effects);
    }

    fn called(&mut self, results: Vec<CallResult>, effects: &mut Vec<Effect>) {
        if self.phase != Phase::Calling {
            return;
        }
        let worked = !results.iter().all(|result| result.only_reads);
        let repeated = worked && self.known.repeated;
        self.record(Entry::Called { results }, effects);
        if repeated {
            self.record(Entry::Noted { text: REPEATED.to_owned() }, effects);
        } else if self.settings.reflect_after > 0 && self.known.calls_in_a_row >= self.settings.reflect_after {
            self.record(Entry::Noted { text: REFLECT.to_owned() }, effects);
        }
        if self.settings.diagnose && self.known.diagnosis == Diagnosis::Due {
            self.record(Entry::Noted { text: DIAGNOSE.to_owned() }, effects);
            return self.ask(Purpose::Diagnosis, 0, effects);
        }
        self.boundary(effects);
    }

    /// Between two steps: what arrived is told, and the next request made.
    fn boundary(&mut self, effects: &mut Vec<Effect>) {
        if !self.arrived.is_empty() {
            let tasks = std::mem::take(&mut self.arrived);
            self.record(Entry::Woken { tasks }, effects);
        }
        self.step(effects);
    }

    /// The next request, as far as steps and budget allow.
    fn step(&mut self, effects: &mut Vec<Effect>) {
        let Budget { tokens, cost } = self.settings.budget;
        let spent = self.known.spent;
        let over =
            (tokens > 0 && spent.usage.input + spent.usage.output >= tokens) || (cost > 0.0 && spent.cost >= cost);
        if over {
            return self.done(Termination::BudgetExhausted, effects);
        }
        if self.known.requests >= self.settings.steps {
            self.record(Entry::Noted { text: LAST_STEP.to_owned() }, effects);
            return self.ask(Purpose::Last(Termination::MaxIterations), 0, effects);
        }
        self.ask(Purpose::Step, 0, effects);
    }

    fn ask(&mut self, purpose: Purpose, attempt: u32, effects: &mut Vec<Effect>) {
        self.phase = Phase::Asking { purpose, attempt };
        effects.push(Effect::Ask { tools: purpose == Purpose::Step });
    }

    fn call(&mut self, effects: &mut Vec<Effect>) {
        self.phase = Phase::Calling;
        effects.push(Effect::Call { turn: self.applied - 1, calls: self.calls().to_vec() });
    }

    /// The calls of the last answer.
    fn calls(&self) -> &[Call] {
        match self.entries.last() {
            Some(Entry::Answered { turn }) => &turn.calls,
            _ => &[],
        }
    }

    /// The model has nothing more to do for now.
    fn rest(&mut self, reason: Termination, effects: &mut Vec<Effect>) {
        if !self.arrived.is_empty() {
            self.boundary(effects);
        } else if self.open.is_empty() {
            self.done(reason, effects);
        } else {
            self.phase = Phase::Asleep;
            effects.push(Effect::Sleep);
        }
    }

    fn done(&mut self, reason: Termination, effects: &mut Vec<Effect>) {
        self.record(Entry::Stopped { reason }, effects);
        self.phase = Phase::Idle;
        effects.push(Effect::Done(reason));
    }

    fn record(&mut self, entry: Entry, effects: &mut Vec<Effect>) {
        effects.push(Effect::Record(entry.clone()));
        self.apply(entry);
    }

    /// What `entry` adds to what is known; the same live and when it is read again.
    fn apply(&mut self, entry: Entry) {
        match &entry {
            Entry::Asked { .. } => self.known = Known::default(),
            Entry::Answered { turn } => {
                self.spend(turn);
                self.known.repeated = false;
                for call in &turn.calls {
                    self.known.repeated |= !self.known.made.insert(call.arguments.to_string());
                }
            }
            Entry::Called { results } => self.learn(results),
            Entry::Woken { tasks } => {
                for task in tasks {
                    self.open.remove(&task.id);
                    match task.state {
                        Some(TaskState::Denied | TaskState::Expired) => {
                            self.known.refusal = Some(Termination::ApprovalDenied);
                        }
                        Some(TaskState::Succeeded) => self.known.refusal = None,
                        _ => {}
                    }
                }
            }
            Entry::Noted { text } => {
                if text == REFLECT || text == REPEATED {
                    self.known.calls_in_a_row = 0;
                    self.known.repeated = false;
                }
            }
            Entry::Diagnosed { turn } => {
                self.spend(turn);
                self.known.diagnosis = Diagnosis::Made;
            }
            Entry::Stopped { .. } | Entry::UsesModel { .. } => {}
            Entry::Undone => {
                let question = self.entries.iter().rposition(|entry| matches!(entry, Entry::Asked { .. }));
                self.entries.truncate(question.unwrap_or(0));
            }
            Entry::Cleared => self.entries.clear(),
        }
        self.entries.push(entry);
        self.applied += 1;
    }

    fn learn(&mut self, results: &[CallResult]) {
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
            self.known.refusal.get_or_insert(Termination::PolicyDenied);
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
