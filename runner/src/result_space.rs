//! How many bytes the results of each caller may take on the disk, counted while they are written: a read needs no
//! approval, so nothing else bounds what a caller downloads.
//!
//! What was deleted is noticed when a limit is reached, by its result file that is gone. Decides nothing about how long
//! results are kept.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use ground::config::ExecutorSettings;
use ground::task::failure::Failure;
use protocol::caller::Caller;
use protocol::code::Code;
use protocol::mailbox::Mailbox;
use protocol::mailbox::result::LARGE_BYTES;
use protocol::task::TaskId;

/// The bytes of the results that exist.
#[derive(Debug, Default)]
pub struct ResultSpace {
    results: Mutex<HashMap<TaskId, ResultBytes>>,
    /// `None` without an executor.
    mailbox: Option<Mailbox>,
}

#[derive(Debug)]
struct ResultBytes {
    session: (u32, Option<String>),
    key: Option<String>,
    bytes: u64,
}

impl ResultBytes {
    fn of(caller: &Caller, bytes: u64) -> Self {
        Self { session: (caller.uid, caller.session.clone()), key: caller.client().map(str::to_owned), bytes }
    }
}

/// Whose bytes are counted together.
#[derive(Debug, Clone, Copy)]
enum Share {
    Session,
    Key,
    All,
}

impl ResultSpace {
    pub fn new(mailbox: Mailbox) -> Self {
        Self { mailbox: Some(mailbox), ..Self::default() }
    }

    /// Counts the results in the mailbox that earlier executors wrote. `callers` tells whose tasks have ended; it is asked
    /// only if there are large results.
    pub fn count_existing<E>(&self, callers: impl FnOnce() -> Result<Vec<(TaskId, Caller)>, E>) -> Result<(), E> {
        let Some(mailbox) = &self.mailbox else { return Ok(()) };
        let mut large: HashMap<TaskId, u64> = HashMap::new();
        for entry in std::fs::read_dir(mailbox.results()).into_iter().flatten().flatten() {
            let bytes = entry.metadata().map_or(0, |found| found.len());
            if let Some(id) = Mailbox::task_of_file(&entry.file_name()).filter(|_| bytes >= LARGE_BYTES as u64) {
                *large.entry(id).or_default() += bytes;
            }
        }
        if large.is_empty() {
            return Ok(());
        }
        let known = callers()?;
        let mut results = self.results();
        for (id, caller) in known {
            if let Some(bytes) = large.get(&id) {
                results.insert(id, ResultBytes::of(&caller, *bytes));
            }
        }
        Ok(())
    }

    /// Counts `bytes` more of a task's result before they are written; fails if that exceeds a limit.
    pub fn add(&self, id: &str, caller: &Caller, bytes: u64, settings: &ExecutorSettings) -> Result<(), Failure> {
        let Ok(id) = id.parse::<TaskId>() else { return Ok(()) };
        let mut results = self.results();
        if let Err(failure) = within_limits(&results, caller, bytes, settings) {
            self.remove_deleted(&mut results, id);
            within_limits(&results, caller, bytes, settings).map_err(|_| failure)?;
        }
        results.entry(id).or_insert_with(|| ResultBytes::of(caller, 0)).bytes += bytes;
        Ok(())
    }

    /// Counts what a task keeps, its input and then its result, in place of what was counted for it before; fails if that
    /// exceeds a limit. What is small is not counted.
    pub fn settle(&self, id: TaskId, caller: &Caller, bytes: u64, settings: &ExecutorSettings) -> Result<(), Failure> {
        let counted = self.results().remove(&id);
        if bytes < LARGE_BYTES as u64 {
            return Ok(());
        }
        if let Some(counted) = counted.filter(|counted| counted.bytes >= bytes) {
            self.results().insert(id, ResultBytes { bytes, ..counted });
            return Ok(());
        }
        self.add(&id.to_string(), caller, bytes, settings)
    }

    /// Counts nothing of a task any more, since no result keeps what it wrote.
    pub fn forget(&self, id: TaskId) {
        self.results().remove(&id);
    }

    /// Forgets results whose file is gone, but not that of the task `id`, which is being written.
    fn remove_deleted(&self, results: &mut HashMap<TaskId, ResultBytes>, id: TaskId) {
        if let Some(mailbox) = &self.mailbox {
            results.retain(|known, _| *known == id || mailbox.result_file(*known).exists());
        }
    }

