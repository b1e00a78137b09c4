//! A running session of the chat: the loop on one thread, the watch over its tasks on another.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{self, Sender};
use std::thread::{self, JoinHandle};

use agent_loop::driver::{LoopCommand, LoopObserver};
use agent_loop::journal::{self, SessionStore};
use agent_loop::model::conversation::JournalEntry;
use agent_loop::model_factory::ModelFactory;
use agent_loop::session::Session;
use agent_side::context::Context;
use agent_side::error::Error;
use ground::config::Config;
use protocol::error::ErrorBody;
use protocol::mailbox::Mailbox;

use super::super::{Args, open};
use super::screen::Screen;
use super::state::{ChatState, WatchRequest};
use super::watch::{PageAccess, watch};

/// The session that the chat shows.
#[derive(Debug)]
pub(super) struct RunningSession {
    pub(super) number: u32,
    pub(super) state: Arc<ChatState>,
    pub(super) screen: Arc<Screen>,
    pub(super) model_factory: Arc<ModelFactory>,
    /// The current model; not a model that is asked only once.
    pub(super) model: String,
    /// The questions so far, without those that were taken back.
    pub(super) questions: Vec<String>,
    /// The last answer before this chat began.
    pub(super) last_answer: Option<String>,
    session_thread: JoinHandle<(Session, Result<(), ErrorBody>)>,
    watch_thread: JoinHandle<()>,
    watch_requests: Sender<WatchRequest>,
}

impl RunningSession {
    /// Opens the session that `args` name, and starts its threads. `lines` are printed above the input line.
    pub(super) fn open(
        args: &Args,
        config: &Config,
        sessions: &SessionStore,
        lines: Sender<String>,
        typing: Arc<AtomicBool>,
        page: &Arc<PageAccess>,
        context: &Context,
    ) -> Result<Self, Error> {
        let state = Arc::new(ChatState::new(typing));
        let mailbox = Mailbox::open(&context.paths.mailbox)?;
        let log = context.paths.agent_log().display().to_string();
        let screen = Arc::new(Screen::new(lines, Arc::clone(&state), mailbox.clone(), config.agent.preview, log));
        let observer: Arc<dyn LoopObserver> = Arc::<Screen>::clone(&screen);
        let mut session = open(args, config, sessions, observer, context)?;
        session.ignore_interrupts();
        let sender = session.take_sender().ok_or_else(|| Error::internal("a new session has no command sender"))?;
        let (watch_requests, received_requests) = mpsc::channel();
        state.connect(sender, watch_requests.clone(), session.spending());
        state.add_tasks(session.machine().open());
        let entries = session.machine().entries();
        let (number, model_factory, model) = (session.number(), session.model_factory(), session.model().to_owned());
        if let Some(chars) = journal::preview(entries) {
            screen.set_preview(chars);
        }
        let (questions, last_answer) = (questions(entries), session.machine().answer().map(str::to_owned));
        let watch_thread = {
            let (state, screen, page, sender) =
                (Arc::clone(&state), Arc::clone(&screen), Arc::clone(page), watch_requests.clone());
            thread::spawn(move || watch(&mailbox, &state, &screen, &page, &received_requests, sender))
        };
        let session_thread = thread::spawn(move || {
            let done = session.run();
            (session, done)
        });
        Ok(Self {
            number,
            state,
            screen,
            model_factory,
            model,
            questions,
            last_answer,
            session_thread,
            watch_thread,
            watch_requests,
        })
    }

    /// Ends the session; open tasks continue. A session without any question is deleted.
    pub(super) fn leave(self, sessions: &SessionStore) -> Result<(), Error> {
        // If the session has already ended, its thread returns the reason below.
        if self.state.stop() {
            self.state.send(LoopCommand::Leave);
        }
        let ended = self.session_thread.join();
        drop(self.watch_requests.send(WatchRequest::Stop));
        let watched = self.watch_thread.join();
        let (Ok((session, done)), Ok(())) = (ended, watched) else {
            return Err(Error::internal("a thread of the session panicked"));
        };
        let was_used = session
            .machine()
            .entries()
            .iter()
            .any(|entry| !matches!(entry, JournalEntry::UsesModel { .. } | JournalEntry::ShowsAtMost { .. }));
        drop(session);
        if !was_used {
            sessions.delete(&self.number.to_string())?;
        }
        Ok(done?)
    }
}

/// Returns the questions in the entries.
fn questions(entries: &[JournalEntry]) -> Vec<String> {
    let asked = entries.iter().filter_map(|entry| match entry {
        JournalEntry::Asked { text, .. } => Some(text.clone()),
        _ => None,
    });
    asked.collect()
}
