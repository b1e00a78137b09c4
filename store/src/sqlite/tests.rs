//! The store on disk: its contract, torn and damaged files, and files of other versions.

use super::*;

#[test]
fn it_fulfills_the_store_contract() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut store = SqliteStore::open(&folder.path().join("tasks.db")).expect("it opens");
    super::super::contract::check(&mut store);
}

#[test]
fn a_committed_task_is_read_after_reopening() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("tasks.db");
    let task = ground::task::sample::stored(None);
    SqliteStore::open(&path)
        .and_then(|mut store| store.commit(&[Change::Accept(Box::new(task.clone()))]))
        .expect("committed");
    assert_eq!(SqliteStore::open(&path).and_then(|store| store.open_tasks()).expect("read"), [task]);
}

#[test]
fn a_store_of_another_schema_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("tasks.db");
    for other in [99, 6, 1, -1] {
        SqliteStore::open(&path).expect("it opens").connection.pragma_update(None, "user_version", other).expect("set");
        assert!(matches!(SqliteStore::open(&path), Err(StoreError::OtherSchema { found, known: 7 }) if found == other));
        let connection = Connection::open(&path).expect("a file");
        connection.pragma_update(None, "user_version", 7).expect("set back");
    }
}

/// Copies the files of the open store at `from` as a power loss would leave them, with `log` as its log.
fn copy(from: &Path, to: &Path, log: &[u8]) {
    fs::copy(from, to).expect("copied");
    fs::write(to.with_extension("db-wal"), log).expect("written");
}

#[test]
fn a_torn_commit_leaves_earlier_commits_intact() {
    const COMMITS: usize = 5;
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("tasks.db");
    let mut store = SqliteStore::open(&path).expect("it opens");
    let read_log = || fs::read(path.with_extension("db-wal")).unwrap_or_default();
    let (mut ids, mut logs) = (Vec::new(), Vec::new());
    for _ in 0..COMMITS {
        let task = ground::task::sample::stored(None);
        ids.push(task.id);
        store.commit(&[Change::Accept(Box::new(task))]).expect("committed");
        logs.push(read_log());
    }
    let (before, whole) = (logs[COMMITS - 2].len(), &logs[COMMITS - 1]);
    assert!(before < whole.len());
    let step = if std::env::var_os("AGENT_MAGIC_TOOL_FAULTS").is_some() { 1 } else { 397 };
    for (number, length) in (before..whole.len()).step_by(step).enumerate() {
        let torn = folder.path().join(format!("torn-{number}.db"));
        copy(&path, &torn, &whole[..length]);
        let read = SqliteStore::open(&torn).expect("it opens");
        for id in &ids[..COMMITS - 1] {
            assert!(read.task(*id).expect("read").is_some(), "torn at {length} of {}", whole.len());
        }
        assert!(read.task(ids[COMMITS - 1]).expect("read").is_none(), "a torn commit is not applied");
        damage::check_integrity(&read.connection).expect("the database is intact");
    }
}

#[test]
fn opening_the_store_moves_an_unsynced_log_into_the_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("tasks.db");
    let task = ground::task::sample::stored(None);
    let mut store = SqliteStore::open(&path).expect("it opens");
    store.commit(&[Change::Accept(Box::new(task.clone()))]).expect("committed");
    let left = folder.path().join("left.db");
    copy(&path, &left, &fs::read(path.with_extension("db-wal")).expect("a log"));
    let next = SqliteStore::open(&left).expect("it opens");
    let without_log = folder.path().join("alone.db");
    copy(&left, &without_log, b"");
    drop(next);
    assert_eq!(SqliteStore::open(&without_log).and_then(|store| store.open_tasks()).expect("read"), [task]);
}

#[test]
fn a_damaged_store_is_reported_copied_and_never_replaced() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("tasks.db");
    let mut store = SqliteStore::open(&path).expect("it opens");
    for _ in 0..20 {
        store.commit(&[Change::Accept(Box::new(ground::task::sample::stored(None)))]).expect("committed");
    }
    drop(store);
    let intact = fs::read(&path).expect("a file");
    for offset in [0, 17, 100, 5_000, intact.len() / 2] {
        let mut bytes = intact.clone();
        bytes[offset..(offset + 64).min(intact.len())].fill(0xa5);
        fs::write(&path, &bytes).expect("written");
        for _ in 0..2 {
            let opened = SqliteStore::open(&path).and_then(|store| store.open_tasks());
            match opened {
                Ok(tasks) => assert_eq!(tasks.len(), 20, "at {offset}"),
                Err(StoreError::Damaged { copy, .. }) => {
                    assert!(copy.is_some_and(|copy| Path::new(&copy).exists()), "at {offset}");
                }
                Err(StoreError::OtherSchema { .. }) => {}
                Err(other) => panic!("at {offset}: {other:?}"),
            }
        }
    }
    let copies = fs::read_dir(folder.path()).expect("a folder").flatten();
    let copies = copies.filter(|entry| entry.file_name().to_string_lossy().contains(".corrupt-")).count();
    assert_eq!(copies, 1, "one copy after any number of attempts");
}

