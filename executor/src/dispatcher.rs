//! The dispatcher: owns the truth about open tasks.
//!
//! Pure and synchronous: an [`Event`] comes in, the state changes, and [`Effects`] go out: first
//! the changes that must be durable, then the actions that may be carried out once they are. It
//! reads no clock, touches no file and starts nothing; `daemon.rs` does.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use crate::code::Code;
use crate::mailbox::request::Answer;
use crate::runner::{Again, Effect};
use crate::store::{Change, Move};
use crate::subtool::{Definition, SubtoolName};
use crate::task::{Caller, End, ErrorBody, Outcome, State, Step, Task, TaskId};

/// A pause never grows beyond this.
const LONGEST_PAUSE: Duration = Duration::from_mins(5);

/// What happened.
#[derive(Debug)]
pub enum Event {
    /// A request that fits its subtool and that policy lets through.
    Admitted(Box<Admission>),
    /// The caller of `request` wants `task` stopped.
    CancelAsked {
        request: TaskId,
        task: TaskId,
        uid: u32,
    },
    Finished(Box<Finished>),
    /// Time passed.
    Tick,
    /// Nothing new is started from now on.
    Stop,
}

#[derive(Debug)]
pub struct Admission {
    /// In the state [`State::Accepted`].
    pub task: Task,
    pub definition: Arc<Definition>,
    /// The task that this caller asked for before, under the same key.
    pub earlier: Option<Task>,
}

/// How one attempt ended.
#[derive(Debug)]
pub struct Finished {
    pub id: TaskId,
    pub attempt: u32,
    pub result: Result<End, Failed>,
}

#[derive(Debug)]
pub struct Failed {
    pub end: End,
    pub why: Why,
    pub again: Again,
    pub effect: Effect,
}

/// What kind of failure it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    Failure,
    Timeout,
    /// Stopped because its caller asked for it.
    Cancelled,
    /// Stopped because the executor stops.
    Shutdown,
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
    Perform {
        task: Box<Task>,
        definition: Arc<Definition>,
    },
    /// Stop the running attempt.
    Interrupt(TaskId, Why),
}

/// What a dispatcher may have open and running.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    pub concurrency: u32,
    pub open_tasks: usize,
}

#[derive(Debug)]
struct Open {
    task: Task,
    definition: Arc<Definition>,
    cancelling: bool,
}

/// Whose turn it is: callers wait in line, each with its own line of tasks.
type Line = (u32, Option<String>);

#[derive(Debug)]
pub struct Dispatcher {
    limits: Limits,
    open: HashMap<TaskId, Open>,
    lines: BTreeMap<Line, VecDeque<TaskId>>,
    /// The line that was served last; the next one is served first.
    last_line: Option<Line>,
    delayed: BTreeSet<(Timestamp, TaskId)>,
    running: u32,
    running_of: HashMap<SubtoolName, u32>,
    windows: HashMap<SubtoolName, VecDeque<Timestamp>>,
    keys: HashMap<(u32, String), TaskId>,
    stopping: bool,
}

