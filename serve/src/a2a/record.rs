//! One task: what happened in its turn so far, and who wants to hear the rest. It is stored before a client hears of it,
//! and before a client hears of its end.

use std::collections::HashSet;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use agent_loop::model::conversation::StopReason;
use jiff::Timestamp;
use protocol::clock;
use protocol::code::Code;
use protocol::error::ErrorBody;
use protocol::task::{State, TaskId};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};
use tokio::sync::{SetOnce, mpsc};
use uuid::Uuid;

use super::error::words;
use super::store::{StoredTask, TaskStore};
use super::wire::{A2aArtifact, A2aMessage, A2aState, A2aStatus, A2aTask, A2aUpdate, agent_message, own_metadata};
use crate::delivery::Receipt;
use crate::service::turn::{Asker, SessionEvent, TurnOutcome};

/// Whose task it is: tasks of other clients do not exist for a client.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum TaskOwner {
    Key(String),
    Address(String),
}

/// Where the turn of a task is found after a restart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TurnPlace {
    pub session: u32,
    pub question: Uuid,
}

/// A task and its turn.
#[derive(Debug)]
pub(super) struct TaskRecord {
    pub id: String,
    pub context_id: String,
    pub owner: TaskOwner,
    /// Who asks, and in which session.
    pub asker: Asker,
    /// With which a repetition of the client's message is recognized.
    asked: AskedMessage,
    /// Set once the events of its turn come, which takes a moment after a restart.
    pub is_followed: SetOnce<()>,
    progress: Mutex<TurnProgress>,
}

/// What makes a message the same as another one.
#[derive(Debug, PartialEq, Eq)]
struct AskedMessage {
    id: String,
    context_id: Option<String>,
    parts_digest: String,
}

impl AskedMessage {
    fn of(message: &A2aMessage) -> Self {
        let parts = serde_json::to_vec(&message.parts).expect("parts are plain JSON");
        let parts_digest = protocol::digest::hex(&Sha256::digest(parts));
        Self { id: message.message_id.clone(), context_id: message.context_id.clone(), parts_digest }
    }
}

/// The parts of a task that may be large.
#[derive(Debug, Clone, Default)]
struct TaskTexts {
    /// The client's message.
    question: A2aMessage,
    /// What the task says about its state.
    message: Option<A2aMessage>,
    /// The answer so far.
    answer: Option<String>,
}

/// How far the turn is.
#[derive(Debug)]
struct TurnProgress {
    state: A2aState,
    at: Timestamp,
    /// `None` of a task that has ended: its file alone has them.
    texts: Option<TaskTexts>,
    metadata: Map<String, Value>,
    /// The tasks of the session that wait for a human.
    waiting: HashSet<TaskId>,
    is_cancel_wanted: bool,
    /// `None` until the session has taken the question, and of a task whose turn was lost.
    place: Option<TurnPlace>,
    is_delivered: bool,
    /// `None` of a task that is forgotten.
    store: Option<Arc<TaskStore>>,
    listeners: Vec<mpsc::UnboundedSender<A2aUpdate>>,
    /// The session's receipt for the answer, until that has reached the client.
    receipt: Option<Receipt>,
}

/// A task as it is now, and its updates from here on.
#[derive(Debug)]
pub(super) struct TaskFeed {
    pub task: A2aTask,
    pub updates: mpsc::UnboundedReceiver<A2aUpdate>,
}

impl TaskRecord {
    pub(super) fn new(
        owner: TaskOwner,
        asker: Asker,
        context_id: String,
        question: A2aMessage,
        store: Arc<TaskStore>,
    ) -> Self {
        let id = Uuid::now_v7().simple().to_string();
        let stored = StoredTask::new(id, context_id, owner, asker, question);
        Self { is_followed: SetOnce::new_with(Some(())), ..Self::of(stored, store) }
    }

    /// The task as it was stored.
    pub(super) fn of(stored: StoredTask, store: Arc<TaskStore>) -> Self {
        let StoredTask { id, context_id, owner, asker, question, message, text, .. } = stored;
        let asked = AskedMessage::of(&question);
        let texts = TaskTexts { question, message, answer: text };
        let progress = TurnProgress {
            state: stored.state,
            at: stored.at,
            texts: Some(texts).filter(|_| !stored.state.is_final()),
            metadata: stored.metadata,
            waiting: HashSet::new(),
            is_cancel_wanted: stored.is_cancel_wanted,
            place: stored.place,
            is_delivered: stored.is_delivered,
            store: Some(store),
            listeners: Vec::new(),
            receipt: None,
        };
        let is_followed = SetOnce::new();
        Self { id, context_id, owner, asker, asked, is_followed, progress: Mutex::new(progress) }
    }

