//! The store: the one durable truth about tasks.
//!
//! Says *what*; `store/sqlite.rs` and `store/memory.rs` say *how*. The contract leaves no room for
//! one engine's habits: every move is compare-and-set, fenced by state and attempt; nothing keeps
//! a transaction open between calls; no clock is read but the times that are given.

use jiff::Timestamp;
use protocol::caller::Caller;
use protocol::resolution::Resolution;
use protocol::task::{State, Step, TaskId};
use serde_json::{Map, Value};

use crate::store::retention::RetainedTask;
use crate::task::confirmation::{Confirmation, DecidedBy, Digest};
use crate::task::grant::{Grant, GrantId};
use crate::task::name::SubtoolName;
use crate::task::{End, Task};

pub mod memory;
pub mod outbox;
pub mod retention;
pub mod sqlite;
pub mod switched_off;

use outbox::{DeliveryState, HookDelivery, Outbox};

/// One change of the record.
#[derive(Debug, Clone, PartialEq)]
pub enum Change {
    /// A new task, in the state [`State::Accepted`].
    Accept(Box<Task>),
    Transition(Box<Transition>),
    /// What a task that waits is asked about is no longer `was`: it was found out what it would replace.
    SetPreview {
        id: TaskId,
        expected: Digest,
        confirmation: Box<Confirmation>,
    },
    /// A grant as it is now; `uses` is the fence: so often it was used before, or it is new.
    Grant {
        grant: Box<Grant>,
        expected_uses: Option<u32>,
    },
    /// Of a task that is [`State::Unknown`] and not resolved yet.
    Resolve(TaskId, Box<Resolution>),
    Delivery(Box<HookDelivery>, DeliveryState),
}

/// One step of one task.
#[derive(Debug, Clone, PartialEq)]
pub struct Transition {
    pub id: TaskId,
    pub step: Step,
    /// The fence: the task must be in this state, at this attempt.
    pub from: State,
    pub attempt: u32,
    pub to: State,
    pub attempt_after: u32,
    pub not_before: Option<Timestamp>,
    pub at: Timestamp,
    pub confirmation: Option<Box<ConfirmationUpdate>>,
    pub end: Option<End>,
}

/// What was decided about a task that waited for it.
#[derive(Debug, Clone, PartialEq)]
pub struct ConfirmationUpdate {
    /// The fence: the question must still be this one.
    pub expected: Digest,
    pub confirmation: Confirmation,
    /// The input that takes the place of what was asked for.
    pub input: Option<Map<String, Value>>,
}

/// One recorded step, for the story of a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordedStep {
    pub at: Timestamp,
    pub step: Step,
    pub attempt: u32,
}

/// What is needed of a task that ended, without its input and its data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndedRecord {
    pub id: TaskId,
    pub tool: SubtoolName,
    pub caller: Caller,
    pub created_at: Timestamp,
    pub state: State,
    pub is_resolved: bool,
}

/// A question that a human was asked: of whose caller, and when.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConfirmationRecord {
    pub uid: u32,
    pub at: Timestamp,
}

impl ConfirmationRecord {
    /// The question about a task, if a human was asked it: what a grant let through was not.
    fn of(uid: u32, confirmation: &Confirmation) -> Option<Self> {
        let by_grant =
            confirmation.decision.as_ref().is_some_and(|decision| matches!(decision.by, DecidedBy::Grant(_)));
        (!by_grant).then_some(Self { uid, at: confirmation.asked_at })
    }
}

