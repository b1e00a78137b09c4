//! The inbox: takes requests out of the mailbox, and judges those to run a subtool.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use definition::Definition;
use dispatcher::{Admission, AppliedRateLimit, Dispatcher, DispatcherLimits, Event, RulesChange};
use ground::task::Task;
use ground::task::name::SubtoolName;
use jiff::Timestamp;
use protocol::caller::Caller;
use protocol::error::ErrorBody;
use protocol::mailbox::request::{Answer, RunRequest};
use protocol::mailbox::{Mailbox, TakenRequest, order};
use protocol::task::TaskId;
use serde_json::Value;
use store::switched_off::SwitchedOffTools;

use super::DaemonError;
use super::background::{Background, DaemonEvent};
use super::record::{RecordKeeper, disk_full};
use super::task_log;
use super::watch::InboxWatch;
use crate::intake::{DryRunOrder, Intake, ValidRun};

/// How long to wait before taking requests again after descriptors or memory ran out.
const EXHAUSTION_RETRY_INTERVAL: Duration = Duration::from_millis(100);

/// What a request to run a subtool leads to.
pub(super) enum JudgedRun {
    Event(Event),
    /// A dry run that must be performed before the plan is the answer.
    DryRun(Box<DryRunOrder>, Value),
}

pub(super) struct Inbox {
    mailbox: Mailbox,
    watch: InboxWatch,
    pub(super) intake: Intake,
    switched_off: SwitchedOffTools,
    /// Requests that were taken and wait for those that they refer to.
    held: Vec<TakenRequest>,
    last_activity: Instant,
    /// Set after descriptors or memory ran out.
    retry_at: Option<Instant>,
}

impl Inbox {
    pub(super) fn new(
        mailbox: Mailbox,
        intake: Intake,
        switched_off: SwitchedOffTools,
        background: Background,
    ) -> Self {
        let watch = InboxWatch::new(&mailbox.inbox(), move || {
            if !background.send(DaemonEvent::InboxChanged) {
                tracing::trace!("the inbox changed after the executor had ended");
            }
        });
        Self { mailbox, watch, intake, switched_off, held: Vec::new(), last_activity: Instant::now(), retry_at: None }
    }

    /// Takes the requests out of the inbox, each after those that it refers to.
    pub(super) fn take(&mut self) -> io::Result<Vec<TakenRequest>> {
        self.retry_at = None;
        self.watch.begin_look();
        let taken = self.mailbox.take_in_order(&mut self.held)?;
        if !self.held.is_empty() {
            self.retry_at = Some(Instant::now());
        }
        Ok(taken)
    }

    /// The requests that an earlier executor took and did not answer, without those that may refer to one that it did not
    /// take: they come with the next look.
    pub(super) fn unanswered(&mut self) -> io::Result<Vec<TakenRequest>> {
        let (first, later) = order::split_at_reference(self.mailbox.unanswered()?);
        self.held = later;
        Ok(first)
    }

    /// Schedules the next look soon, since descriptors or memory ran out.
    pub(super) fn retry_soon(&mut self) {
        self.retry_at = Some(Instant::now() + EXHAUSTION_RETRY_INTERVAL);
    }

    /// Notes that something happened: without file events, the inbox is polled more often after activity.
    pub(super) fn note_activity(&mut self) {
        self.last_activity = Instant::now();
    }

    /// When to look into the inbox even without a file event.
    pub(super) fn next_deadline(&self) -> Instant {
        let at = Instant::now() + self.watch.pause(self.last_activity.elapsed());
        self.retry_at.map_or(at, |retry_at| retry_at.min(at))
    }

    /// Judges every open task by the rules and definitions as they are now.
    pub(super) fn reassess(&self, dispatcher: &Dispatcher, now: Timestamp) -> Event {
        let has_drifted = |task: &&Task| self.intake.definition_of(task).is_none();
        let reassess =
            |(task, definition): (&Task, &Arc<Definition>)| (task.id, self.intake.reassess(task, definition, now));
        Event::RulesChanged(Box::new(RulesChange {
            limits: DispatcherLimits::of(self.intake.settings().config()),
            reassessed: dispatcher.open_tasks().map(reassess).collect(),
            drifted: dispatcher.approvable().filter(has_drifted).map(|task| task.id).collect(),
        }))
    }

    /// Judges a request to run a subtool. New tasks are refused while the record is behind.
    pub(super) fn run(
        &mut self,
        id: TaskId,
        caller: Caller,
        run: RunRequest,
        record: &RecordKeeper,
        now: Timestamp,
    ) -> Result<JudgedRun, DaemonError> {
        let (name, asker) = (run.tool.clone(), caller.clone());
        let refused = |error: ErrorBody| {
            task_log::log_refusal(id, &name, asker.uid, &error);
            Ok(JudgedRun::Event(Event::refusal(id, error)))
        };
        let (task, definition, dry_run) = match self.intake.run(id, caller, run, now) {
            Err(error) => return refused(error),
            Ok(ValidRun::Plan { tool, plan, dry_run }) => {
                let off = self.switched_off(&tool, &asker, &self.intake.rate_limits(&tool, &asker))?;
                return match (off, dry_run) {
                    (Some(error), _) => refused(error),
                    (None, Some(order)) => Ok(JudgedRun::DryRun(order, plan)),
                    (None, None) => Ok(JudgedRun::Event(Event::Answer(id, Box::new(Answer::Plan(plan))))),
                };
            }
            Ok(ValidRun::Task { .. }) if record.is_behind() => return refused(disk_full()),
            Ok(ValidRun::Task { task, definition, dry_run }) => (*task, definition, dry_run),
        };
        let earlier = match &task.idempotency_key {
            Some(key) => record.store().task_by_key(task.caller.uid, key)?,
            None => None,
        };
        // What was accepted before was shown before.
        if earlier.is_none()
            && let Err(error) = self.intake.check_shown(id, dry_run, now)
        {
            return refused(error);
        }
        let mut rate_limits = self.intake.rate_limits(&task.tool, &task.caller);
        if earlier.is_none() && may_switch_off(&rate_limits) {
            if let Some(error) = self.switched_off(&task.tool, &task.caller, &rate_limits)? {
                return refused(error);
            }
            let switched_on = self.switched_off.switched_on(&task.tool, &task.caller)?;
            for applied in &mut rate_limits {
                applied.switched_on = switched_on;
            }
        }
        Ok(JudgedRun::Event(Event::Admit(Box::new(Admission { task, definition, rate_limits, earlier }))))
    }

    /// Why the caller may not use a subtool now, if it was switched off for the caller.
    fn switched_off(
        &self,
        tool: &SubtoolName,
        caller: &Caller,
        limits: &[AppliedRateLimit],
    ) -> io::Result<Option<ErrorBody>> {
        if may_switch_off(limits) { self.switched_off.refuse(tool, caller) } else { Ok(None) }
    }
}

fn may_switch_off(limits: &[AppliedRateLimit]) -> bool {
    limits.iter().any(|applied| applied.limit.auto_disable)
}
