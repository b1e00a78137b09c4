//! The dispatcher: the state machine of all open tasks.
//!
//! It is pure and synchronous: it takes an [`Event`], updates its state and returns [`Effects`]: changes to make
//! durable, and actions to carry out after that. It reads no clock, touches no file and starts nothing; the daemon
//! does all of that.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use definition::Definition;
use ground::config::Config;
use ground::task::confirmation::{Confirmation, Digest, ReplacedValues};
use ground::task::feedback::{AttemptNews, RecordedSignal};
use ground::task::name::SubtoolName;
use ground::task::{End, Outcome, Task};
use jiff::{SignedDuration, Timestamp};
use protocol::caller::Caller;
use protocol::error::ErrorBody;
use protocol::mailbox::request::Answer;
use protocol::resolution::Resolution;
use protocol::task::{State, Step, TaskId};
use store::switched_off::SwitchedOffTool;
use store::{Change, ConfirmationUpdate, Transition};

use crate::report::{AttemptPurpose, AttemptReport, FailedAttempt, FailureKind};

mod admission;
mod cancellation;
mod commands;
mod confirmations;
pub mod decide_scopes;
mod decision_error;
mod ending;
mod fair_queue;
mod lookup;
mod notes;
mod quotas;
mod rate_limits;
mod reassessment;
mod recovery;
pub mod report;
mod resolution;
mod retry_delay;
mod slots;
mod touch_verifier;

#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;

#[cfg(test)]
#[expect(dead_code, reason = "the tests of `ground` use the rest")]
#[path = "../../ground/src/base/webauthn/soft_key.rs"]
mod soft_key;

pub use commands::{HumanCommand, Ticket};
pub use confirmations::{CONFIRMATION_WINDOW, ConfirmationLimits, DecideRequest, HumanVerdict};
use confirmations::{PendingConfirmations, after};
pub use decision_error::{DecisionError, DecisionResult};
use ending::into_unknown;
use fair_queue::FairQueue;
use lookup::LookupPhase;
use notes::{begin_again, give_up_at, given_up, note_failure};
use quotas::Quotas;
use rate_limits::RateLimits;
pub use rate_limits::{AppliedRateLimit, RateLimitKey};
pub use reassessment::{Reassessment, RulesChange};
pub use recovery::RecoveryInfo;
pub use resolution::ResolveRequest;
pub use retry_delay::MAX_RETRY_DELAY;
use retry_delay::retry_delay;
use slots::{SlotKind, Slots};
pub use touch_verifier::TouchRequest;
use touch_verifier::TouchVerifier;

/// What the dispatcher reacts to.
#[derive(Debug)]
pub enum Event {
    /// A request became a task: its input is valid, and policy does not refuse it.
    Admit(Box<Admission>),
    /// The sender of `request` cancels the task `id`.
    Cancel {
        request: TaskId,
        id: TaskId,
        caller: Box<Caller>,
        reason: Option<String>,
    },
    /// The sender of `request` cancels all open tasks of a session.
    Abandon {
        request: TaskId,
        caller: Box<Caller>,
        session: String,
    },
    /// The sender of a request says what happened to a task that ended as unknown.
    Resolve(Box<ResolveRequest>),
    /// The request has this answer, whatever state the tasks are in.
    Answer(TaskId, Box<Answer>),
    /// The wall clock was set back; the times given to the dispatcher are `ahead` of it from now on.
    SetClock {
        ahead: SignedDuration,
    },
    AttemptFinished(Box<AttemptReport>),
    /// A running attempt tells how it gets on.
    AttemptTold {
        id: TaskId,
        attempt: u32,
        news: AttemptNews,
    },
    /// A human commands something.
    Command(Ticket, Box<HumanCommand>),
    /// The preview of a task is known. `confirmation`, which contains it, replaces the one with the digest `expected`.
    SetPreview {
        id: TaskId,
        expected: Digest,
        confirmation: Box<Confirmation>,
    },
    /// The configuration or the definitions changed. Handle it before anything that could start a task.
    RulesChanged(Box<RulesChange>),
    /// Time passed.
    Tick,
    /// Stop starting tasks; running attempts continue.
    Drain,
    /// Stop all running attempts; each of them still reports.
    Interrupt,
}

