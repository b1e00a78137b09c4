//! What both sides of a talk know: what the session does, its open tasks, what it cost, who answers.
//!
//! The session's thread writes it down, the person's thread reads it. The truth stays with the session.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use executor::agent::driver::{ActiveModel, LoopCommand};
use executor::agent::machine::Spending;
use executor::agent::session::LoopSender;
use executor::page::terminal::PendingQuestion;
use protocol::command_executor::OpenedTask;
use protocol::task::{State, TaskId};

/// A session that was told to stop does so by then.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Activity {
    #[default]
    Nothing,
    /// A request or a call is under way.
    Works,
    /// Nothing to do until a task ends.
    Sleeps,
}

#[derive(Debug, Default)]
pub(super) struct ChatState {
    known: Mutex<SharedState>,
    changed: Condvar,
    commands: OnceLock<LoopSender>,
    looks: OnceLock<Sender<WatchRequest>>,
    columns: AtomicUsize,
    /// Something stands on the person's line.
    pub(super) typing: Arc<AtomicBool>,
}

#[derive(Debug, Default)]
struct SharedState {
    doing: Activity,
    spent: Spending,
    total: Spending,
    open: BTreeMap<TaskId, ChatTask>,
    questions: VecDeque<WaitingQuestion>,
    /// Who answers again when the question that was put to another one has come to its end.
    back: Option<ActiveModel>,
}

/// An open task.
#[derive(Debug, Clone)]
pub(super) struct ChatTask {
    pub(super) tool: String,
    pub(super) since: Instant,
    /// As it was last told.
    pub(super) state: State,
}

/// A question to the person.
#[derive(Debug, Clone)]
pub(super) struct WaitingQuestion {
    pub(super) asked: PendingQuestion,
    /// The line that was being typed when it came is none of its answers.
    is_late: bool,
}

/// Why the watch should look.
#[derive(Debug)]
pub(super) enum WatchRequest {
    Now,
    End,
}

impl ChatState {
    pub(super) fn new(typing: Arc<AtomicBool>) -> Self {
        Self { typing, ..Self::default() }
    }

