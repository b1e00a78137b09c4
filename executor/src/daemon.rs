//! The daemon: drives the dispatcher.
//!
//! One thread turns whatever woke it into events, lets the dispatcher decide, commits all changes
//! of the turn in one transaction, and only then carries the actions out. While a commit is under
//! way requests gather in the inbox; the next turn takes them all. Runners live on a runtime of
//! their own and report through the same channel.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use notify::{RecursiveMode, Watcher as _};
use serde_json::json;
use tokio::runtime::Runtime;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::clock;
use crate::desk::{Desk, Wish};
use crate::dispatcher::{Action, Admission, Dispatcher, Effects, Event, Finished, Limits, Why};
use crate::mailbox::presence::{Identity, Presence};
use crate::mailbox::request::Answer;
use crate::mailbox::result::{Beside, render};
use crate::mailbox::{Mailbox, MailboxError, Taken};
use crate::perform::{Reason, perform};
use crate::places::Places;
use crate::runner::{Equipment, http};
use crate::store::sqlite::SqliteStore;
use crate::store::{Store, StoreError};
use crate::task::{Task, TaskId};

/// How often the inbox is looked at when the file system gives no events.
const LOOK_AGAIN: Duration = Duration::from_millis(20);
/// An answer that nobody collected.
const STALE_ANSWER: Duration = Duration::from_mins(10);

/// Why the daemon ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// Another executor has this mailbox.
    NotNeeded,
    Idle,
    Asked,
    /// Its program was replaced by another: start that one.
    Upgraded,
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
    #[error("the HTTP client could not be made: {0}")]
    Http(String),
}

enum Wake {
    Look,
    Finished(Box<Finished>),
    Stop,
}

struct Running {
    cancel: CancellationToken,
    reason: Reason,
}

struct Daemon {
    mailbox: Mailbox,
    _presence: Presence,
    identity: Identity,
    desk: Desk,
    dispatcher: Dispatcher,
    store: Box<dyn Store>,
    equipment: Arc<Equipment>,
    data_folder: Arc<Path>,
    running: HashMap<TaskId, Running>,
    runtime: Runtime,
    tracker: TaskTracker,
    wake: Sender<Wake>,
}

