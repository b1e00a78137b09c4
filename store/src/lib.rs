//! The store: the durable truth about tasks.
//!
//! This file defines the contract; `store/sqlite.rs` and `store/memory.rs` implement it. The contract does not depend
//! on one engine: every transition is a compare-and-set on state and attempt, no transaction stays open between
//! calls, and no implementation reads a clock.

use ground::base::webauthn::Base64Url;
use ground::task::confirmation::{Confirmation, DecidedBy, Digest};
use ground::task::decide_scope::DecideScope;
use ground::task::grant::{Grant, GrantId};
use ground::task::name::SubtoolName;
use ground::task::notes::TaskNotes;
use ground::task::{End, Task};
use jiff::Timestamp;
use protocol::caller::Caller;
use protocol::resolution::Resolution;
use protocol::task::{State, Step, TaskId};
use serde_json::{Map, Value};

use crate::retention::RetainedTask;

pub mod memory;
pub mod outbox;
pub mod retention;
pub mod sqlite;
pub mod switched_off;

use outbox::{DeliveryState, HookDelivery, Outbox};

/// One change to the store.
#[derive(Debug, Clone, PartialEq)]
pub enum Change {
    /// Adds a new task in the state [`State::Accepted`].
    Accept(Box<Task>),
    Transition(Box<Transition>),
    /// Replaces the undecided confirmation of a task that waits for a human or will: its preview is known, or the rules
    /// demand more. Fails unless the stored confirmation has the digest `expected`.
    ReplaceQuestion {
        id: TaskId,
        expected: Digest,
        confirmation: Box<Confirmation>,
    },
    /// Adds or replaces a grant. Fails unless the stored grant has `expected_uses`; `None` means that there is no
    /// stored grant yet.
    Grant {
        grant: Box<Grant>,
        expected_uses: Option<u32>,
    },
    /// Replaces what is known of the attempts of a task. Fails unless the stored task is open and at this attempt.
    Note {
        id: TaskId,
        attempt: u32,
        notes: Box<TaskNotes>,
    },
    /// Resolves a task that is [`State::Unknown`] and not yet resolved, or only by a caller and now by a human.
    Resolve(TaskId, Box<Resolution>),
    /// Remembers the last signature counter of a key; it never goes back.
    KeyCounter {
        credential: Base64Url,
        counter: u32,
    },
    /// Adds the scope of an API key that may decide, or replaces it.
    DecideScope(Box<DecideScope>),
    /// Adds, updates or removes the delivery of an event to a hook.
    Delivery(Box<HookDelivery>, DeliveryState),
}

/// One step of one task.
#[derive(Debug, Clone, PartialEq)]
pub struct Transition {
    pub id: TaskId,
    pub step: Step,
    /// The state that the stored task must be in.
    pub from: State,
    /// The attempt that the stored task must be at.
    pub attempt: u32,
    pub to: State,
    pub attempt_after: u32,
    pub not_before: Option<Timestamp>,
    pub at: Timestamp,
    /// The decision that led to this step.
    pub confirmation: Option<Box<ConfirmationUpdate>>,
    pub end: Option<End>,
}

/// A confirmation with its decision.
#[derive(Debug, Clone, PartialEq)]
pub struct ConfirmationUpdate {
    /// The digest that the stored confirmation must have; `None` if the task must have no confirmation.
    pub expected: Option<Digest>,
    pub confirmation: Confirmation,
    /// The edited input, if the human edited it.
    pub input: Option<Map<String, Value>>,
}

/// One recorded step in the history of a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordedStep {
    pub at: Timestamp,
    pub step: Step,
    pub attempt: u32,
}

/// An ended task without its input and its data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndedRecord {
    pub id: TaskId,
    pub tool: SubtoolName,
    pub caller: Caller,
    pub created_at: Timestamp,
    pub state: State,
    pub is_resolved: bool,
}

