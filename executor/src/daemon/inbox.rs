//! The inbox: takes requests out of the mailbox and turns them into events and answers.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use protocol::mailbox::request::Answer;
use protocol::mailbox::{Mailbox, TakenRequest, order};
use serde_json::Value;

use super::DaemonError;
use super::background::{Background, DaemonEvent};
use super::record::{RecordKeeper, disk_full};
use super::task_log;
use super::watch::InboxWatch;
use crate::catalog::definition::Definition;
use crate::dispatcher::{Admission, Dispatcher, DispatcherLimits, Event, ResolveRequest, RulesChange};
use crate::intake::{Intake, IntakeOutcome};
use crate::store::switched_off::SwitchedOffTools;
use crate::task::Task;

/// How long to wait before taking requests again after descriptors or memory ran out.
const EXHAUSTION_RETRY_INTERVAL: Duration = Duration::from_millis(100);

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

/// What a taken request leads to.
pub(super) enum RequestOutcome {
    /// The task was accepted before a crash, and its caller was not answered: its result file is the answer.
    Known(Box<Task>),
    Event(Event),
    Answer(Answer),
    /// Forget the ended tasks of a session.
    Forget {
        session: String,
        uid: u32,
    },
    Status,
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
            drifted: dispatcher.confirmable().filter(has_drifted).map(|task| task.id).collect(),
        }))
    }

    /// Reads one request. New tasks are refused while the record is behind.
    pub(super) fn read(
        &self,
        request: &TakenRequest,
        record: &RecordKeeper,
        now: Timestamp,
    ) -> Result<RequestOutcome, DaemonError> {
        let store = record.store();
        if let Some(known) = store.task(request.id)? {
            return Ok(RequestOutcome::Known(Box::new(known)));
        }
        let outcome = match self.intake.read(request, now) {
            IntakeOutcome::Run { .. } if record.is_behind() => RequestOutcome::Answer(Answer::Refused(disk_full())),
            IntakeOutcome::Run { task, definition } => {
                let earlier = match &task.idempotency_key {
                    Some(key) => store.task_by_key(task.caller.uid, key)?,
                    None => None,
                };
                let mut rate_limits = self.intake.rate_limits(&task.tool);
                if earlier.is_none() && rate_limits.iter().any(|applied| applied.limit.auto_disable) {
                    if let Some(error) = self.switched_off.refuse(&task.tool, &task.caller)? {
                        task_log::log_refusal(request.id, task.tool.as_str(), request.uid, &error);
                        return Ok(RequestOutcome::Answer(Answer::Refused(error)));
                    }
                    let switched_on = self.switched_off.switched_on(&task.tool, &task.caller)?;
                    for applied in &mut rate_limits {
                        applied.switched_on = switched_on;
                    }
                }
                let admission = Admission { task: *task, definition, rate_limits, earlier };
                RequestOutcome::Event(Event::Admit(Box::new(admission)))
            }
            IntakeOutcome::Plan { tool, caller, plan } => {
                let limits = self.intake.rate_limits(&tool);
                let may_be_off = limits.iter().any(|applied| applied.limit.auto_disable);
                let off = if may_be_off { self.switched_off.refuse(&tool, &caller)? } else { None };
                RequestOutcome::Answer(off.map_or(Answer::Plan(plan), Answer::Refused))
            }
            IntakeOutcome::Cancel { task, caller, reason } => {
                RequestOutcome::Event(Event::Cancel { request: request.id, task, caller, reason })
            }
            IntakeOutcome::Resolve { task: id, caller, verdict } => {
                let asked =
                    ResolveRequest { request: request.id, id, caller, task: store.task(id)?, verdict, touch: None };
                RequestOutcome::Event(Event::Resolve(Box::new(asked)))
            }
            IntakeOutcome::Abandon { session, caller } => {
                RequestOutcome::Event(Event::Abandon { request: request.id, caller, session })
            }
            IntakeOutcome::Forget { session, uid } => RequestOutcome::Forget { session, uid },
            IntakeOutcome::Status => RequestOutcome::Status,
            IntakeOutcome::Answer(answer) => RequestOutcome::Answer(answer),
        };
        if let RequestOutcome::Answer(Answer::Refused(error)) = &outcome {
            // The request may be malformed; what names the subtool is only for the log.
            let parsed: Value =
                request.bytes.as_ref().ok().and_then(|bytes| serde_json::from_slice(bytes).ok()).unwrap_or_default();
            let tool = parsed.pointer("/operation/run/tool").and_then(Value::as_str).unwrap_or_default();
            task_log::log_refusal(request.id, tool, request.uid, error);
        }
        Ok(outcome)
    }
}