/// Performs tasks until there is nothing to do for long, or somebody says stop.
pub fn run(places: &Places) -> Result<Ended, DaemonError> {
    let config = places.read_config()?;
    let sources = places.sources(&config);
    let mailbox = Mailbox::open(&places.mailbox)?;
    let identity = Identity {
        pid: std::process::id(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        subtools: sources.folders().to_vec(),
        started_at: clock::now(),
    };
    let Some(presence) = mailbox.take_office(&identity)? else { return Ok(Ended::NotNeeded) };
    let store: Box<dyn Store> = Box::new(SqliteStore::open(&places.store())?);
    let data_folder = places.data();
    let spool = places.executor().join("spool");
    if spool.exists() {
        fs::remove_dir_all(&spool)?;
    }
    fs::create_dir_all(&data_folder)?;
    fs::create_dir_all(&spool)?;
    let http = http::Clients::new(&config).map_err(|error| DaemonError::Http(error.to_string()))?;
    // Unbounded, since its length is bounded by the running tasks; a look is asked for once at a time.
    let (wake, woken) = channel();
    let (idle, grace, keep) = (config.executor.idle.get(), config.executor.grace.get(), config.executor.keep.get());
    let limits = Limits { concurrency: config.executor.concurrency, open_tasks: config.executor.open_tasks };
    let daemon = Daemon {
        identity,
        desk: Desk::new(config.clone(), sources),
        dispatcher: Dispatcher::new(limits),
        store,
        equipment: Arc::new(Equipment { secrets: places.secrets(&config), http, spool, config }),
        data_folder: data_folder.into(),
        running: HashMap::new(),
        runtime: tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?,
        tracker: TaskTracker::new(),
        wake,
        mailbox,
        _presence: presence,
    };
    daemon.serve(&woken, idle, grace, keep)
}

impl Daemon {
    fn serve(
        mut self,
        woken: &Receiver<Wake>,
        idle: Duration,
        grace: Duration,
        keep: Duration,
    ) -> Result<Ended, DaemonError> {
        let looking = Arc::new(AtomicBool::new(false));
        let watcher = self.watch(&looking);
        self.listen_for_stop()?;
        self.recover(keep)?;
        let program = Program::current();
        let mut quiet_since = Instant::now();
        let ended = loop {
            self.look(&looking)?;
            if self.dispatcher.running() == 0 && program.was_replaced() {
                break Ended::Upgraded;
            }
            if !self.dispatcher.is_idle() {
                quiet_since = Instant::now();
            } else if quiet_since.elapsed() >= idle {
                break Ended::Idle;
            }
            let mut patience =
                if self.dispatcher.is_idle() { idle.saturating_sub(quiet_since.elapsed()) } else { idle };
            if let Some(deadline) = self.dispatcher.next_deadline() {
                let until = clock::now().duration_until(deadline);
                patience = patience.min(Duration::try_from(until).unwrap_or_default());
            }
            if watcher.is_none() {
                patience = patience.min(LOOK_AGAIN);
            }
            let mut events = Vec::new();
            match woken.recv_timeout(patience) {
                Ok(Wake::Stop) => break Ended::Asked,
                Ok(Wake::Finished(finished)) => events.push(Event::Finished(finished)),
                Ok(Wake::Look) => {}
                Err(RecvTimeoutError::Timeout) => events.push(Event::Tick),
                Err(RecvTimeoutError::Disconnected) => unreachable!("we hold a sender ourselves"),
            }
            let mut stop = false;
            while let Ok(wake) = woken.try_recv() {
                match wake {
                    Wake::Finished(finished) => events.push(Event::Finished(finished)),
                    Wake::Look => {}
                    Wake::Stop => stop = true,
                }
            }
            if !events.is_empty() {
                quiet_since = Instant::now();
                self.turn(events, Vec::new())?;
            }
            if stop {
                break Ended::Asked;
            }
        };
        self.stop(woken, grace)?;
        Ok(ended)
    }

    /// Wakes us when something lands in the inbox; `None` where the file system gives no events.
    fn watch(&self, looking: &Arc<AtomicBool>) -> Option<notify::RecommendedWatcher> {
        let (wake, looking) = (self.wake.clone(), Arc::clone(looking));
        let watcher = notify::recommended_watcher(move |_: notify::Result<notify::Event>| {
            if !looking.swap(true, Ordering::AcqRel) && wake.send(Wake::Look).is_err() {
                tracing::trace!("the executor has ended");
            }
        });
        let armed = watcher.and_then(|mut watcher| {
            watcher.watch(&self.mailbox.inbox(), RecursiveMode::NonRecursive)?;
            Ok(watcher)
        });
        armed.inspect_err(|error| tracing::warn!(%error, "no file events: the inbox is polled")).ok()
    }

    fn listen_for_stop(&self) -> io::Result<()> {
        use tokio::signal::unix::{SignalKind, signal};
        let _inside = self.runtime.enter();
        let (mut term, mut int) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
        let wake = self.wake.clone();
        self.tracker.spawn_on(
            async move {
                tokio::select! { _ = term.recv() => {}, _ = int.recv() => {} }
                if wake.send(Wake::Stop).is_err() {
                    tracing::trace!("the executor has ended");
                }
            },
            self.runtime.handle(),
        );
        Ok(())
    }

    fn recover(&mut self, keep: Duration) -> Result<(), DaemonError> {
        let now = clock::now();
        let oldest = now.checked_sub(keep).unwrap_or(Timestamp::MIN);
        for id in self.store.forget(oldest)? {
            self.mailbox.forget(id)?;
            let data = self.data_folder.join(id.to_string());
            if data.exists() {
                fs::remove_file(data)?;
            }
        }
        for task in self.store.ended_since(oldest)? {
            if !self.mailbox.result_file(task.id).exists() {
                self.publish(&task)?;
            }
        }
        let desk = &self.desk;
        let open = self.store.open_tasks()?;
        let effects = self.dispatcher.recover(open, now, |task| desk.definition_of(task));
        self.carry_out(effects)?;
        let left = self.mailbox.left_behind()?;
        self.answer_all(left)
    }

    /// Takes what lies in the inbox.
    fn look(&mut self, looking: &AtomicBool) -> Result<(), DaemonError> {
        looking.store(false, Ordering::Release);
        let taken = self.mailbox.take_all()?;
        if taken.is_empty() { Ok(()) } else { self.answer_all(taken) }
    }

    fn answer_all(&mut self, taken: Vec<Taken>) -> Result<(), DaemonError> {
        self.desk.refresh();
        let now = clock::now();
        let mut events = Vec::new();
        let mut answers = Vec::new();
        let ids: Vec<_> = taken.iter().map(|request| request.id).collect();
        for request in taken {
            if let Some(known) = self.store.task(request.id)? {
                // Accepted before a crash, and not told: its result file is the answer.
                self.publish(&known)?;
                continue;
            }
            match self.desk.read(&request, now) {
                Wish::Run { task, definition } => {
                    let earlier = match &task.idempotency_key {
                        Some(key) => self.store.task_by_key(task.caller.uid, key)?,
                        None => None,
                    };
                    events.push(Event::Admitted(Box::new(Admission { task: *task, definition, earlier })));
                }
                Wish::Cancel { task, uid } => events.push(Event::CancelAsked { request: request.id, task, uid }),
                Wish::Status => answers.push((request.id, self.status(now))),
                Wish::Answered(answer) => answers.push((request.id, answer)),
            }
        }
        self.turn(events, answers)?;
        for id in ids {
            self.mailbox.done(id)?;
        }
        Ok(())
    }

    fn turn(&mut self, events: Vec<Event>, answers: Vec<(TaskId, Answer)>) -> Result<(), DaemonError> {
        let now = clock::now();
        let mut effects = Effects::default();
        for event in events {
            self.dispatcher.handle(event, now, &mut effects);
        }
        for (id, answer) in answers {
            effects.actions.push(Action::Answer(id, Box::new(answer)));
        }
        self.carry_out(effects)
    }

    /// First what must be durable, then the rest.
    fn carry_out(&mut self, effects: Effects) -> Result<(), DaemonError> {
        self.store.commit(&effects.changes)?;
        for action in effects.actions {
            match action {
                Action::Publish(task) => self.publish(&task)?,
                Action::Answer(id, answer) => self.mailbox.answer(id, &answer)?,
                Action::Perform { task, definition } => {
                    let (cancel, reason) = (CancellationToken::new(), Arc::new(OnceLock::new()));
                    let running = Running { cancel: cancel.clone(), reason: Arc::clone(&reason) };
                    self.running.insert(task.id, running);
                    let (equipment, folder) = (Arc::clone(&self.equipment), Arc::clone(&self.data_folder));
                    let wake = self.wake.clone();
                    self.tracker.spawn_on(
                        async move {
                            let finished = perform(*task, definition, equipment, folder, cancel, reason).await;
                            if wake.send(Wake::Finished(Box::new(finished))).is_err() {
                                tracing::warn!("a task finished after the executor had ended");
                            }
                        },
                        self.runtime.handle(),
                    );
                }
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
        Ok(())
    }

    fn publish(&mut self, task: &Task) -> Result<(), DaemonError> {
        let mailbox = &self.mailbox;
        let name = |extension: &str| mailbox.data_file(task.id, extension).display().to_string();
        let file = render(task, self.equipment.config.executor.inline_bytes, name);
        match file.beside {
            Some(Beside::Json(data)) => fs::write(mailbox.data_file(task.id, "json"), data)?,
            Some(Beside::File { path, extension }) => {
                fs::copy(path, mailbox.data_file(task.id, extension))?;
            }
            None => {}
        }
        if task.state.is_final() {
            self.running.remove(&task.id);
            let code = match task.end.as_ref().map(|end| &end.outcome) {
                Some(crate::task::Outcome::Error(error)) => error.code.as_str(),
                _ => "",
            };
            tracing::info!(id = %task.id, tool = %task.tool, state = %task.state, code, attempts = task.attempt, uid = task.caller.uid, "task ended");
        }
        Ok(self.mailbox.publish(task.id, &file.text)?)
    }

    fn status(&self, now: Timestamp) -> Answer {
        let counts: serde_json::Map<_, _> =
            self.dispatcher.counts().into_iter().map(|(state, count)| (state.to_string(), count.into())).collect();
        Answer::Status(json!({
            "pid": self.identity.pid,
            "version": self.identity.version,
            "mailbox": self.mailbox.root(),
            "subtools": self.identity.subtools,
            "uptime_s": now.duration_since(self.identity.started_at).as_secs(),
            "tasks": counts,
        }))
    }

    /// Nothing new starts; what runs gets its grace, then is interrupted and reports.
    fn stop(&mut self, woken: &Receiver<Wake>, grace: Duration) -> Result<(), DaemonError> {
        let deadline = Instant::now() + grace;
        let mut told = false;
        while self.dispatcher.running() > 0 {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() && !told {
                told = true;
                self.turn(vec![Event::Stop], Vec::new())?;
            }
            let patience = if told { grace.max(Duration::from_secs(5)) } else { left };
            match woken.recv_timeout(patience) {
                Ok(Wake::Finished(finished)) => self.turn(vec![Event::Finished(finished)], Vec::new())?,
                Ok(Wake::Look | Wake::Stop) => {}
                Err(_) if told => break,
                Err(_) => {}
            }
        }
        Ok(())
    }
}

/// The file that this process was started from.
struct Program {
    path: Option<PathBuf>,
    stamp: Option<(u64, u64, i64)>,
}

impl Program {
    fn current() -> Self {
        let path = std::env::current_exe().ok();
        let stamp = path.as_deref().and_then(Self::stamp);
        Self { path, stamp }
    }

    fn stamp(path: &Path) -> Option<(u64, u64, i64)> {
        use std::os::unix::fs::MetadataExt as _;
        fs::metadata(path).ok().map(|found| (found.dev(), found.ino(), found.mtime()))
    }

    fn was_replaced(&self) -> bool {
        let now = self.path.as_deref().and_then(Self::stamp);
        now.is_some() && now != self.stamp
    }
}

/// Why an interrupted attempt was interrupted, for the log.
impl std::fmt::Display for Why {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Failure => "failure",
            Self::Timeout => "timeout",
            Self::Cancelled => "cancelled",
            Self::Shutdown => "shutdown",
        })
    }
}

/// The age from which an answer that nobody collected is swept.
pub const fn stale_answer() -> Duration {
    STALE_ANSWER
}
