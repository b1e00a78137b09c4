//! The inbox: takes requests out of the mailbox and turns them into events and answers.

use std::io;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use protocol::mailbox::request::Answer;
use protocol::mailbox::{Mailbox, TakenRequest};

use super::DaemonError;
use super::background::{Background, DaemonEvent};
use super::record::{RecordKeeper, disk_full};
use super::watch::InboxWatch;
use crate::dispatcher::{Admission, Dispatcher, Event, ResolveRequest};
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
        Self { mailbox, watch, intake, switched_off, last_activity: Instant::now(), retry_at: None }
    }

    /// Takes every request out of the inbox.
    pub(super) fn take(&mut self) -> io::Result<Vec<TakenRequest>> {
        self.retry_at = None;
        self.watch.begin_look();
        self.mailbox.take_all()
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

    /// Reloads changed definitions. Returns an event if that changed the definitions of tasks that wait for a human or
    /// were approved by one.
    pub(super) fn refresh_definitions(&mut self, dispatcher: &Dispatcher) -> Option<Event> {
        if !self.intake.refresh() {
            return None;
        }
        let has_drifted = |task: &&Task| self.intake.definition_of(task).is_none();
        let drifted: Vec<_> = dispatcher.confirmable().filter(has_drifted).map(|task| task.id).collect();
        (!drifted.is_empty()).then_some(Event::DefinitionsChanged(drifted))
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
        Ok(match self.intake.read(request, now) {
            IntakeOutcome::Run { .. } if record.is_behind() => RequestOutcome::Answer(Answer::Refused(disk_full())),
            IntakeOutcome::Run { task, definition } => {
                let earlier = match &task.idempotency_key {
                    Some(key) => store.task_by_key(task.caller.uid, key)?,
                    None => None,
                };
                let may_be_off = earlier.is_none() && definition.rate_limit.is_some_and(|limit| limit.auto_disable);
                if may_be_off && let Some(error) = self.switched_off.refuse(&task.tool, &task.caller)? {
                    return Ok(RequestOutcome::Answer(Answer::Refused(error)));
                }
                RequestOutcome::Event(Event::Admit(Box::new(Admission { task: *task, definition, earlier })))
            }
            IntakeOutcome::Cancel { task, uid } => {
                RequestOutcome::Event(Event::Cancel { request: request.id, task, uid })
            }
            IntakeOutcome::Resolve { task: id, uid, verdict } => {
                let asked = ResolveRequest { request: request.id, id, uid, task: store.task(id)?, verdict };
                RequestOutcome::Event(Event::Resolve(Box::new(asked)))
            }
            IntakeOutcome::Abandon { session, uid } => {
                RequestOutcome::Event(Event::Abandon { request: request.id, uid, session })
            }
            IntakeOutcome::Forget { session, uid } => RequestOutcome::Forget { session, uid },
            IntakeOutcome::Status => RequestOutcome::Status,
            IntakeOutcome::Answer(answer) => RequestOutcome::Answer(answer),
        })
    }
}
