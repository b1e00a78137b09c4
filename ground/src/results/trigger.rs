//! Waits until tasks are final, by watching their result files in the mailbox.
//!
//! File events only prompt another look and may be missed; the result files are the truth.

use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use notify::RecommendedWatcher;
use protocol::mailbox::Mailbox;
use protocol::mailbox::watch::watch_folder;
use protocol::task::{State, TaskId};
use serde_json::Value;
use tokio::sync::Notify;

/// How often the files are read although the watch works: it may miss an event.
const RECHECK_INTERVAL: Duration = Duration::from_secs(5);
/// How often the files are read if there is no watch.
const POLL_INTERVAL: Duration = Duration::from_millis(250);
/// Tasks that become final within this time are reported together.
const BATCH_WINDOW: Duration = Duration::from_millis(50);

/// Waits for results of one mailbox. Several of them share one watch.
#[derive(Debug)]
pub struct Trigger {
    mailbox: Mailbox,
    nudge: Arc<Notify>,
    watch: Arc<ResultsWatch>,
}

/// The watch over the folder of the results, and who is told of its events.
#[derive(Debug)]
struct ResultsWatch {
    waiters: Arc<Mutex<Vec<Waiter>>>,
    watcher: Option<RecommendedWatcher>,
}

/// One that is told of the events of a task, or of all.
#[derive(Debug)]
struct Waiter {
    nudge: Weak<Notify>,
    task: Option<TaskId>,
}

impl ResultsWatch {
    fn over(mailbox: &Mailbox) -> Self {
        let waiters: Arc<Mutex<Vec<Waiter>>> = Arc::default();
        let told = Arc::clone(&waiters);
        let watcher = watch_folder(&mailbox.results(), move |event| {
            let tasks = tasks_of(&event);
            let mut told = told.lock().unwrap_or_else(PoisonError::into_inner);
            told.retain(|waiter| {
                let Some(nudge) = waiter.nudge.upgrade() else { return false };
                if waiter.task.zip(tasks.as_ref()).is_none_or(|(own, tasks)| tasks.contains(&own)) {
                    nudge.notify_one();
                }
                true
            });
        });
        let watcher =
            watcher.inspect_err(|error| tracing::warn!(%error, "no file events: the results are polled")).ok();
        Self { waiters, watcher }
    }

    fn waiter(&self, task: Option<TaskId>) -> Arc<Notify> {
        let nudge = Arc::new(Notify::new());
        let waiter = Waiter { nudge: Arc::downgrade(&nudge), task };
        self.waiters.lock().unwrap_or_else(PoisonError::into_inner).push(waiter);
        nudge
    }
}

/// The tasks whose result files an event is about; `None` if it may be about any.
fn tasks_of(event: &notify::Result<notify::Event>) -> Option<Vec<TaskId>> {
    let event = event.as_ref().ok().filter(|event| !event.need_rescan() && !event.paths.is_empty())?;
    Some(event.paths.iter().filter_map(|path| Mailbox::task_of_file(path.file_name()?)).collect())
}

/// A final task and its state; `None` if its result file is gone.
pub type FinalState = (TaskId, Option<State>);

impl Trigger {
    pub fn new(mailbox: Mailbox) -> Self {
        let watch = Arc::new(ResultsWatch::over(&mailbox));
        Self { mailbox, nudge: watch.waiter(None), watch }
    }

    /// Waits until `task`, of which this is the trigger, is final. Cancel-safe.
    pub async fn wait_for(&self, task: TaskId) {
        while self.final_states(&[task]).is_empty() {
            self.wait_for_change().await;
        }
    }

    /// Waits until at least one of `tasks` is final, and returns those that are. Cancel-safe.
    pub async fn wait_for_any(&self, tasks: &[TaskId]) -> Vec<FinalState> {
        loop {
            if !self.final_states(tasks).is_empty() {
                tokio::time::sleep(BATCH_WINDOW).await;
                return self.final_states(tasks);
            }
            self.wait_for_change().await;
        }
    }

