//! Telemetry: what the executor does, told to whoever watches machines.
//!
//! Derived from what was committed and from nothing else, so that it says what the record says.
//! Traces and metrics go out over OTLP, metrics can be read by Prometheus; both are off until a human
//! configures them, and cost nothing then. Names, counts and times only: never an input, an output or
//! a secret. Nothing here can hold a task up, and nothing wakes the executor while nothing happens.
//!
//! The two formats are written by hand. The OpenTelemetry SDK for Rust would bring 15 crates and half
//! a minute of building, threads that wake by timers and metrics that are sent whether or not anything
//! changed; and a trace's id, which is the task's id here, cannot be chosen there.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use protocol::mailbox::request::Answer;
use protocol::paths::Paths;
use protocol::task::{State, TaskId};
use tokio::runtime::Runtime;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::config;
use crate::runner::RunnerContext;
use crate::store::Change;
use crate::task::Task;

mod endpoint;
mod export;
mod metrics;
mod otlp;
mod span;
mod text;

use metrics::MetricValues;
use span::{SpanBuffer, TaskTraces};

/// How long the last export may take when the executor ends.
const LAST_WORD: Duration = Duration::from_secs(2);

/// The daemon's side: it tells what happened.
#[derive(Debug)]
pub(crate) struct Telemetry {
    shared: Arc<SharedTelemetry>,
    stories: TaskTraces,
    runner_context: Arc<RunnerContext>,
    traces: bool,
    ending: CancellationToken,
    exporter: Option<JoinHandle<()>>,
}

/// What the daemon writes and the watchers read.
#[derive(Debug)]
struct SharedTelemetry {
    state: Mutex<TelemetryState>,
    /// Something is there to be exported.
    changed: Notify,
    /// The files whose sizes are told.
    record: PathBuf,
    log: PathBuf,
}

#[derive(Debug, Default)]
struct TelemetryState {
    numbers: MetricValues,
    spans: SpanBuffer,
}

impl SharedTelemetry {
    fn lock(&self) -> MutexGuard<'_, TelemetryState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The numbers, with those that are looked up only when somebody asks.
    fn numbers(&self) -> MetricValues {
        let mut numbers = self.lock().numbers.clone();
        let size = |path: &PathBuf| std::fs::metadata(path).map_or(0, |found| found.len());
        numbers.record_bytes = size(&self.record) + size(&self.record.with_extension("db-wal"));
        numbers.log_bytes = size(&self.log);
        numbers
    }
}

impl Telemetry {
    /// `None` if nothing is configured.
    pub(crate) fn start(
        paths: &Paths,
        runner_context: &Arc<RunnerContext>,
        runtime: &Runtime,
        tracker: &TaskTracker,
        ended: &CancellationToken,
    ) -> Option<Self> {
        let config::TelemetrySettings { otlp, prometheus, .. } = &runner_context.config.telemetry;
        if otlp.is_none() && prometheus.is_none() {
            return None;
        }
        let shared = Arc::new(SharedTelemetry {
            state: Mutex::default(),
            changed: Notify::new(),
            record: paths.store(),
            log: paths.log(),
        });
        let ending = CancellationToken::new();
        if let Some(address) = *prometheus {
            tracker.spawn_on(endpoint::serve(address, Arc::clone(&shared), ended.clone()), runtime.handle());
        }
        let exporter = otlp.as_ref().map(|to| {
            let folder = paths.executor();
            let instance = folder.file_name().unwrap_or_default().to_string_lossy();
            let exporter = export::Exporter::new(to, &instance, Arc::clone(&shared), Arc::clone(runner_context));
            tracker.spawn_on(exporter.run(ending.clone()), runtime.handle())
        });
        let traces = exporter.is_some();
        let runner_context = Arc::clone(runner_context);
        Some(Self { shared, stories: TaskTraces::default(), runner_context, traces, ending, exporter })
    }

    /// The tasks that an executor before us left open. `started` tells when a running one was started.
    pub(crate) fn recover(&mut self, open: &[Task], mut started: impl FnMut(TaskId) -> Option<jiff::Timestamp>) {
        let mut known = self.shared.lock();
        for task in open {
            known.numbers.opened(task.state);
            let started = if task.state == State::Running { started(task.id) } else { None };
            self.stories.open(task, started, &self.runner_context.secrets);
        }
    }

    /// These are durable now; to make them so took so long.
    pub(crate) fn committed(&mut self, changes: &[Change], took: Duration) {
        if changes.is_empty() {
            return;
        }
        let mut known = self.shared.lock();
        let TelemetryState { numbers, spans } = &mut *known;
        numbers.commits.observe(took);
        for change in changes {
            match change {
                Change::Accept(task) => {
                    numbers.accepted += 1;
                    numbers.opened(task.state);
                    self.stories.open(task, None, &self.runner_context.secrets);
                }
                Change::Transition(step) => {
                    numbers.moved(step.from, step.to);
                    let ended = self.stories.step(step);
                    if let Some(took) = ended.attempt_took {
                        numbers.attempts.observe(took);
                    }
                    if self.traces {
                        ended.spans.into_iter().for_each(|span| spans.push(span));
                    }
                }
                Change::Grant { .. } | Change::SetPreview { .. } | Change::Resolve(..) | Change::Delivery(..) => {}
            }
        }
        drop(known);
        self.shared.changed.notify_one();
    }

    /// A request was answered.
    pub(crate) fn told(&self, answer: &Answer) {
        if let Answer::Refused(error) = answer {
            *self.shared.lock().numbers.refused.entry(error.code.as_str()).or_default() += 1;
            self.shared.changed.notify_one();
        }
    }

    /// The request that was written then has its answer now.
    pub(crate) fn answered(&self, written_at: Option<SystemTime>) {
        // A clock that was set back in between says nothing.
        if let Some(took) = written_at.and_then(|at| at.elapsed().ok()) {
            self.shared.lock().numbers.answers.observe(took);
        }
    }

    /// How many results and answers could not be written at once so far.
    pub(crate) fn late(&self, so_far: u64) {
        self.shared.lock().numbers.late = so_far;
    }

    /// Sends what is left, and waits for that a little.
    pub(crate) fn finish(self, runtime: &Runtime) {
        self.ending.cancel();
        if let Some(exporter) = self.exporter {
            let finished = runtime.block_on(async { tokio::time::timeout(LAST_WORD, exporter).await });
            if finished.is_err() {
                tracing::warn!("the last telemetry could not be exported in time");
            }
        }
    }
}
