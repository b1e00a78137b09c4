//! A session at work: the loop on a thread of its own, a watch over its tasks on another.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{self, Sender};
use std::thread::{self, JoinHandle};

use executor::agent::driver::{LoopCommand, LoopObserver};
use executor::agent::journal::SessionStore;
use executor::agent::session::{ModelFactory, Session};
use executor::config::Config;
use executor::model::conversation::JournalEntry;
use protocol::error::ErrorBody;
use protocol::mailbox::Mailbox;

use super::super::{Args, open};
use super::screen::Screen;
use super::state::{ChatState, WatchRequest};
use super::watch::{TerminalSessions, watch};
use crate::context::Context;
use crate::error::Error;

/// The session that the person talks with.
#[derive(Debug)]
pub(super) struct RunningSession {
    pub(super) number: u32,
    pub(super) board: Arc<ChatState>,
    pub(super) screen: Arc<Screen>,
    pub(super) models: Arc<ModelFactory>,
    /// Who answers; a model that is asked once does not count.
    pub(super) model: String,
    /// What was asked so far, and not taken back.
    pub(super) questions: Vec<String>,
    /// What the model said last before this talk.
    pub(super) answer: Option<String>,
    session: JoinHandle<(Session, Result<(), ErrorBody>)>,
    watch: JoinHandle<()>,
    looks: Sender<WatchRequest>,
}

impl RunningSession {
    pub(super) fn open(
        args: &Args,
        config: &Config,
        sessions: &SessionStore,
        to: Sender<String>,
        typing: Arc<AtomicBool>,
        doors: &TerminalSessions,
        context: &Context,
    ) -> Result<Self, Error> {
        let board = Arc::new(ChatState::new(typing));
        let mailbox = Mailbox::open(&context.paths.mailbox)?;
        let log = context.paths.state.join("agent.log").display().to_string();
        let screen = Arc::new(Screen::new(to, Arc::clone(&board), mailbox.clone(), config.agent.preview, log));
        let observer: Arc<dyn LoopObserver> = Arc::<Screen>::clone(&screen);
        let mut session = open(args, config.clone(), sessions, observer, context)?;
        session.hold_interrupts();
        let commands = session.commands().ok_or_else(|| Error::internal("a new session cannot be spoken to"))?;
        let (looks, look) = mpsc::channel();
        board.connect(commands, looks.clone(), session.spent());
        board.opened(session.machine().open());
        let entries = session.machine().entries();
        let (number, models, model) = (session.number(), session.models(), session.model().to_owned());
        let (questions, answer) = (questions(entries), session.machine().answer().map(str::to_owned));
        let watch = {
            let (board, screen, doors, nudge) =
                (Arc::clone(&board), Arc::clone(&screen), Arc::clone(doors), looks.clone());
            thread::spawn(move || watch(&mailbox, &board, &screen, &doors, &look, nudge))
        };
        let session = thread::spawn(move || {
            let done = session.run();
            (session, done)
        });
        Ok(Self { number, board, screen, models, model, questions, answer, session, watch, looks })
    }

    /// Ends it; open tasks go on. A session in which nothing was said is forgotten.
    pub(super) fn leave(self, sessions: &SessionStore) -> Result<(), Error> {
        // One that has ended by itself says why below.
        if self.board.stop() {
            self.board.command(LoopCommand::Leave);
        }
        let ended = self.session.join();
        drop(self.looks.send(WatchRequest::End));
        let watched = self.watch.join();
        let (Ok((session, done)), Ok(())) = (ended, watched) else {
            return Err(Error::internal("the session ended in the middle of its work"));
        };
        let was_used = session.machine().entries().iter().any(|entry| !matches!(entry, JournalEntry::UsesModel { .. }));
        drop(session);
        if !was_used {
            sessions.delete(&self.number.to_string())?;
        }
        Ok(done?)
    }
}

/// The questions that stand.
fn questions(entries: &[JournalEntry]) -> Vec<String> {
    let asked = entries.iter().filter_map(|entry| match entry {
        JournalEntry::Asked { text } => Some(text.clone()),
        _ => None,
    });
    asked.collect()
}
