//! The state that the threads of a chat share: activity, open tasks, questions, cost, model.
//!
//! The session and watch threads write it, the input thread reads it. The session stays the source of truth.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use agent_loop::driver::{ActiveModel, LoopCommand};
use agent_loop::machine::Spending;
use agent_loop::session::LoopSender;
use ground::page_client::terminal::PendingQuestion;
use protocol::command_executor::OpenedTask;
use protocol::task::{State, TaskId};

/// How long to wait for a session to stop its current work.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);

/// What the session is doing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Activity {
    #[default]
    Idle,
    /// A request or a call is running.
    Working,
    /// The session waits for open tasks.
    Sleeping,
}

/// The state of one session of the chat.
#[derive(Debug, Default)]
pub(super) struct ChatState {
    shared: Mutex<SharedState>,
    activity_changed: Condvar,
    commands: OnceLock<LoopSender>,
    watch_requests: OnceLock<Sender<WatchRequest>>,
    columns: AtomicUsize,
    /// Whether the input line is not empty.
    pub(super) typing: Arc<AtomicBool>,
}

#[derive(Debug, Default)]
struct SharedState {
    activity: Activity,
    question_spending: Spending,
    session_spending: Spending,
    open: BTreeMap<TaskId, ChatTask>,
    questions: VecDeque<WaitingQuestion>,
    /// The model to switch back to when a question to another model ends.
    previous_model: Option<ActiveModel>,
}

/// An open task.
#[derive(Debug, Clone)]
pub(super) struct ChatTask {
    pub(super) tool: String,
    pub(super) since: Instant,
    /// The state that was last seen.
    pub(super) state: State,
}

/// A task's question to the human.
#[derive(Debug, Clone)]
pub(super) struct WaitingQuestion {
    pub(super) pending: PendingQuestion,
    /// The question arrived while a line was being typed, so that line does not answer it.
    is_late: bool,
}

/// A request to the watch thread.
#[derive(Debug)]
pub(super) enum WatchRequest {
    Check,
    Stop,
}

impl ChatState {
    pub(super) fn new(typing: Arc<AtomicBool>) -> Self {
        Self { typing, ..Self::default() }
    }

    fn shared(&self) -> MutexGuard<'_, SharedState> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Connects the state to its session. Called once, right after the session is opened.
    pub(super) fn connect(
        &self,
        commands: LoopSender,
        watch_requests: Sender<WatchRequest>,
        (question, session): (Spending, Spending),
    ) {
        if self.commands.set(commands).is_ok() && self.watch_requests.set(watch_requests).is_ok() {
            self.set_spending(question, session);
        }
    }

    /// Sends a command to the session. Returns false if the session has ended.
    pub(super) fn send(&self, command: LoopCommand) -> bool {
        self.commands.get().is_some_and(|commands| commands.blocking_send(command).is_ok())
    }

    pub(super) fn set_activity(&self, activity: Activity) {
        self.shared().activity = activity;
        self.activity_changed.notify_all();
    }

    pub(super) fn activity(&self) -> Activity {
        self.shared().activity
    }

    /// Records the end of a question, and switches back to the previous model.
    pub(super) fn finish_question(&self) {
        self.switch_back();
        self.set_activity(Activity::Idle);
    }

    /// Stops the current work, and waits until it has stopped, at most [`STOP_TIMEOUT`]. Returns false if the
    /// session has ended.
    pub(super) fn stop(&self) -> bool {
        if self.activity() == Activity::Idle {
            return true;
        }
        if !self.send(LoopCommand::Cancel) {
            return false;
        }
        let waited = self
            .activity_changed
            .wait_timeout_while(self.shared(), STOP_TIMEOUT, |shared| shared.activity != Activity::Idle);
        drop(waited);
        true
    }

    /// Asks the current model. Returns false if the session has ended.
    pub(super) fn ask(&self, text: String) -> bool {
        // Stop first, so that all output of the stopped answer comes before the new one.
        if self.activity() == Activity::Working && !self.stop() {
            return false;
        }
        self.switch_back();
        self.set_activity(Activity::Working);
        self.send(LoopCommand::Ask(text))
    }

