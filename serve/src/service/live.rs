//! A loaded session: its loop, who asks it next, and the watch over its tasks.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use agent_loop::driver::LoopCommand;
use agent_loop::journal::{self, Journal};
use agent_loop::machine::{Budget, LoopPhase, Machine};
use agent_loop::model::conversation::JournalEntry;
use agent_loop::model_factory::ModelFactory;
use agent_loop::own_tasks::OwnTasksShell;
use agent_loop::session_loop::{LoopContext, LoopOptions, LoopSender, SessionLoop};
use ground::config::Config;
use ground::results::trigger::Trigger;
use protocol::caller::{Caller, SHARED_LABEL};
use protocol::code::Code;
use protocol::error::ErrorBody;
use protocol::mailbox::Mailbox;
use protocol::shell::Shell;
use protocol::task::TaskId;
use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use uuid::Uuid;

use super::approver_window::{ApproverWindow, Approvers};
use super::history::{TurnHistory, known_questions};
use super::ledger::{AskedTurn, LateAnswer, OwedAnswers, QuestionLedger, QuestionPlace, ToldAnswers};
use super::log::{Activity, EventLog, EventSender, is_over};
use super::quotas::{Quotas, TurnPermit};
use super::revoked::{RevokedKeys, revoked};
use super::{PRINTED_EVENT, QuestionState, TOLD_EVENT, account_of, send_error, send_preface, stopping};
use crate::limits::ConcurrencyLimit;
use crate::service::turn::{Asker, EventId, Question, WhenBusy};

/// What a loop gets from the service.
pub(super) struct LiveParts {
    pub(super) config: Arc<Config>,
    pub(super) model_factory: Arc<ModelFactory>,
    pub(super) mailbox: Mailbox,
    pub(super) shell: Arc<dyn Shell>,
    pub(super) trigger: Trigger,
    pub(super) caller: Caller,
    pub(super) approvers: Approvers,
    pub(super) tracker: TaskTracker,
    pub(super) ledger: Arc<QuestionLedger>,
    pub(super) listeners: Arc<ConcurrencyLimit<Uuid>>,
    pub(super) quotas: Arc<Quotas>,
    pub(super) revoked: RevokedKeys,
    /// When the service is to stop.
    pub(super) stopping: CancellationToken,
    /// The time of loading, which tells the events of this load from those of earlier ones.
    pub(super) load: u64,
}

impl WhenBusy {
    /// Whether a question can be asked while the session does this. `is_over` tells that the last turn has ended, and only
    /// tasks of earlier ones are waited for.
    fn allows(self, activity: Activity, is_over: bool) -> bool {
        match self {
            Self::Interrupt => activity != Activity::Working,
            Self::Cancel => activity == Activity::Idle || activity == Activity::Sleeping && is_over,
            Self::Queue => activity == Activity::Idle,
        }
    }
}

/// A question that waits for its turn.
#[derive(Debug)]
pub(super) struct QueuedQuestion {
    pub(super) question: Question,
    /// Who gets the events of its turn.
    pub(super) asking: EventSender,
    pub(super) permit: TurnPermit,
    /// The turn that it stops when it comes.
    pub(super) stops: Option<u64>,
}

/// A session in memory.
#[derive(Debug)]
pub(crate) struct LiveSession {
    pub(super) number: u32,
    pub(super) label: String,
    pub(super) log: Arc<EventLog>,
    sender: LoopSender,
    model_factory: Arc<ModelFactory>,
    /// The server's own caller, and the budgets of those who ask.
    payer: (Caller, Arc<Config>),
    pub(super) window: Arc<ApproverWindow>,
    limits: (u32, Budget),
    ledger: Arc<QuestionLedger>,
    /// The questions with a client that listens.
    listeners: Arc<ConcurrencyLimit<Uuid>>,
    revoked: RevokedKeys,
    /// The questions that wait for their turn, in their order.
    questions: mpsc::UnboundedSender<QueuedQuestion>,
    /// How many they are.
    queued: watch::Sender<usize>,
    last_used: Mutex<Instant>,
    /// Cancelled when the loop has ended.
    ended: CancellationToken,
    is_deleted: AtomicBool,
    tracker: TaskTracker,
}