#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The disk, the database, the file system.
    #[error("the store failed")]
    Engine(#[source] rusqlite::Error),
    #[error("the store's folder could not be prepared")]
    Folder(#[source] std::io::Error),
    /// Somebody else moved the task first.
    #[error("task {id} is no longer {from} at attempt {attempt}")]
    Conflict { id: TaskId, from: State, attempt: u32 },
    #[error("grant {0} was used or changed meanwhile")]
    GrantConflict(GrantId),
    #[error("task {0} stands in the store already")]
    Duplicate(TaskId),
    #[error("the store's record of a task cannot be understood: {0}")]
    Malformed(String),
    #[error("task {0} is resolved already, or did not end as unknown")]
    NotResolvable(TaskId),
    /// What was written is not what is read. Nothing was changed, and a copy is kept.
    #[error("the record of tasks `{path}` is damaged ({reason}); it is left as it is, with a copy of it at `{copy}`")]
    Damaged { path: String, copy: String, reason: String },
    #[error("the store was written by a newer version (schema {found}, this one knows {known})")]
    NewerSchema { found: i64, known: u64 },
}

impl StoreError {
    /// What a human can do about it, where that is not plain.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Damaged { path, copy, .. } => Some(format!(
                "put a backup in its place; or save what can be read: sqlite3 '{copy}' .recover | sqlite3 '{path}.new', \
                 and move that there, and '{path}-wal' away; or move both away: it is begun anew, and the tasks in it are \
                 forgotten"
            )),
            Self::NewerSchema { .. } => Some("install the version that wrote it, or a newer one".to_owned()),
            Self::Engine(_) | Self::Folder(_) | Self::Conflict { .. } | Self::Duplicate(_) => None,
            Self::GrantConflict(_) | Self::NotResolvable(_) | Self::Malformed(_) => None,
        }
    }

    /// Whether there was no room to write: a full disk, a quota, a limit on the size of files.
    ///
    /// Nothing was changed, and it may work later. A failed sync is none of these.
    pub fn is_disk_full(&self) -> bool {
        let Self::Engine(rusqlite::Error::SqliteFailure(error, _)) = self else { return false };
        // SQLite calls only `ENOSPC` a full disk; `EDQUOT` and `EFBIG` are failed writes to it.
        error.code == rusqlite::ErrorCode::DiskFull || error.extended_code == rusqlite::ffi::SQLITE_IOERR_WRITE
    }
}

/// The contract of a store.
pub trait Store: Outbox + Send {
    /// Makes all `changes` durable, or none of them. Durable means: they survive a loss of power
    /// that happens right after this returns. On an error nothing was changed, and the same
    /// changes may be tried again.
    fn commit(&mut self, changes: &[Change]) -> Result<(), StoreError>;

    /// Every task that has not ended, oldest first.
    fn open_tasks(&self) -> Result<Vec<Task>, StoreError>;

    fn task(&self, id: TaskId) -> Result<Option<Task>, StoreError>;

    /// The task that a caller asked for under this key.
    fn task_by_key(&self, uid: u32, key: &str) -> Result<Option<Task>, StoreError>;

    /// The tasks that ended, or were resolved, at or after `since`, oldest end first.
    fn ended_since(&self, since: Timestamp) -> Result<Vec<EndedRecord>, StoreError>;

    /// The questions that were asked at or after `since`, oldest first.
    fn confirmations_since(&self, since: Timestamp) -> Result<Vec<ConfirmationRecord>, StoreError>;

    /// Every task that ended, with the bytes of its input and its end; the engine's own overhead does not
    /// count.
    fn retained(&self) -> Result<Vec<RetainedTask>, StoreError>;

    /// The tasks of a user's session that ended, oldest first.
    fn ended_in_session(&self, uid: u32, session: &str) -> Result<Vec<TaskId>, StoreError>;

    /// Every grant that was ever made and is not forgotten, oldest first.
    fn grants(&self) -> Result<Vec<Grant>, StoreError>;

    /// Every step of a task, in order. Replayed through [`State::after`] they give its state.
    fn steps(&self, id: TaskId) -> Result<Vec<RecordedStep>, StoreError>;

    /// Forgets these tasks, with all that is recorded about them. One that is open, or not there, is
    /// left as it is.
    fn forget(&mut self, ids: &[TaskId]) -> Result<(), StoreError>;

    /// Forgets these grants.
    fn forget_grants(&mut self, ids: &[GrantId]) -> Result<(), StoreError>;
}

#[cfg(test)]
pub(crate) mod contract {
    //! What every store must do; each implementation's tests run it.

    use protocol::code::Code;
    use protocol::error::ErrorBody;

    use super::*;
    use crate::task::Outcome;
    use crate::task::confirmation::{ConfirmationRequest, DecidedBy, Decision, Verdict};
    use crate::task::effect::EffectClass;
    use crate::task::grant::{FieldCoverage, GrantScope};