    /// Stores it as it is now.
    pub(super) fn save(&self) -> io::Result<()> {
        self.save_at(&self.progress())
    }

    fn save_at(&self, progress: &TurnProgress) -> io::Result<()> {
        let Some(store) = &progress.store else { return Ok(()) };
        let TaskTexts { question, message, answer } = self.texts(progress)?;
        // What an open task says comes again with the events of its turn.
        let is_final = progress.state.is_final();
        store.write(&StoredTask {
            is_cancel_wanted: progress.is_cancel_wanted,
            place: progress.place,
            is_delivered: progress.is_delivered,
            state: if is_final || progress.state == A2aState::Submitted { progress.state } else { A2aState::Working },
            message: message.filter(|_| is_final),
            at: progress.at,
            text: answer.filter(|_| is_final),
            metadata: if is_final { progress.metadata.clone() } else { Map::new() },
            ..StoredTask::new(
                self.id.clone(),
                self.context_id.clone(),
                self.owner.clone(),
                self.asker.clone(),
                question,
            )
        })
    }

    /// Returns whether it is stored now.
    fn save_or_warn(&self, progress: &TurnProgress) -> bool {
        let saved = self.save_at(progress);
        if let Err(error) = &saved {
            tracing::warn!(%error, task = self.id, "failed to store a task: after a restart it is as it was before");
        }
        saved.is_ok() && progress.store.is_some()
    }

    /// The texts of the task, from its file if it has ended.
    fn texts(&self, progress: &TurnProgress) -> io::Result<TaskTexts> {
        match (&progress.texts, &progress.store) {
            (Some(texts), _) => Ok(texts.clone()),
            (None, None) => Ok(TaskTexts::default()),
            (None, Some(store)) => {
                let StoredTask { question, message, text, .. } = store.read(&self.id)?;
                Ok(TaskTexts { question, message, answer: text })
            }
        }
    }

    #[cfg(test)]
    pub(super) fn has_texts(&self) -> bool {
        self.progress().texts.is_some()
    }

    /// How many bytes of the disk the task takes.
    pub(super) fn bytes(&self) -> u64 {
        self.progress().store.as_ref().map_or(0, |store| store.bytes(&self.id))
    }

    /// Removes what is stored of it.
    pub(super) fn forget(&self) {
        if let Some(store) = self.progress().store.take() {
            store.remove(&self.id);
        }
    }

    /// Stores where the session took the question: from now on its turn is found after a restart.
    pub(super) fn set_place(&self, place: TurnPlace) {
        let mut progress = self.progress();
        progress.place = Some(place);
        self.save_or_warn(&progress);
    }

    pub(super) fn place(&self) -> Option<TurnPlace> {
        self.progress().place
    }

    /// Whether the turn was lost, so that the same message is a new task.
    pub(super) fn is_lost(&self) -> bool {
        let progress = self.progress();
        progress.state == A2aState::Failed && progress.place.is_none()
    }

    pub(super) fn is_delivered(&self) -> bool {
        self.progress().is_delivered
    }

    /// Whether its turn has begun and is to be stopped.
    pub(super) fn awaits_cancel(&self) -> bool {
        let progress = self.progress();
        progress.is_cancel_wanted && progress.state != A2aState::Submitted && !progress.state.is_final()
    }

    fn progress(&self) -> MutexGuard<'_, TurnProgress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether this message made the task, and is only sent again: maybe with the context that its answer named.
    pub(super) fn is_of(&self, owner: &TaskOwner, message: &A2aMessage) -> bool {
        let is_same_id = !message.message_id.is_empty() && self.asked.id == message.message_id;
        let AskedMessage { id: _, context_id, parts_digest } = AskedMessage::of(message);
        let is_same_context = context_id == self.asked.context_id || context_id.as_ref() == Some(&self.context_id);
        is_same_id && self.owner == *owner && is_same_context && self.asked.parts_digest == parts_digest
    }

    pub(super) fn state(&self) -> A2aState {
        self.progress().state
    }

