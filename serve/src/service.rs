//! Sessions as a service: opened when a client asks, one question at a time, kept in the journal.
//!
//! A session belongs to the API key that made it. A client without a key is of our own user, and may use all of them.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use agent_loop::driver::LoopCommand;
use agent_loop::input::InputPlace;
use agent_loop::journal::SessionStore;
use agent_loop::model::ledger::SpendingAccount;
use ground::config::Config;
use ground::results::trigger::Trigger;
use protocol::caller::Caller;
use protocol::code::Code;
use protocol::error::{ErrorBody, chain};
use protocol::mailbox::Mailbox;
use protocol::paths::Paths;
use protocol::shell::Shell;
use protocol::task::TaskId;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use uuid::Uuid;

pub use self::approver_window::ApproverWindows;
use self::approver_window::Approvers;
use self::client_calls::ClientExchanges;
use self::conversations::Conversations;
use self::index::SessionIndex;
pub use self::info::{ModelInfo, QuestionState, SessionInfo, SessionState};
pub(crate) use self::ledger::StateLock;
use self::ledger::{OwedAnswers, QuestionLedger, QuestionPlace};
use self::live::{LiveParts, LiveSession, QueuedQuestion};
use self::log::{Activity, EventSender};
use self::quotas::{Quotas, TurnPermit};
use self::responses::StoredResponses;
use self::revoked::RevokedKeys;
use self::settings::SettingsSource;
use crate::delivery::Receipt;
use crate::limits::ConcurrencyLimit;
use crate::service::turn::{
    Asker, ClientConversation, EventId, LoggedEvent, Question, SessionEvent, TaskNews, TurnStream,
};

mod approver_window;
mod client_calls;
mod commands;
pub(crate) mod conversations;
pub(crate) mod followers;
mod history;
mod index;
mod info;
mod ledger;
mod live;
mod log;
mod models;
mod quotas;
pub(crate) mod responses;
mod revoked;
mod seed;
mod settings;
mod stateless;
pub mod turn;

/// How often idle sessions are looked for.
const UNLOAD_INTERVAL: Duration = Duration::from_secs(5);

/// Deletes the results of the session with this label, and returns its tasks that are still open.
pub type ResultsForgetter = Box<dyn Fn(&str) -> Result<Vec<TaskId>, ErrorBody> + Send + Sync>;

/// Forgets what an interface keeps of the session with this number.
type TasksForgetter = Box<dyn Fn(u32) + Send + Sync>;

/// What the service gets from its program.
#[expect(missing_debug_implementations, reason = "it has a function")]
pub struct ServiceContext {
    pub paths: Paths,
    pub config: Config,
    pub shell: Arc<dyn Shell>,
    /// The caller of all sessions, narrowed by each client.
    pub caller: Caller,
    pub forget_results: ResultsForgetter,
    /// How long is waited for who decides.
    pub windows: ApproverWindows,
    /// How long a session without work stays in memory.
    pub idle: Duration,
}

/// All sessions of all clients.
pub struct SessionService {
    settings: SettingsSource,
    mailbox: Mailbox,
    trigger: Trigger,
    shell: Arc<dyn Shell>,
    caller: Caller,
    forget_results: ResultsForgetter,
    forget_tasks: OnceLock<TasksForgetter>,
    approvers: Approvers,
    idle: Duration,
    quotas: Arc<Quotas>,
    revoked: RevokedKeys,
    index: SessionIndex,
    ledger: Arc<QuestionLedger>,
    /// The questions with a client that listens for the answer.
    listeners: Arc<ConcurrencyLimit<Uuid>>,
    exchanges: Arc<ClientExchanges>,
    conversations: Conversations,
    responses: StoredResponses,
    slots: Mutex<HashMap<u32, Arc<SessionSlot>>>,
    tracker: TaskTracker,
    stopping: CancellationToken,
}

/// A session that is loaded, or that the holder of its lock is loading or unloading.
type SessionSlot = tokio::sync::Mutex<Option<Arc<LiveSession>>>;

impl std::fmt::Debug for SessionService {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SessionService").field("index", &self.index).finish_non_exhaustive()
    }
}