    /// Waits until none of `tasks` waits for a human, and returns their states. Cancel-safe.
    pub async fn wait_for_decisions(&self, tasks: &[TaskId]) -> Vec<(TaskId, State)> {
        loop {
            let states = self.states(tasks);
            if !states.iter().any(|(_, state)| matches!(state, State::Accepted | State::AwaitingConfirmation)) {
                return states;
            }
            self.wait_for_change().await;
        }
    }

    /// Waits until a result file may have changed. Cancel-safe.
    pub async fn wait_for_change(&self) {
        let longest = if self.watch.watcher.is_some() { RECHECK_INTERVAL } else { POLL_INTERVAL };
        // An event and a timeout mean the same: read the files again.
        drop(tokio::time::timeout(longest, self.nudge.notified()).await);
    }

    /// Returns a trigger on the same watch, for another waiter.
    #[must_use]
    pub fn again(&self) -> Self {
        self.waiting_for(None)
    }

    /// Returns a trigger on the same watch, which only looks when something happens to `task`.
    #[must_use]
    pub fn of_task(&self, task: TaskId) -> Self {
        self.waiting_for(Some(task))
    }

    fn waiting_for(&self, task: Option<TaskId>) -> Self {
        Self { mailbox: self.mailbox.clone(), nudge: self.watch.waiter(task), watch: Arc::clone(&self.watch) }
    }

    /// Returns those of `tasks` that are final.
    pub fn final_states(&self, tasks: &[TaskId]) -> Vec<FinalState> {
        let end = |id: &TaskId| match self.state(*id) {
            Ok(Some(state)) if state.is_final() => Some((*id, Some(state))),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Some((*id, None)),
            Ok(_) | Err(_) => None,
        };
        tasks.iter().filter_map(end).collect()
    }

    /// Returns the state of each of `tasks` that has a result file.
    pub fn states(&self, tasks: &[TaskId]) -> Vec<(TaskId, State)> {
        tasks.iter().filter_map(|id| Some((*id, self.state(*id).ok()??))).collect()
    }

    /// Returns the content of a task's result file; `None` if it has none that can be read.
    pub fn result(&self, id: TaskId) -> Option<Value> {
        serde_json::from_slice(&self.mailbox.read_result(id).ok()?).ok()
    }

    /// `None` if the file has no known state.
    fn state(&self, id: TaskId) -> std::io::Result<Option<State>> {
        let file: Value = serde_json::from_slice(&self.mailbox.read_result(id)?).unwrap_or_default();
        let word = file.get("state").or_else(|| file.get("status")).and_then(Value::as_str);
        Ok(word.and_then(|word| word.parse().ok()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn tasks_that_end_together_are_reported_together() {
        let folder = tempfile::tempdir().expect("a folder");
        let mailbox = Mailbox::open(&folder.path().join("mailbox")).expect("a mailbox");
        let tasks = [TaskId::new(), TaskId::new(), TaskId::new()];
        for task in tasks {
            mailbox.publish(task, r#"{"status": "pending"}"#).expect("published");
        }
        let trigger = Trigger::new(mailbox.clone());
        assert_eq!(trigger.final_states(&tasks), []);
        let waiting = trigger.wait_for_any(&tasks);
        tokio::pin!(waiting);
        assert!(futures_util::poll!(&mut waiting).is_pending());
        mailbox.publish(tasks[1], r#"{"status": "failed"}"#).expect("published");
        mailbox.forget(tasks[2]).expect("forgotten");
        let ended = std::time::Instant::now();
        assert_eq!(waiting.await, [(tasks[1], Some(State::Failed)), (tasks[2], None)]);
        assert!(ended.elapsed() < RECHECK_INTERVAL / 2, "an event must end the wait, not the recheck");
    }
}
