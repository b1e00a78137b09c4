//! Flipped bytes in every file: damage is reported or repaired, never a panic, and never an empty store.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use jiff::Timestamp;
use serde_json::json;
use store::Store as _;
use store::sqlite::SqliteStore;

use super::oracle::{Class, Oracle};
use super::size;
use crate::world::{Transcript, until};

const TASKS: usize = 6;

fn copy(from: &Path, to: &Path) {
    let copied = Command::new("cp").arg("-a").arg(from).arg(to).status().expect("cp");
    assert!(copied.success());
}

/// Runs all commands in a damaged world, and returns the transcript of `run`.
fn run_all(oracle: &Oracle, id: &str, case: &str) -> Transcript {
    let ran = oracle.world.run(&["run", "read", "name=after"]);
    for ran in [
        &ran,
        &oracle.world.run(&["list", "--format=names"]),
        &oracle.world.run(&["read", id]),
        &oracle.world.run(&["wait", id, "--timeout=10s"]),
        &oracle.world.run(&["executor", "status"]),
    ] {
        assert!((0..=7).contains(&ran.exit), "{case}: {ran}");
        assert!(!ran.stderr.contains("panicked"), "{case}: {ran}");
    }
    ran
}

#[test]
fn a_flipped_byte_is_reported_or_repaired_and_never_empties_the_store() {
    let mut oracle = Oracle::new();
    let ids: Vec<_> = (0..TASKS).map(|number| oracle.accept(Class::ALL[number % 3], &json!({}))).collect();
    oracle.until_final();
    assert_eq!(oracle.world.run(&["list", "--format=names"]).exit, 0);
    oracle.world.kill_executor();
    oracle.stop_reader();
    let record = oracle.record();
    let log = record.with_extension("db-wal");
    let result = oracle.world.mailbox().join(format!("results/result-{}.json", ids[0]));
    let files: Vec<PathBuf> = vec![
        record.clone(),
        log,
        result,
        oracle.world.mailbox().join("executor.json"),
        oracle.world.home().join(".cache/agent-magic-tool/listing.index"),
    ];
    let backup = tempfile::tempdir().expect("a folder");
    for (folder, name) in [(oracle.world.home(), "home"), (oracle.world.mailbox(), "mailbox")] {
        copy(&folder, &backup.path().join(name));
    }
    let lengths: Vec<_> = files.iter().map(|file| fs::metadata(file).map_or(0, |metadata| metadata.len())).collect();
    for (file, length) in files.into_iter().zip(lengths) {
        let name = file.file_name().expect("a name").to_string_lossy().into_owned();
        assert!(length > 0, "{name} is empty");
        let length = usize::try_from(length).expect("small");
        let flips = if name.starts_with("tasks") { size(6, 200) } else { size(2, 50) };
        for flip in 0..flips {
            let offset = if flip == 0 { 0 } else { (length / flips) * flip + flip * 7 % 64 };
            for folder in [oracle.world.home(), oracle.world.mailbox()] {
                let name = folder.file_name().expect("a name").to_owned();
                fs::remove_dir_all(&folder).expect("removed");
                copy(&backup.path().join(name), &folder);
            }
            let mut bytes = fs::read(&file).expect("a file");
            let offset = offset.min(bytes.len() - 1);
            bytes[offset] ^= 0xff;
            fs::write(&file, bytes).expect("written");
            let case = format!("{name} at {offset} of {length}");
            let ran = run_all(&oracle, &ids[0], &case);
            oracle.world.kill_executor();
            let logged = fs::read_to_string(oracle.world.log()).unwrap_or_default();
            assert!(!logged.contains("the executor panicked"), "{case}: {logged}");
            if ran.exit == 0 {
                // A damaged write-ahead log loses its last commits, as after a power loss, but not the earlier ones.
                let store = SqliteStore::open(&record).expect("an intact store");
                let ended = store.ended_since(Timestamp::UNIX_EPOCH).expect("read").len();
                let open = store.open_tasks().expect("read").len();
                assert!(
                    name.ends_with("-wal") || ended + open > TASKS,
                    "{case}: only {ended} ended and {open} open tasks are left"
                );
            } else {
                assert_eq!(
                    oracle.world.run(&["doctor"]).exit,
                    1,
                    "{case}: `doctor` should see what stops `run`: {ran}"
                );
                assert_eq!((ran.exit, ran.error()["code"].as_str()), (7, Some("no-executor")), "{case}: {ran}");
                assert!(ran.stderr.contains("damaged") || ran.stderr.contains("another version"), "{case}: {ran}");
                if ran.stderr.contains("damaged") {
                    assert!(
                        ran.error()["hint"].as_str().is_some_and(|hint| hint.contains(".recover")),
                        "{case}: {ran}"
                    );
                    let entries = fs::read_dir(record.parent().expect("a folder")).expect("a folder").flatten();
                    let mut names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
                    assert!(
                        names.any(|name| name.contains(".corrupt-")),
                        "{case}: there should be a copy of the damaged file"
                    );
                }
            }
        }
    }
}

