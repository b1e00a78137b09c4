//! The daemon: the process side of the executor, which drives the dispatcher.
//!
//! One thread runs the event loop (`event_loop.rs`, read it first). Each step turns what arrived into events, lets the
//! dispatcher decide, commits all changes in one transaction, and only then carries out the actions (`task_driver.rs`).
//! Requests that arrive during a commit gather in the inbox, and the next step takes them all. Attempts and other work
//! run on a runtime and report to the loop through one channel (`background.rs`).
//!
//! When asked to stop, the executor leaves new requests in the inbox for the next executor and starts nothing. Running
//! attempts get a grace period; then they are interrupted and report. If its mailbox is removed, the executor stops in
//! the same way, and no longer publishes. It keeps the lock on the record of tasks until it has ended. The executor of
//! the new mailbox waits for the lock, and publishes what was recorded.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::{fs, io};

use catalog::{Catalog, Sources, SourcesWatch};
use dispatcher::{Dispatcher, DispatcherLimits};
use ground::base::children;
use ground::base::closed_process::close_process;
use ground::base::jq_pool::JqPool;
use ground::base::own_folders::OwnFolders;
use ground::config::api_keys::ApiKeys;
use ground::config::secret::Secrets;
use ground::config::{Config, ParsedConfig, state};
use ground::page_client::site::PageSite;
use ground::task::Task;
use jiff::Timestamp;
use net::clients::HttpClients;
use notify::RecommendedWatcher;
use protocol::clock;
use protocol::code::Code;
use protocol::error::{ErrorBody, chain};
use protocol::mailbox::presence::{ExecutorIdentity, ExecutorLock, ExecutorPhase};
use protocol::mailbox::{Mailbox, MailboxError};
use protocol::paths::{Paths, create_private};
use protocol::trust::Distrust;
use runner::RunnerContext;
use runner::delegation::Delegation;
use runner::result_space::ResultSpace;
use store::sqlite::SqliteStore;
use store::switched_off::SwitchedOffTools;
use store::{Store, StoreError};
use tokio::runtime::Runtime;
use tokio::sync::watch as watch_channel;

use crate::intake::Intake;
use crate::intake::approver::ApproverPresence;
use crate::intake::policy::Policy;
use crate::intake::settings::{Settings, SettingsError};
use crate::telemetry::Telemetry;

mod approver_keys;
mod attempts;
mod background;
pub mod detach;
mod dry_runs;
mod event_loop;
mod for_callers;
mod hooks;
mod idle;
mod inbox;
mod learner;
mod live;
mod monotonic_clock;
mod notifier;
mod page_endpoint;
mod program;
mod publisher;
mod record;
mod record_lock;
mod recover;
mod reload;
mod requests;
mod signals;
mod status;
mod stop;
mod sweeper;
mod task_driver;
mod task_log;
mod watch;

use approver_keys::ApproverKeyring;
use attempts::AttemptPool;
use background::{Background, DaemonEvent};
use dry_runs::DryRunPool;
use for_callers::ListingPublisher;
use hooks::HookDeliveries;
use idle::IdleTimer;
use inbox::Inbox;
use learner::Learner;
use monotonic_clock::MonotonicClock;
use notifier::DesktopNotifier;
use page_endpoint::PageEndpoint;
use program::InstalledProgram;
use publisher::Publisher;
use record::RecordKeeper;
use record_lock::RecordLock;
use reload::ConfigFile;
use signals::Watchdog;
use sweeper::Sweeper;
use task_driver::TaskDriver;

/// Why the daemon ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExitReason {
    /// The mailbox already has an executor.
    NotNeeded,
    /// Nothing was open for the configured time.
    Idle,
    /// A signal asked it to stop.
    Asked,
    /// Its program file was replaced. The caller starts the new program.
    Upgraded,
    /// Its mailbox was removed, and tasks may be open. The caller starts an executor for the new mailbox.
    Evicted,
}

