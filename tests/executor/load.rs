//! Load: every run has its own result, every task ends, and no reader ever sees an incomplete file.

use std::collections::{BTreeSet, HashMap};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io::Write as _;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use protocol::caller::Caller;
use protocol::mailbox::Mailbox;
use protocol::mailbox::request::{Operation, Request, RunRequest};
use protocol::task::{State, TaskId};
use serde_json::{Map, Value, json};
use store::Store as _;
use store::sqlite::SqliteStore;

use super::faults::size;
use crate::world::{World, until};

/// The number of concurrent callers.
const CALLERS: usize = 64;

/// Reads all result files repeatedly until `stop`, and returns how many it read. Fails if a file is ever incomplete
/// or changes after it is final.
pub(crate) fn torture_readers(world: &World, stop: &AtomicBool) -> usize {
    let results = world.mailbox().join("results");
    let mut read = 0;
    let mut ended = HashMap::new();
    while !stop.load(Ordering::Relaxed) {
        for entry in std::fs::read_dir(&results).into_iter().flatten().flatten() {
            let path = entry.path();
            let is_result = entry.file_name().to_str().is_some_and(|name| name.starts_with("result-"));
            if !is_result || stop.load(Ordering::Relaxed) {
                continue;
            }
            let Ok(bytes) = std::fs::read(&path) else { continue };
            let parsed: Result<Value, _> = serde_json::from_slice(&bytes);
            let Ok(file) = parsed else {
                panic!("`{}` contained {:?}", path.display(), String::from_utf8_lossy(&bytes));
            };
            let digest = digest(&bytes);
            if let Some(before) = ended.get(&path) {
                assert_eq!(*before, digest, "`{}` changed after it was final: {file}", path.display());
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

/// Stops the readers on drop, also when the test fails.
pub(crate) struct StopOnDrop<'a>(pub(crate) &'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Calls `run` `runs` times from concurrent threads. Returns the ids, and how many runs were accepted per second.
fn call(runs: usize, run: impl Fn() -> String + Sync) -> (Vec<String>, f64) {
    let (next, run, started) = (AtomicUsize::new(0), &run, Instant::now());
    let ids: Vec<String> = thread::scope(|scope| {
        let next = &next;
        let callers: Vec<_> = (0..CALLERS)
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

/// Checks that the ids are distinct, that each task succeeded after one attempt, and that the store has exactly
/// these tasks.
fn verify(world: &World, ids: &[String], runs: usize) {
    assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), runs, "the ids are not distinct");
    for id in ids {
        let file = world.result_file(id);
        assert_eq!((&file["status"], &file["data"]["text"]), (&json!("succeeded"), &json!("one\ntwo\n")), "{file}");
    }
    assert_eq!(world.run(&["executor", "stop"]).exit, 0);
    let store = SqliteStore::open(&world.log().with_file_name("tasks.db")).expect("an intact store");
    assert_eq!(store.open_tasks().expect("read"), [], "there are open tasks");
    let ended = store.ended_since(Timestamp::UNIX_EPOCH).expect("read");
    let ran_once = |id: TaskId| store.task(id).expect("read").is_some_and(|task| task.attempt == 1);
    assert!(ended.iter().all(|task| task.state == State::Succeeded && ran_once(task.id)), "a task failed or ran twice");
    let recorded: BTreeSet<_> = ended.iter().map(|task| task.id.to_string()).collect();
    assert_eq!(recorded, ids.iter().cloned().collect(), "the store should have exactly the accepted tasks");
}

/// A world with a note to read and a running executor.
fn world() -> World {
    let world = World::new();
    std::fs::write(world.folder().join("note.txt"), "one\ntwo\n").expect("written");
    assert_eq!(world.run(&["executor", "start"]).exit, 0);
    world
}

/// Reports the speed. Writes directly to stderr, since the test harness would capture the output.
fn report(runs: usize, callers: &str, rate: f64) {
    let stderr = &mut std::io::stderr();
    writeln!(stderr, "{runs} {callers}, {CALLERS} at a time: {rate:.0} accepted per second (debug build)")
        .expect("written");
}

#[test]
fn a_thousand_runs_by_concurrent_processes_give_a_thousand_results() {
    let runs = size(1000, 10_000);
    let world = world();
    let stop = AtomicBool::new(false);
    let (ids, read) = thread::scope(|scope| {
        let reader = scope.spawn(|| torture_readers(&world, &stop));
        let stop_reader = StopOnDrop(&stop);
        let (ids, rate) = call(runs, || world.start("files_read", &json!({"path": "note.txt"})));
        report(runs, "processes", rate);
        for id in &ids {
            until("the task has ended", || world.result_file(id)["status"] != "pending");
        }
        drop(stop_reader);
        (ids, reader.join().expect("a reader without failures"))
    });
    assert!(read > runs, "only {read} files were read meanwhile");
    verify(&world, &ids, runs);
}

#[test]
fn requests_written_directly_by_concurrent_threads_all_succeed() {
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
    report(runs, "requests of threads", rate);
    for id in &ids {
        until("the task has ended", || world.result_file(id)["status"] != "pending");
    }
    verify(&world, &ids, runs);
}

#[test]
fn a_caller_with_many_tasks_does_not_delay_another() {
    let world = World::new();
    world.configure("[executor]\nconcurrency = 1\n");
    world.define(
        "nap.json",
        &json!({"nap": {"description": "Sleeps for a moment.", "input": {},
        "annotations": {"readOnlyHint": true}, "run": {"process": {"argv": ["sleep", "0.5"]}}}}),
    );
    let greedy: Vec<_> = (0..30).map(|_| world.start("nap", &json!({}))).collect();
    let mut modest = world.command(&["run", "nap", "--wait"]);
    let ran = world.transcript(&modest.env("AGENT_MAGIC_TOOL_SESSION", "modest").output().expect("ran"));
    assert_eq!((ran.exit, &ran.json()["status"]), (0, &json!("succeeded")), "{ran}");
    let open = greedy.iter().filter(|id| world.result_file(id)["status"] == "pending").count();
    assert!(open > 10, "only {open} of the other caller's tasks were still open");
}
