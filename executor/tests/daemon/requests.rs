//! Requests of callers, and their answers and results.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use protocol::code::Code;
use protocol::mailbox::request::{Answer, Operation, RunRequest};
use protocol::task::State;
use serde_json::json;

use crate::world::{World, eventually, run};

fn refusal(answer: &Answer) -> Code {
    match answer {
        Answer::Refused(error) => error.code,
        other => panic!("not refused: {other:?}"),
    }
}

#[test]
fn a_request_becomes_a_placeholder_and_then_a_result() {
    let world = World::new("");
    let executor = world.serve();
    let id = world.arrive("gate", "gate");
    let placeholder = world.result(id).expect("the placeholder exists before the effect starts");
    assert_eq!(
        (&placeholder["status"], &placeholder["state"], &placeholder["tool"]),
        (&json!("pending"), &json!("running"), &json!("gate"))
    );
    world.open("gate");
    let result = world.wait(id);
    assert_eq!((&result["status"], &result["data"]), (&json!("succeeded"), &json!("passed")));
    assert_eq!(world.files(), [format!("results/result-{id}.json")], "only the result file should be left");

    fs::write(world.home().join("note.txt"), "年度报告\n").expect("written");
    let read = world.wait(world.post_run("read", json!({"path": "note.txt"})));
    assert_eq!(read["data"]["text"], "年度报告\n");
    executor.stop();
}

#[test]
fn a_refused_or_planned_request_leaves_no_files() {
    let world = World::new("");
    let _executor = world.serve();
    let dry = RunRequest { dry_run: true, ..run("gate", json!({"path": world.gate("dry")})) };
    let Answer::Plan(plan) = world.answer(world.post(Operation::run(dry))) else { panic!("not a plan") };
    assert_eq!(plan["dry_run"], true);
    assert_eq!(world.arrivals("dry"), 0);
    for (tool, input, code) in
        [("gaet", json!({}), Code::UnknownSubtool), ("gate", json!({"path": 7}), Code::InvalidInput)]
    {
        assert_eq!(refusal(&world.answer(world.post_run(tool, input))), code);
    }
    assert_eq!(world.files(), [] as [String; 0]);
}

#[test]
fn the_same_idempotency_key_gives_the_same_task() {
    let world = World::new("");
    let _executor = world.serve();
    let keyed = |text: &str| {
        Operation::run(RunRequest { idempotency_key: Some("k".to_owned()), ..run("say", json!({"text": text})) })
    };
    let first = world.post(keyed("a"));
    world.wait(first);
    assert_eq!(world.answer(world.post(keyed("a"))), Answer::SameAs(first));
    assert_eq!(refusal(&world.answer(world.post(keyed("b")))), Code::IdempotencyMismatch);
}

#[test]
fn a_running_task_can_be_cancelled() {
    let world = World::new("");
    let _executor = world.serve();
    let id = world.arrive("gate", "gate");
    let answer = world.answer(world.post(Operation::Cancel { id, reason: None }));
    assert_eq!(answer, Answer::Cancelling { id, state: State::Running });
    let result = world.wait(id);
    assert_eq!((&result["status"], &result["error"]["code"]), (&json!("cancelled"), &json!("cancelled")));
    assert_eq!(refusal(&world.answer(world.post(Operation::Cancel { id, reason: None }))), Code::UnknownTask);
}

#[test]
fn large_data_is_in_a_file_that_only_its_owner_can_read() {
    let world = World::new("inline_bytes = 10");
    let _executor = world.serve();
    let id = world.post_run("say", json!({"text": "more than ten bytes"}));
    let result = world.wait(id);
    let path = world.mailbox.data_file(id, "txt");
    assert_eq!((&result["_meta"]["data_file"], result.get("data")), (&json!(path), None));
    assert_eq!(fs::read_to_string(&path).expect("written before the result"), "more than ten bytes");
    assert_eq!(fs::metadata(&path).expect("a data file").permissions().mode() & 0o777, 0o600);
}