impl Event {
    /// The request is refused, whatever state the tasks are in.
    pub fn refusal(request: TaskId, error: ErrorBody) -> Self {
        Self::Answer(request, Box::new(Answer::Refused(error)))
    }
}

/// A new task with what is needed to admit it.
#[derive(Debug)]
pub struct Admission {
    /// In the state [`State::Accepted`].
    pub task: Task,
    pub definition: Arc<Definition>,
    /// How often its caller may do this.
    pub rate_limits: Vec<AppliedRateLimit>,
    /// The task that the same user requested before with the same idempotency key, if there is one.
    pub earlier: Option<Task>,
}

/// The effects of an event: first commit all `changes` at once, then carry out `actions` in order.
#[derive(Debug, Default)]
pub struct Effects {
    pub changes: Vec<Change>,
    pub actions: Vec<Action>,
}

#[derive(Debug)]
pub enum Action {
    /// Bring the result file up to date.
    Publish(Box<Task>),
    /// Answer the request with this id.
    Answer(TaskId, Box<Answer>),
    /// Look up the values that a task would replace, before a human is asked about it.
    Preview {
        task: Box<Task>,
        definition: Arc<Definition>,
    },
    /// Report the result of a human's command.
    Reply(Ticket, DecisionResult),
    Perform {
        task: Box<Task>,
        definition: Arc<Definition>,
        purpose: AttemptPurpose,
    },
    /// Stop the running attempt of a task, for this reason.
    Interrupt(TaskId, FailureKind),
    /// Switch a subtool off for a session that exceeded its rate limit.
    SwitchOff(Box<SwitchedOffTool>),
    /// Let a running attempt go on that waits until what it told is recorded.
    TellRecorded(RecordedSignal),
}

/// The limits of open and running tasks.
#[derive(Debug, Clone, Copy)]
pub struct DispatcherLimits {
    pub concurrency: u32,
    pub open: OpenTaskLimit,
    /// For each session of a user.
    pub open_per_session: OpenTaskLimit,
    pub confirmations: ConfirmationLimits,
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
            confirmations: ConfirmationLimits {
                waiting: confirm.waiting,
                waiting_per_user: confirm.waiting_per_user,
                waiting_per_session: confirm.waiting_per_session,
                per_hour: confirm.asks_per_hour,
                cool_down: confirm.cool_down.get(),
                wait: confirm.wait.get(),
            },
        }
    }
}

/// The limit of open tasks, and of the total size of their inputs.
#[derive(Debug, Clone, Copy)]
pub struct OpenTaskLimit {
    pub tasks: usize,
    pub bytes: u64,
}

#[derive(Debug)]
struct OpenTask {
    task: Task,
    definition: Arc<Definition>,
    /// Its caller cancelled it while it was running.
    cancelling: bool,
    /// It was running when an earlier executor ended.
    is_suspect: bool,
    phase: LookupPhase,
    /// Its key in [`Dispatcher::delayed`], if it is there.
    delayed_to: Option<Timestamp>,
    /// Until when it is held after its approval.
    held_until: Option<Timestamp>,
    /// What rules that changed while it was running say about its next attempt.
    reassessed: Reassessment,
}

impl OpenTask {
    fn new(task: Task, definition: Arc<Definition>) -> Self {
        Self {
            task,
            definition,
            cancelling: false,
            is_suspect: false,
            phase: LookupPhase::Work,
            delayed_to: None,
            held_until: None,
            reassessed: Reassessment::Keep,
        }
    }

    /// The lookup of the values that it would replace, if its human is to see them and they are not known yet.
    fn preview(&self) -> Option<Action> {
        let asked = self.task.confirmation.as_ref().filter(|_| self.task.state == State::AwaitingConfirmation)?;
        (asked.preview == Some(ReplacedValues::Pending))
            .then(|| Action::Preview { task: Box::new(self.task.clone()), definition: Arc::clone(&self.definition) })
    }

    /// Which slots it needs to run.
    fn kind(&self) -> SlotKind {
        let delegates_at = self.definition.run.waits_for_tasks().then_some(self.task.caller.depth);
        SlotKind::of(&self.task, delegates_at, self.is_suspect)
    }

    /// The limit of attempts and lookups if attempts are lost.
    fn max_attempts(&self) -> u32 {
        recovery::max_attempts(&self.task, Some(&self.definition))
    }
}