/// When a human was asked about a task, and for which user's caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConfirmationRecord {
    pub uid: u32,
    pub at: Timestamp,
}

impl ConfirmationRecord {
    /// `None` if a grant approved the task, since no human was asked then.
    fn of(uid: u32, confirmation: &Confirmation) -> Option<Self> {
        let by_grant =
            confirmation.decision.as_ref().is_some_and(|decision| matches!(decision.by, DecidedBy::Grant(_)));
        (!by_grant).then_some(Self { uid, at: confirmation.asked_at })
    }
}

#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The database, the disk or the file system failed.
    #[error("failed to read or write the store")]
    Engine(#[source] rusqlite::Error),
    #[error("failed to prepare the folder of the store")]
    Folder(#[source] std::io::Error),
    /// The compare-and-set failed: the stored task has changed.
    #[error("task {id} is no longer `{from}` at attempt {attempt}")]
    Conflict { id: TaskId, from: State, attempt: u32 },
    #[error("grant {0} was used or changed in the meantime")]
    GrantConflict(GrantId),
    #[error("task {0} is already in the store")]
    Duplicate(TaskId),
    #[error("the store holds a malformed record: {0}")]
    Malformed(String),
    #[error("task {0} is already resolved or did not end as unknown")]
    NotResolvable(TaskId),
    /// The database file is corrupt. It was not changed. A copy was made if it was opened for use.
    #[error("the store `{path}` is damaged ({reason}); it was not changed{}", copy_note(copy.as_deref()))]
    Damaged { path: String, copy: Option<String>, reason: String },
    /// Something else is where the database file or one of its companions belongs.
    #[error("the store cannot be opened: `{path}` is {found}")]
    NotAFile { path: String, found: &'static str },
    /// The database file is missing, but not its log.
    #[error("the store is missing, but its log `{log}` is there")]
    LogWithoutStore { log: String },
    #[error("the store was written by another version (schema {found}; this version writes {known})")]
    OtherSchema { found: i64, known: i64 },
}

impl StoreError {
    /// Returns what a human can do about the error, if that is not obvious.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Damaged { path, copy, .. } => {
                let source = copy.as_ref().unwrap_or(path);
                Some(format!(
                    "replace it with a backup; or recover what is readable with: sqlite3 '{source}' .recover | \
                     sqlite3 '{path}.new', then move '{path}.new' to '{path}' and remove '{path}-wal'; or move \
                     '{path}' and '{path}-wal' away to start with an empty store, which loses all tasks"
                ))
            }
            Self::NotAFile { path, .. } => Some(format!(
                "move `{path}` away and put the file back that was there; without it, the executor starts with an \
                 empty store, which loses all tasks"
            )),
            Self::LogWithoutStore { log } => Some(format!(
                "put the store back beside it; or move `{log}` away to start with an empty store, which loses all tasks"
            )),
            Self::OtherSchema { found, known } if *found > *known => {
                Some("install the version that wrote it, or a newer one".to_owned())
            }
            Self::OtherSchema { .. } => Some(
                "install the version that wrote it; or move it away to start with an empty store, which loses all tasks"
                    .to_owned(),
            ),
            Self::Engine(_) | Self::Folder(_) | Self::Conflict { .. } | Self::Duplicate(_) => None,
            Self::GrantConflict(_) | Self::NotResolvable(_) | Self::Malformed(_) => None,
        }
    }

    /// Whether there was no space to write: a full disk, a quota, or a limit on the file size.
    ///
    /// If so, nothing was changed and the same commit may succeed later. That does not hold for a failed sync, for
    /// which this returns false.
    pub fn is_disk_full(&self) -> bool {
        let Self::Engine(rusqlite::Error::SqliteFailure(error, _)) = self else { return false };
        // SQLite maps only `ENOSPC` to `DiskFull`; `EDQUOT` and `EFBIG` become a failed write.
        error.code == rusqlite::ErrorCode::DiskFull || error.extended_code == rusqlite::ffi::SQLITE_IOERR_WRITE
    }
}

