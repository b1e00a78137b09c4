//! The daemon's end of the page: serves it, turns its messages into events, and sends it replies and task changes.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use dispatcher::{DecisionResult, Dispatcher, Event, HumanCommand, Ticket};
use ground::config::api_keys::ApiKeys;
use ground::page_client::site::PageSite;
use ground::task::Task;
use ground::task::confirmation::LookedUp;
use jiff::{SignedDuration, Timestamp};
use protocol::mailbox::Mailbox;
use protocol::paths::Paths;
use protocol::task::State;
use store::sqlite::records::RecordReader;
use tokio::sync::{broadcast, oneshot, watch};

use super::DaemonError;
use super::background::{Background, DaemonEvent};
use crate::intake::Intake;
use crate::intake::approver::ApproverPresence;
use crate::intake::settings::LiveSettings;
use crate::page::{self, KeysView, PageContext, PageSessions, TaskChange};

/// Capacity of the channel of task changes. An open page that falls further behind reads the record again.
const MAX_TASK_CHANGES: usize = 256;
/// How many waiting tasks get their position in the queue published; the others have a long wait anyway.
const MAX_POSITIONS: usize = 50;
/// Positions are not published more often than this, however many decisions are made.
const POSITIONS_INTERVAL: SignedDuration = SignedDuration::from_secs(1);

pub(super) struct PageEndpoint {
    site: PageSite,
    is_served: bool,
    /// The port of the setting, if another program had it.
    taken_port: Option<u16>,
    /// The sessions of the page while it is served.
    sessions: Option<Arc<PageSessions>>,
    approver: Arc<ApproverPresence>,
    /// Where to send the results of the commands that the page sent.
    replies: HashMap<Ticket, oneshot::Sender<DecisionResult>>,
    next_ticket: u64,
    task_changes: broadcast::Sender<TaskChange>,
    positions: PublishedPositions,
    mailbox: Mailbox,
    background: Background,
    settings: LiveSettings,
}

/// The last time that positions in the queue for a human were published.
#[derive(Debug, Default)]
struct PublishedPositions {
    at: Option<Timestamp>,
    /// How many tasks had left the queue by then.
    answered: u64,
}

impl PageEndpoint {
    pub(super) fn new(
        site: PageSite,
        approver: Arc<ApproverPresence>,
        mailbox: Mailbox,
        background: Background,
        settings: LiveSettings,
    ) -> Self {
        let (task_changes, positions) = (broadcast::Sender::new(MAX_TASK_CHANGES), PublishedPositions::default());
        Self {
            site,
            is_served: false,
            taken_port: None,
            sessions: None,
            approver,
            replies: HashMap::new(),
            next_ticket: 0,
            task_changes,
            positions,
            mailbox,
            background,
            settings,
        }
    }

    /// Serves the page, unless the configuration disables it. Without a free port tasks go on, but no human can
    /// approve them.
    pub(super) fn serve(
        &mut self,
        paths: &Paths,
        intake: &Intake,
        keys: watch::Receiver<KeysView>,
    ) -> Result<(), DaemonError> {
        let folder = paths.executor();
        let page = self.settings.current().config().page.clone();
        if !page.enabled {
            return Ok(self.site.close(&folder)?);
        }
        let wanted = self.site.listen(&folder, page.port);
        let listening = wanted.or_else(|error| {
            self.taken_port = Some(page.port);
            tracing::warn!(%error, port = page.port, "the page is served at another port: that of the setting is taken");
            self.site.listen(&folder, 0)
        });
        let listeners = match listening {
            Ok(listeners) => listeners,
            Err(error) => {
                tracing::error!(%error, "failed to serve the page: no task can be approved");
                return Ok(self.site.close(&folder)?);
            }
        };
        let events = self.background.clone();
        let sessions = Arc::new(PageSessions::new(&folder));
        self.sessions = Some(Arc::clone(&sessions));
        let context = PageContext {
            sessions,
            site: self.site.clone(),
            records: Mutex::new(RecordReader::open(&paths.store())?),
            catalog: intake.catalog(),
            listing: paths.listing(),
            approver: Arc::clone(&self.approver),
            task_changes: self.task_changes.clone(),
            send: Box::new(move |message| events.send(DaemonEvent::PageMessage(Box::new(message)))),
            settings: self.settings.clone(),
            mailbox: self.mailbox.clone(),
            keys,
            api_keys: ApiKeys::of(paths),
        };
        let _runtime = self.background.enter();
        page::serve(context, &folder, listeners, self.background.tracker(), self.background.executor_ended())?;
        self.is_served = true;
        Ok(())
    }