/// The state of all open tasks. See the module documentation.
#[derive(Debug)]
pub struct Dispatcher {
    limits: DispatcherLimits,
    open: HashMap<TaskId, OpenTask>,
    quotas: Quotas,
    queue: FairQueue,
    /// The tasks that wait for a scheduled time or a retry delay.
    delayed: BTreeSet<(Timestamp, TaskId)>,
    confirmations: PendingConfirmations,
    ahead: SignedDuration,
    slots: Slots,
    /// How many tasks of a subtool may run at once, according to its latest definition.
    concurrency_limits: HashMap<SubtoolName, u32>,
    rate_limits: RateLimits,
    /// The open tasks by user and idempotency key.
    idempotency_keys: HashMap<(u32, String), TaskId>,
    /// Resolutions that may not be in the store yet.
    resolutions: HashMap<TaskId, Resolution>,
    touch: TouchVerifier,
    /// The clients whose API keys count, as `NAME.ID`; `None` until that is known.
    key_clients: Option<BTreeSet<String>>,
    /// Whether any task was of a client with an API key.
    has_tasks_of_keys: bool,
    draining: bool,
}

impl Dispatcher {
    pub fn new(limits: DispatcherLimits) -> Self {
        Self {
            limits,
            open: HashMap::new(),
            quotas: Quotas::default(),
            queue: FairQueue::default(),
            delayed: BTreeSet::new(),
            confirmations: PendingConfirmations::default(),
            ahead: SignedDuration::ZERO,
            slots: Slots::default(),
            concurrency_limits: HashMap::new(),
            rate_limits: RateLimits::default(),
            idempotency_keys: HashMap::new(),
            resolutions: HashMap::new(),
            touch: TouchVerifier::default(),
            key_clients: None,
            has_tasks_of_keys: false,
            draining: false,
        }
    }

    /// Counts a call that an earlier executor accepted towards the rate limit of its subtool.
    pub fn restore_call(&mut self, caller: &Caller, limit: &AppliedRateLimit, at: Timestamp) {
        self.rate_limits.count(caller, limit, at);
    }

    /// Counts a call that becomes no task towards its rate limits; an error if it may not be made.
    pub fn count_call(
        &mut self,
        caller: &Caller,
        limits: &[AppliedRateLimit],
        now: Timestamp,
    ) -> Result<(), ErrorBody> {
        if let Some(error) = limits.iter().find_map(|limit| self.rate_limits.refuse(caller, limit, now)) {
            return Err(error);
        }
        for limit in limits {
            self.rate_limits.count(caller, limit, now);
        }
        Ok(())
    }

    /// Returns the number of open tasks in each state.
    pub fn counts(&self) -> BTreeMap<State, usize> {
        let mut counts = BTreeMap::new();
        for open in self.open.values() {
            *counts.entry(open.task.state).or_default() += 1;
        }
        counts
    }

    /// Returns the number of running attempts.
    pub fn running(&self) -> u32 {
        self.slots.in_use()
    }

    pub fn is_idle(&self) -> bool {
        self.open.is_empty()
    }

    /// How far its time is ahead of the wall clock; see [`Event::SetClock`].
    pub fn ahead(&self) -> SignedDuration {
        self.ahead
    }

    /// When the next [`Event::Tick`] is needed.
    pub fn next_deadline(&self) -> Option<Timestamp> {
        let delayed = self.delayed.first().map(|(at, _)| *at);
        delayed.into_iter().chain(self.confirmations.next_deadline()).min()
    }