    pub(crate) fn task(key: Option<&str>) -> Task {
        let Value::Object(input) = serde_json::json!({"q": "年度报告", "n": 9_007_199_254_740_993_i64}) else {
            unreachable!()
        };
        let created_at = Timestamp::from_second(1_700_000_000).expect("a time");
        Task {
            input,
            definition_hash: "abc".to_owned(),
            caller: Caller {
                uid: 1000,
                session: Some("s".to_owned()),
                folder: Some("/home/a".into()),
                depth: 2,
                ..Caller::default()
            },
            idempotency_key: key.map(str::to_owned),
            ..Task::sample("gmail_search_messages", EffectClass::Once, created_at)
        }
    }

    fn step(task: &Task, step: Step, end: Option<End>) -> (Change, Task) {
        let mut after = task.clone();
        after.state = task.state.after(step).expect("a legal step");
        after.attempt += u32::from(step == Step::Start);
        after.end.clone_from(&end);
        let change = Change::Transition(Box::new(Transition {
            id: task.id,
            step,
            from: task.state,
            attempt: task.attempt,
            to: after.state,
            attempt_after: after.attempt,
            not_before: None,
            at: task.created_at,
            confirmation: None,
            end,
        }));
        (change, after)
    }

    fn answers_are_fenced_by_what_was_asked(store: &mut dyn Store) {
        let mut waiting = task(None);
        let (why, instance, wait) = ("w".to_owned(), "i".to_owned(), std::time::Duration::from_hours(1));
        let asking = ConfirmationRequest {
            why,
            reason: Some("r".to_owned()),
            instance,
            wait,
            files: Vec::new(),
            has_preview: false,
        };
        let confirmation = Confirmation::ask(&waiting, asking, "n".to_owned(), waiting.created_at);
        waiting.confirmation = Some(Box::new(confirmation.clone()));
        let (ask, asked) = step(&waiting, Step::Ask, None);
        store.commit(&[Change::Accept(Box::new(waiting)), ask]).expect("committed");
        assert_eq!(store.task(asked.id).expect("read").as_ref(), Some(&asked));

        let mut answered = asked.clone();
        answered.input = Map::new();
        let mut decision = Decision::new(asked.created_at, Verdict::Edited, DecidedBy::Page("s".to_owned()));
        decision.asked_input = Some(asked.input.clone());
        answered.confirmation = Some(Box::new(Confirmation { decision: Some(decision), ..confirmation.clone() }));
        let answer = |expected| {
            let confirmation = answered.confirmation.as_deref().expect("a question").clone();
            let (Change::Transition(mut enqueue), after) = step(&answered, Step::Enqueue, None) else { unreachable!() };
            enqueue.confirmation =
                Some(Box::new(ConfirmationUpdate { expected, confirmation, input: Some(Map::new()) }));
            (Change::Transition(enqueue), after)
        };
        let reask = |expected, confirmation: &Confirmation| Change::SetPreview {
            id: asked.id,
            expected,
            confirmation: Box::new(confirmation.clone()),
        };
        let stale = store.commit(&[reask(Digest::of(&[]), &confirmation)]);
        assert!(matches!(stale, Err(StoreError::Conflict { .. })), "something else is asked");
        let other = Confirmation { digest: Digest::of(&[b"other"]), ..confirmation.clone() };
        store.commit(&[reask(confirmation.digest, &other), reask(other.digest, &confirmation)]).expect("committed");
        let (stale, _) = answer(Digest::of(&[]));
        assert!(matches!(store.commit(&[stale]), Err(StoreError::Conflict { .. })), "an answer to something else");
        let (enqueue, queued) = answer(confirmation.digest);
        store.commit(&[enqueue]).expect("committed");
        assert_eq!(store.task(asked.id).expect("read").as_ref(), Some(&queued));
        let question = ConfirmationRecord { uid: 1000, at: asked.created_at };
        assert_eq!(store.confirmations_since(asked.created_at).expect("read"), [question], "of an open task");
        let end = End { at: asked.created_at, outcome: Outcome::Data(Value::Null), meta: Map::new() };
        let (cancel, _) = step(&queued, Step::Cancel, Some(end));
        store.commit(&[cancel]).expect("committed");
        assert_eq!(store.confirmations_since(asked.created_at).expect("read"), [question], "of one that has ended");
        let later = asked.created_at + jiff::SignedDuration::from_micros(1);
        assert_eq!(store.confirmations_since(later).expect("read"), []);

        let mut granted = Task { confirmation: asked.confirmation.clone(), ..task(None) };
        let decision = Decision::new(asked.created_at, Verdict::Approved, DecidedBy::Grant(TaskId::new()));
        granted.confirmation.as_mut().expect("a question").decision = Some(decision);
        store.commit(&[Change::Accept(Box::new(granted))]).expect("committed");
        assert_eq!(store.confirmations_since(asked.created_at).expect("read"), [question], "a grant asks nobody");
    }