    /// The address of the page, while it is served.
    pub(super) fn origin(&self) -> Option<String> {
        self.is_served.then(|| self.site.origin())
    }

    /// What the user should know about the address of the page.
    pub(super) fn problem(&self) -> Option<String> {
        let port = self.taken_port.filter(|_| self.is_served)?;
        Some(format!(
            "the page is at port {}: another program had the port {port} of `page.port` when the executor started; when it is \
             free: agent-magic-tool executor stop",
            self.site.port
        ))
    }

    /// The id of this executor's record.
    pub(super) fn instance(&self) -> &str {
        &self.site.instance
    }

    /// Whether a human has the page open.
    pub(super) fn is_open(&self) -> bool {
        self.approver.is_present()
    }

    /// Whether a browser has the page open or is signed in.
    pub(super) fn is_used(&self) -> bool {
        let idle = self.settings.current().config().page.idle.get();
        self.is_open() || self.sessions.as_ref().is_some_and(|sessions| sessions.has_browser(idle))
    }

    /// Turns a command into an event; its result is sent by [`Self::reply`].
    pub(super) fn on_command(&mut self, command: Box<HumanCommand>, reply: oneshot::Sender<DecisionResult>) -> Event {
        let ticket = Ticket(self.next_ticket);
        self.next_ticket += 1;
        self.replies.insert(ticket, reply);
        Event::Command(ticket, command)
    }

    /// Asks the human again about a task, with the values that it would replace.
    pub(super) fn on_preview(&self, (task, found): (Task, LookedUp)) -> Option<Event> {
        let asked = task.confirmation.as_ref()?;
        let confirmation = Box::new(asked.with_preview(&self.site.instance, &task, found));
        Some(Event::SetPreview { id: task.id, expected: asked.digest, confirmation })
    }

    /// Sends the result of a command to the page.
    pub(super) fn reply(&mut self, ticket: Ticket, result: DecisionResult) {
        if let Some(reply) = self.replies.remove(&ticket) {
            send_reply(reply, result);
        }
    }

    /// Shows a change of `task` on open pages.
    pub(super) fn on_change(&self, task: &Task) {
        // An error means that no page is open.
        self.task_changes.send(TaskChange { id: task.id, state: task.state }).ok();
    }

    /// When to publish the positions of waiting tasks because some of them moved up.
    pub(super) fn next_deadline(&self, dispatcher: &Dispatcher) -> Option<Timestamp> {
        let has_moved =
            dispatcher.confirmations_answered() > self.positions.answered && dispatcher.confirmations_pending() > 0;
        let due = |at: Timestamp| at.saturating_add(POSITIONS_INTERVAL).unwrap_or(at);
        has_moved.then(|| self.positions.at.map_or(Timestamp::MIN, due))
    }

    /// Returns the tasks that have waited longest for a human, with their positions, for publication now.
    pub(super) fn take_positions<'a>(
        &mut self,
        dispatcher: &'a Dispatcher,
        now: Timestamp,
    ) -> impl Iterator<Item = (usize, &'a Task)> + use<'a> {
        self.positions = PublishedPositions { at: Some(now), answered: dispatcher.confirmations_answered() };
        let waiting = dispatcher.approvable().filter(|task| task.state == State::AwaitingConfirmation);
        (1..).zip(waiting.take(MAX_POSITIONS))
    }
}

pub(super) fn send_reply(reply: oneshot::Sender<DecisionResult>, result: DecisionResult) {
    if reply.send(result).is_err() {
        tracing::debug!("the page no longer waits for a reply");
    }
}