/// One kind of damage: its name, the file it strikes, and what it makes of the content.
type Damage = (&'static str, &'static str, fn(&mut Vec<u8>));

const KINDS: [Damage; 8] = [
    ("a column's name in the schema", "tasks.db", |bytes| flip_in(bytes, b"confirmation    TEXT")),
    ("a referenced table in the schema", "tasks.db", |bytes| flip_in(bytes, b"REFERENCES tasks")),
    ("the header", "tasks.db", |bytes| bytes[..16].fill(0)),
    ("a page", "tasks.db", |bytes| bytes[4096..8192].fill(0)),
    ("an empty file", "tasks.db", Vec::clear),
    ("a cut file", "tasks.db", |bytes| bytes.truncate(bytes.len() / 2)),
    ("the header of the log", "tasks.db-wal", |bytes| bytes[17] ^= 0xff),
    ("the first commit in the log", "tasks.db-wal", |bytes| bytes[100] ^= 0xff),
];

fn flip_in(bytes: &mut [u8], text: &[u8]) {
    let at = bytes.windows(text.len()).position(|part| part == text).expect("the text is there");
    bytes[at + text.len() - 1] ^= 0xff;
}

/// Asserts that each command that needs the record names its damage and says what to do, and that the others work.
fn assert_named(oracle: &Oracle, open: &str, expected: &str, case: &str) {
    let world = &oracle.world;
    for arguments in [
        &["run", "read", "name=after"][..],
        &["run", "read", "name=after", "--dry-run"],
        &["wait", open, "--timeout=2h"],
        &["cancel", open],
        &["executor", "start"],
    ] {
        let ran = world.run(arguments);
        assert_eq!((ran.exit, ran.error()["code"].as_str()), (7, Some("no-executor")), "{case}: {arguments:?}: {ran}");
        assert!(ran.stderr.contains(expected), "{case}: {arguments:?}: {ran}");
        assert!(ran.error()["hint"].as_str().is_some_and(|hint| hint.contains("empty store")), "{case}: {ran}");
    }
    for arguments in [&["tasks"][..], &["read", open], &["list", "--format=names"]] {
        let ran = world.run(arguments);
        assert!(ran.stderr.contains(expected) && !ran.stdout.is_empty(), "{case}: {arguments:?}: {ran}");
    }
    let status = world.run(&["executor", "status"]);
    assert!(status.exit == 7 && status.stdout.contains(expected), "{case}: {status}");
    let doctor = world.run(&["doctor"]);
    let checks = doctor.json()["checks"].as_array().expect("checks").clone();
    let record = checks.into_iter().find(|check| check["name"] == "record").expect("a check of the record");
    assert!(doctor.exit == 1 && record["ok"] == false && record.to_string().contains(expected), "{case}: {record}");
}

#[test]
fn damage_of_any_kind_is_named_by_every_command_and_the_file_is_kept() {
    let mut oracle = Oracle::new();
    for _ in 0..3 {
        oracle.accept(Class::Once, &json!({}));
    }
    let later = oracle.world.run(&["run", "read", "name=later", "--in=1h"]);
    let open = later.json()["id"].as_str().expect("an id").to_owned();
    until("all other tasks have ended", || oracle.world.run(&["tasks", "--state=succeeded"]).json()[2].is_object());
    oracle.stop_reader();
    oracle.world.kill_executor();
    let record = oracle.record();
    let backup = tempfile::tempdir().expect("a folder");
    for file in ["tasks.db", "tasks.db-wal"] {
        fs::copy(record.with_file_name(file), backup.path().join(file)).expect("a file");
    }
    let restore = || {
        for file in fs::read_dir(record.parent().expect("a folder")).expect("a folder").flatten() {
            if file.file_name().to_string_lossy().starts_with("tasks") {
                fs::remove_file(file.path()).or_else(|_| fs::remove_dir(file.path())).expect("removed");
            }
        }
        for file in ["tasks.db", "tasks.db-wal"] {
            fs::copy(backup.path().join(file), record.with_file_name(file)).expect("copied");
        }
    };
    for (case, file, damage) in KINDS {
        restore();
        let struck = record.with_file_name(file);
        if file == "tasks.db" {
            // As after a clean end, since pages in the log take the place of damaged ones.
            drop(SqliteStore::open(&record).expect("it opens"));
        }
        let mut bytes = fs::read(&struck).expect("a file");
        damage(&mut bytes);
        fs::write(&struck, &bytes).expect("written");
        assert_named(&oracle, &open, "damaged", case);
        assert_eq!(fs::read(&struck).expect("a file"), bytes, "{case}: the damaged file is kept as it is");
    }
    restore();
    fs::remove_file(record.with_extension("db-wal")).expect("removed");
    fs::remove_file(&record).expect("removed");
    fs::create_dir(&record).expect("made");
    assert_named(&oracle, &open, "is a folder", "a folder");
    restore();
    let started = oracle.world.run(&["executor", "start"]);
    assert_eq!(started.exit, 0, "with the backup everything works again: {started}");
    assert_eq!(oracle.world.run(&["doctor"]).exit, 0);
    assert_eq!(oracle.world.run(&["cancel", &open]).exit, 0);
}