fn copy_note(copy: Option<&str>) -> String {
    copy.map(|copy| format!(", and a copy of it is at `{copy}`")).unwrap_or_default()
}

/// The contract of a store.
pub trait Store: Outbox + Send {
    /// Makes all `changes` durable, or none of them: when this returns, they survive a loss of power. After an error
    /// nothing was changed, and the same changes may be committed again.
    fn commit(&mut self, changes: &[Change]) -> Result<(), StoreError>;

    /// Returns every task that has not ended, oldest first.
    fn open_tasks(&self) -> Result<Vec<Task>, StoreError>;

    fn task(&self, id: TaskId) -> Result<Option<Task>, StoreError>;

    /// Returns the task that a caller of this user requested with this idempotency key.
    fn task_by_key(&self, uid: u32, key: &str) -> Result<Option<Task>, StoreError>;

    /// Returns the tasks that ended or were resolved at or after `since`, ordered by their end.
    fn ended_since(&self, since: Timestamp) -> Result<Vec<EndedRecord>, StoreError>;

    /// Returns the confirmations that a human was asked for at or after `since`, oldest first.
    fn confirmations_since(&self, since: Timestamp) -> Result<Vec<ConfirmationRecord>, StoreError>;

    /// Returns every ended task with the size of its input and its end in bytes, without the engine's overhead.
    fn retained(&self) -> Result<Vec<RetainedTask>, StoreError>;

    /// Returns the ended tasks of one session of a user, oldest first.
    fn ended_in_session(&self, uid: u32, session: &str) -> Result<Vec<TaskId>, StoreError>;

    /// Returns every grant, ended ones included, oldest first.
    fn grants(&self) -> Result<Vec<Grant>, StoreError>;

    /// Returns the last counter of every key that was ever enrolled.
    fn key_counters(&self) -> Result<Vec<(Base64Url, u32)>, StoreError>;

    /// Returns the scope of every API key that ever could decide.
    fn decide_scopes(&self) -> Result<Vec<DecideScope>, StoreError>;

    /// Returns every step of a task, in order. Replayed through [`State::after`] they give its state.
    fn steps(&self, id: TaskId) -> Result<Vec<RecordedStep>, StoreError>;

    /// Removes these tasks and everything recorded about them. Open and unknown tasks are ignored.
    fn forget(&mut self, ids: &[TaskId]) -> Result<(), StoreError>;

    /// Removes these grants. Unknown ones are ignored.
    fn forget_grants(&mut self, ids: &[GrantId]) -> Result<(), StoreError>;
}

#[cfg(test)]
pub(crate) mod contract {
    //! The contract of a store as a test, which the tests of each implementation run.

    use ground::task::Outcome;
    use ground::task::api_key::ApiKeyRef;
    use ground::task::confirmation::{ConfirmationRequest, DecidedBy, Decision, Verdict};
    use ground::task::grant::{FieldCoverage, GrantScope};
    use ground::task::sample::stored;
    use protocol::code::Code;
    use protocol::error::ErrorBody;
    use protocol::resolution::ResolvedBy;

    use super::*;

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