impl Dispatcher {
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            open: HashMap::new(),
            lines: BTreeMap::new(),
            last_line: None,
            delayed: BTreeSet::new(),
            running: 0,
            running_of: HashMap::new(),
            windows: HashMap::new(),
            keys: HashMap::new(),
            stopping: false,
        }
    }

    /// Takes over the tasks that an executor before us left open.
    ///
    /// `definition` gives the definition of a task if it is still the one it was accepted under.
    /// What was running is started again if that is harmless, else it ends as unknown.
    pub fn recover(
        &mut self,
        tasks: Vec<Task>,
        now: Timestamp,
        definition: impl Fn(&Task) -> Option<Arc<Definition>>,
    ) -> Effects {
        let mut effects = Effects::default();
        for task in tasks {
            let id = task.id;
            let known = definition(&task);
            let mut open = Open { definition: known.clone().unwrap_or_else(gone), task, cancelling: false };
            if let Some(key) = &open.task.idempotency_key {
                self.keys.insert((open.task.caller.uid, key.clone()), id);
            }
            match open.task.state {
                State::Accepted => advance(&mut open.task, Step::Enqueue, now, None, None, &mut effects),
                State::Running if open.task.effect.repeatable() => {
                    advance(&mut open.task, Step::Retry, now, None, None, &mut effects);
                }
                State::Running => {
                    let end = failed_end(now, lost(&open.task));
                    advance(&mut open.task, Step::Lose, now, None, Some(end), &mut effects);
                }
                _ => {}
            }
            if open.task.state == State::Queued && known.is_none() {
                let error =
                    ErrorBody::new(Code::BadDefinition, "its definition changed or is gone since it was accepted")
                        .hint("run it again if it is still wanted");
                advance(&mut open.task, Step::Fail, now, None, Some(failed_end(now, error)), &mut effects);
            }
            effects.actions.push(Action::Publish(Box::new(open.task.clone())));
            if !open.task.state.is_final() {
                let queued = open.task.state == State::Queued;
                self.open.insert(id, open);
                if queued {
                    self.line_up(id, now);
                }
            }
        }
        self.start_what_can(now, &mut effects);
        effects
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
        self.running
    }

    pub fn is_idle(&self) -> bool {
        self.open.is_empty()
    }

    /// When a [`Event::Tick`] is due.
    pub fn next_deadline(&self) -> Option<Timestamp> {
        self.delayed.first().map(|(at, _)| *at)
    }

    pub fn handle(&mut self, event: Event, now: Timestamp, effects: &mut Effects) {
        match event {
            Event::Admitted(admission) => self.admit(*admission, now, effects),
            Event::CancelAsked { request, task, uid } => self.cancel(request, task, uid, now, effects),
            Event::Finished(finished) => self.finish(*finished, now, effects),
            Event::Tick => {}
            Event::Stop => {
                self.stopping = true;
                let running = self.open.values().filter(|open| open.task.state == State::Running);
                effects.actions.extend(running.map(|open| Action::Interrupt(open.task.id, Why::Shutdown)));
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

    fn admit(&mut self, admission: Admission, now: Timestamp, effects: &mut Effects) {
        let Admission { mut task, definition, earlier } = admission;
        let id = task.id;
        if let Some(answer) = self.refuse(&task, &definition, earlier.as_ref(), now) {
            effects.actions.push(Action::Answer(id, Box::new(answer)));
            return;
        }
        if definition.rate_limit.is_some() {
            self.windows.entry(task.tool.clone()).or_default().push_back(now);
        }
        if let Some(key) = &task.idempotency_key {
            self.keys.insert((task.caller.uid, key.clone()), id);
        }
        effects.changes.push(Change::Accept(Box::new(task.clone())));
        advance(&mut task, Step::Enqueue, now, None, None, effects);
        self.open.insert(id, Open { task, definition, cancelling: false });
        self.line_up(id, now);
        self.start_what_can(now, effects);
        let placeholder = self.open[&id].task.clone();
        effects.actions.insert(before_perform(&effects.actions, id), Action::Publish(Box::new(placeholder)));
    }

    /// Why a task is not taken, if it is not.
    fn refuse(
        &mut self,
        task: &Task,
        definition: &Definition,
        earlier: Option<&Task>,
        now: Timestamp,
    ) -> Option<Answer> {
        if let Some(limit) = definition.rate_limit {
            let per = SignedDuration::try_from(limit.per.get()).unwrap_or(SignedDuration::MAX);
            let window = self.windows.entry(task.tool.clone()).or_default();
            while window.front().is_some_and(|at| now.duration_since(*at) >= per) {
                window.pop_front();
            }
            if window.len() >= limit.calls as usize {
                let wait = window.front().map_or(per, |first| per - now.duration_since(*first));
                let message = format!("`{}` allows {} calls per {}", task.tool, limit.calls, limit.per);
                let error = ErrorBody::new(Code::RateLimited, message)
                    .hint(format!("try again in {}s", wait.as_secs() + 1))
                    .detail("retry_after_ms", i64::try_from(wait.as_millis()).unwrap_or(i64::MAX));
                return Some(Answer::Refused(error));
            }
        }
        let open = task.idempotency_key.as_ref().and_then(|key| self.keys.get(&(task.caller.uid, key.clone())));
        let same = open.and_then(|id| self.open.get(id)).map(|open| &open.task).or(earlier);
        if let Some(same) = same {
            let is_same = same.tool == task.tool && same.input == task.input;
            return Some(if is_same { Answer::SameAs(same.id) } else { mismatch(same) });
        }
        if self.stopping {
            return Some(Answer::Refused(
                ErrorBody::new(Code::NoExecutor, "the executor is stopping").hint("try again in a moment"),
            ));
        }
        (self.open.len() >= self.limits.open_tasks).then(|| {
            let message = format!("{} tasks are open, and that is the most", self.open.len());
            Answer::Refused(
                ErrorBody::new(Code::Throttled, message).hint("wait for some to end: agent-magic-tool tasks"),
            )
        })
    }

    fn cancel(&mut self, request: TaskId, id: TaskId, uid: u32, now: Timestamp, effects: &mut Effects) {
        let Some(open) = self.open.get_mut(&id).filter(|open| open.task.caller.uid == uid) else {
            let error = ErrorBody::new(Code::UnknownTask, format!("no open task `{id}`"))
                .hint("a task that ended cannot be cancelled: agent-magic-tool tasks");
            effects.actions.push(Action::Answer(request, Box::new(Answer::Refused(error))));
            return;
        };
        if open.task.state == State::Running {
            open.cancelling = true;
            effects.actions.push(Action::Interrupt(id, Why::Cancelled));
        } else {
            let error = ErrorBody::new(Code::Cancelled, "cancelled before it started").hint("nothing was done");
            advance(&mut open.task, Step::Cancel, now, None, Some(failed_end(now, error)), effects);
        }
        let state = open.task.state;
        if state.is_final() {
            self.close(id, effects);
        }
        effects.actions.push(Action::Answer(request, Box::new(Answer::Cancelling { id, state })));
    }

    fn finish(&mut self, finished: Finished, now: Timestamp, effects: &mut Effects) {
        let Some(open) = self.open.get_mut(&finished.id) else { return };
        if open.task.state != State::Running || open.task.attempt != finished.attempt {
            return;
        }
        self.running -= 1;
        if let Some(count) = self.running_of.get_mut(&open.task.tool) {
            *count -= 1;
        }
        let failed = match finished.result {
            Ok(end) => {
                advance(&mut open.task, Step::Succeed, now, None, Some(end), effects);
                return self.close(finished.id, effects);
            }
            Err(failed) => failed,
        };
        let harmless = open.task.effect.repeatable() || failed.effect == Effect::None;
        let retries = open.definition.retries.map_or(0, |retries| retries.times);
        let step = match failed.why {
            Why::Shutdown if harmless => Step::Retry,
            Why::Shutdown => Step::Lose,
            Why::Cancelled => Step::Cancel,
            Why::Failure | Why::Timeout
                if harmless && !open.cancelling && failed.again != Again::Never && open.task.attempt <= retries =>
            {
                Step::Retry
            }
            Why::Timeout => Step::TimeOut,
            Why::Failure => Step::Fail,
        };
        if step == Step::Retry {
            let not_before =
                (failed.why != Why::Shutdown).then(|| now + pause(&open.definition, &open.task, failed.again));
            advance(&mut open.task, step, now, not_before, None, effects);
            effects.actions.push(Action::Publish(Box::new(open.task.clone())));
            self.line_up(finished.id, now);
        } else {
            advance(&mut open.task, step, now, None, Some(failed.end), effects);
            self.close(finished.id, effects);
        }
    }

    /// A task that ended leaves memory; the store has it.
    fn close(&mut self, id: TaskId, effects: &mut Effects) {
        let Some(Open { task, .. }) = self.open.remove(&id) else { return };
        if let Some(key) = &task.idempotency_key {
            self.keys.remove(&(task.caller.uid, key.clone()));
        }
        self.delayed.retain(|(_, delayed)| *delayed != id);
        effects.actions.push(Action::Publish(Box::new(task)));
    }

    fn line_up(&mut self, id: TaskId, now: Timestamp) {
        let Some(open) = self.open.get(&id) else { return };
        match open.task.not_before {
            Some(at) if at > now => {
                self.delayed.insert((at, id));
            }
            _ => self.lines.entry(line(&open.task.caller)).or_default().push_back(id),
        }
    }

    /// Starts queued tasks while there are free places, one of each caller in turn.
    fn start_what_can(&mut self, now: Timestamp, effects: &mut Effects) {
        while !self.stopping && self.running < self.limits.concurrency {
            let Some(id) = self.next_in_line() else { return };
            let Some(open) = self.open.get_mut(&id) else { continue };
            self.running += 1;
            *self.running_of.entry(open.task.tool.clone()).or_default() += 1;
            advance(&mut open.task, Step::Start, now, None, None, effects);
            let (task, definition) = (Box::new(open.task.clone()), Arc::clone(&open.definition));
            effects.actions.push(Action::Perform { task, definition });
        }
    }

    fn next_in_line(&mut self) -> Option<TaskId> {
        let after: Vec<Line> = match &self.last_line {
            Some(last) => {
                let later = self.lines.range((std::ops::Bound::Excluded(last), std::ops::Bound::Unbounded));
                later.chain(self.lines.range(..=last)).map(|(line, _)| line.clone()).collect()
            }
            None => self.lines.keys().cloned().collect(),
        };
        for line in after {
            let (open, running_of) = (&self.open, &self.running_of);
            let Some(queue) = self.lines.get_mut(&line) else { continue };
            queue.retain(|id| open.get(id).is_some_and(|open| open.task.state == State::Queued));
            let free = queue.iter().position(|id| {
                let Open { task, definition, .. } = &open[id];
                let running = running_of.get(&task.tool).copied().unwrap_or(0);
                definition.concurrency.is_none_or(|most| running < most)
            });
            let found = free.and_then(|place| queue.remove(place));
            if queue.is_empty() {
                self.lines.remove(&line);
            }
            if found.is_some() {
                self.last_line = Some(line);
                return found;
            }
        }
        None
    }
}

fn line(caller: &Caller) -> Line {
    (caller.uid, caller.session.clone())
}

/// The place of a task's `Perform`, so that its placeholder is there before it starts.
fn before_perform(actions: &[Action], id: TaskId) -> usize {
    let performs = |action: &Action| matches!(action, Action::Perform { task, .. } if task.id == id);
    actions.iter().position(performs).unwrap_or(actions.len())
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
    let (from, attempt) = (task.state, task.attempt);
    let to = from.after(step).expect("the dispatcher takes only steps that the life cycle has");
    task.state = to;
    task.attempt += u32::from(step == Step::Start);
    task.not_before = not_before;
    task.end.clone_from(&end);
    effects.changes.push(Change::Move(Box::new(Move {
        id: task.id,
        step,
        from,
        attempt,
        to,
        attempt_after: task.attempt,
        not_before,
        at,
        end,
    })));
}

/// The pause before the next attempt: it doubles each time, with a jitter of up to a quarter.
fn pause(definition: &Definition, task: &Task, again: Again) -> SignedDuration {
    let first = definition.retries.map_or(Duration::from_millis(500), |retries| retries.backoff.get());
    let doubled = first.saturating_mul(1 << task.attempt.saturating_sub(1).min(16));
    let asked = match again {
        Again::After(asked) => asked,
        Again::Never | Again::Later => Duration::ZERO,
    };
    // The id is random in its last bits: tasks that failed together do not come back together.
    let spread =
        task.id.to_string().bytes().rev().take(8).fold(0_u32, |sum, byte| sum.wrapping_mul(31) + u32::from(byte));
    let jitter = doubled.mul_f64(f64::from(spread % 256) / 1024.0);
    let pause = (doubled + jitter).max(asked).min(LONGEST_PAUSE);
    SignedDuration::try_from(pause).unwrap_or(SignedDuration::ZERO)
}

fn failed_end(at: Timestamp, error: ErrorBody) -> End {
    End { at, outcome: Outcome::Error(error), meta: serde_json::Map::new() }
}

fn lost(task: &Task) -> ErrorBody {
    let message = format!("the executor ended while `{}` was running: it may or may not have taken effect", task.tool);
    ErrorBody::new(Code::UnknownOutcome, message)
        .hint("look whether it happened before you run it again: it is not repeated by itself")
}

fn mismatch(same: &Task) -> Answer {
    let message = format!("the idempotency key was used for `{}` with another input", same.tool);
    Answer::Refused(
        ErrorBody::new(Code::IdempotencyMismatch, message)
            .hint("take another key for another call")
            .detail("id", same.id.to_string()),
    )
}

/// Stands in for a definition that is no longer there; a task with it never starts.
fn gone() -> Arc<Definition> {
    let definition = serde_json::json!({"description": "gone", "input": {}, "run": {"process": {"argv": ["false"]}}});
    Arc::new(serde_json::from_value(definition).expect("a complete definition"))
}
