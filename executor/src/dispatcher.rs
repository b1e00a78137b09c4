//! The dispatcher: owns the truth about open tasks.
//!
//! Pure and synchronous: an [`Event`] comes in, the state changes, and [`Effects`] go out: first
//! the changes that must be durable, then the actions that may be carried out once they are. It
//! reads no clock, touches no file and starts nothing; `daemon.rs` does.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use protocol::caller::Caller;
use protocol::error::ErrorBody;
use protocol::mailbox::request::Answer;
use protocol::resolution::Resolution;
use protocol::task::{State, Step, TaskId};

use crate::attempt::report::{AttemptPurpose, AttemptReport, FailedAttempt, FailureKind};
use crate::catalog::definition::{Definition, RateLimit};
use crate::config::Config;
use crate::store::switched_off::SwitchedOffTool;
use crate::store::{Change, ConfirmationUpdate, Transition};
use crate::task::confirmation::{Confirmation, Digest};
use crate::task::effect::EffectClass;
use crate::task::failure::{Retry, SideEffect};
use crate::task::grant::GrantId;
use crate::task::name::SubtoolName;
use crate::task::{End, Outcome, Task};

mod admission;
mod confirmations;
mod fair_queue;
mod lookup;
mod quotas;
mod rate_limits;
mod recovery;
mod resolving;
mod slots;
mod stopping;

#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;

use confirmations::PendingConfirmations;
pub use confirmations::{
    CONFIRMATION_WINDOW, ConfirmationLimits, DecideRequest, DecisionAction, DecisionError, DecisionResult, Ticket,
};
use fair_queue::FairQueue;
use lookup::LookupPhase;
use quotas::Quotas;
use rate_limits::RateLimits;
pub use recovery::RecoveryInfo;
use recovery::lost;
pub use resolving::ResolveRequest;
use slots::{SlotKind, Slots};

/// A pause never grows beyond this.
const MAX_PAUSE: Duration = Duration::from_mins(5);

/// What happened.
#[derive(Debug)]
pub enum Event {
    /// A request that fits its subtool and that policy lets through.
    Admit(Box<Admission>),
    /// The caller of `request` wants `task` stopped.
    Cancel {
        request: TaskId,
        task: TaskId,
        uid: u32,
    },
    /// The caller of `request` wants whatever is open of this session stopped.
    Abandon {
        request: TaskId,
        uid: u32,
        session: String,
    },
    Resolve(Box<ResolveRequest>),
    /// Time goes on here by so much ahead of the clock, which was set back.
    SetClock {
        ahead: SignedDuration,
    },
    AttemptFinished(Box<AttemptReport>),
    /// A human decided about tasks that wait for it.
    Decide(Box<DecideRequest>),
    /// A human takes a grant back.
    Revoke {
        ticket: Ticket,
        grant: GrantId,
    },
    /// It was found out what a task that waits would replace: it is asked about anew.
    SetPreview {
        id: TaskId,
        expected: Digest,
        confirmation: Box<Confirmation>,
    },
    /// The definitions of these are no longer those that a human was shown.
    DefinitionsChanged(Vec<TaskId>),
    /// Time passed.
    Tick,
    /// Nothing new is started from now on; what runs goes on.
    Drain,
    /// What still runs is told to stop, and reports.
    Interrupt,
}

#[derive(Debug)]
pub struct Admission {
    /// In the state [`State::Accepted`].
    pub task: Task,
    pub definition: Arc<Definition>,
    /// The task that this caller asked for before, under the same key.
    pub earlier: Option<Task>,
}

/// What is to be done about it: first `changes`, all at once; then `actions`, in order.
#[derive(Debug, Default)]
pub struct Effects {
    pub changes: Vec<Change>,
    pub actions: Vec<Action>,
}

#[derive(Debug)]
pub enum Action {
    /// Bring the result file up to date.
    Publish(Box<Task>),
    Answer(TaskId, Box<Answer>),
    /// Look what a task would replace that waits for a human.
    Preview {
        task: Box<Task>,
        definition: Arc<Definition>,
    },
    /// What became of a human's decision.
    Reply(Ticket, DecisionResult),
    Perform {
        task: Box<Task>,
        definition: Arc<Definition>,
        purpose: AttemptPurpose,
    },
    /// Stop the running attempt.
    Interrupt(TaskId, FailureKind),
    /// For a session that called it too often.
    SwitchOff(Box<SwitchedOffTool>),
}

/// What a dispatcher may have open and running.
#[derive(Debug, Clone, Copy)]
pub struct DispatcherLimits {
    pub concurrency: u32,
    pub open: OpenTaskLimit,
    /// Of one session of one user.
    pub open_per_session: OpenTaskLimit,
    pub asks: ConfirmationLimits,
}

