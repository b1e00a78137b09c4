//! Flipped bytes in every file: damage is reported or repaired, never a panic, and never an empty store.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use executor::store::Store as _;
use executor::store::sqlite::SqliteStore;
use jiff::Timestamp;
use serde_json::json;

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
        oracle.world.home().join(".cache/agent-magic-tool/listing.json"),
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
                assert_eq!((ran.exit, ran.error()["code"].as_str()), (7, Some("no-executor")), "{case}: {ran}");
                assert!(ran.stderr.contains("damaged") || ran.stderr.contains("newer version"), "{case}: {ran}");
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