impl LiveSession {
    /// Opens the session and starts its loop, which continues what a restart interrupted; asks the questions that wait for
    /// their turn.
    pub(super) async fn open(
        parts: LiveParts,
        (journal, entries): (Journal, Vec<JournalEntry>),
        asker: Asker,
    ) -> Result<Arc<Self>, ErrorBody> {
        let number = journal.number;
        let turn = entries.iter().filter(|entry| matches!(entry, JournalEntry::Asked { .. })).count() as u64;
        let preview = journal::preview(&entries).unwrap_or(parts.config.agent.preview);
        let label = journal.label();
        let LiveParts {
            config,
            model_factory,
            mailbox,
            shell,
            trigger,
            caller,
            approvers,
            tracker,
            ledger,
            listeners,
            quotas,
            revoked,
            stopping,
            load,
        } = parts;
        let log = Arc::new(EventLog::new(number, load, mailbox.clone(), preview, Some(Arc::clone(&ledger))));
        let owed = ledger.change(number, |owed| {
            owed.restore(turn);
            owed.clone()
        })?;
        let history = TurnHistory::of(&entries);
        let known_questions = known_questions(&entries);
        let shell: Arc<dyn Shell> =
            if label.starts_with(SHARED_LABEL) { Arc::new(OwnTasksShell::new(shell, &entries)) } else { shell };
        let window = Arc::new(ApproverWindow::new(shell, approvers, asker, revoked.clone()));
        let watch = trigger.again();
        let context = LoopContext {
            config: &config,
            mailbox,
            shell: Arc::<ApproverWindow>::clone(&window),
            model_factory: Arc::clone(&model_factory),
            trigger,
            observer: Arc::<EventLog>::clone(&log),
        };
        let payer = (caller.clone(), Arc::clone(&config));
        let options = LoopOptions { caller, ..LoopOptions::default() };
        let opening = SessionLoop::open(options, context, Some((journal, entries)), || unreachable!("it is given"));
        let mut session_loop = Box::pin(opening).await?;
        let sender = session_loop.take_sender().expect("a new loop has a sender");
        log.set_known_questions(known_questions);
        log.set_model(session_loop.model(), model_factory.writes_calls(session_loop.model()));
        resume(&log, &session_loop, turn, history, &owed);
        if let Some(asked) = owed.asked.last().filter(|_| *log.activity().borrow() != Activity::Idle) {
            log.hold(asked.turn, quotas.resumed_turn(&asked.question.asker));
        }
        let limits = (config.agent.steps, Budget::of(&config.agent));
        let ended = CancellationToken::new();
        watch_tasks(&tracker, Arc::clone(&log), watch, ended.clone());
        tracker.spawn({
            let (log, ended, interrupted) = (Arc::clone(&log), ended.clone(), session_loop.interrupted());
            async move {
                let ran = {
                    let running = session_loop.run();
                    tokio::pin!(running);
                    tokio::select! {
                        ran = &mut running => ran,
                        // Not interrupted: a restart continues what is in the journal.
                        () = stopping.cancelled() => Err(super::stopping()),
                    }
                };
                drop(interrupted);
                drop(session_loop);
                if let Err(error) = ran {
                    log.fail(error);
                }
                ended.cancel();
            }
        });
        let (questions, queue) = mpsc::unbounded_channel();
        let live = Arc::new(Self {
            number,
            label,
            log,
            sender,
            model_factory,
            payer,
            window,
            limits,
            ledger,
            listeners,
            revoked,
            questions,
            queued: watch::Sender::new(0),
            last_used: Mutex::new(Instant::now()),
            ended,
            is_deleted: AtomicBool::new(false),
            tracker,
        });
        for question in owed.queued {
            // Its client has gone with the process that it asked, and may ask again.
            let permit = quotas.resumed_turn(&question.asker);
            live.queue(QueuedQuestion { question, asking: mpsc::unbounded_channel().0, permit, stops: None });
        }
        live.tracker.spawn(Arc::clone(&live).ask_in_order(queue));
        Ok(live)
    }

    /// Queues a question that the ledger has.
    pub(super) fn queue(&self, question: QueuedQuestion) {
        self.queued.send_modify(|queued| *queued += 1);
        // Fails if the session has ended: the question stays in the ledger, and the stream ends.
        drop(self.questions.send(question));
    }

    /// Stops what the session does, for a question that does not wait for it. Returns the turn that is stopped: the current
    /// one, or the one that is about to begin. Those that are queued behind it are answered first.
    pub(super) async fn make_way(&self, when_busy: WhenBusy) -> Result<Option<u64>, ErrorBody> {
        if when_busy != WhenBusy::Cancel {
            return Ok(None);
        }
        let turn = *self.log.turns().borrow();
        if *self.log.activity().borrow() == Activity::Idle {
            return Ok(Some(turn + 1).filter(|_| *self.queued.borrow() > 0));
        }
        self.send(LoopCommand::Cancel).await?;
        Ok(Some(turn))
    }