    fn check_confirmations(store: &mut dyn Store) {
        let mut waiting = stored(None);
        let (why, instance, wait) = ("w".to_owned(), "i".to_owned(), std::time::Duration::from_hours(1));
        let request = ConfirmationRequest {
            why,
            reason: Some("r".to_owned()),
            needs: None,
            asked_by: vec![Digest::of(&[b"r"])],
            instance,
            wait,
            files: Vec::new(),
            has_preview: false,
        };
        let confirmation = Confirmation::ask(&waiting, request, "n".to_owned(), waiting.created_at);
        waiting.confirmation = Some(Box::new(confirmation.clone()));
        let (ask, asked) = step(&waiting, Step::Ask, None);
        store.commit(&[Change::Accept(Box::new(waiting)), ask]).expect("committed");
        assert_eq!(store.task(asked.id).expect("read").as_ref(), Some(&asked));

        let mut edited = asked.clone();
        edited.input = Map::new();
        let mut decision = Decision::new(asked.created_at, Verdict::Edited, DecidedBy::Page("s".to_owned()));
        decision.asked_input = Some(asked.input.clone());
        edited.confirmation = Some(Box::new(Confirmation { decision: Some(decision), ..confirmation.clone() }));
        let decide = |expected| {
            let confirmation = edited.confirmation.as_deref().expect("a confirmation").clone();
            let (Change::Transition(mut enqueue), after) = step(&edited, Step::Enqueue, None) else { unreachable!() };
            enqueue.confirmation =
                Some(Box::new(ConfirmationUpdate { expected: Some(expected), confirmation, input: Some(Map::new()) }));
            (Change::Transition(enqueue), after)
        };
        let replace_question = |expected, confirmation: &Confirmation| Change::ReplaceQuestion {
            id: asked.id,
            expected,
            confirmation: Box::new(confirmation.clone()),
        };
        let stale = store.commit(&[replace_question(Digest::of(&[]), &confirmation)]);
        assert!(matches!(stale, Err(StoreError::Conflict { .. })), "another digest is stored");
        let other = Confirmation { digest: Digest::of(&[b"other"]), ..confirmation.clone() };
        let changes = [replace_question(confirmation.digest, &other), replace_question(other.digest, &confirmation)];
        store.commit(&changes).expect("committed");
        let (stale, _) = decide(Digest::of(&[]));
        assert!(matches!(store.commit(&[stale]), Err(StoreError::Conflict { .. })), "a decision on another digest");
        let (enqueue, queued) = decide(confirmation.digest);
        store.commit(&[enqueue]).expect("committed");
        assert_eq!(store.task(asked.id).expect("read").as_ref(), Some(&queued));
        // A question that is asked later is of a queued task.
        let same = || replace_question(confirmation.digest, queued.confirmation.as_deref().expect("a confirmation"));
        store.commit(&[same()]).expect("committed");
        let record = ConfirmationRecord { uid: 1000, at: asked.created_at };
        assert_eq!(store.confirmations_since(asked.created_at).expect("read"), [record], "of an open task");
        let end = End { at: asked.created_at, outcome: Outcome::Data(Value::Null), meta: Map::new() };
        let (cancel, _) = step(&queued, Step::Cancel, Some(end));
        store.commit(&[cancel]).expect("committed");
        assert!(matches!(store.commit(&[same()]), Err(StoreError::Conflict { .. })), "it has ended");
        assert_eq!(store.confirmations_since(asked.created_at).expect("read"), [record], "of an ended task");
        let later = asked.created_at + jiff::SignedDuration::from_micros(1);
        assert_eq!(store.confirmations_since(later).expect("read"), []);

        let mut granted = Task { confirmation: asked.confirmation.clone(), ..stored(None) };
        let decision = Decision::new(asked.created_at, Verdict::Approved, DecidedBy::Grant(TaskId::new()));
        granted.confirmation.as_mut().expect("a confirmation").decision = Some(decision);
        store.commit(&[Change::Accept(Box::new(granted))]).expect("committed");
        assert_eq!(store.confirmations_since(asked.created_at).expect("read"), [record], "a grant asks no human");
    }