/// What became of a question that a client sent.
enum AskedPlace {
    /// It is queued, and holds this.
    New(TurnPermit),
    /// It repeats this one.
    Known(Uuid),
}

impl SessionService {
    /// Opens the service. The caller starts it with [`Self::start`] inside a runtime.
    pub fn open(context: ServiceContext, stopping: CancellationToken) -> Result<Arc<Self>, ErrorBody> {
        let ServiceContext { paths, config, shell, caller, forget_results, windows, idle } = context;
        let mailbox = Mailbox::open(&paths.mailbox).map_err(|error| {
            ErrorBody::new(Code::BadMailbox, chain(&error)).hint("see what is wrong: agent-magic-tool doctor")
        })?;
        paths.create_state().map_err(|error| io_error("failed to create the state folder", &error))?;
        let store = SessionStore::in_state(&paths.state);
        let ledger = QuestionLedger::open(paths.serve().join("questions"))
            .map_err(|error| io_error("failed to open the records of questions", &error))?;
        let conversations = Conversations::open(paths.serve().join("conversations.jsonl"))
            .map_err(|error| io_error("failed to open the records of conversations", &error))?;
        let responses = StoredResponses::open(paths.serve().join("responses"))
            .map_err(|error| io_error("failed to open the kept responses", &error))?;
        Ok(Arc::new(Self {
            conversations,
            responses,
            quotas: Arc::new(Quotas::of(&config.serve)),
            revoked: RevokedKeys::none(),
            settings: SettingsSource::new(paths, config)?,
            trigger: Trigger::new(mailbox.clone()),
            mailbox,
            shell,
            caller,
            forget_results,
            forget_tasks: OnceLock::new(),
            approvers: Approvers::new(windows),
            idle,
            index: SessionIndex::read(store)?,
            ledger: Arc::new(ledger),
            listeners: Arc::new(ConcurrencyLimit::new(usize::MAX)),
            exchanges: Arc::default(),
            slots: Mutex::default(),
            tracker: TaskTracker::new(),
            stopping,
        }))
    }

    /// Continues the turns that an earlier process was in, asks what was queued, and unloads idle sessions from here on.
    pub fn start(self: &Arc<Self>) {
        for session in self.ledger.sessions().into_iter().filter(|session| self.ledger.of(*session).is_waiting()) {
            let service = Arc::clone(self);
            self.tracker.spawn(async move {
                if let Err(error) = service.load(session, None).await {
                    tracing::warn!(session, error = error.message, "failed to continue a session");
                    if error.code == Code::NotFound {
                        service.ledger.clear(session);
                    }
                }
            });
        }
        let service = Arc::clone(self);
        self.tracker.spawn(async move {
            loop {
                tokio::select! {
                    () = service.stopping.cancelled() => return,
                    () = tokio::time::sleep(UNLOAD_INTERVAL) => service.unload_idle().await,
                }
            }
        });
    }

    /// Waits until all work has stopped, after the service was told to stop.
    pub async fn stopped(&self) {
        self.tracker.close();
        self.tracker.wait().await;
    }