    /// Asks `asked` one question. However it ends, the session then switches back to `current`. Returns false if
    /// the session has ended.
    pub(super) fn ask_once(&self, text: String, asked: ActiveModel, current: ActiveModel) -> bool {
        if !self.stop() {
            return false;
        }
        let Some(commands) = self.commands.get() else { return false };
        // Hold the lock, so that the end of the question finds the model to switch back to.
        let mut shared = self.shared();
        let is_sent = commands.try_send(LoopCommand::UseModel(Box::new(asked), None)).is_ok()
            && commands.try_send(LoopCommand::Ask(text)).is_ok();
        shared.previous_model = Some(current);
        shared.activity = Activity::Working;
        is_sent
    }

    /// Switches to another model. Returns false if the session has ended.
    pub(super) fn use_model(&self, active_model: ActiveModel) -> bool {
        let stopped = self.stop();
        self.shared().previous_model = None;
        stopped && self.send(LoopCommand::UseModel(Box::new(active_model), None))
    }

    /// Switches back to the previous model, if another model was asked once.
    pub(super) fn switch_back(&self) {
        let mut shared = self.shared();
        let (Some(model), Some(commands)) = (shared.previous_model.take(), self.commands.get()) else { return };
        // Do not block: the session's own thread calls this too. The channel has room for many commands.
        drop(commands.try_send(LoopCommand::UseModel(Box::new(model), None)));
    }

    pub(super) fn set_spending(&self, question: Spending, session: Spending) {
        let mut shared = self.shared();
        (shared.question_spending, shared.session_spending) = (question, session);
    }

    /// Returns the spending of the question, and of the session.
    pub(super) fn spending(&self) -> (Spending, Spending) {
        let shared = self.shared();
        (shared.question_spending, shared.session_spending)
    }

    /// Adds open tasks, and makes the watch thread check them.
    pub(super) fn add_tasks<'a>(&self, tasks: impl IntoIterator<Item = &'a OpenedTask>) {
        let mut shared = self.shared();
        for OpenedTask { id, tool, .. } in tasks {
            let task = ChatTask { tool: tool.clone(), since: Instant::now(), state: State::Accepted };
            shared.open.entry(*id).or_insert(task);
        }
        drop(shared);
        if let Some(requests) = self.watch_requests.get() {
            drop(requests.send(WatchRequest::Check));
        }
    }

    /// Removes tasks that are final. Returns how long the last of them was open.
    pub(super) fn remove_tasks(&self, tasks: &[TaskId]) -> Option<Duration> {
        let mut shared = self.shared();
        shared.questions.retain(|waiting| !tasks.contains(&waiting.pending.id));
        tasks.iter().filter_map(|id| shared.open.remove(id)).map(|task| task.since.elapsed()).last()
    }

    pub(super) fn open_tasks(&self) -> Vec<(TaskId, ChatTask)> {
        self.shared().open.iter().map(|(id, task)| (*id, task.clone())).collect()
    }

    /// Updates the state of a task, and returns whether it changed.
    pub(super) fn update_task(&self, id: TaskId, state: State) -> bool {
        let mut shared = self.shared();
        if state != State::AwaitingConfirmation {
            shared.questions.retain(|waiting| waiting.pending.id != id);
        }
        let Some(task) = shared.open.get_mut(&id) else { return false };
        std::mem::replace(&mut task.state, state) != state
    }

    /// Adds a task's question, and returns whether it is the next one to answer.
    pub(super) fn add_question(&self, pending: PendingQuestion) -> bool {
        let mut shared = self.shared();
        let is_late = self.typing.load(Ordering::Relaxed);
        shared.questions.push_back(WaitingQuestion { pending, is_late });
        shared.questions.len() == 1
    }

    /// Returns the question that the current line answers; `None` if none waits, or it arrived while the line was
    /// being typed.
    pub(super) fn question(&self) -> Option<PendingQuestion> {
        self.shared().questions.front().filter(|waiting| !waiting.is_late).map(|waiting| waiting.pending.clone())
    }

    /// Starts a new input line, which may answer any question that waits by now.
    pub(super) fn begin_line(&self, columns: usize) {
        self.columns.store(columns, Ordering::Relaxed);
        self.shared().questions.iter_mut().for_each(|waiting| waiting.is_late = false);
    }

    /// Removes the question of a task, and returns the next one.
    pub(super) fn next_question(&self, finished: TaskId) -> Option<PendingQuestion> {
        let mut shared = self.shared();
        shared.questions.retain(|waiting| waiting.pending.id != finished);
        shared.questions.front().map(|waiting| waiting.pending.clone())
    }

    /// Returns the width of the terminal, at least 20.
    pub(super) fn columns(&self) -> usize {
        self.columns.load(Ordering::Relaxed).max(20)
    }
}