    async fn ask_in_order(self: Arc<Self>, mut queue: mpsc::UnboundedReceiver<QueuedQuestion>) {
        loop {
            let queued = tokio::select! {
                // First: what comes while the service stops is asked after it, in its order.
                biased;
                () = self.ended.cancelled() => break,
                Some(queued) = queue.recv() => queued,
            };
            let (id, asking) = (queued.question.id, queued.asking.clone());
            if let Err(error) = Box::pin(self.ask(queued)).await {
                // While the service stops it is kept, and asked when the session is opened again.
                if error.code != Code::NoExecutor
                    && let Err(error) = self.ledger.change(self.number, |owed| owed.withdraw(id))
                {
                    tracing::warn!(error = error.message, session = self.number, "failed to withdraw a question");
                }
                send_error(&asking, error);
            }
            self.queued.send_modify(|queued| *queued -= 1);
        }
        queue.close();
        while let Some(queued) = queue.recv().await {
            let is_revoked = self.revoked.have(&queued.question.asker);
            send_error(&queued.asking, if is_revoked { revoked() } else { self.gone() });
        }
    }

    /// Why nothing is asked any more.
    fn gone(&self) -> ErrorBody {
        if self.is_deleted.load(Ordering::SeqCst) {
            ErrorBody::new(Code::NotFound, "the session was deleted").hint("ask again, in a new session")
        } else {
            stopping()
        }
    }

    /// Asks a question when its time has come.
    async fn ask(&self, queued: QueuedQuestion) -> Result<(), ErrorBody> {
        let QueuedQuestion { question, asking, permit, stops } = queued;
        let stops_now = stops == Some(*self.log.turns().borrow());
        if stops_now && *self.log.activity().borrow() != Activity::Idle {
            self.send(LoopCommand::Cancel).await?;
        }
        tokio::select! {
            biased;
            () = self.revoked.until_they_have(&question.asker) => return Err(revoked()),
            () = self.ended.cancelled() => return Err(self.gone()),
            () = self.until_allowed(question.when_busy) => {}
        }
        if self.sender.is_closed() {
            // The loop has ended, and the session is about to.
            return Err(self.gone());
        }
        let Question { id, asker, text, model, limits, .. } = question;
        let (caller, config) = &self.payer;
        self.model_factory.charge(account_of(&asker, &asker.narrow(caller), config));
        self.window.set_asker(asker);
        self.choose_model(model).await?;
        let mut turns = self.log.turns();
        let turn = *turns.borrow_and_update();
        let is_sleeping = *self.log.activity().borrow() != Activity::Idle;
        let supersedes = stops_now || is_sleeping && !self.log.is_turn_over();
        let told = self.told_before();
        send_preface(&asking, TOLD_EVENT, &told.words);
        if !self.ledger.change(self.number, |owed| owed.begin(id, turn + 1, supersedes, told))? {
            return Err(ErrorBody::new(Code::Cancelled, "the session was started over before the question was asked")
                .hint("ask again"));
        }
        self.log.expect_question(asking);
        let (steps, budget) = limits.lower(self.limits.0, self.limits.1);
        self.send(LoopCommand::Limit { steps, budget }).await?;
        self.send(LoopCommand::Ask(text)).await?;
        tokio::select! {
            () = self.ended.cancelled() => return Err(self.gone()),
            () = async { drop(turns.wait_for(|now| *now > turn).await) } => {}
        }
        self.log.hold(turn + 1, permit);
        self.touch();
        if let Some(deadline) = limits.deadline {
            self.stop_after(deadline);
        }
        Ok(())
    }

    /// Waits until a question can be asked.
    async fn until_allowed(&self, when_busy: WhenBusy) {
        let mut activity = self.log.activity();
        loop {
            let now = *activity.borrow_and_update();
            if when_busy.allows(now, self.log.is_turn_over()) || activity.changed().await.is_err() {
                return;
            }
        }
    }

    /// Sends the events of the current turn, or else of the last one, and those that follow until it ends. A question that
    /// waits for nothing has begun for its client.
    pub(super) async fn join_current(&self, joining: EventSender) {
        self.settled().await;
        let turn = *self.log.turns().borrow();
        self.log.join_turn(turn, None, joining);
    }

    /// Waits until no question is about to be asked.
    async fn settled(&self) {
        let (mut activity, mut queued) = (self.log.activity(), self.queued.subscribe());
        tokio::select! {
            () = self.ended.cancelled() => {}
            () = async { drop(activity.wait_for(|activity| *activity != Activity::Idle).await) } => {}
            () = async { drop(queued.wait_for(|queued| *queued == 0).await) } => {}
        }
    }