    fn grants_are_fenced_by_their_uses(store: &mut dyn Store) {
        let like = task(None);
        let mut grant = Grant {
            id: TaskId::new(),
            tool: like.tool,
            definition_hash: like.definition_hash,
            scope: GrantScope { uid: 1000, session: None, folder: None },
            fields: [("n".to_owned(), FieldCoverage::AtMost(9_007_199_254_740_993_i64.into()))].into(),
            made_at: like.created_at,
            made_from: like.id,
            made_by: "s".to_owned(),
            expires_at: like.created_at,
            most_uses: Some(2),
            uses: 0,
            last_use: None,
            revoked_at: None,
        };
        let change = |grant: &Grant, expected_uses| Change::Grant { grant: Box::new(grant.clone()), expected_uses };
        store.commit(&[change(&grant, None)]).expect("committed");
        grant.uses = 1;
        store.commit(&[change(&grant, Some(0))]).expect("committed");
        assert!(
            matches!(store.commit(&[change(&grant, Some(0))]), Err(StoreError::GrantConflict(_))),
            "used meanwhile"
        );
        assert!(matches!(store.commit(&[change(&grant, None)]), Err(StoreError::GrantConflict(_))), "made already");
        assert_eq!(store.grants().expect("read"), [grant.clone()]);
        let other = Grant { id: TaskId::new(), uses: 0, ..grant.clone() };
        store.commit(&[change(&other, None)]).expect("committed");
        store.forget_grants(&[grant.id, TaskId::new()]).expect("forgotten");
        assert_eq!(store.grants().expect("read"), [other]);
    }

    pub(crate) fn holds(store: &mut dyn Store) {
        resolves(store);
        moves(store);
        outbox::contract::holds(store);
        answers_are_fenced_by_what_was_asked(store);
        grants_are_fenced_by_their_uses(store);
    }

    fn resolves(store: &mut dyn Store) {
        let accepted = task(None);
        let (enqueue, queued) = step(&accepted, Step::Enqueue, None);
        let (start, running) = step(&queued, Step::Start, None);
        store.commit(&[Change::Accept(Box::new(accepted.clone())), enqueue, start]).expect("committed");
        let at = Timestamp::from_second(1_700_000_005).expect("a time");
        let resolution = |happened| Resolution {
            happened,
            by: protocol::resolution::ResolvedBy::Human,
            note: Some("ü".to_owned()),
            at,
        };
        let resolve = |happened| [Change::Resolve(accepted.id, Box::new(resolution(happened)))];
        assert!(matches!(store.commit(&resolve(true)), Err(StoreError::NotResolvable(_))), "it has not ended");
        let error = ErrorBody::new(Code::UnknownOutcome, "lost");
        let end = End { at: accepted.created_at, outcome: Outcome::Error(error), meta: Map::new() };
        let (lose, unknown) = step(&running, Step::Lose, Some(end));
        store.commit(&[lose]).expect("committed");
        assert_eq!(store.ended_since(at).expect("read"), []);

        store.commit(&resolve(true)).expect("resolved");
        let resolved = Task { resolution: Some(resolution(true)), ..unknown };
        for happened in [true, false] {
            assert!(matches!(store.commit(&resolve(happened)), Err(StoreError::NotResolvable(_))), "the first stands");
            assert_eq!(store.task(accepted.id).expect("read").as_ref(), Some(&resolved), "all else stays");
        }
        let steps = store.steps(accepted.id).expect("read");
        assert_eq!(steps.last(), Some(&RecordedStep { at, step: Step::Resolve, attempt: 1 }));
        let ended = store.ended_since(at).expect("read");
        assert_eq!(ended.iter().map(|ended| (ended.id, ended.is_resolved)).collect::<Vec<_>>(), [(accepted.id, true)]);
        store.forget(&[accepted.id]).expect("forgotten");
    }