#[test]
fn an_edited_definition_takes_effect_at_the_next_request_and_a_bad_file_affects_no_other() {
    let world = World::new("");
    let _executor = world.serve();
    let running = world.arrive("gate", "gate");
    let say = |word: &str| {
        json!({"edited": {"description": "d", "input": {"type": "object"}, "annotations": {"readOnlyHint": true},
                          "run": {"process": {"argv": ["echo", word]}}}})
    };
    assert_eq!(refusal(&world.answer(world.post_run("edited", json!({})))), Code::UnknownSubtool);
    for word in ["one", "three"] {
        world.define("edited", &say(word));
        assert_eq!(world.wait(world.post_run("edited", json!({})))["data"], word);
    }
    fs::write(world.paths.config.join("subtools/bad.json"), "{").expect("written");
    fs::write(world.paths.config.join("subtools/test.json"), "not even JSON").expect("written");
    assert_eq!(world.wait(world.post_run("edited", json!({})))["data"], "three");
    assert_eq!(refusal(&world.answer(world.post_run("gate", json!({"path": "x"})))), Code::UnknownSubtool);
    world.open("gate");
    assert_eq!(world.wait(running)["status"], "succeeded", "an accepted task should keep its definition");
}

#[test]
fn hundreds_of_requests_at_once_are_all_answered() {
    let world = World::new("");
    let _executor = world.serve();
    let ids: Vec<_> = (0..300)
        .map(|number| match number % 3 {
            0 => world.post_run("say", json!({"text": number.to_string()})),
            1 => world.post_run("read", json!({"path": "nothing"})),
            _ => world.post_run("no_such", json!({})),
        })
        .collect();
    for (number, id) in ids.iter().enumerate() {
        match number % 3 {
            0 => assert_eq!(world.wait(*id)["data"], number.to_string()),
            1 => assert_eq!(world.wait(*id)["error"]["code"], "not-found"),
            _ => assert_eq!(refusal(&world.answer(*id)), Code::UnknownSubtool),
        }
    }
    eventually("the mailbox contains only results", || {
        world.files().iter().all(|file| file.starts_with("results/")).then_some(())
    });
}

#[test]
fn a_timed_out_task_is_retried_only_if_it_is_read_only() {
    let world = World::new("");
    let stuck = |annotations: &serde_json::Value| {
        json!({"description": "d", "input": {"type": "object", "properties": {"path": {"type": "string"}}},
               "annotations": annotations, "confirm": "never",
               "timeout": "300ms", "retries": {"times": 1, "backoff": "1ms"},
               "run": {"process": {"argv": ["sh", "-c", "echo began >> \"$1\"; exec tail -f /dev/null", "sh", "{{ path }}"]}}})
    };
    let input = |name: &str| json!({"path": world.home().join(format!("{name}.log"))});
    world.define("stuck", &json!({"once": stuck(&json!({})), "read_only": stuck(&json!({"readOnlyHint": true}))}));
    let _executor = world.serve();
    let (once, read) = (world.post_run("once", input("once")), world.post_run("read_only", input("read")));
    for (id, attempts, status, code) in [(once, 1, "unknown", "unknown-outcome"), (read, 2, "timed_out", "timed-out")] {
        let result = world.wait(id);
        assert_eq!(
            (&result["status"], &result["error"]["code"], &result["_meta"]["attempts"]),
            (&json!(status), &json!(code), &json!(attempts))
        );
    }
    assert_eq!((world.arrivals("once"), world.arrivals("read")), (1, 2));
}

#[test]
fn a_caller_does_not_wait_for_the_many_tasks_of_another() {
    let world = World::new("concurrency = 1");
    let _executor = world.serve();
    let first = world.arrive("gate", "gate");
    let many: Vec<_> = (0..50).map(|number| world.post_run("say", json!({"text": number.to_string()}))).collect();
    for id in &many {
        world.reply(*id);
    }
    let other = world.post_as("other", Operation::run(run("say", json!({"text": "other"}))));
    world.reply(other);
    world.open("gate");
    world.wait(first);
    let finished_at = |id| world.wait(id)["finished_at"].as_str().expect("a time").to_owned();
    let before = many.iter().filter(|id| finished_at(**id) < finished_at(other)).count();
    assert!(before <= 1, "{before} tasks of the first caller ended before the task of the other");
}

#[test]
fn a_rate_limit_survives_a_restart() {
    let world = World::new("");
    world.define(
        "limited",
        &json!({"limited": {"description": "d", "input": {"type": "object"}, "annotations": {"readOnlyHint": true},
                            "rate_limit": {"calls": 2, "per": "24h"}, "run": {"process": {"argv": ["true"]}}}}),
    );
    let call = || world.post_run("limited", json!({}));
    for _ in 0..2 {
        let executor = world.serve();
        world.wait(call());
        executor.stop();
    }
    let _executor = world.serve();
    let Answer::Refused(error) = world.answer(call()) else { panic!("not refused") };
    assert_eq!((error.code, error.message.as_str()), (Code::RateLimited, "`limited` allows a session 2 calls per 24h"));
}