    /// Asks a question; creates the session if it does not exist. Returns at once; the turn goes on even if the
    /// stream is dropped. If the session has an answer that its client never got, that is the beginning of the stream.
    pub async fn ask(self: &Arc<Self>, question: Question) -> Result<TurnStream, ErrorBody> {
        self.check_depth(question.asker.depth)?;
        if question.text.trim().is_empty() {
            return Err(ErrorBody::new(Code::InvalidInput, "the question is empty").hint("send a text, or `!help`"));
        }
        let (sender, events) = mpsc::unbounded_channel();
        let parsed = if question.asker.has_no_commands {
            Ok(InputPlace::plain(&question.text))
        } else {
            InputPlace::Client.parse(&question.text)
        };
        let input = match parsed {
            Ok(input) => input,
            // A program has to know that nothing was done.
            Err(message) if question.asker.interface == "api" => {
                return Err(ErrorBody::new(Code::InvalidInput, message).hint("nothing of the message was performed"));
            }
            // An answer and no error: people who type it in a chat read answers.
            Err(message) => return Ok(TurnStream::told(0, message)),
        };
        let typed_model = input.question.as_ref().and_then(|typed| typed.model.clone());
        let asked_model = question.asker.allowed_model(typed_model.or(question.model.clone()))?;
        let is_new = self.index.find(&question.asker.session, &question.asker).is_err();
        if is_new && input.question.is_some() || asked_model.is_some() {
            // Before a session is made of which no model would answer anything.
            self.settings.current().factory(false).models().choose(asked_model.as_deref())?;
        }
        let permit = if input.question.is_some() { self.quotas.turn(&question.asker) } else { Ok(None) };
        let may_join =
            || input.commands.is_empty() && self.index.find(&question.asker.session, &question.asker).is_ok();
        let permit = match permit {
            // Nothing is changed by it.
            Err(error) if !may_join() => return Err(error),
            permit => permit,
        };
        let (folder, max_sessions) = (self.caller.folder.clone(), self.quotas.max_sessions);
        let number = self.index.find_or_create(&question.asker, folder, max_sessions)?;
        if is_new && !question.earlier.is_empty() {
            self.index.begin_with(number, &seed::entries(&question.earlier))?;
        }
        let printed = self.perform(input.commands, number, &question.asker).await?;
        let Some(typed) = input.question else { return Ok(TurnStream::told(number, printed)) };
        let printed = if printed.is_empty() { printed } else { format!("{}\n\n", printed.trim_end()) };
        let live = self.load(number, Some(&question.asker)).await?;
        let question = Question { text: typed.text, printed, model: asked_model, ..question };
        // From here on it survives a crash.
        let id = question.id;
        let listening = self.listeners.acquire(&id);
        let place: Result<_, ErrorBody> = self.ledger.change(number, |owed| {
            if let Some(id) = owed.repeated(&question)? {
                owed.print_again(id, &question.printed);
                return Ok(AskedPlace::Known(id));
            }
            let permit = permit?;
            owed.queued.push(question.clone());
            Ok(AskedPlace::New(permit))
        })?;
        let permit = match place? {
            AskedPlace::New(permit) => permit,
            AskedPlace::Known(id) => return Ok(self.joined(live, id, None, (sender, events))),
        };
        send_preface(&sender, PRINTED_EVENT, &question.printed);
        let stops = live.make_way(question.when_busy).await?;
        live.queue(QueuedQuestion { question, asking: sender, permit, stops });
        Ok(TurnStream::of_session(events, number, self).of_question(id, listening))
    }

    /// The events of a question that was asked before, maybe of an earlier process: those at hand, at least its answer, and
    /// those that follow until it is answered. `None` if the session does not know the question any more.
    pub async fn rejoin(self: &Arc<Self>, session: u32, question: Uuid) -> Result<Option<TurnStream>, ErrorBody> {
        if self.ledger.of(session).place(question).is_none() {
            return Ok(None);
        }
        let live = self.load(session, None).await?;
        Ok(Some(self.joined(live, question, None, mpsc::unbounded_channel())))
    }

    /// The stream of a question that was asked or queued before, for a client that has its events up to `after`.
    fn joined(
        self: &Arc<Self>,
        live: Arc<LiveSession>,
        question: Uuid,
        after: Option<EventId>,
        (sender, events): (EventSender, mpsc::UnboundedReceiver<Arc<LoggedEvent>>),
    ) -> TurnStream {
        let listening = self.listeners.acquire(&question);
        let stream = TurnStream::of_session(events, live.number, self).of_question(question, listening);
        self.tracker.spawn(async move { live.rejoin(question, after, sender).await });
        stream
    }

    /// Answers a conversation that the client keeps, with nothing but the one tool added.
    pub async fn ask_without_history(
        self: &Arc<Self>,
        conversation: ClientConversation,
    ) -> Result<TurnStream, ErrorBody> {
        self.check_depth(conversation.asker.depth)?;
        self.check_abilities(&conversation)?;
        let permit = self.quotas.turn(&conversation.asker)?;
        let parts = self.parts(&conversation.asker);
        stateless::ask(parts, conversation, permit, Arc::clone(&self.exchanges)).await
    }

