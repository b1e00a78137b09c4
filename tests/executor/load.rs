//! Many at once: every run has its own result, every result ends, and no reader ever sees half a file.

use std::collections::{BTreeSet, HashMap};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io::Write as _;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use executor::store::Store as _;
use executor::store::sqlite::SqliteStore;
use jiff::Timestamp;
use protocol::caller::Caller;
use protocol::mailbox::Mailbox;
use protocol::mailbox::request::{Operation, Request, RunRequest};
use protocol::task::{State, TaskId};
use serde_json::{Map, Value, json};

use super::faults::size;
use crate::world::{World, until};

/// So many call at the same time.
const AT_ONCE: usize = 64;

/// Reads every result file again and again, as fast as it can, until `stop`; how many it read. None is
/// ever half a file, and none changes once it is final.
pub(crate) fn torture_readers(world: &World, stop: &AtomicBool) -> usize {
    let results = world.mailbox().join("results");
    let mut read = 0;
    let mut ended = HashMap::new();
    while !stop.load(Ordering::Relaxed) {
        for entry in std::fs::read_dir(&results).into_iter().flatten().flatten() {
            let path = entry.path();
            let is_whole = entry.file_name().to_str().is_some_and(|name| name.starts_with("result-"));
            if !is_whole || stop.load(Ordering::Relaxed) {
                continue;
            }
            let Ok(bytes) = std::fs::read(&path) else { continue };
            let parsed: Result<Value, _> = serde_json::from_slice(&bytes);
            let Ok(file) = parsed else {
                panic!("`{}` was read as {:?}", path.display(), String::from_utf8_lossy(&bytes));
            };
            let digest = digest(&bytes);
            if let Some(before) = ended.get(&path) {
                assert_eq!(*before, digest, "`{}` changed after its end: {file}", path.display());
            } else if file["status"].as_str().is_some_and(|status| status != "pending") {
                ended.insert(path, digest);
            }
            read += 1;
        }
        thread::yield_now();
    }
    read
}

fn digest(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    hasher.finish()
}

/// Ends the readers, also when the test fails meanwhile.
pub(crate) struct Ending<'a>(pub(crate) &'a AtomicBool);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Calls `run` so many times, from many threads at once; the ids, and how many were accepted in a second.
fn call(runs: usize, run: impl Fn() -> String + Sync) -> (Vec<String>, f64) {
    let (next, run, started) = (AtomicUsize::new(0), &run, Instant::now());
    let ids: Vec<String> = thread::scope(|scope| {
        let next = &next;
        let callers: Vec<_> = (0..AT_ONCE)
            .map(|_| {
                scope.spawn(move || {
                    let mut ids = Vec::new();
                    while next.fetch_add(1, Ordering::Relaxed) < runs {
                        ids.push(run());
                    }
                    ids
                })
            })
            .collect();
        callers.into_iter().flat_map(|caller| caller.join().expect("a caller")).collect()
    });
    let rate = f64::from(u32::try_from(runs).expect("small")) / started.elapsed().as_secs_f64();
    (ids, rate)
}

/// Every run has an id of its own, each ended as it must, and the record knows it.
fn judge(world: &World, ids: &[String], runs: usize) {
    assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), runs, "all ids are distinct");
    for id in ids {
        let file = world.result_file(id);
        assert_eq!((&file["status"], &file["data"]["text"]), (&json!("succeeded"), &json!("one\ntwo\n")), "{file}");
    }
    assert_eq!(world.run(&["executor", "stop"]).exit, 0);
    let store = SqliteStore::open(&world.log().with_file_name("tasks.db")).expect("a whole record");
    assert_eq!(store.open_tasks().expect("read"), [], "nothing stays open");
    let ended = store.ended_since(Timestamp::UNIX_EPOCH).expect("read");
    let ran_once = |id: TaskId| store.task(id).expect("read").is_some_and(|task| task.attempt == 1);
    assert!(ended.iter().all(|task| task.state == State::Succeeded && ran_once(task.id)), "each ran once");
    let known: BTreeSet<_> = ended.iter().map(|task| task.id.to_string()).collect();
    assert_eq!(known, ids.iter().cloned().collect(), "the record knows those that were told, and no other");
}