/// Damage of a record in use: its name, how it is named, and what it does to the file.
type LiveDamage<'a> = (&'a str, &'a str, &'a dyn Fn(&Path));

#[test]
fn damage_while_an_executor_runs_is_named_by_run_and_status() {
    let overwrite = |path: &Path, at: u64, length: usize| {
        use std::os::unix::fs::FileExt as _;
        let file = fs::File::options().write(true).open(path).expect("opened");
        file.write_all_at(&vec![0; length], at).expect("written");
    };
    let kinds: [LiveDamage<'_>; 4] = [
        ("the header", "damaged", &|path| overwrite(path, 0, 64)),
        ("a cut file", "damaged", &|path| {
            fs::File::options().write(true).open(path).expect("opened").set_len(50).expect("cut");
        }),
        ("a removed file", "the store is missing", &|path| fs::remove_file(path).expect("removed")),
        // A page that was written lately is still in the log.
        ("all pages but the first", "damaged", &|path| {
            overwrite(path, 4096, usize::try_from(fs::metadata(path).expect("a file").len()).expect("small") - 4096);
        }),
    ];
    for (case, expected, damage) in kinds {
        let oracle = Oracle::new();
        // Moves the first tasks into the file, and leaves something in the log.
        for _ in 0..2 {
            oracle.accept(Class::Once, &json!({}));
            oracle.until_final();
            if case.contains("pages") {
                oracle.world.run(&["executor", "stop"]);
            }
        }
        assert_eq!(oracle.world.run(&["executor", "start"]).exit, 0);
        oracle.accept(Class::Once, &json!({}));
        oracle.until_final();
        damage(&oracle.record());
        let world = &oracle.world;
        let status = world.run(&["executor", "status"]);
        assert!(status.exit != 0 && status.to_string().contains(expected), "{case}: {status}");
        if !case.contains("pages") {
            let ran = world.run(&["run", "read", "name=after"]);
            assert_eq!((ran.exit, ran.error()["code"].as_str()), (7, Some("no-executor")), "{case}: {ran}");
            assert!(ran.stderr.contains(expected), "{case}: {ran}");
        }
    }
}

#[test]
fn a_flipped_byte_in_a_request_is_refused() {
    let oracle = Oracle::new();
    assert_eq!(oracle.world.run(&["executor", "start"]).exit, 0);
    let mailbox = protocol::mailbox::Mailbox::open(&oracle.world.mailbox()).expect("a mailbox");
    let request = json!({"v": 1, "ask": {"run": {"tool": "once", "input": {"name": "x"}}}}).to_string();
    for offset in (0..request.len()).step_by(size(7, 1)) {
        let mut bytes = request.clone().into_bytes();
        bytes[offset] ^= 0x80;
        let id = protocol::task::TaskId::new();
        let hidden = mailbox.inbox().join(".written");
        fs::write(&hidden, bytes).expect("written");
        fs::set_permissions(&hidden, std::os::unix::fs::PermissionsExt::from_mode(0o600)).expect("set");
        fs::rename(&hidden, mailbox.inbox().join(format!("{id}.json"))).expect("posted");
        let mut answer = None;
        until("the request is answered", || {
            answer = mailbox.collect_answer(id).expect("read");
            answer.is_some()
        });
        let answer = String::from_utf8(answer.expect("an answer")).expect("a text");
        assert!(answer.contains("refused"), "at {offset}: {answer}");
    }
    assert!(oracle.effects().is_empty());
    oracle.verify();
}