    /// The events of a session from here on, or after `after`; it never ends by itself.
    pub async fn follow(
        self: &Arc<Self>,
        session: &str,
        asker: &Asker,
        after: Option<EventId>,
    ) -> Result<TurnStream, ErrorBody> {
        let number = self.index.find(session, asker)?;
        let live = self.load(number, Some(asker)).await?;
        let (sender, events) = mpsc::unbounded_channel();
        live.log.follow(after, sender);
        Ok(TurnStream::of_session(events, number, self))
    }

    /// The events of the current turn of a session, or else of its last one, from its beginning to its end.
    pub async fn follow_turn(self: &Arc<Self>, session: &str, asker: &Asker) -> Result<TurnStream, ErrorBody> {
        let number = self.index.find(session, asker)?;
        let live = self.load(number, Some(asker)).await?;
        let (sender, events) = mpsc::unbounded_channel();
        live.join_current(sender).await;
        Ok(TurnStream::of_session(events, number, self))
    }

    /// The events of one question of a session to the end of its turn: all of them, or those after `after`.
    pub async fn follow_question(
        self: &Arc<Self>,
        session: &str,
        asker: &Asker,
        question: Uuid,
        after: Option<EventId>,
    ) -> Result<TurnStream, ErrorBody> {
        let number = self.index.find(session, asker)?;
        if self.ledger.of(number).place(question).is_none() {
            return Err(unknown_question());
        }
        let live = self.load(number, Some(asker)).await?;
        Ok(self.joined(live, question, after, mpsc::unbounded_channel()))
    }

    /// Stops what the session is doing; with `tasks`, also cancels the tasks that it started and that have not ended, which
    /// go on otherwise. Returns its number, and whether it did anything.
    pub async fn cancel(self: &Arc<Self>, session: &str, asker: &Asker, tasks: bool) -> Result<(u32, bool), ErrorBody> {
        let number = self.index.find(session, asker)?;
        let was_busy = match self.loaded(number).await {
            Some(live) => live.cancel().await?,
            None => false,
        };
        if tasks {
            // One that is not in memory may have tasks from before a restart.
            let live = self.load(number, Some(asker)).await?;
            let open = live.log.open_tasks().into_iter().map(|(task, _)| task.id).collect();
            self.cancel_tasks(&live.label, open).await?;
        }
        Ok((number, was_busy))
    }

    async fn cancel_tasks(self: &Arc<Self>, label: &str, open: Vec<TaskId>) -> Result<(), ErrorBody> {
        let caller = Caller { session: Some(label.to_owned()), ..self.caller.clone() };
        for task in open {
            // One that has ended meanwhile needs no cancelling.
            drop(self.call(vec!["cancel".to_owned(), task.to_string()], caller.clone()).await?);
        }
        Ok(())
    }

    /// Whether a question waits for work on others to end.
    pub async fn is_queued(&self, session: u32, question: Uuid) -> bool {
        let Some(live) = self.loaded(session).await else { return false };
        live.has_work_before_the_queue() && self.ledger.of(session).place(question) == Some(QuestionPlace::Queued)
    }

    /// What a session is doing, and its last answer; with a receipt for the answers for which their clients do not wait.
    pub(crate) async fn state(
        self: &Arc<Self>,
        session: &str,
        asker: &Asker,
    ) -> Result<(SessionState, Option<Receipt>), ErrorBody> {
        let number = self.index.find(session, asker)?;
        let live = self.load(number, Some(asker)).await?;
        // Read before: a turn that begins meanwhile is a later one.
        let turn = *live.log.turns().borrow();
        let state = match live.activity() {
            Activity::Idle => "idle",
            Activity::Working => "working",
            Activity::Sleeping => "waiting",
        };
        let has_ended = state == "idle" && self.ledger.of(number).has_polled();
        let service = Arc::clone(self);
        let receipt =
            has_ended.then(|| Receipt::new(move || service.record_delivery(number, |owed| owed.read_polled(turn))));
        let open = live.log.open_tasks().into_iter();
        let open = open.map(|(task, state)| TaskNews { id: task.id, subtool: task.tool, state, preview: None });
        let state = SessionState {
            session: number,
            state,
            model: live.log.model(),
            answer: live.log.last_answer().filter(|_| state == "idle" || live.log.end_of(turn).is_some()),
            open: open.collect(),
            questions: live.polled_questions(),
        };
        Ok((state, receipt))
    }