    /// Handles `event` at the time `now` and appends what follows from it to `effects`.
    pub fn handle(&mut self, event: Event, now: Timestamp, effects: &mut Effects) {
        // Expire first, so that a late approval is rejected.
        self.expire(now, effects);
        match event {
            Event::Admit(admission) => self.admit(*admission, now, effects),
            Event::Cancel { request, id, caller, reason } => {
                let state = self.cancel(id, (&caller, reason.as_deref()), now, effects);
                let answer = state.map_or_else(Answer::Refused, |state| Answer::Cancelling { id, state });
                effects.actions.push(Action::Answer(request, Box::new(answer)));
            }
            Event::Abandon { request, caller, session } => self.abandon(request, &caller, &session, now, effects),
            Event::Resolve(request) => self.resolve_for_caller(*request, now, effects),
            Event::Answer(request, answer) => effects.actions.push(Action::Answer(request, answer)),
            Event::AttemptFinished(report) => self.finish(*report, now, effects),
            Event::AttemptTold { id, attempt, news } => self.note_news(id, attempt, news, effects),
            Event::Command(ticket, command) => {
                let result = self.obey(*command, now, effects);
                effects.actions.push(Action::Reply(ticket, result));
            }
            Event::SetPreview { id, expected, confirmation } => {
                self.set_preview(id, expected, confirmation, now, effects);
            }
            Event::RulesChanged(change) => self.apply_rules(*change, now, effects),
            Event::SetClock { ahead } => self.set_clock(ahead, now),
            Event::Tick => {}
            Event::Drain => self.draining = true,
            Event::Interrupt => {
                let running = self.open.values().filter(|open| open.is_executing());
                effects.actions.extend(running.map(|open| Action::Interrupt(open.task.id, FailureKind::Shutdown)));
            }
        }
        while let Some((at, id)) = self.delayed.first().copied()
            && at <= now
        {
            self.delayed.remove(&(at, id));
            if !self.ask_scheduled(id, now, effects) {
                self.queue_or_delay(id, now);
            }
        }
        self.start_ready(now, effects);
    }

    fn finish(&mut self, report: AttemptReport, now: Timestamp, effects: &mut Effects) {
        let Some(open) = self.open.get_mut(&report.id) else { return };
        if !open.is_executing() || open.task.attempt != report.attempt {
            return;
        }
        self.slots.release(&open.kind());
        if matches!(open.phase, LookupPhase::Running(_)) {
            return self.finish_lookup(report, now, effects);
        }
        let failed = match report.result {
            Ok(end) => {
                advance(&mut open.task, Step::Succeed, now, None, Some(end), effects);
                return self.remove(report.id, effects);
            }
            Err(failed) => failed,
        };
        if failed.kind != FailureKind::Shutdown {
            (open.task.notes.job, open.task.notes.is_unsent) = (None, false);
        }
        if open.task.notes.is_unsent && !open.cancelling {
            begin_again(&mut open.task, now, effects);
            effects.actions.push(Action::Publish(Box::new(open.task.clone())));
            return self.queue_or_delay(report.id, now);
        }
        if open.needs_lookup(&failed) {
            open.cancelling |= failed.kind == FailureKind::Cancelled;
            open.phase = LookupPhase::Due(Some(Box::new(failed)));
            return self.queue_or_delay(report.id, now);
        }
        let step = open.ending(&failed).step();
        if step == Step::Retry {
            let not_before = (failed.kind != FailureKind::Shutdown)
                .then(|| now + retry_delay(&open.definition, &open.task, failed.retry));
            let give_up_at = give_up_at(&open.definition, &open.task);
            if let Some(at) = not_before.filter(|at| *at > give_up_at) {
                let end = given_up(failed, at, give_up_at);
                advance(&mut open.task, Step::Fail, now, None, Some(end), effects);
                return self.remove(report.id, effects);
            }
            advance(&mut open.task, step, now, not_before, None, effects);
            if not_before.is_some() {
                note_failure(&mut open.task, failed, now, effects);
            }
            effects.actions.push(Action::Publish(Box::new(open.task.clone())));
            self.queue_or_delay(report.id, now);
        } else {
            let (kind, end) = (failed.kind, failed.end);
            let end = if step == Step::Lose { into_unknown(end, kind, &open.task) } else { end };
            advance(&mut open.task, step, now, None, Some(end), effects);
            self.remove(report.id, effects);
        }
    }

    fn insert(&mut self, open: OpenTask) {
        let OpenTask { task, definition, .. } = &open;
        if let Some(key) = &task.idempotency_key {
            self.idempotency_keys.insert((task.caller.uid, key.clone()), task.id);
        }
        match definition.concurrency {
            Some(limit) => self.concurrency_limits.insert(task.tool.clone(), limit),
            None => self.concurrency_limits.remove(&task.tool),
        };
        self.quotas.add(task);
        self.has_tasks_of_keys |= task.caller.api_key().is_some();
        self.open.insert(task.id, open);
    }

