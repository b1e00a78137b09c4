//! Running attempts: starts them on the runtime and interrupts them.
//!
//! Each attempt reports its end to the event loop. The dispatcher decides how many may run at once.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use definition::Definition;
use dispatcher::report::{AttemptPurpose, AttemptReport, FailureKind};
use ground::task::Task;
use ground::task::feedback::Feedback;
use protocol::duration::PositiveDuration;
use protocol::fault;
use protocol::task::TaskId;
use runner::RunnerContext;
use runner::attempt_clock::AttemptClock;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::background::{Background, DaemonEvent, OffRuntime};
use crate::attempt::{self, AttemptControl, InterruptCause};
use crate::intake::settings::LiveSettings;

/// How long an attempt may take to report its end after it was stopped. A program gets two seconds after SIGTERM, and
/// two more after SIGKILL.
const MAX_STOPPING: Duration = Duration::from_secs(10);

pub(super) struct AttemptPool {
    running: HashMap<TaskId, RunningAttempt>,
    background: Background,
    settings: LiveSettings,
    data_folder: Arc<Path>,
}

struct RunningAttempt {
    cancel: CancellationToken,
    cause: InterruptCause,
}

impl AttemptPool {
    pub(super) fn new(background: Background, settings: LiveSettings, data_folder: Arc<Path>) -> Self {
        Self { running: HashMap::new(), background, settings, data_folder }
    }

    /// Starts an attempt of `task`, which reports [`DaemonEvent::AttemptFinished`].
    pub(super) fn start(&mut self, task: Task, definition: Arc<Definition>, purpose: AttemptPurpose) {
        fault::point("attempt", "started");
        let (cancel, cause) = (CancellationToken::new(), InterruptCause::default());
        self.running.insert(task.id, RunningAttempt { cancel: cancel.clone(), cause: Arc::clone(&cause) });
        let (lookup_rules, data_folder) = (Arc::new(self.settings.clone()), Arc::clone(&self.data_folder));
        let runner_context = self.settings.runner_context();
        let background = self.background.clone();
        self.background.spawn(async move {
            let timeout = attempt::timeout(&definition, purpose, &runner_context.config);
            let clock = AttemptClock::default();
            let started = StartedAttempt {
                task: task.clone(),
                timeout,
                clock: clock.clone(),
                cancel: cancel.clone(),
                cause: Arc::clone(&cause),
                runner_context: Arc::clone(&runner_context),
            };
            let feedback = feedback(&task, &background);
            let control = AttemptControl { lookup_rules, cancel, cause, clock, feedback };
            let work = attempt::perform(task, definition, purpose, runner_context, data_folder, control);
            let report = started.supervise(background.tracker().spawn(OffRuntime(Box::pin(work)))).await;
            if !background.send(DaemonEvent::AttemptFinished(Box::new(report))) {
                tracing::warn!("an attempt finished after the executor had ended");
            }
        });
    }

    /// Asks the running attempt of a task to stop. The first cause is kept.
    pub(super) fn interrupt(&self, id: TaskId, cause: FailureKind) {
        let Some(running) = self.running.get(&id) else { return };
        if running.cause.set(cause).is_err() {
            tracing::debug!(%id, "the attempt was already being stopped");
        }
        running.cancel.cancel();
    }

    /// Forgets the attempt of a task, whose report has arrived.
    pub(super) fn on_finished(&mut self, id: TaskId) {
        self.running.remove(&id);
    }

    /// Looks up what the human is shown about `task`, and reports [`DaemonEvent::Previewed`].
    pub(super) fn preview(&self, task: Task, definition: Arc<Definition>) {
        let (rules, data_folder) = (Arc::new(self.settings.clone()), Arc::clone(&self.data_folder));
        let runner_context = self.settings.runner_context();
        let (background, cancel) = (self.background.clone(), self.background.executor_ended().child_token());
        self.background.spawn(async move {
            let lookups =
                attempt::look_up_for_human(task.clone(), definition, runner_context, rules, data_folder, cancel);
            let found = OffRuntime(Box::pin(lookups)).await;
            if !background.send(DaemonEvent::Previewed(Box::new((task, found)))) {
                tracing::debug!("a preview finished after the executor had ended");
            }
        });
    }
}

/// Sends what an attempt of `task` tells before its end to the loop.
fn feedback(task: &Task, background: &Background) -> Feedback {
    let (id, attempt, background) = (task.id, task.attempt, background.clone());
    Feedback::new(move |news| {
        if !background.send(DaemonEvent::AttemptTold { id, attempt, news }) {
            tracing::debug!(%id, "an attempt told something after the executor had ended");
        }
    })
}

/// An attempt that runs in a task of its own, so that it is reported even if it computes without end.
struct StartedAttempt {
    task: Task,
    timeout: PositiveDuration,
    clock: AttemptClock,
    cancel: CancellationToken,
    cause: InterruptCause,
    runner_context: Arc<RunnerContext>,
}

impl StartedAttempt {
    /// Returns the report of `work`, or that of an abandoned attempt if it does not end in time.
    async fn supervise(self, mut work: JoinHandle<AttemptReport>) -> AttemptReport {
        let id = self.task.id;
        tokio::select! {
            joined = &mut work => match joined {
                Ok(report) => return report,
                Err(error) => tracing::error!(%id, %error, "an attempt ended without a report"),
            },
            () = self.late() => tracing::error!(%id, "an attempt did not end although it was stopped"),
        }
        self.cancel.cancel();
        // Takes effect when what it computes comes to an end.
        work.abort();
        attempt::abandoned(&self.task, self.timeout, &self.cause, &self.runner_context)
    }

    /// Returns when the attempt should have reported its end.
    async fn late(&self) {
        tokio::select! {
            () = self.cancel.cancelled() => {}
            () = self.clock.expired(self.timeout.get()) => {}
        }
        tokio::time::sleep(MAX_STOPPING).await;
        if self.cause.set(FailureKind::Timeout).is_err() {
            tracing::debug!(id = %self.task.id, "the attempt was stopped before");
        }
    }
}