impl DispatcherLimits {
    pub fn of(config: &Config) -> Self {
        let (executor, confirm) = (&config.executor, &config.confirm);
        Self {
            concurrency: executor.concurrency,
            open: OpenTaskLimit { tasks: executor.open_tasks, bytes: executor.open_bytes },
            open_per_session: OpenTaskLimit {
                tasks: executor.open_tasks_per_session,
                bytes: executor.open_bytes_per_session,
            },
            asks: ConfirmationLimits {
                waiting: confirm.waiting,
                waiting_per_session: confirm.waiting_per_session,
                per_hour: confirm.asks_per_hour,
                cool_down: confirm.cool_down.get(),
                wait: confirm.wait.get(),
            },
        }
    }
}

/// How many tasks may be open, and how many bytes their inputs may have.
#[derive(Debug, Clone, Copy)]
pub struct OpenTaskLimit {
    pub tasks: usize,
    pub bytes: u64,
}

#[derive(Debug)]
struct OpenTask {
    task: Task,
    definition: Arc<Definition>,
    cancelling: bool,
    phase: LookupPhase,
    /// Where it stands among the delayed.
    delayed_to: Option<Timestamp>,
}

impl OpenTask {
    fn new(task: Task, definition: Arc<Definition>) -> Self {
        Self { task, definition, cancelling: false, phase: LookupPhase::Work, delayed_to: None }
    }

    /// Which places it needs to run.
    fn kind(&self) -> SlotKind {
        let delegates_at = self.definition.run.delegates().then_some(self.task.caller.depth);
        SlotKind { tool: self.task.tool.clone(), delegates_at }
    }

    /// How often in all it may be started and looked up, if its attempts are lost.
    fn most_attempts(&self) -> u32 {
        recovery::most_attempts(&self.task, Some(&self.definition))
    }
}

#[derive(Debug)]
pub struct Dispatcher {
    limits: DispatcherLimits,
    open: HashMap<TaskId, OpenTask>,
    load: Quotas,
    lines: FairQueue,
    delayed: BTreeSet<(Timestamp, TaskId)>,
    asks: PendingConfirmations,
    ahead: SignedDuration,
    slots: Slots,
    /// How many tasks of a subtool may run at once, by the definition that came last.
    most_of: HashMap<SubtoolName, u32>,
    windows: RateLimits,
    keys: HashMap<(u32, String), TaskId>,
    /// What was said of tasks, and may not stand in the record yet.
    resolving: HashMap<TaskId, Resolution>,
    draining: bool,
}

impl Dispatcher {
    pub fn new(limits: DispatcherLimits) -> Self {
        Self {
            limits,
            open: HashMap::new(),
            load: Quotas::default(),
            lines: FairQueue::default(),
            delayed: BTreeSet::new(),
            asks: PendingConfirmations::default(),
            ahead: SignedDuration::ZERO,
            slots: Slots::default(),
            most_of: HashMap::new(),
            windows: RateLimits::default(),
            keys: HashMap::new(),
            resolving: HashMap::new(),
            draining: false,
        }
    }

    /// Counts a call that an executor before us took, for the rate limit of its subtool.
    pub fn restore_call(&mut self, caller: &Caller, tool: &SubtoolName, limit: RateLimit, at: Timestamp) {
        self.windows.count(caller, tool, limit, at);
    }

    /// How many tasks are open, by state.
    pub fn counts(&self) -> BTreeMap<State, usize> {
        let mut counts = BTreeMap::new();
        for open in self.open.values() {
            *counts.entry(open.task.state).or_default() += 1;
        }
        counts
    }

    pub fn running(&self) -> u32 {
        self.slots.taken()
    }

    pub fn is_idle(&self) -> bool {
        self.open.is_empty()
    }

    /// What it was told last of the clock.
    pub fn ahead(&self) -> SignedDuration {
        self.ahead
    }

    /// When a [`Event::Tick`] is due.
    pub fn next_deadline(&self) -> Option<Timestamp> {
        let delayed = self.delayed.first().map(|(at, _)| *at);
        delayed.into_iter().chain(self.asks.next_deadline()).min()
    }

