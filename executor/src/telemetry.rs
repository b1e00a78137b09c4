//! Telemetry: traces and metrics of the executor.
//!
//! Derived only from committed changes, so telemetry always agrees with the store. Traces and metrics are sent over
//! OTLP, and Prometheus can read the metrics. Both are off by default and cost nothing then. Telemetry contains only
//! names, counts and times, never an input, an output or a secret. It cannot delay a task, and it does not wake the
//! executor while nothing happens.
//!
//! Both formats are implemented here. The OpenTelemetry SDK for Rust would add 15 crates and half a minute of build
//! time, wake threads by timers, and send metrics even when nothing has changed. It also does not allow choosing the
//! trace id, which is the id of the task here.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use ground::config;
use ground::task::Task;
use protocol::mailbox::request::Answer;
use protocol::paths::Paths;
use protocol::task::{State, TaskId};
use store::Change;
use tokio::runtime::Runtime;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::intake::settings::LiveSettings;

mod endpoint;
mod export;
mod metrics;
mod otlp;
mod span;
mod text;

use metrics::MetricValues;
use span::{SpanBuffer, TaskTraces};

/// How long the last export may take when the executor ends.
const LAST_EXPORT_TIMEOUT: Duration = Duration::from_secs(2);

/// The recording side, which belongs to the daemon.
#[derive(Debug)]
pub(crate) struct Telemetry {
    shared: Arc<SharedTelemetry>,
    task_traces: TaskTraces,
    settings: LiveSettings,
    traces: bool,
    ending: CancellationToken,
    exporter: Option<JoinHandle<()>>,
}

/// What the daemon records, and the exporter and the metrics endpoint read.
#[derive(Debug)]
struct SharedTelemetry {
    state: Mutex<TelemetryState>,
    /// Notified when there is something to export.
    changed: Notify,
    /// The files whose sizes are metrics.
    record: PathBuf,
    log: PathBuf,
}

#[derive(Debug, Default)]
struct TelemetryState {
    metrics: MetricValues,
    spans: SpanBuffer,
}

impl SharedTelemetry {
    fn lock(&self) -> MutexGuard<'_, TelemetryState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the metrics, including the file sizes, which are read only for this.
    fn metrics(&self) -> MetricValues {
        let mut metrics = self.lock().metrics.clone();
        let size = |path: &PathBuf| std::fs::metadata(path).map_or(0, |metadata| metadata.len());
        metrics.record_bytes = size(&self.record) + size(&self.record.with_extension("db-wal"));
        metrics.log_bytes = size(&self.log);
        metrics
    }
}

impl Telemetry {
    /// Starts the exporter and the metrics endpoint; `None` if neither is configured.
    pub(crate) fn start(
        paths: &Paths,
        settings: &LiveSettings,
        runtime: &Runtime,
        tracker: &TaskTracker,
        ended: &CancellationToken,
    ) -> Option<Self> {
        let current = settings.current();
        let config::TelemetrySettings { otlp, prometheus, .. } = &current.config().telemetry;
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
            let exporter = export::Exporter::new(to, &instance, Arc::clone(&shared), settings.clone());
            tracker.spawn_on(exporter.run(ending.clone()), runtime.handle())
        });
        let traces = exporter.is_some();
        let settings = settings.clone();
        Some(Self { shared, task_traces: TaskTraces::default(), settings, traces, ending, exporter })
    }

    /// Adds the tasks that the previous executor left open. `started` returns the start time of a running task.
    pub(crate) fn recover(&mut self, open: &[Task], mut started: impl FnMut(TaskId) -> Option<jiff::Timestamp>) {
        let mut state = self.shared.lock();
        for task in open {
            state.metrics.opened(task.state);
            let started = if task.state == State::Running { started(task.id) } else { None };
            self.task_traces.open(task, started, &self.settings.runner_context().secrets);
        }
    }

    /// Records durable changes, and how long the commit took.
    pub(crate) fn committed(&mut self, changes: &[Change], took: Duration) {
        if changes.is_empty() {
            return;
        }
        let mut state = self.shared.lock();
        let TelemetryState { metrics, spans } = &mut *state;
        metrics.commits.observe(took);
        for change in changes {
            match change {
                Change::Accept(task) => {
                    metrics.accepted += 1;
                    metrics.opened(task.state);
                    self.task_traces.open(task, None, &self.settings.runner_context().secrets);
                }
                Change::Transition(step) => {
                    metrics.transitioned(step.from, step.to);
                    let completed = self.task_traces.step(step);
                    if let Some(took) = completed.attempt_took {
                        metrics.attempts.observe(took);
                    }
                    if self.traces {
                        completed.spans.into_iter().for_each(|span| spans.push(span));
                    }
                }
                Change::Grant { .. }
                | Change::KeyCounter { .. }
                | Change::DecideScope(_)
                | Change::Note { .. }
                | Change::ReplaceQuestion { .. }
                | Change::Resolve(..)
                | Change::Delivery(..) => {}
            }
        }
        drop(state);
        self.shared.changed.notify_one();
    }

    /// Records the answer to a request.
    pub(crate) fn answered(&self, answer: &Answer) {
        if let Answer::Refused(error) = answer {
            *self.shared.lock().metrics.refused.entry(error.code.as_str()).or_default() += 1;
            self.shared.changed.notify_one();
        }
    }

    /// Records how long the answer to a request took that was written at `written_at`.
    pub(crate) fn answer_written(&self, written_at: Option<SystemTime>) {
        // `elapsed` fails if the clock was set back in between; there is no duration then.
        if let Some(took) = written_at.and_then(|at| at.elapsed().ok()) {
            self.shared.lock().metrics.answers.observe(took);
        }
    }

    /// Sets the total number of results and answers that could not be written immediately.
    pub(crate) fn set_late(&self, total: u64) {
        self.shared.lock().metrics.late = total;
    }

    /// Exports the rest, for at most [`LAST_EXPORT_TIMEOUT`].
    pub(crate) fn finish(self, runtime: &Runtime) {
        self.ending.cancel();
        if let Some(exporter) = self.exporter {
            let finished = runtime.block_on(async { tokio::time::timeout(LAST_EXPORT_TIMEOUT, exporter).await });
            if finished.is_err() {
                tracing::warn!("the last telemetry was not exported in time");
            }
        }
    }
}
