//! Very many tasks that wait: the page answers at once, and says little.

use std::time::{Duration, Instant};

use protocol::caller::Caller;
use protocol::mailbox::Mailbox;
use protocol::mailbox::request::{Operation, Request, RunRequest};
use protocol::task::TaskId;
use serde_json::{Map, json};

use super::threats::Human;
use crate::executor::faults::size;
use crate::world::{World, until};

/// What one stream of events may say at its beginning.
const MAX_NEWS: usize = 4 << 10;
/// DESIGN's bar for an executor with 10,000 tasks that wait, built as it ships.
const MAX_MEMORY: u64 = 150 << 20;

/// How long a view may take: a build for debugging on a busy machine has its time.
fn within() -> Duration {
    if cfg!(debug_assertions) { Duration::from_secs(3) } else { Duration::from_secs(1) }
}

/// Of the executor of this world, in bytes.
fn memory(world: &World) -> u64 {
    let pid = world.executor().expect("it runs");
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a number");
    resident.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") << 10
}

#[test]
fn the_page_answers_at_once_however_many_wait() {
    let count = size(1_000, 10_000);
    let world = World::new();
    world.configure("[confirm]\nwaiting = 20000\nwaiting_per_session = 20000\nasks_per_hour = 0\n");
    world.define(
        "marks.json",
        &json!({"mark": {"description": "Leaves a mark.", "input": {"type": "object", "properties": {
            "name": {"type": "string"}, "text": {"type": "string"}}}, "run": {"process": {"argv": ["true"]}}}}),
    );
    let human = Human::of(&world);
    let mailbox = Mailbox::open(&world.mailbox()).expect("it opens");
    for number in 0..count {
        let input = json!({"name": format!("number {number}"), "text": "a text of some length ".repeat(20)});
        let input: Map<_, _> = input.as_object().cloned().expect("an object");
        let ask = Operation::run(RunRequest { tool: "mark".to_owned(), input, ..RunRequest::default() });
        let request = Request::new(ask, Caller { session: Some("crowd".to_owned()), ..Caller::default() });
        mailbox.post(TaskId::new(), &request).expect("written");
    }
    let results = mailbox.results();
    until("all of them wait", || std::fs::read_dir(&results).map_or(0, Iterator::count) >= count);

    let mut slow = Vec::new();
    for path in ["/", "/", "/tasks", "/history?q=number", "/grants", "/subtools", "/subtool/mark"] {
        let started = Instant::now();
        let answer = human.get(path);
        let took = started.elapsed();
        println!("{count} wait: {path} took {took:?}, {} bytes", answer.body.len());
        assert_eq!(answer.status, 200, "{path}");
        if path == "/" {
            assert_eq!(answer.body.matches("data-digest=").count(), 50, "the first ones, and no more");
            assert!(answer.body.contains(&format!(">{}<", count - 50)), "how many wait behind them");
        }
        if took > within() {
            slow.push(format!("{path}: {took:?}"));
        }
    }
    assert_eq!(slow, [] as [String; 0]);
    let news = human.news();
    println!("{count} wait: the stream begins with {} bytes", news.len());
    assert!(news.contains(&format!("\"waiting\":{count}")) && news.len() < MAX_NEWS, "{news}");
    let resident = memory(&world);
    println!("{count} wait: the executor has {} MiB", resident >> 20);
    assert!(cfg!(debug_assertions) || resident < MAX_MEMORY, "{} MiB", resident >> 20);
}