/// A world with a note to read, and its executor in office.
fn world() -> World {
    let world = World::new();
    std::fs::write(world.folder().join("note.txt"), "one\ntwo\n").expect("written");
    assert_eq!(world.run(&["executor", "start"]).exit, 0);
    world
}

/// Says how fast it was, past the test harness, which would keep it to itself.
fn say(runs: usize, who: &str, rate: f64) {
    let stderr = &mut std::io::stderr();
    writeln!(stderr, "{runs} {who}, {AT_ONCE} at a time: {rate:.0} accepted in a second (debug build)").expect("said");
}

#[test]
fn a_thousand_runs_sixty_four_at_a_time_give_a_thousand_results() {
    let runs = size(1000, 10_000);
    let world = world();
    let stop = AtomicBool::new(false);
    let (ids, read) = thread::scope(|scope| {
        let reader = scope.spawn(|| torture_readers(&world, &stop));
        let ending = Ending(&stop);
        let (ids, rate) = call(runs, || world.start("files_read", &json!({"path": "note.txt"})));
        say(runs, "processes", rate);
        for id in &ids {
            until("the task has ended", || world.result_file(id)["status"] != "pending");
        }
        drop(ending);
        (ids, reader.join().expect("a reader that saw only whole files, and no change of a final one"))
    });
    assert!(read > runs, "only {read} files were read meanwhile");
    judge(&world, &ids, runs);
}

#[test]
fn requests_that_threads_write_themselves_are_all_answered_and_done() {
    let runs = size(2000, 10_000);
    let world = world();
    let mailbox = Mailbox::open(&world.mailbox()).expect("a mailbox");
    let input: Map<String, Value> = [("path".to_owned(), json!("note.txt"))].into_iter().collect();
    let run = RunRequest { tool: "files_read".to_owned(), input, ..RunRequest::default() };
    let request = Request::new(Operation::run(run), Caller { folder: Some(world.folder()), ..Caller::default() });
    let (ids, rate) = call(runs, || {
        let id = TaskId::new();
        mailbox.post(id, &request).expect("posted");
        let file = mailbox.result_file(id);
        let deadline = Instant::now() + Duration::from_mins(2);
        while !file.exists() {
            let refused = mailbox.collect_answer(id).expect("readable");
            assert!(refused.is_none(), "{}", String::from_utf8_lossy(&refused.unwrap_or_default()));
            assert!(Instant::now() < deadline, "{id} was never answered");
            thread::park_timeout(Duration::from_millis(1));
        }
        id.to_string()
    });
    say(runs, "requests of threads", rate);
    for id in &ids {
        until("the task has ended", || world.result_file(id)["status"] != "pending");
    }
    judge(&world, &ids, runs);
}

#[test]
fn a_caller_with_many_tasks_does_not_keep_another_waiting() {
    let world = World::new();
    world.configure("[executor]\nconcurrency = 1\n");
    world.define(
        "nap.json",
        &json!({"nap": {"description": "Sleeps for a moment.", "input": {},
        "annotations": {"readOnlyHint": true}, "run": {"process": {"argv": ["sleep", "0.5"]}}}}),
    );
    let greedy: Vec<_> = (0..30).map(|_| world.start("nap", &json!({}))).collect();
    let mut modest = world.command(&["run", "nap", "--wait"]);
    let ran = world.transcript(&modest.env("AGENT_MAGIC_TOOL_SESSION", "modest").output().expect("it runs"));
    assert_eq!((ran.exit, &ran.json()["status"]), (0, &json!("succeeded")), "{ran}");
    let open = greedy.iter().filter(|id| world.result_file(id)["status"] == "pending").count();
    assert!(open > 10, "only {open} of the other caller's tasks were still open");
}