    /// The answers that a client reads before its own: those that their clients waited for and have gone without.
    fn told_before(&self) -> ToldAnswers {
        let known = self.ledger.of(self.number).asked.into_iter().map(|asked| asked.question.id);
        let listening = known.filter(|question| self.listeners.is_used(question)).collect();
        // Read after that: an answer that was delivered in between is not told again.
        let owed = self.ledger.of(self.number);
        let (turns, late) = owed.untold(&listening);
        let mut told = ToldAnswers::default();
        for turn in turns {
            let Some(end) = self.log.end_of(turn) else { continue };
            told.turns.push(turn);
            let words = end.map_or_else(|error| error.message, |outcome| outcome.answer);
            if !words.is_empty() {
                told.words = format!("{}(The answer to your earlier question: {})\n\n", told.words, words.trim());
            }
        }
        for LateAnswer { id, answer } in late {
            told.late.push(*id);
            told.words = format!("{}(What has become of your earlier tasks: {})\n\n", told.words, answer.trim());
        }
        told
    }

    /// What became of the questions that their clients do not wait for.
    pub(super) fn polled_questions(&self) -> Vec<QuestionState> {
        let owed = self.ledger.of(self.number);
        let asked = owed.asked.iter().map(|AskedTurn { question, turn, told, .. }| {
            let preface = format!("{}{}", question.printed, told.words);
            (question, Some(*turn), self.log.end_of(*turn).map(|end| end.map(|outcome| outcome.after(&preface))))
        });
        let all = asked.chain(owed.queued.iter().map(|question| (question, None, None)));
        let polled = all.filter(|(question, ..)| question.is_polled);
        polled.map(|(question, turn, end)| QuestionState::of(question.id, turn, end)).collect()
    }

    /// Stops what it does, and tells whether it did anything. A question that waits for nothing has begun for its client,
    /// so its turn is waited for.
    pub(super) async fn cancel(&self) -> Result<bool, ErrorBody> {
        self.settled().await;
        let is_busy = *self.log.activity().borrow() != Activity::Idle;
        self.send(LoopCommand::Cancel).await?;
        Ok(is_busy)
    }

    /// Sends the events of a question that was asked or queued before; those of its turn, once that has come. A client
    /// that has its events up to `after` gets those that follow.
    pub(super) async fn rejoin(&self, question: Uuid, after: Option<EventId>, joining: EventSender) {
        let (mut turns, mut queued) = (self.log.turns(), self.queued.subscribe());
        loop {
            let turn = *turns.borrow_and_update();
            queued.mark_unchanged();
            let owed = self.ledger.of(self.number);
            match owed.place(question) {
                Some(QuestionPlace::Asked(asked)) if asked <= turn => {
                    let has_it =
                        |id: EventId| after.is_some_and(|it| it.turn == asked || it.turn == id.turn && it >= id);
                    if let Some(AskedTurn { question, told, .. }) = owed.asked.iter().find(|it| it.turn == asked) {
                        for (id, text) in [(PRINTED_EVENT, &question.printed), (TOLD_EVENT, &told.words)] {
                            if !has_it(id) {
                                send_preface(&joining, id, text);
                            }
                        }
                    }
                    return self.log.join_turn(asked, after, joining);
                }
                Some(_) => {}
                None => return send_error(&joining, super::unknown_question()),
            }
            tokio::select! {
                () = self.ended.cancelled() => return send_error(&joining, self.gone()),
                () = joining.closed() => return,
                changed = turns.changed() => if changed.is_err() { return },
                // It may have been withdrawn.
                changed = queued.changed() => if changed.is_err() { return },
            }
        }
    }

    /// Switches to the model of the question, and back after a question that was asked of another one.
    async fn choose_model(&self, model: Option<String>) -> Result<(), ErrorBody> {
        match (model, self.ledger.of(self.number).previous_model) {
            (Some(model), previous) => {
                let current = previous.unwrap_or_else(|| self.log.model());
                // Before the switch, which a restart would take for one that stays.
                self.ledger.change(self.number, |owed| owed.previous_model = Some(current))?;
                self.switch_to(&model).await?;
            }
            (None, Some(previous)) => self.use_model(&previous).await?,
            (None, None) => {}
        }
        Ok(())
    }

    /// Makes another model answer from here on.
    pub(super) async fn use_model(&self, name: &str) -> Result<(), ErrorBody> {
        self.switch_to(name).await?;
        self.ledger.change(self.number, |owed| owed.previous_model = None)
    }