    fn results(&self) -> MutexGuard<'_, HashMap<TaskId, ResultBytes>> {
        self.results.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn within_limits(
    results: &HashMap<TaskId, ResultBytes>,
    caller: &Caller,
    bytes: u64,
    settings: &ExecutorSettings,
) -> Result<(), Failure> {
    let own = ResultBytes::of(caller, bytes);
    for share in [Share::Session, Share::Key, Share::All] {
        let (limit, setting) = match share {
            Share::Session => (settings.result_bytes_per_session, "result_bytes_per_session"),
            Share::Key if own.key.is_none() => continue,
            Share::Key => (settings.result_bytes_per_key, "result_bytes_per_key"),
            Share::All => (settings.result_bytes, "result_bytes"),
        };
        let counts = |other: &&ResultBytes| match share {
            Share::Session => other.session == own.session,
            Share::Key => other.key == own.key,
            Share::All => true,
        };
        let used: u64 = results.values().filter(counts).map(|result| result.bytes).sum();
        if used.saturating_add(bytes) > limit {
            return Err(full(share, caller, (used, limit), setting));
        }
    }
    Ok(())
}

fn full(share: Share, caller: &Caller, (used, limit): (u64, u64), setting: &str) -> Failure {
    let whose = match share {
        Share::Session => "of this session",
        Share::Key => "of this API key",
        Share::All => "of all callers",
    };
    let session = caller.session.as_deref().unwrap_or("SESSION");
    let message = format!("the results {whose} have {used} bytes, and with this one more than the limit of {limit}");
    Failure::new(Code::QuotaExceeded, message)
        .hint(format!(
            "ask for less, or tell the user to delete results that are no longer needed: agent-magic-tool tasks \
             --forget-session {session}; they can also raise `{setting}` under [executor] in config.toml"
        ))
        .detail("limit", limit)
        .detail("used", used)
}

#[cfg(test)]
mod tests {
    use ground::config::Config;

    use super::*;

    fn caller(session: &str) -> Caller {
        Caller { session: Some(session.to_owned()), ..Caller::default() }
    }

    fn settings() -> ExecutorSettings {
        let mut settings = Config::default().executor;
        (settings.result_bytes_per_session, settings.result_bytes_per_key, settings.result_bytes) =
            (100_000, 150_000, 200_000);
        settings
    }

    #[test]
    fn each_session_each_key_and_all_together_have_their_limit() {
        let (space, settings) = (ResultSpace::default(), settings());
        let write = |session: &str, bytes| {
            let (id, caller) = (TaskId::new(), caller(session));
            let added = space.add(&id.to_string(), &caller, bytes, &settings);
            added.map(|()| id).map_err(|failure| (failure.error.code, failure.error.message))
        };
        let full = |text: &str| Err((Code::QuotaExceeded, text.to_owned()));
        let of = |whose: &str, used: u64, limit: u64| {
            full(&format!("the results {whose} have {used} bytes, and with this one more than the limit of {limit}"))
        };
        let first = write("shared-a.1-x", 60_000).expect("there is space");
        assert_eq!(write("shared-a.1-x", 40_001), of("of this session", 60_000, 100_000));
        write("shared-a.1-y", 60_000).expect("another session");
        assert_eq!(write("shared-a.1-z", 30_001), of("of this API key", 120_000, 150_000));
        write("s", 80_000).expect("no key");
        assert_eq!(write("t", 1), of("of all callers", 200_000, 200_000));
        // A small result gives its space back, and so does a task that failed.
        space.settle(first, &caller("shared-a.1-x"), 100, &settings).expect("it is small");
        write("t", 60_000).expect("there is space again");
    }

    #[test]
    fn what_was_deleted_is_not_counted_and_what_is_there_at_the_start_is() {
        let folder = tempfile::tempdir().expect("a folder");
        let mailbox = Mailbox::open(&folder.path().join("mailbox")).expect("a mailbox");
        let (id, other, settings) = (TaskId::new(), TaskId::new(), settings());
        mailbox.publish(id, "{}").expect("published");
        mailbox.put_data(id, "bin", &mut std::io::Cursor::new(vec![b'x'; 90_000])).expect("written");
        let space = ResultSpace::new(mailbox.clone());
        space.count_existing(|| Ok::<_, Failure>(vec![(id, caller("s"))])).expect("counted");
        let write = || space.add(&other.to_string(), &caller("s"), 20_000, &settings);
        assert_eq!(write().expect_err("full").error.code, Code::QuotaExceeded);
        mailbox.forget(id).expect("deleted");
        write().expect("there is space again");
    }
}
