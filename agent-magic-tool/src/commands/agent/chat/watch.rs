//! Watches the open tasks of a session: prints state changes, and where the human approves or answers.
//!
//! A file event only triggers a check; the result files are the source of truth. The end of a task is not shown
//! here, since the loop reports it.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use agent_side::context::Context;
use agent_side::error::Error;
use agent_side::result::ResultFile;
use ground::page_client::client::PageClientError;
use ground::page_client::terminal::{PendingQuestion, TerminalSession};
use notify::RecommendedWatcher;
use protocol::caller::Caller;
use protocol::code::Code;
use protocol::mailbox::Mailbox;
use protocol::mailbox::watch::watch_folder;
use protocol::task::{State, TaskId};
use serde_json::{Map, Value};

use super::question;
use super::screen::Screen;
use super::state::{ChatState, WatchRequest};
use super::text::{format_duration, short_id};
use crate::commands::executor::open_page::{self as page_command, PageLink};

/// How often to check without a file event, since events can be missed.
const CHECK_INTERVAL: Duration = Duration::from_secs(5);

/// A client of the confirmation page, for the human at this terminal.
pub(super) struct PageAccess {
    context: Context,
    session: Mutex<Option<TerminalSession>>,
    /// Whether the link to the page was shown.
    link_shown: Mutex<bool>,
}

impl std::fmt::Debug for PageAccess {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PageAccess").finish_non_exhaustive()
    }
}

impl PageAccess {
    pub(super) fn new(context: Context) -> Self {
        Self { context, session: Mutex::default(), link_shown: Mutex::new(false) }
    }

    /// Returns the question of a task, if it asks one.
    fn question(&self, id: TaskId) -> Result<Option<PendingQuestion>, Error> {
        self.with_session(|session| session.question(id))
    }

    /// Answers a question, or declines it if there is no content.
    pub(super) fn answer(&self, pending: &PendingQuestion, content: Option<&Map<String, Value>>) -> Result<(), Error> {
        self.with_session(|session| session.answer(pending, content))
    }

    /// Runs `action` with a session of the page; logs in first if there is no session or it has expired.
    fn with_session<T>(&self, action: impl Fn(&TerminalSession) -> Result<T, PageClientError>) -> Result<T, Error> {
        page_command::refuse_agents(&self.context)?;
        let mut current = self.session.lock().unwrap_or_else(PoisonError::into_inner);
        let folder = self.context.paths.executor();
        let failed = |error: PageClientError| Error::new(Code::NoExecutor, protocol::error::chain(&error));
        if let Some(session) = &*current {
            match action(session) {
                Err(PageClientError::Refused { status: 401 | 403, .. } | PageClientError::Io(_)) => {}
                done => return done.map_err(failed),
            }
        }
        let session = current.insert(TerminalSession::log_in(&folder).map_err(failed)?);
        action(session).map_err(failed)
    }

    /// Opens the page in the browser, or returns a link to it, as text for the user.
    pub(super) fn link(&self) -> String {
        *self.link_shown.lock().unwrap_or_else(PoisonError::into_inner) = true;
        match page_command::open_page(&self.context, "/") {
            Ok(PageLink { opened: true, .. }) => "the page is open in your browser".to_owned(),
            Ok(PageLink { link, .. }) => format!("{link} (works once, within a minute; for a new link: /page)"),
            Err(_) => "run this in your own terminal: agent-magic-tool executor page".to_owned(),
        }
    }

    /// Like [`Self::link`] the first time, then only the command `/page`.
    fn short_link(&self) -> String {
        let link_shown = *self.link_shown.lock().unwrap_or_else(PoisonError::into_inner);
        if link_shown { "/page".to_owned() } else { self.link() }
    }

    pub(super) fn log_out(&self) {
        if let Some(session) = self.session.lock().unwrap_or_else(PoisonError::into_inner).take() {
            session.log_out();
        }
    }
}

/// Checks the open tasks on each request, until [`WatchRequest::Stop`].
pub(super) fn watch(
    mailbox: &Mailbox,
    state: &ChatState,
    screen: &Screen,
    page: &PageAccess,
    requests: &Receiver<WatchRequest>,
    sender: Sender<WatchRequest>,
) {
    // Dropping the watcher would end the events.
    let _watcher = watch_results(mailbox, sender);
    loop {
        let request = if state.open_tasks().is_empty() {
            requests.recv().map_err(|_| RecvTimeoutError::Disconnected)
        } else {
            requests.recv_timeout(CHECK_INTERVAL)
        };
        match request {
            Ok(WatchRequest::Check) | Err(RecvTimeoutError::Timeout) => {}
            Ok(WatchRequest::Stop) | Err(RecvTimeoutError::Disconnected) => return,
        }
        for (id, task) in state.open_tasks() {
            // The loop reports a result file that was removed.
            let Ok(file) = ResultFile::read(mailbox, id, &Caller::default()) else { continue };
            if file.is_final() || !state.update_task(id, file.state) {
                continue;
            }
            match file.state {
                State::AwaitingConfirmation => show_confirmation(id, &task.tool, state, screen, page),
                // Short-lived states that tell the user nothing new.
                State::Accepted | State::Queued => {}
                other => {
                    let duration = format_duration(task.since.elapsed());
                    screen.say(&format!("  {} ({}) is {other}, {duration}", task.tool, short_id(id)));
                }
            }
        }
    }
}

/// Shows a task's question, or that the task needs approval.
fn show_confirmation(id: TaskId, tool: &str, state: &ChatState, screen: &Screen, page: &PageAccess) {
    match page.question(id) {
        Ok(Some(pending)) if question::fits_a_line(&pending) => {
            let text = question::text(&pending);
            if state.add_question(pending) {
                screen.say(&text);
            }
        }
        Ok(Some(_)) => screen.say(&format!("  {tool} ({}) asks you a question: {}", short_id(id), page.short_link())),
        Ok(None) | Err(_) => {
            screen.say(&format!("  {tool} ({}) needs your approval: {}", short_id(id), page.short_link()));
        }
    }
}

/// Requests a check when a result file changes. `None` if the system has no file events.
fn watch_results(mailbox: &Mailbox, sender: Sender<WatchRequest>) -> Option<RecommendedWatcher> {
    watch_folder(&mailbox.results(), move |_| drop(sender.send(WatchRequest::Check))).ok()
}