    /// Drops an ended task from memory; it stays in the store.
    fn remove(&mut self, id: TaskId, effects: &mut Effects) {
        let Some(OpenTask { task, delayed_to, .. }) = self.open.remove(&id) else { return };
        if let Some(at) = delayed_to {
            self.delayed.remove(&(at, id));
        }
        self.confirmations.remove(&task);
        self.quotas.remove(&task);
        if let Some(key) = &task.idempotency_key {
            self.idempotency_keys.remove(&(task.caller.uid, key.clone()));
        }
        effects.actions.push(Action::Publish(Box::new(task)));
    }

    fn queue_or_delay(&mut self, id: TaskId, now: Timestamp) {
        let Some(open) = self.open.get_mut(&id) else { return };
        let not_before = match open.task.scheduled() {
            Some(at) => Some(at.saturating_add(self.ahead).unwrap_or(Timestamp::MAX)),
            None => open.task.not_before,
        };
        if let (Some(until), Some(hold), None) = (open.task.held_until(), open.definition.hold, open.held_until) {
            // The clock may have been set back since the approval: it is never held for longer than its definition says.
            open.held_until = Some(until.min(after(now, hold.get())));
        }
        open.delayed_to = not_before.max(open.held_until).filter(|at| *at > now);
        match open.delayed_to {
            Some(at) => {
                self.delayed.insert((at, id));
            }
            None => self.queue.push(&open.task.caller, open.kind(), id),
        }
    }

    /// Recomputes when scheduled tasks start, since a schedule refers to the wall clock. A retry delay is a duration
    /// and stays as it is.
    fn set_clock(&mut self, ahead: SignedDuration, now: Timestamp) {
        self.ahead = ahead;
        let is_scheduled =
            |(_, id): &&(Timestamp, TaskId)| self.open.get(id).is_some_and(|open| open.task.scheduled().is_some());
        let scheduled: Vec<_> = self.delayed.iter().filter(is_scheduled).copied().collect();
        for (at, id) in scheduled {
            self.delayed.remove(&(at, id));
            self.queue_or_delay(id, now);
        }
    }

    /// Starts queued tasks while there are free slots, taking callers in turn.
    fn start_ready(&mut self, now: Timestamp, effects: &mut Effects) {
        while !self.draining && (self.slots.has_free(self.limits.concurrency) || self.queue.has_delegates()) {
            let (limits, slots) = (&self.concurrency_limits, &self.slots);
            let has_slot =
                |kind: &SlotKind| slots.has_free_for(kind, self.limits.concurrency, limits.get(&kind.tool).copied());
            let Some(id) = self.queue.pop(has_slot) else { return };
            if !self.may_start(id, now, effects) {
                continue;
            }
            let Some(open) = self.open.get_mut(&id) else { continue };
            self.slots.acquire(&open.kind());
            let (step, purpose) = open.begin();
            advance(&mut open.task, step, now, None, None, effects);
            let (task, definition) = (Box::new(open.task.clone()), Arc::clone(&open.definition));
            effects.actions.push(Action::Publish(task.clone()));
            effects.actions.push(Action::Perform { task, definition, purpose });
        }
    }
}

/// What a step may come with.
#[derive(Debug, Default)]
struct StepDetails {
    not_before: Option<Timestamp>,
    end: Option<End>,
    confirmation: Option<Box<ConfirmationUpdate>>,
}

/// Takes `step` with `task` and adds the transition to `effects`.
fn advance(
    task: &mut Task,
    step: Step,
    at: Timestamp,
    not_before: Option<Timestamp>,
    end: Option<End>,
    effects: &mut Effects,
) {
    advance_with(task, step, at, StepDetails { not_before, end, confirmation: None }, effects);
}

/// Like [`advance`], with all details, such as the decision that led to the step.
fn advance_with(task: &mut Task, step: Step, at: Timestamp, details: StepDetails, effects: &mut Effects) {
    let StepDetails { not_before, end, confirmation } = details;
    let (from, attempt) = (task.state, task.attempt);
    let to = from.after(step).expect("the dispatcher takes only legal steps");
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

fn failed_end(at: Timestamp, error: ErrorBody) -> End {
    End { at, outcome: Outcome::Error(error), meta: serde_json::Map::new() }
}
