//! Running attempts: starts them on the runtime and interrupts them.
//!
//! Each attempt reports its end to the event loop. The dispatcher decides how many may run at once.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use protocol::fault;
use protocol::task::TaskId;
use tokio_util::sync::CancellationToken;

use super::background::{Background, DaemonEvent};
use crate::attempt::report::{AttemptPurpose, FailureKind};
use crate::attempt::{self, InterruptCause};
use crate::catalog::definition::Definition;
use crate::runner::RunnerContext;
use crate::task::Task;

pub(super) struct AttemptPool {
    running: HashMap<TaskId, RunningAttempt>,
    background: Background,
    runner_context: Arc<RunnerContext>,
    data_folder: Arc<Path>,
}

struct RunningAttempt {
    cancel: CancellationToken,
    cause: InterruptCause,
}

impl AttemptPool {
    pub(super) fn new(background: Background, runner_context: Arc<RunnerContext>, data_folder: Arc<Path>) -> Self {
        Self { running: HashMap::new(), background, runner_context, data_folder }
    }

    /// Starts an attempt of `task`, which reports [`DaemonEvent::AttemptFinished`].
    pub(super) fn start(&mut self, task: Task, definition: Arc<Definition>, purpose: AttemptPurpose) {
        fault::point("attempt", "started");
        let (cancel, cause) = (CancellationToken::new(), InterruptCause::default());
        self.running.insert(task.id, RunningAttempt { cancel: cancel.clone(), cause: Arc::clone(&cause) });
        let (runner_context, data_folder) = (Arc::clone(&self.runner_context), Arc::clone(&self.data_folder));
        let background = self.background.clone();
        self.background.spawn(async move {
            let report = attempt::perform(task, definition, purpose, runner_context, data_folder, cancel, cause).await;
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

    /// Looks up the values that `task` would replace, and reports [`DaemonEvent::Previewed`].
    pub(super) fn preview(&self, task: Task, definition: Arc<Definition>) {
        let (runner_context, data_folder) = (Arc::clone(&self.runner_context), Arc::clone(&self.data_folder));
        let (background, cancel) = (self.background.clone(), self.background.executor_ended().child_token());
        self.background.spawn(async move {
            let found = attempt::preview(task.clone(), definition, runner_context, data_folder, cancel).await;
            if !background.send(DaemonEvent::Previewed(Box::new((task, found)))) {
                tracing::debug!("a preview finished after the executor had ended");
            }
        });
    }
}