    pub fn handle(&mut self, event: Event, now: Timestamp, effects: &mut Effects) {
        // First: a yes that comes too late is none.
        self.expire(now, effects);
        match event {
            Event::Admit(admission) => self.admit(*admission, now, effects),
            Event::Cancel { request, task, uid } => self.cancel(request, task, uid, now, effects),
            Event::Abandon { request, uid, session } => self.abandon(request, uid, &session, now, effects),
            Event::Resolve(request) => self.handle_resolve(*request, now, effects),
            Event::AttemptFinished(report) => self.finish(*report, now, effects),
            Event::Decide(request) => self.decide(*request, now, effects),
            Event::Revoke { ticket, grant } => self.revoke(ticket, grant, now, effects),
            Event::SetPreview { id, expected, confirmation } => self.set_preview(id, expected, confirmation, effects),
            Event::DefinitionsChanged(ids) => self.end_drifted(&ids, now, effects),
            Event::SetClock { ahead } => self.set_clock(ahead, now),
            Event::Tick => {}
            Event::Drain => self.draining = true,
            Event::Interrupt => {
                let running = self.open.values().filter(|open| open.is_performed());
                effects.actions.extend(running.map(|open| Action::Interrupt(open.task.id, FailureKind::Shutdown)));
            }
        }
        while let Some((at, id)) = self.delayed.first().copied()
            && at <= now
        {
            self.delayed.remove(&(at, id));
            self.line_up(id, now);
        }
        self.start_what_can(now, effects);
    }

    fn finish(&mut self, finished: AttemptReport, now: Timestamp, effects: &mut Effects) {
        let Some(open) = self.open.get_mut(&finished.id) else { return };
        if !open.is_performed() || open.task.attempt != finished.attempt {
            return;
        }
        self.slots.free(&open.kind());
        if matches!(open.phase, LookupPhase::LookingUp(_)) {
            return self.looked_up(finished, now, effects);
        }
        let failed = match finished.result {
            Ok(end) => {
                advance(&mut open.task, Step::Succeed, now, None, Some(end), effects);
                return self.close(finished.id, effects);
            }
            Err(failed) => failed,
        };
        if open.must_look_up(&failed) {
            open.cancelling |= failed.kind == FailureKind::Cancelled;
            open.phase = LookupPhase::LookupDue(Some(Box::new(failed)));
            return self.line_up(finished.id, now);
        }
        let harmless = open.task.effect.repeatable() || failed.side_effect == SideEffect::None;
        let retries = open.definition.retries.map_or(0, |retries| retries.times);
        let step = match failed.kind {
            FailureKind::Shutdown if !harmless => Step::Lose,
            // It was looked up as often as may be.
            _ if !harmless && open.task.effect == EffectClass::Verifiable => Step::Lose,
            FailureKind::Shutdown if open.cancelling => Step::Cancel,
            FailureKind::Shutdown => Step::Retry,
            FailureKind::Cancelled => Step::Cancel,
            FailureKind::Failure | FailureKind::Timeout
                if harmless && !open.cancelling && failed.retry != Retry::Never && open.task.attempt <= retries =>
            {
                Step::Retry
            }
            FailureKind::Timeout => Step::TimeOut,
            FailureKind::Failure => Step::Fail,
        };
        if step == Step::Retry {
            let not_before =
                (failed.kind != FailureKind::Shutdown).then(|| now + pause(&open.definition, &open.task, failed.retry));
            advance(&mut open.task, step, now, not_before, None, effects);
            effects.actions.push(Action::Publish(Box::new(open.task.clone())));
            self.line_up(finished.id, now);
        } else {
            let end = if step == Step::Lose { told_lost(failed.end, &open.task) } else { failed.end };
            advance(&mut open.task, step, now, None, Some(end), effects);
            self.close(finished.id, effects);
        }
    }

    fn enter(&mut self, open: OpenTask) {
        let OpenTask { task, definition, .. } = &open;
        if let Some(key) = &task.idempotency_key {
            self.keys.insert((task.caller.uid, key.clone()), task.id);
        }
        match definition.concurrency {
            Some(most) => self.most_of.insert(task.tool.clone(), most),
            None => self.most_of.remove(&task.tool),
        };
        self.load.add(task);
        self.open.insert(task.id, open);
    }

    /// A task that ended leaves memory; the store has it.
    fn close(&mut self, id: TaskId, effects: &mut Effects) {
        let Some(OpenTask { task, .. }) = self.open.remove(&id) else { return };
        self.asks.leave(&task);
        self.load.remove(&task);
        if let Some(key) = &task.idempotency_key {
            self.keys.remove(&(task.caller.uid, key.clone()));
        }
        effects.actions.push(Action::Publish(Box::new(task)));
    }

    fn line_up(&mut self, id: TaskId, now: Timestamp) {
        let Some(open) = self.open.get_mut(&id) else { return };
        let not_before = match open.task.scheduled() {
            Some(at) => Some(at.saturating_add(self.ahead).unwrap_or(Timestamp::MAX)),
            None => open.task.not_before,
        };
        open.delayed_to = not_before.filter(|at| *at > now);
        match open.delayed_to {
            Some(at) => {
                self.delayed.insert((at, id));
            }
            None => self.lines.join(&open.task.caller, open.kind(), id),
        }
    }