    fn known(&self) -> MutexGuard<'_, SharedState> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn connect(&self, commands: LoopSender, looks: Sender<WatchRequest>, spent: (Spending, Spending)) {
        // It is connected once, by whoever made it.
        if self.commands.set(commands).is_ok() && self.looks.set(looks).is_ok() {
            self.spent(spent.0, spent.1);
        }
    }

    /// False if the session has ended.
    pub(super) fn command(&self, command: LoopCommand) -> bool {
        self.commands.get().is_some_and(|commands| commands.blocking_send(command).is_ok())
    }

    pub(super) fn does(&self, doing: Activity) {
        self.known().doing = doing;
        self.changed.notify_all();
    }

    pub(super) fn doing(&self) -> Activity {
        self.known().doing
    }

    /// A question has come to its end: who answered before answers again.
    pub(super) fn done(&self) {
        self.give_back();
        self.does(Activity::Nothing);
    }

    /// Stops what is under way, and returns when it has stopped.
    pub(super) fn stop(&self) -> bool {
        if self.doing() == Activity::Nothing {
            return true;
        }
        if !self.command(LoopCommand::Cancel) {
            return false;
        }
        let waited =
            self.changed.wait_timeout_while(self.known(), STOP_TIMEOUT, |known| known.doing != Activity::Nothing);
        drop(waited);
        true
    }

    pub(super) fn ask(&self, text: String) -> bool {
        // What comes of an answer that is stopped is told before the next one begins.
        if self.doing() == Activity::Works && !self.stop() {
            return false;
        }
        self.give_back();
        self.does(Activity::Works);
        self.command(LoopCommand::Ask(text))
    }

    /// One question to `active_model`; then `back` answers again, however it ends.
    pub(super) fn ask_once(&self, text: String, active_model: ActiveModel, back: ActiveModel) -> bool {
        if !self.stop() {
            return false;
        }
        let Some(commands) = self.commands.get() else { return false };
        // The end of the question, whenever it comes, finds who is to answer then.
        let mut known = self.known();
        let is_sent = commands.try_send(LoopCommand::Model(Box::new(active_model))).is_ok()
            && commands.try_send(LoopCommand::Ask(text)).is_ok();
        known.back = Some(back);
        known.doing = Activity::Works;
        is_sent
    }

    /// From now on this one answers.
    pub(super) fn use_model(&self, active_model: ActiveModel) -> bool {
        let stopped = self.stop();
        self.known().back = None;
        stopped && self.command(LoopCommand::Model(Box::new(active_model)))
    }

    /// Whoever answered before a question was put to another model answers again.
    pub(super) fn give_back(&self) {
        let mut known = self.known();
        let (Some(back), Some(commands)) = (known.back.take(), self.commands.get()) else { return };
        // Called by the session itself too, which must not wait for itself; there is room for many.
        drop(commands.try_send(LoopCommand::Model(Box::new(back))));
    }

    pub(super) fn spent(&self, spent: Spending, total: Spending) {
        let mut known = self.known();
        (known.spent, known.total) = (spent, total);
    }

    /// Of the question, and of the session.
    pub(super) fn cost(&self) -> (Spending, Spending) {
        let known = self.known();
        (known.spent, known.total)
    }

    pub(super) fn opened<'a>(&self, tasks: impl IntoIterator<Item = &'a OpenedTask>) {
        let mut known = self.known();
        for OpenedTask { id, tool, .. } in tasks {
            let task = ChatTask { tool: tool.clone(), since: Instant::now(), state: State::Accepted };
            known.open.entry(*id).or_insert(task);
        }
        drop(known);
        if let Some(looks) = self.looks.get() {
            drop(looks.send(WatchRequest::Now));
        }
    }

    /// These are final; for how long the last of them was open, as far as we saw.
    pub(super) fn closed(&self, tasks: &[TaskId]) -> Option<Duration> {
        let mut known = self.known();
        known.questions.retain(|waiting| !tasks.contains(&waiting.asked.id));
        tasks.iter().filter_map(|id| known.open.remove(id)).map(|task| task.since.elapsed()).last()
    }

    pub(super) fn open(&self) -> Vec<(TaskId, ChatTask)> {
        self.known().open.iter().map(|(id, task)| (*id, task.clone())).collect()
    }

    /// Notes the state of a task; whether it is another than before.
    pub(super) fn is_now(&self, id: TaskId, state: State) -> bool {
        let mut known = self.known();
        if state != State::AwaitingConfirmation {
            known.questions.retain(|waiting| waiting.asked.id != id);
        }
        let Some(task) = known.open.get_mut(&id) else { return false };
        std::mem::replace(&mut task.state, state) != state
    }

    /// A task asks the person something; whether it is the first that is to be answered.
    pub(super) fn asks(&self, asked: PendingQuestion) -> bool {
        let mut known = self.known();
        let is_late = self.typing.load(Ordering::Relaxed);
        known.questions.push_back(WaitingQuestion { asked, is_late });
        known.questions.len() == 1
    }

    /// The question that the next line answers; `None` if there is none, or it came while that line was typed.
    pub(super) fn question(&self) -> Option<PendingQuestion> {
        self.known().questions.front().filter(|waiting| !waiting.is_late).map(|waiting| waiting.asked.clone())
    }

    /// A new line begins: it may answer whatever is asked by now.
    pub(super) fn begin_line(&self, columns: usize) {
        self.columns.store(columns, Ordering::Relaxed);
        self.known().questions.iter_mut().for_each(|waiting| waiting.is_late = false);
    }

    /// That question is over; the next one.
    pub(super) fn next_question(&self, over: TaskId) -> Option<PendingQuestion> {
        let mut known = self.known();
        known.questions.retain(|waiting| waiting.asked.id != over);
        known.questions.front().map(|waiting| waiting.asked.clone())
    }

    pub(super) fn columns(&self) -> usize {
        self.columns.load(Ordering::Relaxed).max(20)
    }
}