    fn moves(store: &mut dyn Store) {
        let at = Timestamp::from_second(1_800_000_000).expect("a time");
        let accepted = Task { run_at: Some(at), ..task(Some("k")) };
        let (enqueue, queued) = step(&accepted, Step::Enqueue, None);
        let (start, running) = step(&queued, Step::Start, None);
        store.commit(&[Change::Accept(Box::new(accepted.clone())), enqueue, start.clone()]).expect("committed");
        assert_eq!(store.open_tasks().expect("read"), std::slice::from_ref(&running));
        assert_eq!(store.task_by_key(1000, "k").expect("read").as_ref(), Some(&running));
        assert_eq!(store.task_by_key(1001, "k").expect("read"), None, "keys are each caller's own");

        let other = task(None);
        let refused = store.commit(&[Change::Accept(Box::new(other.clone())), start]);
        assert!(matches!(refused, Err(StoreError::Conflict { .. })), "a step taken twice is fenced");
        assert_eq!(store.task(other.id).expect("read"), None, "all changes are made, or none");
        let again = store.commit(&[Change::Accept(Box::new(accepted))]);
        assert!(matches!(again, Err(StoreError::Duplicate(_))));

        let end = End {
            at: running.created_at,
            outcome: Outcome::Error(ErrorBody::new(Code::ApiError, "no").hint("try")),
            meta: Map::new(),
        };
        let (fail, failed) = step(&running, Step::Fail, Some(end));
        store.commit(&[fail]).expect("committed");
        assert_eq!(store.open_tasks().expect("read"), []);
        assert_eq!(store.task(failed.id).expect("read").as_ref(), Some(&failed));
        let ended = EndedRecord {
            id: failed.id,
            tool: failed.tool.clone(),
            caller: failed.caller.clone(),
            created_at: failed.created_at,
            state: State::Failed,
            is_resolved: false,
        };
        assert_eq!(store.ended_since(failed.created_at).expect("read"), [ended]);
        let later = Timestamp::from_second(1_700_000_001).expect("a time");
        assert_eq!(store.ended_since(later).expect("read"), []);

        let replayed = store
            .steps(failed.id)
            .expect("read")
            .into_iter()
            .try_fold(State::Accepted, |state, recorded| state.after(recorded.step));
        assert_eq!(replayed, Ok(State::Failed), "the story replays to the state");

        let open = task(None);
        store.commit(&[Change::Accept(Box::new(open.clone()))]).expect("committed");
        assert_eq!(store.ended_in_session(1000, "s").expect("read"), [failed.id], "what is open has not ended");
        for (uid, session) in [(1000, "S"), (1000, ""), (1001, "s")] {
            assert_eq!(store.ended_in_session(uid, session).expect("read"), [], "sessions are each user's own");
        }
        let kept = store.retained().expect("read");
        assert_eq!(
            kept.iter().map(|kept| (kept.id, kept.ended_at)).collect::<Vec<_>>(),
            [(failed.id, failed.created_at)]
        );
        let least = serde_json::to_string(&failed.input).expect("an object").len();
        assert!(kept[0].bytes > least as u64 && kept[0].bytes < 1_000, "{kept:?}");

        store.forget(&[open.id, TaskId::new(), failed.id]).expect("forgotten");
        assert_eq!((store.task(failed.id).expect("read"), store.retained().expect("read")), (None, vec![]));
        assert_eq!(store.steps(failed.id).expect("read"), []);
        assert_eq!(store.open_tasks().expect("read"), [open], "what is open is never forgotten");
    }
}