    fn check_grants(store: &mut dyn Store) {
        let like = stored(None);
        let mut grant = Grant {
            id: TaskId::new(),
            tool: like.tool,
            definition_hash: like.definition_hash,
            scope: GrantScope { uid: 1000, client: None, folder: None },
            files: Vec::new(),
            fields: [("n".to_owned(), FieldCoverage::AtMost(9_007_199_254_740_993_i64.into()))].into(),
            rules: [Digest::of(&[b"r"])].into(),
            made_at: like.created_at,
            made_from: like.id,
            made_by: "s".to_owned(),
            expires_at: like.created_at,
            most_uses: Some(2),
            uses: 0,
            last_use: None,
            revoked_at: None,
            proof: None,
        };
        let change = |grant: &Grant, expected_uses| Change::Grant { grant: Box::new(grant.clone()), expected_uses };
        store.commit(&[change(&grant, None)]).expect("committed");
        grant.uses = 1;
        store.commit(&[change(&grant, Some(0))]).expect("committed");
        assert!(
            matches!(store.commit(&[change(&grant, Some(0))]), Err(StoreError::GrantConflict(_))),
            "used in the meantime"
        );
        assert!(
            matches!(store.commit(&[change(&grant, None)]), Err(StoreError::GrantConflict(_))),
            "it already exists"
        );
        assert_eq!(store.grants().expect("read"), [grant.clone()]);
        let other = Grant { id: TaskId::new(), uses: 0, ..grant.clone() };
        store.commit(&[change(&other, None)]).expect("committed");
        store.forget_grants(&[grant.id, TaskId::new()]).expect("forgotten");
        assert_eq!(store.grants().expect("read"), [other]);
    }

    pub(crate) fn check(store: &mut dyn Store) {
        check_resolutions(store);
        check_transitions(store);
        outbox::contract::check(store);
        check_confirmations(store);
        check_grants(store);
        check_key_counters(store);
        check_decide_scopes(store);
    }

    fn check_decide_scopes(store: &mut dyn Store) {
        let at = Timestamp::from_second(1_700_000_000).expect("a time");
        let given = DecideScope {
            key: ApiKeyRef { name: "phone".to_owned(), hash: "ab".repeat(32) },
            gift: 2,
            given_at: at,
            given_by: "s".to_owned(),
            expires_at: Some(at),
            taken_back_at: None,
            decisions: 1,
            last_decision: Some(at),
            proof: None,
        };
        let key = ApiKeyRef { hash: "cd".repeat(32), ..given.key.clone() };
        let other = DecideScope { key, expires_at: None, ..given.clone() };
        let change = |scope: &DecideScope| Change::DecideScope(Box::new(scope.clone()));
        store.commit(&[change(&given), change(&other)]).expect("committed");
        assert_eq!(store.decide_scopes().expect("read"), [given.clone(), other.clone()], "keys of one name");
        let taken_back = DecideScope { taken_back_at: Some(at), ..given };
        store.commit(&[change(&taken_back)]).expect("committed");
        assert_eq!(store.decide_scopes().expect("read"), [taken_back, other]);
    }

    fn check_key_counters(store: &mut dyn Store) {
        let change = |name: &str, counter| Change::KeyCounter { credential: Base64Url(name.into()), counter };
        store.commit(&[change("a", 3), change("b", 0)]).expect("committed");
        store.commit(&[change("a", 7), change("a", 5)]).expect("committed");
        let stored = [(Base64Url(b"a".to_vec()), 7), (Base64Url(b"b".to_vec()), 0)];
        assert_eq!(store.key_counters().expect("read"), stored, "a counter never goes back");
    }

