//! Drives the dispatcher: hands it events, commits the changes that follow, then carries out the actions.

use std::collections::{HashMap, HashSet, VecDeque};
use std::time::{Duration, Instant};

use dispatcher::{Action, Dispatcher, Effects, Event};
use ground::task::Task;
use jiff::Timestamp;
use protocol::fault;
use protocol::mailbox::request::Answer;
use protocol::task::{State, TaskId};
use serde_json::Value;
use store::switched_off::{SwitchedOffTool, SwitchedOffTools};
use store::{Change, StoreError};

use super::attempts::AttemptPool;
use super::dry_runs::DryRunPool;
use super::hooks::{DeliveryReport, HookDeliveries};
use super::learner::Learner;
use super::monotonic_clock::MonotonicClock;
use super::page_endpoint::PageEndpoint;
use super::publisher::Publisher;
use super::record::{CommitOutcome, RecordKeeper, refuse_new};
use super::task_log;
use crate::intake::DryRunOrder;
use crate::intake::settings::LiveSettings;
use crate::telemetry::Telemetry;

/// How long a task must have been running until its result file says so instead of `queued`. Most tasks end sooner, and
/// a file that is written for a moment delays everyone.
const MIN_RUNNING: Duration = Duration::from_millis(100);

/// The dispatcher, and the parts that carry out what it decides.
pub(super) struct TaskDriver {
    pub(super) clock: MonotonicClock,
    pub(super) dispatcher: Dispatcher,
    pub(super) record: RecordKeeper,
    pub(super) publisher: Publisher,
    pub(super) attempts: AttemptPool,
    pub(super) dry_runs: DryRunPool,
    pub(super) page: PageEndpoint,
    pub(super) hooks: HookDeliveries,
    pub(super) switched_off: SwitchedOffTools,
    pub(super) telemetry: Option<Telemetry>,
    pub(super) learner: Learner,
    pub(super) settings: LiveSettings,
    /// The tasks that were started and whose result files do not say so yet, with the time when they should.
    pub(super) started: VecDeque<(Instant, TaskId)>,
}

impl TaskDriver {
    /// Hands `events` to the dispatcher and carries out the effects.
    pub(super) fn turn(&mut self, events: Vec<Event>) -> Result<(), StoreError> {
        let now = self.clock.now();
        let mut effects = Effects::default();
        let mut admitted = HashMap::new();
        for event in events {
            if let Event::Admit(admission) = &event {
                self.learner.on_request(&admission.task);
                admitted.insert(admission.task.id, (admission.task.tool.clone(), admission.task.caller.uid));
            }
            if let Event::AttemptFinished(report) = &event {
                fault::point("attempt", "finished");
                self.attempts.on_finished(report.id);
            }
            self.dispatcher.handle(event, now, &mut effects);
        }
        for action in &effects.actions {
            if let Action::Answer(id, answer) = action
                && let (Answer::Refused(error), Some((tool, uid))) = (&**answer, admitted.get(id))
            {
                task_log::log_refusal(*id, tool.as_str(), *uid, error);
            }
        }
        self.carry_out(effects)
    }

    /// Commits the changes of `effects`, then carries out its actions. While the disk is full, actions wait until
    /// their changes are durable.
    pub(super) fn carry_out(&mut self, mut effects: Effects) -> Result<(), StoreError> {
        let now = self.clock.now();
        self.hooks.add_to(&mut effects, now);
        let outcome = self.record.commit(effects, |effects| refuse_new(&mut self.dispatcher, effects, now))?;
        self.on_commit(outcome);
        Ok(())
    }

    /// Commits what could not be committed before, if it is time to.
    pub(super) fn retry_record(&mut self) -> Result<(), StoreError> {
        let outcome = self.record.retry()?;
        self.on_commit(outcome);
        Ok(())
    }

    /// Commits and writes what could not be committed or written before, for the last time.
    pub(super) fn retry_last(&mut self) -> Result<(), StoreError> {
        let outcome = self.record.retry_last()?;
        self.on_commit(outcome);
        self.publisher.retry_now(self.record.store())
    }

    /// Writes the result files and answers that could not be written before, if it is time to.
    pub(super) fn retry_late(&mut self) -> Result<(), StoreError> {
        self.publisher.retry(self.record.store())
    }

    /// Does what is due apart from events: late writes, hook deliveries, positions in the queue, and tasks that go on
    /// running.
    pub(super) fn do_due(&mut self) -> Result<(), StoreError> {
        self.retry_late()?;
        self.publish_running();
        let now = self.clock.now();
        if self.next_delivery().is_some_and(|at| at <= now) {
            self.hooks.send_due(self.record.store(), now)?;
        }
        if self.next_positions().is_some_and(|at| at <= now) {
            self.publish_positions();
        }
        Ok(())
    }

    /// When the dispatcher needs a tick, or [`Self::do_due`] has something to send.
    pub(super) fn next_deadline(&self) -> Option<Timestamp> {
        [self.dispatcher.next_deadline(), self.next_delivery(), self.next_positions()].into_iter().flatten().min()
    }

    /// When to call [`Self::retry_record`] and [`Self::do_due`] because a write failed or was put off.
    pub(super) fn next_retry(&self) -> Option<Instant> {
        let running = self.started.front().map(|(at, _)| *at);
        [self.record.next_retry(), self.publisher.next_retry(), running].into_iter().flatten().min()
    }

    /// Returns the events that follow from the time alone.
    pub(super) fn clock_events(&self) -> Vec<Event> {
        let mut events = Vec::new();
        if self.clock.ahead() != self.dispatcher.ahead() {
            events.push(Event::SetClock { ahead: self.clock.ahead() });
        }
        if self.dispatcher.next_deadline().is_some_and(|deadline| deadline <= self.clock.now()) {
            events.push(Event::Tick);
        }
        events
    }

