//! The idempotency keys of questions to the human that a task asks on its way.

use protocol::caller::Caller;
use protocol::task::TaskId;

/// The built-in question with which a task asks the human on its way. No definition can take its place.
pub const QUESTION: &str = "human_question";
/// How the key of a question begins, after the id of the task that asks.
const TASK_QUESTION: &str = "-question-";
const ATTEMPT_QUESTION: &str = "-attempt-question-";

/// Names a question to the human.
#[derive(Debug, Clone, Copy)]
pub enum QuestionKey<'a> {
    /// All attempts of a task share it, so a later executor goes on with it.
    OfTask(&'a str),
    /// The server of one attempt waits for the answer, and no longer does so when the executor has ended.
    OfAttempt,
    /// Several tasks may wait for it.
    Shared(&'a str),
}

impl QuestionKey<'_> {
    /// The key of a question of the task `id`.
    pub fn text(self, id: &str) -> String {
        match self {
            Self::OfTask(key) => format!("{id}{TASK_QUESTION}{key}"),
            Self::OfAttempt => format!("{id}{ATTEMPT_QUESTION}{}", uuid::Uuid::now_v7().simple()),
            Self::Shared(key) => key.to_owned(),
        }
    }
}

/// Who waits for the answer to a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QuestionAsker {
    /// This task, in whichever attempt.
    Task(TaskId),
    /// One attempt of this task.
    Attempt(TaskId),
}

impl QuestionAsker {
    /// The asker of a question with this idempotency key and caller; `None` if it is not a question of one task.
    pub fn of(key: &str, caller: &Caller) -> Option<Self> {
        let (task, rest) = key.split_at_checked(TaskId::CHARS).filter(|_| caller.depth > 0)?;
        let task = task.parse().ok()?;
        if rest.starts_with(ATTEMPT_QUESTION) {
            Some(Self::Attempt(task))
        } else {
            rest.starts_with(TASK_QUESTION).then_some(Self::Task(task))
        }
    }
}
