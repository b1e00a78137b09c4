//! The daemon: drives the dispatcher.
//!
//! One thread turns whatever woke it into events, lets the dispatcher decide, commits all changes
//! of the turn in one transaction, and only then carries the actions out. While a commit is under
//! way requests gather in the inbox; the next turn takes them all. Runners live on a runtime of
//! their own and report through the same channel.
//!
//! Told to stop, it takes nothing more out of the inbox (the next executor does) and starts nothing;
//! what runs has its grace, then it is interrupted and reports. When its mailbox is removed under
//! it, it does the same, and publishes nothing more: it holds on to the record of tasks until it has
//! ended, and the executor of the new mailbox, which waits for that, publishes what it recorded.

use std::collections::{HashMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use std::{fs, io};

use protocol::error::chain;
use protocol::mailbox::presence::{ExecutorIdentity, ExecutorLock};
use protocol::mailbox::request::Answer;
use protocol::mailbox::{self, Mailbox, MailboxError, TakenRequest};
use protocol::paths::{Paths, create_private};
use protocol::task::TaskId;
use protocol::{clock, fault};
use tokio::runtime::Runtime;
use tokio::sync::{broadcast, oneshot};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::attempt::report::AttemptReport;
use crate::attempt::{StopCause, perform};
use crate::catalog::Sources;
use crate::config::Config;
use crate::config::secret::Secrets;
use crate::dispatcher::{
    Action, Admission, DecisionResult, Dispatcher, DispatcherLimits, Effects, Event, ResolveRequest, Ticket,
};
use crate::intake::approver::ApproverPresence;
use crate::intake::{Intake, IntakeOutcome};
use crate::net::clients::HttpClients;
use crate::notify::hook::Hooks;
use crate::page::{PageMessage, PageSite, TaskChange};
use crate::runner::RunnerContext;
use crate::runner::delegation::Delegation;
use crate::runner::http::OAuthTokens;
use crate::store::retention::RetentionLimits;
use crate::store::sqlite::SqliteStore;
use crate::store::switched_off::SwitchedOffTools;
use crate::store::{Store, StoreError};
use crate::task::Task;
use crate::task::confirmation::ReplacedValues;
use crate::telemetry::Telemetry;

mod commit;
pub mod detach;
mod hooks;
mod human;
mod notices;
mod program;
mod publish;
mod record;
mod recover;
mod status;
mod steady_clock;
mod stop;
mod sweep;
mod watch;

use commit::Backlog;
use hooks::{DeliveryReport, HookDispatcher};
use human::{QueuePositions, decision_result};
use notices::DesktopNotifier;
use program::InstalledProgram;
use publish::Publisher;
use steady_clock::SteadyClock;
use watch::InboxWatch;

/// Why the daemon ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExitReason {
    /// Another executor has this mailbox.
    NotNeeded,
    Idle,
    Asked,
    /// Its program was replaced by another: start that one.
    Upgraded,
    /// Its mailbox was removed; the next one is for another executor. Tasks may be open.
    Evicted,
}

