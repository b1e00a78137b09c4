//! Committing: the one write that everything else waits for.

use std::time::{Duration, Instant};

use rusqlite::ErrorCode;

use crate::store::{Change, Store, StoreError};

/// How long a full disk may hold everything up. What finishes meanwhile is recorded when there is
/// room again; an executor that gave up at once would not know any more what its tasks did.
const PATIENCE: Duration = Duration::from_mins(1);
/// How often it is tried again.
const TRY_AGAIN: Duration = Duration::from_millis(500);

/// Makes `changes` durable.
///
/// Waits while the disk is full, and for nothing else: after a failed sync nobody knows what is on
/// the disk, so that is tried no second time, and the executor ends without answering.
pub(super) fn commit(store: &mut dyn Store, changes: &[Change]) -> Result<(), StoreError> {
    patiently(store, changes, PATIENCE, TRY_AGAIN)
}

fn patiently(store: &mut dyn Store, changes: &[Change], patience: Duration, pause: Duration) -> Result<(), StoreError> {
    let began = Instant::now();
    loop {
        match store.commit(changes) {
            Err(error) if is_full(&error) && began.elapsed() < patience => {
                tracing::error!(%error, "the disk with the record of tasks is full; nothing goes on until there is room");
                std::thread::park_timeout(pause);
            }
            outcome => return outcome,
        }
    }
}

fn is_full(error: &StoreError) -> bool {
    match error {
        StoreError::Engine(error) => error.sqlite_error_code() == Some(ErrorCode::DiskFull),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Recorded;
    use crate::store::memory::MemoryStore;
    use crate::task::{Task, TaskId};
    use jiff::Timestamp;
    use rusqlite::ffi;

    /// Fails so many times with this code of SQLite's, then works.
    struct Failing {
        code: i32,
        times: u32,
        store: MemoryStore,
    }

    impl Store for Failing {
        fn commit(&mut self, changes: &[Change]) -> Result<(), StoreError> {
            if self.times == 0 {
                return self.store.commit(changes);
            }
            self.times -= 1;
            Err(rusqlite::Error::SqliteFailure(ffi::Error::new(self.code), None).into())
        }

        fn open_tasks(&self) -> Result<Vec<Task>, StoreError> {
            self.store.open_tasks()
        }

        fn task(&self, id: TaskId) -> Result<Option<Task>, StoreError> {
            self.store.task(id)
        }

        fn task_by_key(&self, uid: u32, key: &str) -> Result<Option<Task>, StoreError> {
            self.store.task_by_key(uid, key)
        }

        fn ended_since(&self, since: Timestamp) -> Result<Vec<Task>, StoreError> {
            self.store.ended_since(since)
        }

        fn story(&self, id: TaskId) -> Result<Vec<Recorded>, StoreError> {
            self.store.story(id)
        }

        fn forget(&mut self, before: Timestamp) -> Result<Vec<TaskId>, StoreError> {
            self.store.forget(before)
        }
    }

    fn tried(code: i32, times: u32, patience: Duration) -> (bool, u32) {
        let mut store = Failing { code, times, store: MemoryStore::default() };
        let task = crate::store::contract::task(None);
        let outcome = patiently(&mut store, &[Change::Accept(Box::new(task.clone()))], patience, Duration::ZERO);
        assert_eq!(store.task(task.id).expect("read").is_some(), outcome.is_ok());
        (outcome.is_ok(), times - store.times)
    }

    #[test]
    fn only_a_full_disk_is_waited_for_and_not_for_ever() {
        let long = Duration::from_mins(1);
        assert_eq!(tried(ffi::SQLITE_FULL, 3, long), (true, 3));
        assert_eq!(tried(ffi::SQLITE_FULL, 1, Duration::ZERO), (false, 1));
        assert_eq!(tried(ffi::SQLITE_IOERR_FSYNC, 3, long), (false, 1), "a failed sync is final");
        assert_eq!(tried(ffi::SQLITE_CORRUPT, 3, long), (false, 1));
    }
}
