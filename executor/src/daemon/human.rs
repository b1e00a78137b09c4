//! The human's side: the page, what is said on it, and what a human must be shown.

use std::sync::{Arc, Mutex};

use jiff::{SignedDuration, Timestamp};
use protocol::mailbox::request::Answer;
use protocol::resolution::ResolvedBy;
use protocol::task::{State, TaskId};

use super::{Daemon, DaemonError, DaemonEvent};
use crate::attempt as perform;
use crate::catalog::definition::Definition;
use crate::dispatcher::{DecisionError, DecisionResult, Event, DecideRequest, ResolveRequest, Ticket};
use crate::page::{self, PageCommand, PageMessage};
use crate::store::sqlite::records::RecordReader;
use crate::task::Task;
use crate::task::confirmation::ReplacedValues;
use crate::task::resolution::ResolutionClaim;

/// How many that wait are told where they stand: whoever is behind these waits for long anyway.
const TOLD: usize = 50;
/// However many are decided about, those that still wait are not told more often where they stand.
const PAUSE: SignedDuration = SignedDuration::from_secs(1);

/// What those that wait for a human were told of their place.
#[derive(Debug, Default)]
pub(super) struct QueuePositions {
    /// How many had been answered or had left by then, and when that was.
    hooks_delivered: u64,
    last: Option<Timestamp>,
}

impl QueuePositions {
    fn next(&self, answered: u64) -> Option<Timestamp> {
        (answered > self.hooks_delivered)
            .then(|| self.last.map_or(Timestamp::MIN, |at| at.saturating_add(PAUSE).unwrap_or(at)))
    }
}

impl Daemon {
    /// Serves the page, unless a human does not want it. Where no port can be had, tasks go on.
    pub(super) fn start_page(&mut self) -> Result<(), DaemonError> {
        if !self.runner_context.config.page.enabled {
            return Ok(());
        }
        let listeners = match self.site.listen(&self.folder) {
            Ok(listeners) => listeners,
            Err(error) => {
                tracing::error!(%error, "the page cannot be served: nobody can confirm anything");
                return Ok(());
            }
        };
        let wake = self.wake.clone();
        let page_context = page::PageContext {
            site: self.site.clone(),
            records: Mutex::new(RecordReader::open(&self.record)?),
            catalog: self.intake.catalog(),
            policy: self.intake.policy(),
            approver: Arc::clone(&self.approver),
            task_changes: self.live.clone(),
            send: Box::new(move |message| wake.send(DaemonEvent::Human(Box::new(message))).is_ok()),
            runner_context: Arc::clone(&self.runner_context),
            mailbox: self.mailbox.clone(),
        };
        let _inside = self.runtime.enter();
        page::serve(page_context, &self.folder, listeners, &self.tracker, &self.ended)?;
        self.notifier.page_is_at(self.site.origin());
        Ok(())
    }

    /// Loads what definitions changed, and ends what a human was shown otherwise.
    pub(super) fn refresh(&mut self) -> Option<Event> {
        if !self.intake.refresh() {
            return None;
        }
        let drifted = |task: &&Task| self.intake.definition_of(task).is_none();
        let drifted: Vec<_> = self.dispatcher.confirmable().filter(drifted).map(|task| task.id).collect();
        (!drifted.is_empty()).then_some(Event::DefinitionsChanged(drifted))
    }

    /// What somebody on the page said, as an event.
    pub(super) fn handle_message(&mut self, message: PageMessage) -> Option<Event> {
        let PageMessage { command, session, reply } = message;
        let ticket = TaskId::new();
        self.replies.insert(ticket, reply);
        Some(match command {
            PageCommand::Decide { tasks, action, grant } => {
                Event::Decide(Box::new(DecideRequest { ticket, tasks, action, session, grant }))
            }
            PageCommand::Revoke(grant) => Event::Revoke { ticket, grant },
            PageCommand::Cancel { task, uid } => Event::Cancel { request: ticket, task, uid },
            PageCommand::Resolve { task, happened, note } => {
                let verdict = ResolutionClaim { happened, by: ResolvedBy::Human, note };
                let (id, uid) = (task.id, task.caller.uid);
                let asked = ResolveRequest { request: ticket, id, uid, task: Some(*task), verdict };
                Event::Resolve(Box::new(asked))
            }
            PageCommand::RefreshCatalog => {
                self.reply(ticket, Ok(Vec::new()));
                return None;
            }
            PageCommand::PresenceChanged => {
                self.replies.remove(&ticket);
                self.publish_positions();
                return None;
            }
        })
    }

    /// When those that wait are to be told that they moved up.
    pub(super) fn next_position_update(&self) -> Option<Timestamp> {
        self.queue.next(self.dispatcher.confirmations_answered()).filter(|_| self.dispatcher.confirmations_pending() > 0 && self.backlog.is_empty())
    }

    /// Tells those that wait that they moved up, if it is time to.
    pub(super) fn update_positions(&mut self) {
        if self.next_position_update().is_some_and(|at| at <= self.clock.now()) {
            self.publish_positions();
        }
    }

    /// Writes to those that wait longest where they stand, and whether somebody is there.
    fn publish_positions(&mut self) {
        self.queue = QueuePositions { hooks_delivered: self.dispatcher.confirmations_answered(), last: Some(self.clock.now()) };
        let is_waiting = |task: &&Task| task.state == State::AwaitingConfirmation;
        let waiting: Vec<_> = self.dispatcher.confirmable().filter(is_waiting).take(TOLD).cloned().collect();
        for (task, place) in waiting.iter().zip(1..) {
            self.publisher.publish(task, Some(place));
        }
    }

    pub(super) fn reply(&mut self, ticket: Ticket, decision_result: DecisionResult) {
        let speaker = self.replies.remove(&ticket);
        if speaker.is_some_and(|speaker| speaker.send(decision_result).is_err()) {
            tracing::debug!("whoever spoke on the page is gone");
        }
    }

    /// Has it looked up what `task` would replace, for the human who is asked about it.
    pub(super) fn preview(&self, task: Task, definition: Arc<Definition>) {
        let (runner_context, folder) = (Arc::clone(&self.runner_context), Arc::clone(&self.data_folder));
        let (wake, cancel) = (self.wake.clone(), self.ended.child_token());
        self.tracker.spawn_on(
            async move {
                let found = perform::preview(task.clone(), definition, runner_context, folder, cancel).await;
                if wake.send(DaemonEvent::Previewed(Box::new((task, found)))).is_err() {
                    tracing::debug!("what a task would replace was found after the executor had ended");
                }
            },
            self.runtime.handle(),
        );
    }

    pub(super) fn previewed(&self, (task, found): (Task, ReplacedValues)) -> Option<Event> {
        let asked = task.confirmation.as_ref()?;
        let confirmation = Box::new(asked.with_preview(&self.site.instance, &task, found));
        Some(Event::SetPreview { id: task.id, expected: asked.digest, confirmation })
    }
}

/// The answer to a cancel, for somebody on the page.
pub(super) fn decision_result(answer: &Answer) -> DecisionResult {
    match answer {
        Answer::Cancelling { id, state } => Ok(vec![(*id, *state)]),
        Answer::Resolved { id, .. } => Ok(vec![(*id, State::Unknown)]),
        Answer::SameAs(id) => Err(DecisionError::NotPending(*id)),
        Answer::Refused(error) => Err(DecisionError::Refused(Box::new(error.clone()))),
        Answer::Plan(_) | Answer::Abandoned(_) | Answer::Forgotten { .. } | Answer::Status(_) => Ok(Vec::new()),
    }
}