#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    #[error(transparent)]
    Mailbox(#[from] MailboxError),
    #[error("the record of tasks could not be used")]
    Store(#[from] StoreError),
    #[error("the executor could not use its files")]
    Io(#[from] io::Error),
    #[error("the configuration could not be used")]
    Config(#[from] crate::config::ConfigError),
    #[error("the rules of the configuration could not be used")]
    Rules(#[from] crate::intake::policy::RuleError),
    #[error("the HTTP client could not be made: {0}")]
    Http(String),
    /// That one lost its mailbox, and did not end in time.
    #[error("an earlier executor still works with the record of tasks in `{path}`")]
    StillThere { path: PathBuf },
}

impl DaemonError {
    /// What a human can do about it, where that is not plain.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Store(error) => error.hint(),
            Self::Rules(_) => Some("every rule and what it must match: agent-magic-tool doctor --settings".to_owned()),
            Self::Config(error) => Some(error.hint()),
            Self::Mailbox(_) | Self::Io(_) | Self::Http(_) | Self::StillThere { .. } => None,
        }
    }
}

/// No task waits longer for its next attempt; a record that says so was made under another clock.
const MAX_PAUSE: Duration = Duration::from_mins(5);
/// How soon it is tried again when descriptors or memory were wanting.
const RESOURCE_RETRY: Duration = Duration::from_millis(100);
/// How many changes whoever looks on may be behind before they look anew.
const LIVE: usize = 256;

enum DaemonEvent {
    Look,
    Finished(Box<AttemptReport>),
    Human(Box<PageMessage>),
    Previewed(Box<(Task, ReplacedValues)>),
    Told(Box<DeliveryReport>),
    Stop,
}

struct RunningAttempt {
    cancel: CancellationToken,
    reason: StopCause,
}

struct Daemon {
    mailbox: Mailbox,
    identity: ExecutorIdentity,
    intake: Intake,
    dispatcher: Dispatcher,
    store: Box<dyn Store>,
    backlog: Backlog,
    hook_dispatcher: HookDispatcher,
    notifier: DesktopNotifier,
    queue: QueuePositions,
    publisher: Publisher,
    telemetry: Option<Telemetry>,
    clock: SteadyClock,
    runner_context: Arc<RunnerContext>,
    data_folder: Arc<Path>,
    /// The executor's own, and where the record lies in it.
    folder: PathBuf,
    record: PathBuf,
    site: PageSite,
    approver: Arc<ApproverPresence>,
    cool_down: Duration,
    keep: RetentionLimits,
    /// Those that the last sweep found to be forgotten.
    to_forget: VecDeque<TaskId>,
    switches: SwitchedOffTools,
    running: HashMap<TaskId, RunningAttempt>,
    /// Whoever spoke on the page, and waits to hear what became of it.
    replies: HashMap<Ticket, oneshot::Sender<DecisionResult>>,
    live: broadcast::Sender<TaskChange>,
    runtime: Runtime,
    tracker: TaskTracker,
    /// Ends whatever listens for the daemon.
    ended: CancellationToken,
    wake: Sender<DaemonEvent>,
    // Fields are dropped in this order: whoever finds the office free finds all files closed.
    _record: record::RecordLock,
    presence: ExecutorLock,
}

/// Performs tasks until there is nothing to do for long, or somebody says stop.
///
/// `on_ready` is called once nothing can prevent it any more: what went wrong until then is the
/// business of whoever started us, the rest that of the log.
pub fn run(paths: &Paths, on_ready: impl FnOnce()) -> Result<ExitReason, DaemonError> {
    let config = Config::read(paths)?;
    let sources = Sources::of(paths, &config);
    let mailbox = Mailbox::open(&paths.mailbox)?;
    let identity = ExecutorIdentity {
        pid: std::process::id(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        subtools: sources.folders().to_vec(),
        started_at: clock::now(),
    };
    let Some(presence) = mailbox.acquire_executor_lock(&identity)? else { return Ok(ExitReason::NotNeeded) };
    let (idle, grace) = (config.executor.idle.get(), config.executor.grace.get());
    let keep = sweep::keep(&config.executor);
    let patience = watch::SAFETY + grace + 2 * stop::LAST_WORD;
    let record =
        record::take(&paths.executor(), patience)?.ok_or_else(|| DaemonError::StillThere { path: paths.executor() })?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    stop::outlive_file_limits(&runtime)?;
    let mut store: Box<dyn Store> = Box::new(SqliteStore::open(&paths.store())?);
    let open = store.open_tasks()?;
    let hook_dispatcher = HookDispatcher::new(Hooks::new(config.hooks.clone()), store.as_mut())?;
    let data_folder = paths.data();
    let spool = paths.executor().join("spool");
    if spool.exists() {
        fs::remove_dir_all(&spool)?;
    }
    create_private(&data_folder)?;
    create_private(&spool)?;
    let http = HttpClients::new(&config).map_err(|error| DaemonError::Http(error.to_string()))?;
    // Unbounded, since its length is bounded by the running tasks; a look is asked for once at a time.
    let (wake, woken) = channel();
    let limits = DispatcherLimits::of(&config);
    let approver = Arc::new(ApproverPresence::default());
    let folder = paths.executor();
    let site = PageSite::load_or_create(&folder)?;
    let inline_bytes = config.executor.inline_bytes;
    let intake = Intake::new(config.clone(), sources, site.instance.clone(), Arc::clone(&approver))?;
    let delegation = Delegation::new(paths, mailbox.clone(), Box::new(intake.catalog()))?;
    let secrets = Secrets::of(paths, &config);
    let runner_context = Arc::new(RunnerContext {
        secrets,
        tokens: OAuthTokens::default(),
        http,
        spool,
        config,
        delegation: Some(delegation),
    });
    let (tracker, ended) = (TaskTracker::new(), CancellationToken::new());
    let telemetry = Telemetry::start(paths, &runner_context, &runtime, &tracker, &ended);
    let daemon = Daemon {
        identity,
        intake,
        dispatcher: Dispatcher::new(limits),
        store,
        backlog: Backlog::default(),
        hook_dispatcher,
        notifier: DesktopNotifier::new(&runner_context.config.confirm, paths),
        queue: QueuePositions::default(),
        clock: SteadyClock::over(&open),
        publisher: Publisher::new(mailbox.clone(), inline_bytes, Arc::clone(&approver)),
        telemetry,
        runner_context,
        data_folder: data_folder.into(),
        folder,
        record: paths.store(),
        site,
        approver,
        keep,
        to_forget: VecDeque::new(),
        cool_down: limits.asks.cool_down,
        switches: SwitchedOffTools::below(&paths.executor()),
        running: HashMap::new(),
        replies: HashMap::new(),
        live: broadcast::Sender::new(LIVE),
        runtime,
        tracker,
        ended,
        wake,
        mailbox,
        presence,
        _record: record,
    };
    tracing::info!(pid = daemon.identity.pid, version = %daemon.identity.version, mailbox = %daemon.mailbox.root().display(), "executor started");
    on_ready();
    daemon.serve(&woken, open, idle, grace)
}

impl Daemon {
    fn serve(
        mut self,
        woken: &Receiver<DaemonEvent>,
        open: Vec<Task>,
        idle: Duration,
        grace: Duration,
    ) -> Result<ExitReason, DaemonError> {
        let outcome = self.recover(open).and_then(|()| self.work(woken, idle));
        let outcome = match outcome {
            Err(DaemonError::Io(_) | DaemonError::Mailbox(_)) if !self.holds_executor_lock() => Ok(ExitReason::Evicted),
            other => other,
        };
        let outcome = outcome.and_then(|ended| {
            tracing::info!(?ended, "the executor ends");
            if ended == ExitReason::Evicted {
                self.publisher.fall_silent();
            }
            self.stop(woken, grace)?;
            if self.is_idle() && !self.hook_dispatcher.is_busy(self.clock.now(), idle) && ended != ExitReason::Evicted {
                self.mailbox.remove_identity()?;
            }
            Ok(ended)
        });
        if let Err(error) = &outcome {
            tracing::error!(error = chain(error), "the executor cannot go on");
        }
        if let Some(telemetry) = self.telemetry.take() {
            telemetry.finish(&self.runtime);
        }
        self.ended.cancel();
        self.tracker.close();
        // By now there is nothing to wait for but what no longer reports.
        self.runtime.shutdown_timeout(Duration::from_millis(100));
        outcome
    }

    fn work(&mut self, woken: &Receiver<DaemonEvent>, idle: Duration) -> Result<ExitReason, DaemonError> {
        let program = InstalledProgram::current();
        let watch = self.watch();
        self.listen_for_stop()?;
        self.start_page()?;
        self.look(&watch, Vec::new())?;
        self.restore()?;
        // When something last happened, and when there was last an open task.
        let (mut active, mut busy) = (Instant::now(), Instant::now());
        let mut next_sweep = Instant::now();
        let mut events = Vec::new();
        loop {
            if !self.holds_executor_lock() {
                self.turn(events, Vec::new())?;
                return Ok(ExitReason::Evicted);
            }
            // What has ended and what is asked for share one commit.
            let (looked, is_exhausted) = retry_on_exhaustion(self.look(&watch, std::mem::take(&mut events)))?;
            if looked {
                active = Instant::now();
            }
            self.catch_up_record()?;
            if next_sweep <= Instant::now() {
                retry_on_exhaustion(self.sweep())?;
                next_sweep = Instant::now() + self.sweeps_every();
            }
            retry_on_exhaustion(self.forget_some())?;
            self.publisher.catch_up(self.store.as_ref())?;
            self.deliver_hooks()?;
            self.send_notice();
            self.update_positions();
            if self.dispatcher.running() == 0 && self.backlog.is_empty() && program.was_replaced() {
                return Ok(ExitReason::Upgraded);
            }
            let mut patience = watch.pause(active.elapsed()).min(next_sweep.saturating_duration_since(Instant::now()));
            if is_exhausted {
                patience = patience.min(RESOURCE_RETRY);
            }
            if !self.to_forget.is_empty() {
                patience = Duration::ZERO;
            }
            if !self.is_idle() || self.hook_dispatcher.is_busy(self.clock.now(), idle) {
                busy = Instant::now();
            } else if busy.max(active).elapsed() >= idle {
                return Ok(ExitReason::Idle);
            } else {
                patience = patience.min(idle.saturating_sub(busy.max(active).elapsed()));
            }
            let (hooks_delivered, stop);
            (events, hooks_delivered, stop) = self.wait(woken, patience);
            self.hooks_delivered(hooks_delivered)?;
            if stop {
                self.turn(events, Vec::new())?;
                return Ok(ExitReason::Asked);
            }
        }
    }

    /// Waits until something is to be done, at most for `patience`; what it is, what hooks were told, and
    /// whether to stop.
    fn wait(&mut self, woken: &Receiver<DaemonEvent>, patience: Duration) -> (Vec<Event>, Vec<DeliveryReport>, bool) {
        let mut patience = patience.min(self.patience_with_record());
        if self.publisher.is_behind() {
            patience = patience.min(publish::TRY_AGAIN);
        }
        let human = self.next_notice_at().into_iter().chain(self.next_position_update());
        for deadline in self.dispatcher.next_deadline().into_iter().chain(self.next_delivery()).chain(human) {
            let until = self.clock.now().duration_until(deadline);
            patience = patience.min(Duration::try_from(until).unwrap_or_default());
        }
        let first = match woken.recv_timeout(patience) {
            Ok(wake) => Some(wake),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => unreachable!("we hold a sender ourselves"),
        };
        let (mut events, mut spoken, mut hooks_delivered, mut stop) = (Vec::new(), Vec::new(), Vec::new(), false);
        for wake in first.into_iter().chain(woken.try_iter()) {
            match wake {
                DaemonEvent::Finished(finished) => events.push(Event::AttemptFinished(finished)),
                DaemonEvent::Told(one) => hooks_delivered.push(*one),
                DaemonEvent::Look => {}
                DaemonEvent::Human(said) => spoken.push(said),
                DaemonEvent::Previewed(previewed) => events.extend(self.previewed(*previewed)),
                DaemonEvent::Stop => stop = true,
            }
        }
        if !spoken.is_empty() || self.dispatcher.has_approved() {
            // What was shown to a human must still be so when they decide, and when it starts.
            events.extend(self.refresh());
        }
        events.extend(spoken.into_iter().filter_map(|spoken| self.handle_message(*spoken)));
        if self.clock.ahead() != self.dispatcher.ahead() {
            events.push(Event::SetClock { ahead: self.clock.ahead() });
        }
        if self.dispatcher.next_deadline().is_some_and(|deadline| deadline <= self.clock.now()) {
            events.push(Event::Tick);
        }
        if stop {
            // First, so that nothing is started in the place of what finished.
            events.insert(0, Event::Drain);
        }
        (events, hooks_delivered, stop)
    }

    /// Nothing is open, and all that happened is recorded.
    fn is_idle(&self) -> bool {
        self.dispatcher.is_idle() && self.backlog.is_empty()
    }

    fn holds_executor_lock(&self) -> bool {
        self.presence.is_current() && self.mailbox.has_all_folders()
    }

    fn watch(&self) -> InboxWatch {
        let wake = self.wake.clone();
        InboxWatch::new(&self.mailbox.inbox(), move || {
            if wake.send(DaemonEvent::Look).is_err() {
                tracing::trace!("the executor has ended");
            }
        })
    }

    /// Takes what lies in the inbox, after these events; whether there was anything.
    fn look(&mut self, watch: &InboxWatch, events: Vec<Event>) -> Result<bool, DaemonError> {
        watch.begin_look();
        let taken = match self.mailbox.take_all() {
            Ok(taken) => taken,
            Err(error) => {
                // What has ended is recorded, whatever became of the mailbox.
                self.turn(events, Vec::new())?;
                return Err(error.into());
            }
        };
        if taken.is_empty() && events.is_empty() {
            return Ok(false);
        }
        self.answer_all(taken, events)?;
        Ok(true)
    }

    fn answer_all(&mut self, taken: Vec<TakenRequest>, mut events: Vec<Event>) -> Result<(), DaemonError> {
        if !taken.is_empty() {
            events.extend(self.refresh());
        }
        let now = self.clock.now();
        let mut answers = Vec::new();
        let ids: Vec<_> = taken.iter().map(|request| (request.id, request.written_at)).collect();
        for request in taken {
            if let Some(known) = self.store.task(request.id)? {
                // Accepted before a crash, and not told: its result file is the answer.
                self.publish(&known);
                continue;
            }
            match self.intake.read(&request, now) {
                IntakeOutcome::Run { .. } if !self.backlog.is_empty() => {
                    answers.push((request.id, Answer::Refused(commit::disk_full())));
                }
                IntakeOutcome::Run { task, definition } => {
                    let earlier = match &task.idempotency_key {
                        Some(key) => self.store.task_by_key(task.caller.uid, key)?,
                        None => None,
                    };
                    let may_be_off = earlier.is_none() && definition.rate_limit.is_some_and(|limit| limit.auto_disable);
                    if may_be_off && let Some(error) = self.switches.refuse(&task.tool, &task.caller)? {
                        answers.push((request.id, Answer::Refused(error)));
                        continue;
                    }
                    events.push(Event::Admit(Box::new(Admission { task: *task, definition, earlier })));
                }
                IntakeOutcome::Cancel { task, uid } => events.push(Event::Cancel { request: request.id, task, uid }),
                IntakeOutcome::Resolve { task: id, uid, verdict } => {
                    let task = self.store.task(id)?;
                    let asked = ResolveRequest { request: request.id, id, uid, task, verdict };
                    events.push(Event::Resolve(Box::new(asked)));
                }
                IntakeOutcome::Abandon { session, uid } => {
                    events.push(Event::Abandon { request: request.id, uid, session });
                }
                IntakeOutcome::Forget { session, uid } => answers.push((request.id, self.forget_session(uid, &session)?)),
                IntakeOutcome::Status => answers.push((request.id, self.status(now))),
                IntakeOutcome::Answer(answer) => answers.push((request.id, answer)),
            }
        }
        self.turn(events, answers)?;
        for (id, written_at) in ids {
            // What is still owed is asked anew by the next executor, should we not live to bring it.
            if self.publisher.owes(id) || self.backlog.owes(id) {
                continue;
            }
            if let Some(telemetry) = &self.telemetry {
                telemetry.answer_written(written_at);
            }
            fault::point("request", "answered");
            self.mailbox.remove_taken(id)?;
            fault::point("request", "done");
        }
        Ok(())
    }

    fn turn(&mut self, events: Vec<Event>, answers: Vec<(TaskId, Answer)>) -> Result<(), DaemonError> {
        let now = self.clock.now();
        let mut effects = Effects::default();
        for event in events {
            if let Event::AttemptFinished(finished) = &event {
                fault::point("attempt", "finished");
                self.running.remove(&finished.id);
            }
            self.dispatcher.handle(event, now, &mut effects);
        }
        for (id, answer) in answers {
            effects.actions.push(Action::Answer(id, Box::new(answer)));
        }
        self.carry_out(effects)
    }

    fn act(&mut self, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::Publish(task) => self.publish(&task),
                Action::Answer(id, answer) if self.replies.contains_key(&id) => {
                    self.reply(id, decision_result(&answer))
                }
                Action::Answer(id, answer) => {
                    if let Some(telemetry) = &self.telemetry {
                        telemetry.answered(&answer);
                    }
                    self.publisher.answer(id, answer);
                }
                Action::Reply(ticket, decision_result) => self.reply(ticket, decision_result),
                Action::Preview { task, definition } => self.preview(*task, definition),
                Action::Perform { task, definition, purpose } => {
                    fault::point("attempt", "started");
                    let (cancel, reason) = (CancellationToken::new(), Arc::new(OnceLock::new()));
                    let running = RunningAttempt { cancel: cancel.clone(), reason: Arc::clone(&reason) };
                    self.running.insert(task.id, running);
                    let (runner_context, folder) = (Arc::clone(&self.runner_context), Arc::clone(&self.data_folder));
                    let wake = self.wake.clone();
                    self.tracker.spawn_on(
                        async move {
                            let finished =
                                perform(*task, definition, purpose, runner_context, folder, cancel, reason).await;
                            if wake.send(DaemonEvent::Finished(Box::new(finished))).is_err() {
                                tracing::warn!("a task finished after the executor had ended");
                            }
                        },
                        self.runtime.handle(),
                    );
                }
                Action::SwitchOff(off) => match self.switches.switch_off(&off) {
                    Ok(()) => {
                        let (tool, uid, session) = (off.tool.as_str(), off.uid, off.session);
                        tracing::warn!(tool, uid, session, "switched off for a session that called it too often");
                    }
                    Err(error) => tracing::error!(tool = %off.tool, %error, "it could not be switched off"),
                },
                Action::Interrupt(id, why) => {
                    if let Some(running) = self.running.get(&id) {
                        if running.reason.set(why).is_err() {
                            tracing::debug!(%id, "it was being stopped already");
                        }
                        running.cancel.cancel();
                    }
                }
            }
        }
        if let Some(telemetry) = &self.telemetry {
            telemetry.set_late(self.publisher.late_so_far());
        }
    }
}

/// A want of descriptors or memory passes; told apart from nothing by `true`.
fn retry_on_exhaustion<T: Default>(outcome: Result<T, DaemonError>) -> Result<(T, bool), DaemonError> {
    match outcome {
        Ok(done) => Ok((done, false)),
        Err(DaemonError::Io(error)) if mailbox::is_resource_exhaustion(&error) => {
            tracing::warn!(%error, "something is left for later");
            Ok((T::default(), true))
        }
        Err(error) => Err(error),
    }
}
