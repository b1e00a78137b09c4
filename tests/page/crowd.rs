//! Thousands of waiting tasks: the page still answers quickly, with little output and memory.

use std::time::{Duration, Instant};

use protocol::caller::Caller;
use protocol::mailbox::Mailbox;
use protocol::mailbox::request::{Operation, Request, RunRequest};
use protocol::task::TaskId;
use serde_json::{Map, json};

use super::human::Human;
use crate::executor::faults::size;
use crate::world::{World, until};

/// The most bytes that an event stream may begin with.
const MAX_FIRST_EVENT_BYTES: usize = 4 << 10;
/// The most memory of a release build with 10,000 waiting tasks.
const MAX_MEMORY_BYTES: u64 = 150 << 20;

/// How long a view may take; a debug build on a busy machine gets more time.
fn max_duration() -> Duration {
    if cfg!(debug_assertions) { Duration::from_secs(3) } else { Duration::from_secs(1) }
}

/// The resident memory of the executor, in bytes.
fn resident_memory(world: &World) -> u64 {
    let pid = world.executor().expect("the executor runs");
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("the executor runs");
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a number");
    resident.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") << 10
}

#[test]
fn the_page_answers_quickly_with_thousands_of_waiting_tasks() {
    let count = size(1_000, 10_000);
    let world = World::new();
    world.configure(
        "[confirm]\nwaiting = 20000\nwaiting_per_user = 20000\nwaiting_per_session = 20000\nasks_per_hour = 0\n",
    );
    world.define(
        "marks.json",
        &json!({"mark": {"description": "Leaves a mark.", "input": {"type": "object", "properties": {
            "name": {"type": "string"}, "text": {"type": "string"}}}, "run": {"process": {"argv": ["true"]}}}}),
    );
    let human = Human::of(&world);
    let mailbox = Mailbox::open(&world.mailbox()).expect("the mailbox opens");
    for number in 0..count {
        let input = json!({"name": format!("number {number}"), "text": "a text of some length ".repeat(20)});
        let input: Map<_, _> = input.as_object().cloned().expect("an object");
        let ask = Operation::run(RunRequest { tool: "mark".to_owned(), input, ..RunRequest::default() });
        let request = Request::new(ask, Caller { session: Some("crowd".to_owned()), ..Caller::default() });
        mailbox.post(TaskId::new(), &request).expect("the request is posted");
    }
    let results = mailbox.results();
    until("all tasks wait", || std::fs::read_dir(&results).map_or(0, Iterator::count) >= count);

    let mut slow = Vec::new();
    for path in ["/", "/", "/tasks", "/history?q=number", "/grants", "/subtools", "/subtool/mark"] {
        let started = Instant::now();
        let answer = human.get(path);
        let took = started.elapsed();
        println!("{count} wait: {path} took {took:?}, {} bytes", answer.body.len());
        assert_eq!(answer.status, 200, "{path}");
        if path == "/" {
            assert_eq!(answer.body.matches("data-digest=").count(), 50, "only the first cards");
            assert!(answer.body.contains(&format!(">{}<", count - 50)), "the number of further tasks");
        }
        if took > max_duration() {
            slow.push(format!("{path}: {took:?}"));
        }
    }
    assert_eq!(slow, [] as [String; 0]);
    let event = human.first_event();
    println!("{count} wait: the first event has {} bytes", event.len());
    assert!(event.contains(&format!("\"waiting\":{count}")) && event.len() < MAX_FIRST_EVENT_BYTES, "{event}");
    let resident = resident_memory(&world);
    println!("{count} wait: the executor uses {} MiB", resident >> 20);
    assert!(cfg!(debug_assertions) || resident < MAX_MEMORY_BYTES, "{} MiB", resident >> 20);
}
