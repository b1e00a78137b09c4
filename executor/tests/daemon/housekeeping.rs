//! Retention: old tasks and files are removed.

use std::fs::{self, File};
use std::time::{Duration, SystemTime};

use ground::task::effect::EffectClass;
use ground::task::{End, Outcome, Task};
use jiff::SignedDuration;
use protocol::caller::Caller;
use protocol::clock;
use protocol::task::{State, Step, TaskId};
use serde_json::{Map, json};
use store::sqlite::SqliteStore;
use store::{Change, Store as _, Transition};

use crate::world::{World, eventually};

#[test]
fn an_expired_task_is_removed_with_all_its_files() {
    let world = World::new("inline_bytes = 10");
    let executor = world.serve();
    let id = world.post_run("say", json!({"text": "more than ten bytes"}));
    world.wait(id);
    assert_eq!(world.files().len(), 2);
    executor.stop();
    world.configure("keep = \"1ms\"");
    let _executor = world.serve();
    eventually("the files are removed", || world.files().is_empty().then_some(()));
}

/// Records a task that ended `ago`, with `bytes` of data.
fn ended(store: &mut SqliteStore, ago: SignedDuration, bytes: usize) -> TaskId {
    let at = clock::now() - ago;
    let end = End { at, outcome: Outcome::Data("x".repeat(bytes).into()), meta: Map::new() };
    let (tool, caller) = ("say".parse().expect("a name"), Caller { uid: 1, ..Caller::default() });
    let task = Task::accepted(TaskId::new(), tool, String::new(), EffectClass::Read, Map::new(), caller, at);
    let step = |step, (from, attempt), (to, attempt_after), end| {
        let moved = Transition {
            id: task.id,
            step,
            from,
            attempt,
            to,
            attempt_after,
            not_before: None,
            at,
            confirmation: None,
            end,
        };
        Change::Transition(Box::new(moved))
    };
    let (queued, running) = ((State::Queued, 0), (State::Running, 1));
    let moves = [
        step(Step::Enqueue, (State::Accepted, 0), queued, None),
        step(Step::Start, queued, running, None),
        step(Step::Succeed, running, (State::Succeeded, 1), Some(end)),
    ];
    let id = task.id;
    store.commit(&[&[Change::Accept(Box::new(task))][..], &moves].concat()).expect("recorded");
    id
}

#[test]
fn beyond_the_size_limit_the_oldest_tasks_are_removed_except_recently_ended_ones() {
    let world = World::new("keep_bytes = 50000");
    let mut store = SqliteStore::open(&world.paths.store()).expect("a record");
    // The bytes of each task count twice: in the store and in its result file.
    let ids = [3, 2, 1].map(|hours| ended(&mut store, SignedDuration::from_hours(hours), 10_000));
    drop(store);
    let assert_left = |ids: &[TaskId]| {
        let left: Vec<_> = ids.iter().map(|id| format!("results/result-{id}.json")).collect();
        eventually("the others are removed", || (world.files() == left).then_some(()));
        let store = SqliteStore::open(&world.paths.store()).expect("a record");
        let recorded: Vec<_> = store.retained().expect("read").iter().map(|kept| kept.id).collect();
        assert_eq!(recorded, ids);
    };
    let executor = world.serve();
    assert_left(&ids[1..]);
    executor.stop();
    let mut store = SqliteStore::open(&world.paths.store()).expect("a record");
    let young = ended(&mut store, SignedDuration::from_mins(1), 60_000);
    drop(store);
    let _executor = world.serve();
    assert_left(&[young]);
}

#[test]
fn uncollected_files_are_removed_and_foreign_files_stay() {
    let world = World::new("");
    let root = world.mailbox.root();
    let old = |name: String| {
        let file = File::create(root.join(&name)).expect("created");
        file.set_modified(SystemTime::now() - Duration::from_mins(11)).expect("set");
        name
    };
    let swept = [
        old(format!("answers/{}.json", TaskId::new())),
        old(format!("inbox/.withdrawn-{}", TaskId::new())),
        old("results/.result-x.json.y".to_owned()),
    ];
    let foreign = old("inbox/notes.txt".to_owned());
    let orphan = format!("results/result-{}.json", TaskId::new());
    let file = File::create(root.join(&orphan)).expect("created");
    file.set_modified(SystemTime::now() - Duration::from_hours(1_000)).expect("set");
    let _executor = world.serve();
    eventually("the mailbox is swept", || (world.files() == [foreign.clone()]).then_some(()));
    assert!(swept.iter().all(|name| !fs::exists(root.join(name)).expect("readable")));
}
