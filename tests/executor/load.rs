//! Many at once: every run has its own result, every result ends, and no reader ever sees half a file.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

use serde_json::{Value, json};

use crate::world::{World, until};

/// Reads every result file again and again, as fast as it can, until `stop`; how many it read.
pub(crate) fn torture_readers(world: &World, stop: &AtomicBool) -> usize {
    let results = world.mailbox().join("results");
    let mut read = 0;
    while !stop.load(Ordering::Relaxed) {
        for entry in std::fs::read_dir(&results).into_iter().flatten().flatten() {
            let path = entry.path();
            let is_whole = entry.file_name().to_str().is_some_and(|name| name.starts_with("result-"));
            if !is_whole {
                continue;
            }
            let Ok(bytes) = std::fs::read(&path) else { continue };
            let parsed: Result<Value, _> = serde_json::from_slice(&bytes);
            assert!(parsed.is_ok(), "`{}` was read as {:?}", path.display(), String::from_utf8_lossy(&bytes));
            read += 1;
        }
        thread::yield_now();
    }
    read
}

/// Ends the readers, also when the test fails meanwhile.
pub(crate) struct Ending<'a>(pub(crate) &'a AtomicBool);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn a_thousand_runs_sixty_four_at_a_time_give_a_thousand_results() {
    const RUNS: usize = 1000;
    const AT_ONCE: usize = 64;
    let world = World::new();
    std::fs::write(world.folder().join("note.txt"), "one\ntwo\n").expect("written");
    world.run(&["executor", "start"]);
    let (next, stop) = (AtomicUsize::new(0), AtomicBool::new(false));
    let started = Instant::now();
    let (ids, read) = thread::scope(|scope| {
        let reader = scope.spawn(|| torture_readers(&world, &stop));
        let ending = Ending(&stop);
        let callers: Vec<_> = (0..AT_ONCE)
            .map(|_| {
                scope.spawn(|| {
                    let mut ids = Vec::new();
                    while next.fetch_add(1, Ordering::Relaxed) < RUNS {
                        ids.push(world.start("files_read", &json!({"path": "note.txt"})));
                    }
                    ids
                })
            })
            .collect();
        let ids: Vec<String> = callers.into_iter().flat_map(|caller| caller.join().expect("a caller")).collect();
        let rate = f64::from(u32::try_from(RUNS).expect("small")) / started.elapsed().as_secs_f64();
        // Past the test harness, which would keep it to itself.
        writeln!(std::io::stderr(), "{RUNS} runs, {AT_ONCE} at a time: {rate:.0} accepted in a second (debug build)")
            .expect("said");
        for id in &ids {
            until("the task has ended", || world.result_file(id)["status"] != "pending");
        }
        drop(ending);
        (ids, reader.join().expect("a reader that saw only whole files"))
    });
    assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), RUNS);
    assert!(read > RUNS, "only {read} files were read meanwhile");
    for id in &ids {
        let file = world.result_file(id);
        assert_eq!((&file["status"], &file["data"]["text"]), (&json!("succeeded"), &json!("one\ntwo\n")), "{file}");
    }
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
    let ran = world.ran(&modest.env("AGENT_MAGIC_TOOL_SESSION", "modest").output().expect("it runs"));
    assert_eq!((ran.exit, &ran.json()["status"]), (0, &json!("succeeded")), "{ran}");
    let open = greedy.iter().filter(|id| world.result_file(id)["status"] == "pending").count();
    assert!(open > 10, "only {open} of the other caller's tasks were still open");
}
