//! What wakes a loop: tasks that became final, seen in the mailbox.
//!
//! A file event is a nudge; the result files are the truth. Those that end together are told together.

use std::sync::Arc;
use std::time::Duration;

use notify::RecommendedWatcher;
use protocol::mailbox::Mailbox;
use protocol::mailbox::watch::watch_folder;
use protocol::task::{State, TaskId};
use serde_json::Value;
use tokio::sync::Notify;

/// A watch may miss something.
const LOOK_AGAIN: Duration = Duration::from_secs(5);
/// Where no watch can be had.
const POLL: Duration = Duration::from_millis(250);
/// What ends within this of the first is told with it.
const TOGETHER: Duration = Duration::from_millis(50);

/// Watches the results of one mailbox.
#[derive(Debug)]
pub struct Trigger {
    mailbox: Mailbox,
    nudge: Arc<Notify>,
    watcher: Option<RecommendedWatcher>,
}

/// How a task ended; `None` if its result file is gone.
pub type FinalState = (TaskId, Option<State>);

impl Trigger {
    pub fn new(mailbox: Mailbox) -> Self {
        let nudge = Arc::new(Notify::new());
        let to_nudge = Arc::clone(&nudge);
        let watcher = watch_folder(&mailbox.results(), move |_| to_nudge.notify_one());
        let watcher =
            watcher.inspect_err(|error| tracing::warn!(%error, "no file events: the results are polled")).ok();
        Self { mailbox, nudge, watcher }
    }

    /// Returns when at least one of `tasks` is final: those that are. Cancel-safe.
    pub async fn ended(&self, tasks: &[TaskId]) -> Vec<FinalState> {
        loop {
            if !self.look(tasks).is_empty() {
                tokio::time::sleep(TOGETHER).await;
                return self.look(tasks);
            }
            let longest = if self.watcher.is_some() { LOOK_AGAIN } else { POLL };
            // Whichever it was: it is time to look.
            drop(tokio::time::timeout(longest, self.nudge.notified()).await);
        }
    }

    /// Those of `tasks` that are final now.
    pub fn look(&self, tasks: &[TaskId]) -> Vec<FinalState> {
        let end = |id: &TaskId| match self.state(*id) {
            Ok(Some(state)) if state.is_final() => Some((*id, Some(state))),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Some((*id, None)),
            Ok(_) | Err(_) => None,
        };
        tasks.iter().filter_map(end).collect()
    }

    /// The state of each of `tasks` that has a result file.
    pub fn states(&self, tasks: &[TaskId]) -> Vec<(TaskId, State)> {
        tasks.iter().filter_map(|id| Some((*id, self.state(*id).ok()??))).collect()
    }

    /// `None` for a file that says nothing that we know.
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
    async fn those_that_end_together_are_told_together() {
        let folder = tempfile::tempdir().expect("a folder");
        let mailbox = Mailbox::open(&folder.path().join("mailbox")).expect("a mailbox");
        let tasks = [TaskId::new(), TaskId::new(), TaskId::new()];
        for task in tasks {
            mailbox.publish(task, r#"{"status": "pending"}"#).expect("published");
        }
        let trigger = Trigger::new(mailbox.clone());
        assert_eq!(trigger.look(&tasks), []);
        let waiting = trigger.ended(&tasks);
        tokio::pin!(waiting);
        assert!(futures_util::poll!(&mut waiting).is_pending());
        mailbox.publish(tasks[1], r#"{"status": "failed"}"#).expect("published");
        mailbox.forget(tasks[2]).expect("forgotten");
        let ended = std::time::Instant::now();
        assert_eq!(waiting.await, [(tasks[1], Some(State::Failed)), (tasks[2], None)]);
        assert!(ended.elapsed() < LOOK_AGAIN / 2, "an event wakes it, not the next look");
    }
}