    /// A schedule means what the clock shows; a pause is as long as it is.
    fn set_clock(&mut self, ahead: SignedDuration, now: Timestamp) {
        self.ahead = ahead;
        let is_scheduled =
            |(_, id): &&(Timestamp, TaskId)| self.open.get(id).is_some_and(|open| open.task.scheduled().is_some());
        let scheduled: Vec<_> = self.delayed.iter().filter(is_scheduled).copied().collect();
        for (at, id) in scheduled {
            self.delayed.remove(&(at, id));
            self.line_up(id, now);
        }
    }

    /// Starts queued tasks while there are free places, one of each caller in turn.
    fn start_what_can(&mut self, now: Timestamp, effects: &mut Effects) {
        while !self.draining && (self.slots.has_any(self.limits.concurrency) || self.lines.has_delegates()) {
            let (most_of, slots) = (&self.most_of, &self.slots);
            let has_place =
                |kind: &SlotKind| slots.has_one(kind, self.limits.concurrency, most_of.get(&kind.tool).copied());
            let Some(id) = self.lines.next(has_place) else { return };
            if !self.may_start(id, now, effects) {
                continue;
            }
            let Some(open) = self.open.get_mut(&id) else { continue };
            self.slots.take(open.kind());
            let (step, purpose) = open.begin();
            advance(&mut open.task, step, now, None, None, effects);
            let (task, definition) = (Box::new(open.task.clone()), Arc::clone(&open.definition));
            effects.actions.push(Action::Publish(task.clone()));
            effects.actions.push(Action::Perform { task, definition, purpose });
        }
    }
}

/// What comes with a step.
#[derive(Debug, Default)]
struct StepDetails {
    not_before: Option<Timestamp>,
    end: Option<End>,
    confirmation: Option<Box<ConfirmationUpdate>>,
}

/// Moves `task` on, and records it.
fn advance(
    task: &mut Task,
    step: Step,
    at: Timestamp,
    not_before: Option<Timestamp>,
    end: Option<End>,
    effects: &mut Effects,
) {
    move_on(task, step, at, StepDetails { not_before, end, confirmation: None }, effects);
}

/// [`advance`], perhaps by an answer.
fn move_on(task: &mut Task, step: Step, at: Timestamp, details: StepDetails, effects: &mut Effects) {
    let StepDetails { not_before, end, confirmation } = details;
    let (from, attempt) = (task.state, task.attempt);
    let to = from.after(step).expect("the dispatcher takes only steps that the life cycle has");
    task.state = to;
    task.attempt += u32::from(matches!(step, Step::Start | Step::Verify));
    task.not_before = not_before;
    task.end.clone_from(&end);
    effects.changes.push(Change::Transition(Box::new(Transition {
        id: task.id,
        step,
        from,
        attempt,
        to,
        attempt_after: task.attempt,
        not_before,
        at,
        confirmation,
        end,
    })));
}

/// The pause before the next attempt: it doubles each time, with a jitter of up to a quarter.
fn pause(definition: &Definition, task: &Task, again: Retry) -> SignedDuration {
    let first = definition.retries.map_or(Duration::from_millis(500), |retries| retries.backoff.get());
    let doubled = first.saturating_mul(1 << task.attempt.saturating_sub(1).min(16)).min(MAX_PAUSE);
    let asked = match again {
        Retry::After(asked) => asked,
        Retry::Never | Retry::Later => Duration::ZERO,
    };
    // The id is random in its last bits: tasks that failed together do not come back together.
    let spread = task
        .id
        .to_string()
        .bytes()
        .rev()
        .take(8)
        .fold(0_u32, |sum, byte| sum.wrapping_mul(31).wrapping_add(u32::from(byte)));
    let jitter = doubled.mul_f64(f64::from(spread % 256) / 1024.0);
    let pause = (doubled + jitter).max(asked).min(MAX_PAUSE);
    SignedDuration::try_from(pause).unwrap_or(SignedDuration::ZERO)
}

/// `end` as that of an attempt of which nobody knows whether it took effect: what it had so far stays in
/// the details; whoever branches on the code must know.
fn told_lost(mut end: End, task: &Task) -> End {
    if let Outcome::Error(error) = &mut end.outcome {
        let lost = lost(task);
        (error.code, error.message, error.hint) = (lost.code, lost.message, lost.hint);
    }
    end
}

fn failed_end(at: Timestamp, error: ErrorBody) -> End {
    End { at, outcome: Outcome::Error(error), meta: serde_json::Map::new() }
}