    fn check_resolutions(store: &mut dyn Store) {
        let accepted = stored(None);
        let (enqueue, queued) = step(&accepted, Step::Enqueue, None);
        let (start, running) = step(&queued, Step::Start, None);
        store.commit(&[Change::Accept(Box::new(accepted.clone())), enqueue, start]).expect("committed");
        let at = Timestamp::from_second(1_700_000_005).expect("a time");
        let by = |happened, by| Resolution { happened, by, note: Some("ü".to_owned()), at };
        let resolution = |happened| by(happened, ResolvedBy::Human);
        let change = |resolution| [Change::Resolve(accepted.id, Box::new(resolution))];
        let resolve = |happened| change(resolution(happened));
        assert!(matches!(store.commit(&resolve(true)), Err(StoreError::NotResolvable(_))), "it has not ended");
        let error = ErrorBody::new(Code::UnknownOutcome, "lost");
        let end = End { at: accepted.created_at, outcome: Outcome::Error(error), meta: Map::new() };
        let (lose, unknown) = step(&running, Step::Lose, Some(end));
        store.commit(&[lose]).expect("committed");
        assert_eq!(store.ended_since(at).expect("read"), []);

        store.commit(&change(by(false, ResolvedBy::Caller))).expect("resolved");
        let again = store.commit(&change(by(true, ResolvedBy::Caller)));
        assert!(matches!(again, Err(StoreError::NotResolvable(_))), "a caller overrules no one");
        store.commit(&resolve(true)).expect("a human overrules a caller");
        assert!(matches!(store.commit(&change(by(false, ResolvedBy::Caller))), Err(StoreError::NotResolvable(_))));
        let resolved = Task { resolution: Some(resolution(true)), ..unknown };
        for happened in [true, false] {
            assert!(
                matches!(store.commit(&resolve(happened)), Err(StoreError::NotResolvable(_))),
                "that of a human is final"
            );
            assert_eq!(
                store.task(accepted.id).expect("read").as_ref(),
                Some(&resolved),
                "the rest of the task is unchanged"
            );
        }
        let steps = store.steps(accepted.id).expect("read");
        assert_eq!(steps.last(), Some(&RecordedStep { at, step: Step::Resolve, attempt: 1 }));
        let ended = store.ended_since(at).expect("read");
        assert_eq!(ended.iter().map(|ended| (ended.id, ended.is_resolved)).collect::<Vec<_>>(), [(accepted.id, true)]);
        store.forget(&[accepted.id]).expect("forgotten");
    }

    fn check_transitions(store: &mut dyn Store) {
        let at = Timestamp::from_second(1_800_000_000).expect("a time");
        let accepted = Task { run_at: Some(at), ..stored(Some("k")) };
        let (enqueue, queued) = step(&accepted, Step::Enqueue, None);
        let (start, running) = step(&queued, Step::Start, None);
        store.commit(&[Change::Accept(Box::new(accepted.clone())), enqueue, start.clone()]).expect("committed");
        assert_eq!(store.open_tasks().expect("read"), std::slice::from_ref(&running));
        assert_eq!(store.task_by_key(1000, "k").expect("read").as_ref(), Some(&running));
        assert_eq!(store.task_by_key(1001, "k").expect("read"), None, "keys are separate for each user");

        let other = stored(None);
        let refused = store.commit(&[Change::Accept(Box::new(other.clone())), start]);
        assert!(matches!(refused, Err(StoreError::Conflict { .. })), "a step cannot be taken twice");
        assert_eq!(store.task(other.id).expect("read"), None, "all changes are made or none");
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
        assert_eq!(replayed, Ok(State::Failed), "the steps replay to the state");

        let open = stored(None);
        store.commit(&[Change::Accept(Box::new(open.clone()))]).expect("committed");
        assert_eq!(store.ended_in_session(1000, "s").expect("read"), [failed.id], "an open task has not ended");
        for (uid, session) in [(1000, "S"), (1000, ""), (1001, "s")] {
            assert_eq!(store.ended_in_session(uid, session).expect("read"), [], "sessions are separate for each user");
        }
        let retained = store.retained().expect("read");
        assert_eq!(
            retained.iter().map(|task| (task.id, task.ended_at)).collect::<Vec<_>>(),
            [(failed.id, failed.created_at)]
        );
        let min_bytes = serde_json::to_string(&failed.input).expect("an object").len();
        assert!(retained[0].bytes > min_bytes as u64 && retained[0].bytes < 1_000, "{retained:?}");

        store.forget(&[open.id, TaskId::new(), failed.id]).expect("forgotten");
        assert_eq!((store.task(failed.id).expect("read"), store.retained().expect("read")), (None, vec![]));
        assert_eq!(store.steps(failed.id).expect("read"), []);
        assert_eq!(store.open_tasks().expect("read"), [open], "an open task is never forgotten");
    }
}