/// A store with `tasks` tasks, each committed by itself, as a power loss would leave it.
fn crashed_store(tasks: usize) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    let living = folder.path().join("living.db");
    let mut store = SqliteStore::open(&living).expect("it opens");
    for _ in 0..tasks {
        store.commit(&[Change::Accept(Box::new(ground::task::sample::stored(None)))]).expect("committed");
    }
    let path = folder.path().join("tasks.db");
    copy(&living, &path, &fs::read(living.with_extension("db-wal")).expect("a log"));
    (folder, path)
}

fn is_exhaustive() -> bool {
    std::env::var_os("AGENT_MAGIC_TOOL_FAULTS").is_some()
}

#[test]
fn a_store_that_was_emptied_cut_or_replaced_is_never_taken_for_a_new_one() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("tasks.db");
    drop(SqliteStore::open(&path).expect("it opens"));
    for length in [0, 1, 511] {
        fs::write(&path, vec![b'x'; length]).expect("written");
        assert!(matches!(inspect(&path, false), Err(StoreError::Damaged { .. })), "{length} bytes");
        assert!(matches!(SqliteStore::open(&path), Err(StoreError::Damaged { .. })), "{length} bytes");
        assert_eq!(fs::metadata(&path).expect("it is there").len(), length as u64, "it was not changed");
    }
    fs::remove_file(&path).expect("removed");
    fs::create_dir(&path).expect("made");
    assert!(matches!(SqliteStore::open(&path), Err(StoreError::NotAFile { found: "a folder", .. })));
    fs::remove_dir(&path).expect("removed");
    nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).expect("made");
    assert!(matches!(SqliteStore::open(&path), Err(StoreError::NotAFile { .. })));
    fs::remove_file(&path).expect("removed");
    assert!(SqliteStore::open(&path).is_ok(), "a store that was moved away is replaced by an empty one");

    let (_folder, path) = crashed_store(1);
    fs::remove_file(&path).expect("removed");
    assert!(matches!(SqliteStore::open(&path), Err(StoreError::LogWithoutStore { .. })));
}

#[test]
fn no_flipped_byte_of_the_schema_gives_a_store_that_fails_later() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("tasks.db");
    drop(SqliteStore::open(&path).expect("it opens"));
    let intact = fs::read(&path).expect("a file");
    let text = intact.windows(12).position(|part| part == b"CREATE TABLE").expect("a schema");
    let step = if is_exhaustive() { 1 } else { 31 };
    let mut damaged = 0;
    for offset in (0..100).chain((text..4096).step_by(step)) {
        for file in fs::read_dir(folder.path()).expect("a folder").flatten() {
            fs::remove_file(file.path()).expect("removed");
        }
        let mut bytes = intact.clone();
        bytes[offset] ^= 0xff;
        fs::write(&path, &bytes).expect("written");
        let inspected = inspect(&path, false);
        match SqliteStore::open(&path) {
            Ok(mut store) => {
                assert!(inspected.is_ok(), "at {offset}: {inspected:?}");
                let task = ground::task::sample::stored(Some("key"));
                store.commit(&[Change::Accept(Box::new(task.clone()))]).expect("committed");
                assert_eq!(store.open_tasks().expect("read"), [task], "at {offset}");
                assert!(store.grants().expect("read").is_empty());
                assert!(store.ended_since(Timestamp::UNIX_EPOCH).expect("read").is_empty());
            }
            Err(StoreError::Damaged { copy, .. }) => {
                damaged += 1;
                assert!(copy.is_some(), "at {offset}");
                assert!(matches!(inspected, Err(StoreError::Damaged { .. })), "at {offset}: {inspected:?}");
                assert_eq!(fs::read(&path).expect("a file"), bytes, "at {offset}: it was not changed");
            }
            Err(StoreError::OtherSchema { .. }) => {}
            Err(other) => panic!("at {offset}: {other:?}"),
        }
    }
    assert!(damaged > 20, "only {damaged} positions were reported");
}

#[test]
fn a_log_that_would_lose_synced_commits_is_damaged() {
    const COMMITS: usize = 5;
    let (folder, path) = crashed_store(COMMITS);
    let log = path.with_extension("db-wal");
    let (database, intact) = (fs::read(&path).expect("a file"), fs::read(&log).expect("a log"));
    let frame = 24 + 4096;
    let frames = (intact.len() - 32) / frame;
    let last_commit = (0..frames - 1).rev().find(|number| {
        let size = 32 + number * frame + 4;
        intact[size..size + 4] != [0; 4]
    });
    let earlier = 32 + (last_commit.expect("several commits") + 1) * frame;
    let step = if is_exhaustive() { 13 } else { 1_009 };
    for offset in (0..32).chain((32..earlier).step_by(step)) {
        for file in fs::read_dir(folder.path()).expect("a folder").flatten() {
            fs::remove_file(file.path()).expect("removed");
        }
        fs::write(&path, &database).expect("written");
        let mut bytes = intact.clone();
        bytes[offset] ^= 0xff;
        fs::write(&log, &bytes).expect("written");
        match SqliteStore::open(&path) {
            Err(StoreError::Damaged { .. }) => assert_eq!(fs::read(&log).expect("a log"), bytes, "at {offset}"),
            Ok(store) => assert_eq!(store.open_tasks().expect("read").len(), COMMITS, "at {offset}"),
            Err(other) => panic!("at {offset}: {other:?}"),
        }
    }
}
