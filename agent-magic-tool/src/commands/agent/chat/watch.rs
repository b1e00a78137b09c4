//! The watch over a session's open tasks: a line when the state of one changes, and the way to say yes.
//!
//! A file event is a nudge; the result files are the truth. Ends are not told here: the loop itself tells them.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use executor::page::terminal::{PendingQuestion, TerminalError, TerminalSession};
use notify::RecommendedWatcher;
use protocol::code::Code;
use protocol::mailbox::Mailbox;
use protocol::mailbox::watch::watch_folder;
use protocol::task::{State, TaskId};
use serde_json::{Map, Value};

use super::question;
use super::screen::Screen;
use super::state::{ChatState, WatchRequest};
use super::words::{short, span};
use crate::commands::executor::page::{self, PageLink};
use crate::context::Context;
use crate::error::Error;
use crate::result::ResultFile;

/// A file event may be missed.
const LOOK_AGAIN: Duration = Duration::from_secs(5);

/// Our way through the page's door, while a human is at this terminal.
pub(super) struct QuestionWatcher {
    context: Context,
    door: Mutex<Option<TerminalSession>>,
    /// The way to the page was told in full.
    told: Mutex<bool>,
}

impl std::fmt::Debug for QuestionWatcher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Doorkeeper").finish_non_exhaustive()
    }
}

impl QuestionWatcher {
    pub(super) fn new(context: Context) -> Self {
        Self { context, door: Mutex::default(), told: Mutex::new(false) }
    }

    /// What a task asks the person, if it does and may be answered here.
    fn question(&self, id: TaskId) -> Result<Option<PendingQuestion>, Error> {
        self.at_door(|door| door.question(id))
    }

    pub(super) fn answer(&self, asked: &PendingQuestion, content: Option<&Map<String, Value>>) -> Result<(), Error> {
        self.at_door(|door| door.answer(asked, content))
    }

    /// Logs in where that was not done, or is over.
    fn at_door<T>(&self, does: impl Fn(&TerminalSession) -> Result<T, TerminalError>) -> Result<T, Error> {
        page::refuse_agents(&self.context)?;
        let mut open = self.door.lock().unwrap_or_else(PoisonError::into_inner);
        let folder = self.context.paths.executor();
        let failed = |error: TerminalError| Error::new(Code::NoExecutor, protocol::error::chain(&error));
        if let Some(door) = &*open {
            match does(door) {
                Err(TerminalError::Refused { status: 401 | 403, .. } | TerminalError::Io(_)) => {}
                done => return done.map_err(failed),
            }
        }
        let door = open.insert(TerminalSession::enter(&folder).map_err(failed)?);
        does(door).map_err(failed)
    }

    /// How to get to the page, in words.
    pub(super) fn way(&self) -> String {
        *self.told.lock().unwrap_or_else(PoisonError::into_inner) = true;
        match page::open_page(&self.context) {
            Ok(PageLink { opened: true, .. }) => "the page is open in your browser".to_owned(),
            Ok(PageLink { link, .. }) => format!("{link} (works once, for a minute; another one: /page)"),
            Err(_) => "agent-magic-tool executor page, in a terminal of your own".to_owned(),
        }
    }

    fn short_way(&self) -> String {
        let told = *self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if told { "/page".to_owned() } else { self.way() }
    }

    pub(super) fn leave(&self) {
        if let Some(door) = self.door.lock().unwrap_or_else(PoisonError::into_inner).take() {
            door.leave();
        }
    }
}

/// Looks until it is told to end.
pub(super) fn watch(
    mailbox: &Mailbox,
    board: &ChatState,
    screen: &Screen,
    doorkeeper: &QuestionWatcher,
    looks: &Receiver<WatchRequest>,
    nudge: Sender<WatchRequest>,
) {
    // Kept: events end with it.
    let _events = events(mailbox, nudge);
    loop {
        let look = if board.open().is_empty() {
            looks.recv().map_err(|_| RecvTimeoutError::Disconnected)
        } else {
            looks.recv_timeout(LOOK_AGAIN)
        };
        match look {
            Ok(WatchRequest::Now) | Err(RecvTimeoutError::Timeout) => {}
            Ok(WatchRequest::End) | Err(RecvTimeoutError::Disconnected) => return,
        }
        for (id, task) in board.open() {
            // One that is gone is told by the loop.
            let Ok(file) = ResultFile::read(mailbox, id) else { continue };
            if file.is_final() || !board.is_now(id, file.state) {
                continue;
            }
            match file.state {
                State::AwaitingConfirmation => waits(id, &task.tool, board, screen, doorkeeper),
                // These last for a moment, and say nothing new.
                State::Accepted | State::Queued => {}
                state => {
                    screen.say(&format!("  {} ({}) is {state}, {}", task.tool, short(id), span(task.since.elapsed())));
                }
            }
        }
    }
}

fn waits(id: TaskId, tool: &str, board: &ChatState, screen: &Screen, doorkeeper: &QuestionWatcher) {
    match doorkeeper.question(id) {
        Ok(Some(asked)) if question::fits_a_line(&asked) => {
            let text = question::text(&asked);
            if board.asks(asked) {
                screen.say(&text);
            }
        }
        Ok(Some(_)) => screen.say(&format!("  {tool} ({}) asks you something: {}", short(id), doorkeeper.short_way())),
        Ok(None) | Err(_) => {
            screen.say(&format!("  {tool} ({}) needs your yes: {}", short(id), doorkeeper.short_way()));
        }
    }
}

fn events(mailbox: &Mailbox, nudge: Sender<WatchRequest>) -> Option<RecommendedWatcher> {
    watch_folder(&mailbox.results(), move |_| drop(nudge.send(WatchRequest::Now))).ok()
}

/// Shares a doorkeeper among the sessions of one talk.
pub(super) type TerminalSessions = Arc<QuestionWatcher>;