#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    #[error(transparent)]
    Mailbox(#[from] MailboxError),
    #[error("failed to use the record of tasks")]
    Store(#[from] StoreError),
    #[error("failed to use the executor's files")]
    Io(#[from] io::Error),
    #[error("the configuration cannot be used")]
    Settings(#[from] SettingsError),
    /// Another user can have written what decides.
    #[error("the state folder cannot be trusted: {0}")]
    State(Distrust),
    /// The other executor lost its mailbox, and did not end in time.
    #[error("another executor still uses the record of tasks in `{path}`")]
    RecordInUse { path: PathBuf },
}

impl DaemonError {
    /// What a human can do about the error, if the message does not already say it.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Store(error) => error.hint(),
            Self::Settings(error) => Some(error.hint()),
            Self::State(distrust) => distrust.remedy(),
            Self::Mailbox(_) | Self::Io(_) | Self::RecordInUse { .. } => None,
        }
    }

    /// The error as callers see it.
    pub fn body(&self, log: &Path) -> ErrorBody {
        let hint = self.hint().unwrap_or_else(|| format!("see its log: {}", log.display()));
        let code = if matches!(self, Self::Settings(_)) { Code::BadConfig } else { Code::NoExecutor };
        ErrorBody::new(code, chain(self)).hint(hint)
    }
}

/// The executor of one mailbox: the parts, and the loop that drives them.
struct Daemon {
    tasks: TaskDriver,
    inbox: Inbox,
    config_file: ConfigFile,
    keys: ApproverKeyring,
    api_keys: ApiKeys,
    _config_watch: Option<RecommendedWatcher>,
    notifier: DesktopNotifier,
    sweeper: Sweeper,
    listings: ListingPublisher,
    mailbox: Mailbox,
    /// Whether the results that the mailbox lacked at the start are published.
    is_restored: bool,
    identity: ExecutorIdentity,
    idle: IdleTimer,
    program: InstalledProgram,
    events: Receiver<DaemonEvent>,
    /// Since when callers know that the record's disk is full.
    told_full_since: Option<Timestamp>,
    /// What arrived while the configuration was being written.
    held: Vec<DaemonEvent>,
    background: Background,
    /// Since the executor listens for requests to stop.
    watchdog: Option<Watchdog>,
    runtime: Runtime,
    // Last: every file is closed before another executor can take over.
    locks: Locks,
}

/// The locks that make a process the executor. Dropped in the order of the fields.
struct Locks {
    _record: RecordLock,
    executor: ExecutorLock,
}

/// Performs tasks until the executor is idle for the configured time or is asked to stop.
///
/// Calls `on_ready` once the start cannot fail any more. Earlier errors concern the process that started the executor;
/// later ones are also logged. All are left in the mailbox for the commands that wait.
///
/// `jq` evaluates the expressions of definitions.
pub fn run(paths: &Paths, jq: JqPool, on_ready: impl FnOnce()) -> Result<ExitReason, DaemonError> {
    let ended = run_once(paths, jq, on_ready);
    if let Err(failed) = &ended {
        let body = failed.body(&paths.log());
        let recorded = Mailbox::open(&paths.mailbox).map(|mailbox| mailbox.record_failure(&body));
        if !matches!(recorded, Ok(Ok(()))) {
            tracing::warn!("failed to leave the reason in the mailbox");
        }
    }
    ended
}

fn run_once(paths: &Paths, jq: JqPool, on_ready: impl FnOnce()) -> Result<ExitReason, DaemonError> {
    // Before anything secret is read.
    close_process()?;
    if let Some(distrust) = state::distrusted(paths).into_iter().next() {
        return Err(DaemonError::State(distrust));
    }
    let (config_file, ParsedConfig { config, .. }) = ConfigFile::read(paths).map_err(SettingsError::from)?;
    // Before the lock is taken, so that the caller is told why there is no executor.
    Policy::new(&config).map_err(SettingsError::from)?;
    HttpClients::new(&config).map_err(SettingsError::from)?;
    let sources = Sources::of(paths, &config);
    let mailbox = Mailbox::open(&paths.mailbox)?;
    let identity = ExecutorIdentity {
        pid: std::process::id(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        subtools: sources.folders().to_vec(),
        config: Some(paths.config_file()),
        started_at: clock::now(),
        phase: ExecutorPhase::Starting,
    };
    let Some(executor_lock) = mailbox.acquire_executor_lock(&identity)? else { return Ok(ExitReason::NotNeeded) };
    // An earlier executor that lost its mailbox notices that, and stops, within this time.
    let timeout = watch::MAX_PAUSE + config.executor.grace.get() + 2 * stop::INTERRUPT_TIMEOUT;
    let record_lock = record_lock::acquire(&paths.executor(), timeout)?
        .ok_or_else(|| DaemonError::RecordInUse { path: paths.executor() })?;
    let locks = Locks { _record: record_lock, executor: executor_lock };
    config_file.remember();
    let (daemon, open) = Daemon::new(paths, config_file, (config, sources), mailbox, identity, jq, locks)?;
    tracing::info!(pid = daemon.identity.pid, version = %daemon.identity.version, mailbox = %daemon.mailbox.root().display(), "executor started");
    on_ready();
    daemon.run(paths, open)
}

impl Daemon {
    /// Opens the record and prepares all parts. Returns the tasks that earlier executors left open, too.
    fn new(
        paths: &Paths,
        config_file: ConfigFile,
        (config, sources): (Config, Sources),
        mailbox: Mailbox,
        identity: ExecutorIdentity,
        jq: JqPool,
        locks: Locks,
    ) -> Result<(Self, Vec<Task>), DaemonError> {
        let folder = paths.executor();
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        let (background, events) = Background::new(runtime.handle().clone());
        signals::survive_file_size_limits(&background)?;
        children::adopt();
        children::belong_to(&paths.state)?;
        // Before any attempt of theirs is made again.
        runtime.block_on(children::end_programs_of_the_last_executor());
        let mut store: Box<dyn Store> = Box::new(SqliteStore::open(&paths.store())?);
        let open = store.open_tasks()?;
        let (data_folder, spool) = prepare_folders(paths)?;
        let approver = Arc::new(ApproverPresence::default());
        let site = PageSite::load_or_create(&folder)?;
        let definitions_watch = SourcesWatch::new(&sources);
        let catalog = watch_channel::Sender::new(Arc::new(Catalog::load(&sources)));
        let delegation = Delegation::new(paths, mailbox.clone(), catalog.subscribe())?;
        let secrets = Secrets::of(paths, &config);
        let context = RunnerContext::new(config, secrets, spool).map_err(SettingsError::from)?;
        let (own_folders, jq, delegation) = (OwnFolders::of(paths), Arc::new(jq), Some(Arc::new(delegation)));
        let results = ResultSpace::new(mailbox.clone());
        results.count_existing(|| {
            let open = open.iter().map(|task| (task.id, task.caller.clone()));
            let ended = store.ended_since(Timestamp::MIN)?.into_iter().map(|task| (task.id, task.caller));
            Ok::<_, StoreError>(open.chain(ended).collect())
        })?;
        let context = RunnerContext { own_folders, jq, delegation, results: Arc::new(results), ..context };
        let settings = Settings::new(1, sources, context).map_err(SettingsError::from)?;
        let settings = match config_file.problem_at_start(settings.config()) {
            Some(problem) => {
                tracing::error!(problem = %chain(&problem), "the configuration names what does not exist: every call needs a human");
                settings.holding(&problem)
            }
            None => settings,
        };
        let config = settings.config().clone();
        let limits = DispatcherLimits::of(&config);
        let intake = Intake::new(settings, definitions_watch, catalog, site.instance.clone(), Arc::clone(&approver))
            .with_prompts(paths.prompts());
        let settings = intake.live_settings();
        let switched_off = SwitchedOffTools::below(&folder);
        let keys = ApproverKeyring::new(folder.clone(), config.confirm.keys.as_deref(), Arc::clone(&approver));
        let tasks = TaskDriver {
            clock: MonotonicClock::new(&open),
            dispatcher: Dispatcher::new(limits),
            publisher: Publisher::new(mailbox.clone(), config.executor.inline_bytes, Arc::clone(&approver)),
            attempts: AttemptPool::new(background.clone(), settings.clone(), Arc::clone(&data_folder)),
            dry_runs: DryRunPool::new(background.clone(), Arc::clone(&data_folder)),
            page: PageEndpoint::new(site, Arc::clone(&approver), mailbox.clone(), background.clone(), settings.clone()),
            hooks: HookDeliveries::new(store.as_mut(), mailbox.clone(), background.clone(), settings.clone())?,
            record: RecordKeeper::new(store),
            switched_off: switched_off.clone(),
            telemetry: Telemetry::start(paths, &settings, &runtime, background.tracker(), background.executor_ended()),
            learner: Learner::new(paths.learned(), settings.clone()),
            settings: settings.clone(),
            started: VecDeque::new(),
        };
        let changes = background.clone();
        let config_watch = watch::watch_file(&paths.config_file(), move || {
            if !changes.send(DaemonEvent::ConfigChanged) {
                tracing::trace!("the configuration changed after the executor had ended");
            }
        });
        let daemon = Self {
            tasks,
            inbox: Inbox::new(mailbox.clone(), intake, switched_off, background.clone()),
            config_file,
            keys,
            api_keys: ApiKeys::of(paths),
            _config_watch: config_watch,
            notifier: DesktopNotifier::new(paths, background.clone(), settings),
            sweeper: Sweeper::new(mailbox.clone(), data_folder, paths.scripts(), &config.executor),
            listings: ListingPublisher::new(mailbox.clone(), paths.listing(), background.clone()),
            mailbox,
            is_restored: false,
            identity,
            idle: IdleTimer::new(config.executor.idle.get()),
            program: InstalledProgram::current(),
            events,
            told_full_since: None,
            held: Vec::new(),
            background,
            watchdog: None,
            runtime,
            locks,
        };
        Ok((daemon, open))
    }
}

/// Creates the folders for data and for spooled output. Spooled output of earlier executors is deleted.
fn prepare_folders(paths: &Paths) -> io::Result<(Arc<Path>, PathBuf)> {
    let (data, spool) = (paths.data(), paths.executor().join("spool"));
    if spool.exists() {
        fs::remove_dir_all(&spool)?;
    }
    create_private(&data)?;
    create_private(&spool)?;
    Ok((data.into(), spool))
}