    /// The sessions that this client may use, oldest first.
    pub async fn sessions(&self, asker: &Asker) -> Vec<SessionInfo> {
        let mut listed = self.index.list(asker);
        for info in &mut listed {
            let live = self.loaded(info.number).await;
            info.is_busy = live.is_some_and(|live| live.activity() != Activity::Idle);
        }
        listed
    }

    /// Starts the conversation over, under the same id and number; open tasks go on.
    pub async fn reset(self: &Arc<Self>, session: &str, asker: &Asker) -> Result<u32, ErrorBody> {
        let number = self.index.find(session, asker)?;
        let live = self.load(number, Some(asker)).await?;
        live.send(LoopCommand::Cancel).await?;
        live.send(LoopCommand::Clear).await?;
        live.log.start_over();
        self.ledger.start_over(number);
        self.responses.forget_session(number);
        Ok(number)
    }

    /// Deletes the session and the results of its tasks; with `tasks`, also cancels those that have not ended, which go on
    /// otherwise.
    pub async fn delete(self: &Arc<Self>, session: &str, asker: &Asker, tasks: bool) -> Result<u32, ErrorBody> {
        let number = self.index.find(session, asker)?;
        if tasks {
            let live = self.load(number, Some(asker)).await?;
            // Its loop has ended then, and starts no further ones.
            live.window.close();
            live.delete().await;
            // Also those of a call whose end the loop did not see any more.
            let open = (self.forget_results)(&live.label)?;
            self.cancel_tasks(&live.label, open).await?;
        }
        let slot = self.slot(number);
        let mut live = slot.lock().await;
        if let Some(live) = live.take() {
            live.delete().await;
        }
        let label = self.index.delete(number)?;
        self.ledger.clear(number);
        self.responses.forget_session(number);
        if let Some(forget) = self.forget_tasks.get() {
            forget(number);
        }
        self.lock_slots().remove(&number);
        (self.forget_results)(&label)?;
        Ok(number)
    }

    /// Records that a client has the answer of a turn, and those that it was told before it.
    pub(crate) fn delivered(&self, session: u32, turn: u64) {
        self.record_delivery(session, |owed| owed.deliver(turn));
    }

    fn record_delivery(&self, session: u32, deliver: impl FnOnce(&mut OwedAnswers)) {
        if let Err(error) = self.ledger.change(session, deliver) {
            tracing::warn!(error = error.message, session, "failed to record that an answer was delivered");
        }
    }

    /// Has `forget` called with the number of each session that is deleted. Only the first call counts.
    pub(crate) fn on_delete(&self, forget: impl Fn(u32) + Send + Sync + 'static) {
        drop(self.forget_tasks.set(Box::new(forget)));
    }

    /// Records that the client does not wait for the answer of this question.
    pub(crate) fn polled(&self, session: u32, question: Uuid) -> Result<(), ErrorBody> {
        self.ledger.change(session, |owed| owed.poll(question))
    }

    fn parts(&self, asker: &Asker) -> LiveParts {
        let settings = self.settings.current();
        let caller = asker.narrow(&self.caller);
        let read_only = settings.config.restricts_to_reading(&caller);
        let account = account_of(asker, &caller, &settings.config);
        LiveParts {
            model_factory: Arc::new(settings.factory(read_only).as_ref().clone().at_expense_of(account)),
            config: settings.config,
            mailbox: self.mailbox.clone(),
            shell: Arc::clone(&self.shell),
            trigger: self.trigger.again(),
            caller: self.caller.clone(),
            approvers: self.approvers.clone(),
            tracker: self.tracker.clone(),
            ledger: Arc::clone(&self.ledger),
            listeners: Arc::clone(&self.listeners),
            quotas: Arc::clone(&self.quotas),
            revoked: self.revoked.clone(),
            stopping: self.stopping.clone(),
            load: u64::try_from(protocol::clock::now().as_millisecond()).unwrap_or_default(),
        }
    }