    async fn switch_to(&self, name: &str) -> Result<(), ErrorBody> {
        let active_model = self.model_factory.activate(Some(name)).await?;
        let (told, answer) = oneshot::channel();
        self.send(LoopCommand::UseModel(Box::new(active_model), Some(told))).await?;
        answer.await.map_err(|_| self.gone())??;
        self.log.set_model(name, self.model_factory.writes_calls(name));
        Ok(())
    }

    pub(super) async fn send(&self, command: LoopCommand) -> Result<(), ErrorBody> {
        self.touch();
        self.sender.send(command).await.map_err(|_| self.gone())
    }

    fn stop_after(&self, deadline: Duration) {
        let (log, sender, ended) = (Arc::clone(&self.log), self.sender.clone(), self.ended.clone());
        let mut activity = log.activity();
        self.tracker.spawn(async move {
            tokio::select! {
                () = ended.cancelled() => {}
                () = async { drop(activity.wait_for(|activity| *activity == Activity::Idle).await) } => {}
                () = tokio::time::sleep(deadline) => {
                    log.overdue();
                    drop(sender.send(LoopCommand::Cancel).await);
                }
            }
        });
    }

    pub(super) fn touch(&self) {
        *self.last_used.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    /// What it is doing; a question that waits for its turn is work.
    pub(super) fn activity(&self) -> Activity {
        // In this order: a question counts until its turn has begun.
        let is_asked = *self.queued.borrow() > 0;
        match *self.log.activity().borrow() {
            Activity::Idle if is_asked => Activity::Working,
            activity => activity,
        }
    }

    /// Whether the question that was queued last has to wait for others.
    pub(super) fn has_work_before_the_queue(&self) -> bool {
        *self.log.activity().borrow() != Activity::Idle || *self.queued.borrow() > 1
    }

    /// Whether it does nothing and has not been used for this long.
    pub(super) fn is_idle_for(&self, idle: Duration) -> bool {
        let last_used = *self.last_used.lock().unwrap_or_else(PoisonError::into_inner);
        let is_idle = self.activity() == Activity::Idle && *self.log.open_count().borrow() == 0;
        is_idle && self.log.listeners() == 0 && last_used.elapsed() >= idle
    }

    pub(super) fn has_ended(&self) -> bool {
        self.ended.is_cancelled()
    }

    /// Stops its work and ends the loop, for good; its open tasks go on.
    pub(super) async fn delete(&self) {
        self.is_deleted.store(true, Ordering::SeqCst);
        self.close().await;
    }

    /// Stops its work and ends the loop; its open tasks go on.
    pub(super) async fn close(&self) {
        drop(self.sender.send(LoopCommand::Cancel).await);
        drop(self.sender.send(LoopCommand::Leave).await);
        self.ended.cancelled().await;
    }
}

/// Tells the log what the session is when it is opened.
fn resume(log: &EventLog, session_loop: &SessionLoop, turn: u64, history: TurnHistory, owed: &OwedAnswers) {
    let machine: &Machine = session_loop.machine();
    let activity = match machine.phase() {
        LoopPhase::Idle => Activity::Idle,
        LoopPhase::Asleep => Activity::Sleeping,
        LoopPhase::Asking { .. } | LoopPhase::Pausing { .. } | LoopPhase::Calling => Activity::Working,
    };
    let TurnHistory { mut ends, mut started } = history;
    let open: Vec<_> = machine.open().cloned().collect();
    started.retain(|id| open.iter().any(|task| task.id == *id));
    if !is_over(activity, &started) {
        ends.remove(&turn);
    }
    log.resume(turn, activity, open, started, machine.answer());
    // Only of those that a client may ask for, and the last.
    ends.retain(|ended, _| *ended == turn || owed.asked.iter().any(|asked| asked.turn == *ended));
    log.recall(ends);
}

/// Watches the states of the open tasks, until the loop has ended.
pub(super) fn watch_tasks(tracker: &TaskTracker, log: Arc<EventLog>, trigger: Trigger, ended: CancellationToken) {
    tracker.spawn(async move {
        let mut open = log.open_count();
        loop {
            tokio::select! {
                () = ended.cancelled() => return,
                () = async { drop(open.wait_for(|open| *open > 0).await) } => {}
            }
            let ids: Vec<TaskId> = log.open_tasks().iter().map(|(task, _)| task.id).collect();
            for (id, state) in trigger.states(&ids) {
                if !state.is_final() {
                    log.task_is(id, state);
                }
            }
            tokio::select! {
                () = ended.cancelled() => return,
                () = trigger.wait_for_change() => {}
                changed = open.changed() => if changed.is_err() { return },
            }
        }
    });
}