    /// When its status changed last.
    pub(super) fn changed_at(&self) -> Timestamp {
        self.progress().at
    }

    pub(super) fn task(&self) -> A2aTask {
        self.task_at(&self.progress())
    }

    /// The task as it is now, and everything that follows.
    pub(super) fn feed(&self) -> TaskFeed {
        let mut progress = self.progress();
        let (sender, updates) = mpsc::unbounded_channel();
        if !progress.state.is_final() {
            progress.listeners.push(sender);
        }
        TaskFeed { task: self.task_at(&progress), updates }
    }

    fn task_at(&self, progress: &TurnProgress) -> A2aTask {
        let texts = self.texts(progress).unwrap_or_else(|error| {
            tracing::warn!(%error, task = self.id, "failed to read what a task says");
            TaskTexts::default()
        });
        let question =
            A2aMessage { context_id: Some(self.context_id.clone()), task_id: Some(self.id.clone()), ..texts.question };
        A2aTask {
            id: self.id.clone(),
            context_id: self.context_id.clone(),
            status: progress.status(texts.message),
            artifacts: texts.answer.map(|text| vec![A2aArtifact::answer(text)]),
            history: vec![question],
            metadata: progress.metadata.clone(),
        }
    }

    /// Takes in what happened. Returns whether the session must be told to stop now: the client wanted that before the
    /// turn had begun.
    pub(super) fn on_event(&self, event: &SessionEvent) -> bool {
        let mut progress = self.progress();
        let begins = progress.state == A2aState::Submitted && !event.is_last();
        if begins {
            self.tell_state(&mut progress, A2aState::Working, None);
        }
        match event {
            SessionEvent::Preface { text } | SessionEvent::Text { text } => {
                let answer = &mut progress.texts.get_or_insert_default().answer;
                let append = answer.is_some();
                answer.get_or_insert_default().push_str(text);
                self.tell_text(&mut progress, text.clone(), append, false);
            }
            SessionEvent::Restart if progress.answer().is_some() => {
                progress.texts.get_or_insert_default().answer = Some(String::new());
                self.tell_text(&mut progress, String::new(), false, false);
            }
            SessionEvent::Restart => {}
            SessionEvent::Task(news) => {
                if news.state != State::AwaitingConfirmation {
                    progress.waiting.remove(&news.id);
                }
                let state = progress.waiting_state();
                let state_word = serde_json::to_value(news.state).unwrap_or_default();
                let text = format!("{} {}: {}", news.subtool, news.id, state_word.as_str().unwrap_or_default());
                self.tell_state(&mut progress, state, Some(&text));
            }
            SessionEvent::Waiting(news) => {
                progress.waiting.insert(news.id);
                self.tell_state(&mut progress, A2aState::InputRequired, Some(&news.message));
            }
            SessionEvent::Note { text } => {
                let state = progress.waiting_state();
                self.tell_state(&mut progress, state, Some(text));
            }
            SessionEvent::Done(outcome) => self.end(&mut progress, outcome),
            SessionEvent::Error { error } => self.fail(&mut progress, error),
        }
        begins && progress.is_cancel_wanted
    }

    /// The turn cannot be found any more, or its events ended before it did.
    pub(super) fn on_lost(&self, error: &ErrorBody) {
        let mut progress = self.progress();
        if !progress.state.is_final() {
            progress.place = None;
            self.fail(&mut progress, error);
        }
    }

    /// The server is stopping. The task stays as it is: the turn goes on after a restart.
    pub(super) fn on_stopping(&self) {
        self.progress().listeners.clear();
    }

    /// The session does not take the question.
    pub(super) fn on_refused(&self, error: &ErrorBody) {
        let mut progress = self.progress();
        progress.metadata = own_metadata(&json!({"error": error}));
        self.tell_state(&mut progress, A2aState::Rejected, Some(&words(error)));
    }

    /// Keeps the receipt for the answer of the turn that ended until the client has the answer.
    pub(super) fn keep(&self, receipt: Option<Receipt>) {
        self.progress().receipt = receipt;
    }

    /// The client has the whole answer.
    pub(super) fn delivered(&self) {
        let mut progress = self.progress();
        if !std::mem::replace(&mut progress.is_delivered, true) {
            self.save_or_warn(&progress);
        }
        let receipt = progress.receipt.take();
        drop(progress);
        if let Some(receipt) = receipt {
            receipt.give();
        }
    }