    fn lock_slots(&self) -> MutexGuard<'_, HashMap<u32, Arc<SessionSlot>>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn slot(&self, number: u32) -> Arc<SessionSlot> {
        Arc::clone(self.lock_slots().entry(number).or_default())
    }

    /// The session if it is in memory. Does not wait for one that is being loaded.
    async fn loaded(&self, number: u32) -> Option<Arc<LiveSession>> {
        let slot = self.lock_slots().get(&number).cloned()?;
        let live = slot.lock().await;
        live.clone().filter(|live| !live.has_ended())
    }

    /// The session in memory; loads it if it is not there. Without an asker, it is the one who asked last.
    async fn load(self: &Arc<Self>, number: u32, asker: Option<&Asker>) -> Result<Arc<LiveSession>, ErrorBody> {
        if self.stopping.is_cancelled() {
            return Err(stopping());
        }
        let slot = self.slot(number);
        let mut loaded = slot.lock().await;
        if let Some(live) = loaded.as_ref().filter(|live| !live.has_ended()) {
            live.touch();
            return Ok(Arc::clone(live));
        }
        let asker = asker.cloned().or_else(|| self.ledger.of(number).asker().cloned()).unwrap_or_default();
        let service = Arc::clone(self);
        let resumed = tokio::task::spawn_blocking(move || service.index.resume(number)).await;
        let resumed = resumed.map_err(|_| stopping())??;
        let parts = self.parts(&asker);
        let live = Box::pin(LiveSession::open(parts, resumed, asker)).await?;
        *loaded = Some(Arc::clone(&live));
        Ok(live)
    }

    async fn unload_idle(&self) {
        let slots: Vec<_> = self.lock_slots().iter().map(|(number, slot)| (*number, Arc::clone(slot))).collect();
        for (number, slot) in slots {
            // One that is being loaded is in use.
            let Ok(mut loaded) = slot.try_lock() else { continue };
            // Besides the slot and its own task, only a client in the middle of a call holds one.
            let is_used = |live: &Arc<LiveSession>| Arc::strong_count(live) > 2 || !live.is_idle_for(self.idle);
            if loaded.as_ref().is_some_and(is_used) {
                continue;
            }
            if let Some(live) = loaded.take() {
                live.close().await;
            }
            // Others may already wait for this lock, and then use the same slot.
            let mut slots = self.lock_slots();
            if slots.get(&number).is_some_and(|known| Arc::strong_count(known) == 2) {
                slots.remove(&number);
            }
        }
    }
}

/// The place of events that belong to no turn.
pub(crate) const FIRST_EVENT: EventId = EventId { turn: 0, load: 0, number: 0, is_over: false };
/// The places of what a client reads before its turn: what its commands printed, and answers that it never got.
pub(crate) const PRINTED_EVENT: EventId = EventId { number: 1, ..FIRST_EVENT };
pub(crate) const TOLD_EVENT: EventId = EventId { number: 2, ..FIRST_EVENT };

/// The account at whose expense a client asks, who has the rights of this caller.
fn account_of(asker: &Asker, caller: &Caller, config: &Config) -> SpendingAccount {
    SpendingAccount::new(caller.uid, asker.key.as_deref(), &caller.tool_scope, config)
}

fn send_preface(sender: &EventSender, id: EventId, text: &str) {
    if !text.is_empty() {
        let event = SessionEvent::Preface { text: text.to_owned() };
        drop(sender.send(Arc::new(LoggedEvent { id, event })));
    }
}

fn send_error(sender: &EventSender, error: ErrorBody) {
    drop(sender.send(Arc::new(LoggedEvent { id: FIRST_EVENT, event: SessionEvent::Error { error } })));
}

pub(crate) fn io_error(what: &str, error: &io::Error) -> ErrorBody {
    ErrorBody::new(Code::Io, format!("{what}: {error}"))
}

/// The error for a client whose question is not in the records any more.
fn unknown_question() -> ErrorBody {
    ErrorBody::new(Code::NotFound, "the session was started over, or has answered other questions since")
        .hint("ask again")
}

/// The error for a client while the service stops.
pub(crate) fn stopping() -> ErrorBody {
    ErrorBody::new(Code::NoExecutor, "the server is stopping").hint("ask again: the session has everything so far")
}