    /// Records the outcomes of hook deliveries.
    pub(super) fn on_deliveries(&mut self, reports: Vec<DeliveryReport>) -> Result<(), StoreError> {
        let changes = self.hooks.on_reports(reports, self.clock.now());
        if changes.is_empty() { Ok(()) } else { self.carry_out(Effects { changes, actions: Vec::new() }) }
    }

    /// Whether no task is open and every change is recorded.
    pub(super) fn is_idle(&self) -> bool {
        self.dispatcher.is_idle() && !self.record.is_behind() && self.dry_runs.is_empty()
    }

    /// Whether the answer or the result file that `request` waits for is written.
    pub(super) fn is_answered(&self, request: TaskId) -> bool {
        !self.publisher.is_late(request)
            && !self.record.has_pending_answer(request)
            && !self.dry_runs.is_performing(request)
    }

    /// The requests for dry runs that were answered since the last call.
    pub(super) fn answered_dry_runs(&mut self) -> Vec<TaskId> {
        let (publisher, record) = (&self.publisher, &self.record);
        self.dry_runs.take_answered(|id| !publisher.is_late(id) && !record.has_pending_answer(id))
    }

    /// Starts a dry run, whose plan is the answer to its request. Returns the answer if too many are being made.
    pub(super) fn start_dry_run(&mut self, order: DryRunOrder, plan: Value) -> Option<Event> {
        self.dry_runs.start(order, plan, &self.settings)
    }

    /// Brings the result file of `task` up to date, and shows the change on open pages.
    pub(super) fn publish(&mut self, task: &Task) {
        let settings = self.settings.current();
        task_log::log(task, settings.config().executor.log_inputs, &settings.runner_context.secrets);
        self.publisher.publish(task, self.dispatcher.queue_position(task.id));
        self.page.on_change(task);
    }

    /// Deliveries must wait until their changes are recorded and the result files they refer to are written.
    fn next_delivery(&self) -> Option<Timestamp> {
        let must_wait = self.record.is_behind() || self.publisher.is_behind();
        self.hooks.next_deadline().filter(|_| !must_wait)
    }

    fn next_positions(&self) -> Option<Timestamp> {
        self.page.next_deadline(&self.dispatcher).filter(|_| !self.record.is_behind())
    }

    pub(super) fn publish_positions(&mut self) {
        for (position, task) in self.page.take_positions(&self.dispatcher, self.clock.now()) {
            self.publisher.publish(task, Some(position));
        }
    }

    fn on_commit(&mut self, outcome: CommitOutcome) {
        if let Some(telemetry) = &mut self.telemetry {
            telemetry.committed(&outcome.changes, outcome.duration);
        }
        // Callers wait for their result files and answers; attempts, which compete with that for processors, start after.
        // What stops an attempt keeps its place after what starts it: both may come from one step.
        let is_start =
            |action: &Action| matches!(action, Action::Perform { .. } | Action::Preview { .. } | Action::Interrupt(..));
        let (starts, replies): (Vec<_>, Vec<_>) = outcome.actions.into_iter().partition(is_start);
        let accepted: HashSet<_> = outcome.changes.iter().filter_map(accepted).collect();
        for action in replies {
            match action {
                // Its result file exists: it was accepted in an earlier step.
                Action::Publish(task) if task.state == State::Running && !accepted.contains(&task.id) => {
                    self.page.on_change(&task);
                    self.started.push_back((Instant::now() + MIN_RUNNING, task.id));
                }
                other => self.act(other),
            }
        }
        self.publisher.announce();
        for action in starts {
            self.act(action);
        }
        self.learner.on_commit(&outcome.changes);
        if let Some(telemetry) = &self.telemetry {
            telemetry.set_late(self.publisher.late_count());
        }
    }

    /// Publishes the tasks that have been running for a moment.
    fn publish_running(&mut self) {
        while let Some((_, id)) = self.started.pop_front_if(|(at, _)| *at <= Instant::now()) {
            let running =
                self.dispatcher.open_task(id).map(|(task, _)| task).filter(|task| task.state == State::Running);
            if let Some(task) = running.cloned() {
                self.publish(&task);
            }
        }
        self.publisher.announce();
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Publish(task) => self.publish(&task),
            Action::Answer(id, answer) => self.answer(id, answer),
            Action::Reply(ticket, result) => self.page.reply(ticket, result),
            Action::Preview { task, definition } => self.attempts.preview(*task, definition),
            Action::Perform { task, definition, purpose } => self.attempts.start(*task, definition, purpose),
            Action::Interrupt(id, cause) => self.attempts.interrupt(id, cause),
            Action::SwitchOff(tool) => self.switch_off(&tool),
            Action::TellRecorded(signal) => signal.fire(),
        }
    }

    /// Answers a request from the mailbox.
    fn answer(&mut self, request: TaskId, answer: Box<Answer>) {
        if let Some(telemetry) = &self.telemetry {
            telemetry.answered(&answer);
        }
        self.publisher.answer(request, answer);
    }

    fn switch_off(&self, off: &SwitchedOffTool) {
        let (tool, uid, session) = (off.tool.as_str(), off.uid, off.session.as_deref());
        match self.switched_off.switch_off(off) {
            Ok(()) => tracing::warn!(tool, uid, session, "switched off for a session that called it too often"),
            Err(error) => tracing::error!(tool, %error, "failed to switch off a subtool"),
        }
    }
}

/// The task that a change adds to the record.
fn accepted(change: &Change) -> Option<TaskId> {
    if let Change::Accept(task) = change { Some(task.id) } else { None }
}