    /// Notes that the client wants no answer anymore. Returns whether the turn has begun.
    pub(super) fn want_cancel(&self) -> bool {
        let mut progress = self.progress();
        progress.is_cancel_wanted = true;
        self.save_or_warn(&progress);
        progress.state != A2aState::Submitted
    }

    fn end(&self, progress: &mut TurnProgress, outcome: &TurnOutcome) {
        if progress.answer() != Some(&outcome.answer) && !outcome.answer.is_empty() {
            progress.texts.get_or_insert_default().answer = Some(outcome.answer.clone());
            self.tell_text(progress, outcome.answer.clone(), false, true);
        }
        progress.metadata = own_metadata(&json!({
            "session": outcome.session,
            "model": outcome.model,
            "termination": outcome.termination,
            "truncated": outcome.truncated,
            "usage": outcome.usage,
        }));
        let state = match outcome.stop_reason {
            StopReason::Completed
            | StopReason::CallsClient
            | StopReason::MaxIterations
            | StopReason::BudgetExhausted
            | StopReason::Truncated => A2aState::Completed,
            // The agent says what was denied; that is an answer.
            StopReason::PolicyDenied | StopReason::ApprovalDenied if !outcome.answer.is_empty() => A2aState::Completed,
            StopReason::Refused | StopReason::PolicyDenied | StopReason::ApprovalDenied => A2aState::Rejected,
            StopReason::ProviderFailed => A2aState::Failed,
            StopReason::Cancelled => A2aState::Canceled,
        };
        let state = if progress.is_cancel_wanted && state == A2aState::Failed { A2aState::Canceled } else { state };
        let words = match state {
            A2aState::Completed => None,
            _ if outcome.answer.is_empty() => {
                Some(format!("the turn ended without an answer: {}", outcome.termination))
            }
            _ => Some(outcome.answer.clone()),
        };
        self.tell_state(progress, state, words.as_deref());
    }

    fn fail(&self, progress: &mut TurnProgress, error: &ErrorBody) {
        progress.metadata = own_metadata(&json!({"error": error}));
        let is_cancelled = error.code == Code::Cancelled || progress.is_cancel_wanted;
        let state = if is_cancelled { A2aState::Canceled } else { A2aState::Failed };
        self.tell_state(progress, state, Some(&words(error)));
    }

    fn tell_state(&self, progress: &mut TurnProgress, state: A2aState, text: Option<&str>) {
        if state == A2aState::InputRequired {
            progress.metadata = own_metadata(&json!({"waits_for": "human"}));
        } else if !state.is_final() {
            progress.metadata.clear();
        }
        let begins = std::mem::replace(&mut progress.state, state) == A2aState::Submitted;
        let message = text.map(|text| agent_message(text, &self.context_id, &self.id));
        progress.texts.get_or_insert_default().message.clone_from(&message);
        progress.at = clock::now();
        let is_stored = (begins || state.is_final()) && self.save_or_warn(progress);
        let update = A2aUpdate::StatusUpdate {
            task_id: self.id.clone(),
            context_id: self.context_id.clone(),
            status: progress.status(message),
            metadata: progress.metadata.clone(),
        };
        progress.tell(&update);
        if state.is_final() {
            progress.listeners.clear();
            if is_stored {
                progress.texts = None;
            }
        }
    }

    fn tell_text(&self, progress: &mut TurnProgress, text: String, append: bool, last_chunk: bool) {
        progress.tell(&A2aUpdate::ArtifactUpdate {
            task_id: self.id.clone(),
            context_id: self.context_id.clone(),
            artifact: A2aArtifact::answer(text),
            append,
            last_chunk,
        });
    }
}

impl TurnProgress {
    fn answer(&self) -> Option<&String> {
        self.texts.as_ref()?.answer.as_ref()
    }

    fn status(&self, message: Option<A2aMessage>) -> A2aStatus {
        A2aStatus { state: self.state, message, timestamp: self.at.to_string() }
    }

    fn waiting_state(&self) -> A2aState {
        if self.waiting.is_empty() { A2aState::Working } else { A2aState::InputRequired }
    }

    fn tell(&mut self, update: &A2aUpdate) {
        self.listeners.retain(|listener| listener.send(update.clone()).is_ok());
    }
}
