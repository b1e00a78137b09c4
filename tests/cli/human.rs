//! Waiting for a human is never silent: what a model is told when a task needs a human, and when commands stop waiting.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use insta::assert_snapshot;
use serde_json::{Value, json};

use crate::page::human::Human;
use crate::world::{World, until};

/// Far below the time that a wait for a human would take.
const AT_ONCE: Duration = Duration::from_secs(30);

fn world() -> World {
    let world = World::new();
    let send = json!({"description": "Sends it.", "input": {"type": "object", "properties": {"n": {"type": "integer"}}},
        "run": {"process": {"argv": ["printf", "%s", "{{ n }}"], "output": "json"}}});
    let nap = json!({"description": "Sleeps.", "input": {"type": "object", "properties": {"s": {"type": "number"}}},
        "annotations": {"readOnlyHint": true}, "run": {"process": {"argv": ["sleep", "{{ s }}"]}}});
    world.define("some.json", &json!({"send": send, "nap": nap}));
    world
}

/// A command in the background, and the first line of its standard error.
fn in_background(world: &World, arguments: &[&str]) -> (Child, String) {
    let mut command = world.command(arguments);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program starts");
    let mut stderr = BufReader::new(child.stderr.take().expect("a pipe"));
    let mut line = String::new();
    stderr.read_line(&mut line).expect("a line");
    // Whatever follows must not fill the pipe.
    std::thread::spawn(move || std::io::copy(&mut stderr, &mut std::io::sink()));
    (child, line)
}

fn end(child: Child) -> (i32, Value) {
    let output = child.wait_with_output().expect("the program ends");
    let printed = serde_json::from_slice(&output.stdout).expect("one JSON document");
    (output.status.code().unwrap_or(-1), printed)
}

#[test]
fn a_wait_for_an_absent_human_returns_at_once_and_says_what_to_tell_the_user_first() {
    let world = world();
    let started = Instant::now();
    let ran = world.run(&["run", "send", "n=1", "--wait=10m"]);
    assert_snapshot!(ran, @r#"
    exit: 4
    --- stdout
    {"id":"ID","tool":"send","status":"pending","state":"awaiting_confirmation","message":"Tell the user: run `agent-magic-tool executor page` and decide. The tool execution waits for that. Then: `agent-magic-tool wait ID`. Do not run it again.","why":"it changes something, and no rule allows it without asking","expires_at":"TIME"}
    "#);
    let id = ran.json()["id"].as_str().expect("an id").to_owned();
    for arguments in
        [vec!["wait", &id], vec!["wait", &id, "--timeout=10m"], vec!["read", &id], vec!["read", &id, "--jq=."]]
    {
        let again = world.run(&arguments);
        assert_eq!((again.exit, again.json()), (4, ran.json()), "{arguments:?}: {again}");
    }
    assert!(started.elapsed() < AT_ONCE, "{:?}", started.elapsed());
    // The same run is not asked twice.
    let repeated = world.run(&["run", "send", "n=1"]);
    assert_snapshot!(repeated, @r#"
    exit: 0
    --- stdout
    {"id":"ID","tool":"send","status":"pending","state":"awaiting_confirmation","message":"Tell the user: run `agent-magic-tool executor page` and decide. The tool execution waits for that. Then: `agent-magic-tool wait ID`. Do not run it again.","why":"it changes something, and no rule allows it without asking","expires_at":"TIME"}
    --- stderr
    note: the same run already waits for the user; this is its task, and they are not asked twice
    "#);
}

#[test]
fn a_call_at_another_time_is_another_task_and_shows_its_time() {
    let world = world();
    let run = |after: &str| world.run(&["run", "send", "n=1", after]);
    let first = run("--in=1h").json();
    assert!(first["run_at"].is_string(), "{first}");
    let id = first["id"].as_str().expect("an id");
    assert_eq!(world.result_file(id)["run_at"], first["run_at"]);
    let later = run("--in=3h").json();
    assert!(later["id"] != first["id"] && later["run_at"] != first["run_at"], "{later}");
    let again = run("--in=60m");
    assert_eq!((&again.json()["id"], &again.json()["run_at"]), (&first["id"], &first["run_at"]), "{again}");
    assert!(again.stderr.contains("it starts at "), "{again}");
    assert_eq!(world.run(&["wait", id]).json()["run_at"], first["run_at"]);
    let times: Vec<_> =
        world.run(&["tasks"]).json().as_array().expect("a list").iter().map(|task| task["run_at"].clone()).collect();
    assert_eq!(times, [later["run_at"].clone(), first["run_at"].clone()]);
}

#[test]
fn no_human_is_asked_about_a_call_whose_secret_is_missing() {
    let world = world();
    let post = json!({"description": "Posts.", "input": {}, "run": {"process": {"argv": ["true"], "env": {"TOKEN": "secret:post_token"}}}});
    world.define("post.json", &json!({"post": post}));
    let ran = world.run(&["run", "post"]);
    assert_snapshot!(ran, @r#"
    exit: 1
    --- stderr
    {"error":{"code":"secret-missing","message":"the secret `post_token` is not set","hint":"a human sets it with: agent-magic-tool secret set post_token"}}
    "#);
    assert_eq!(world.run(&["tasks"]).json(), json!([]));
    let set = world.run_with(&["secret", "set", "post_token"], "x8Kq-2mPz-71Lw-tR5v");
    assert_eq!(set.exit, 0, "{set}");
    assert_eq!(world.run(&["run", "post"]).json()["state"], "awaiting_confirmation");
}

#[test]
fn a_question_has_its_own_words() {
    let world = world();
    let ran = world.run(&["run", "ask_user", "question=Which year?", "--wait"]);
    assert_snapshot!(ran, @r#"
    exit: 4
    --- stdout
    {"id":"ID","tool":"ask_user","status":"pending","state":"awaiting_confirmation","message":"Tell the user: run `agent-magic-tool executor page` and answer the question. The tool execution waits for that. Then: `agent-magic-tool wait ID`. Do not ask it again.","why":"it asks the user a question","expires_at":"TIME"}
    "#);
    let human = Human::of(&world);
    let page = human.open_page();
    let id = ran.json()["id"].as_str().expect("an id").to_owned();
    until("the result file says that the page is open", || {
        world.result_file(&id)["confirmation"]["approver"]["online"] == true
    });
    assert_snapshot!(world.run(&["read", &id]), @r#"
    exit: 4
    --- stdout
    {"id":"ID","tool":"ask_user","status":"pending","state":"awaiting_confirmation","message":"The user is asked the question and has the page open. Its result: `agent-magic-tool wait ID`. Do not ask it again.","why":"it asks the user a question","expires_at":"TIME"}
    "#);
    drop(page);
}

#[test]
fn with_the_page_open_a_wait_says_so_once_and_ends_with_the_decision() {
    let world = world();
    let human = Human::of(&world);
    let page = human.open_page();
    let (child, first) = in_background(&world, &["run", "send", "n=7", "--wait=10m"]);
    let tasks = world.run(&["tasks", "--state=open"]).json();
    let id = tasks[0]["id"].as_str().expect("an id").to_owned();
    let expected = format!(
        "note: waiting up to 600s, since the user is asked on the page. The task goes on after that; do not run it again, but: agent-magic-tool wait {id}\n"
    );
    assert_eq!(first, expected);
    until("the decision is accepted", || human.approve(&id).status == 200);
    let (exit, printed) = end(child);
    assert_eq!((exit, &printed["data"]), (0, &json!(7)), "{printed}");
    drop(page);
}

#[test]
fn a_wait_ends_when_the_human_leaves() {
    let world = world();
    let human = Human::of(&world);
    let page = human.open_page();
    let (child, _) = in_background(&world, &["run", "send", "n=8", "--wait=10m"]);
    drop(page);
    let (exit, printed) = end(child);
    let message = printed["message"].as_str().expect("a message");
    assert!(exit == 4 && message.starts_with("Tell the user: run `agent-magic-tool executor page`"), "{printed}");
}

#[test]
fn a_task_that_needs_an_absent_human_holds_up_no_other() {
    let world = world();
    let asked = world.start("send", &json!({"n": 2}));
    let slow = world.start("nap", &json!({"s": 0.5}));
    let both = world.run(&["wait", &asked, &slow, "--timeout=10m"]);
    let states: Vec<_> = both.json().as_array().expect("two").iter().map(|file| file["status"].clone()).collect();
    assert_eq!((both.exit, states), (4, vec![json!("pending"), json!("succeeded")]), "{both}");
    let any = world.run(&["wait", &asked, &slow, "--any"]);
    assert_eq!((any.exit, &any.json()["id"]), (0, &json!(slow)), "{any}");
}

#[test]
fn the_id_is_on_standard_error_before_the_wait_and_the_wait_ends_by_a_limit() {
    let world = world();
    world.configure("[wait]\nlimit = \"600ms\"\n");
    let (child, first) = in_background(&world, &["run", "nap", "s=60", "--wait=10m"]);
    let tasks = world.run(&["tasks"]).json();
    let id = tasks[0]["id"].as_str().expect("an id");
    assert!(first.starts_with("note: waiting up to 600s. The task goes on") && first.contains(id), "{first}");
    nix::sys::signal::kill(
        nix::unistd::Pid::from_raw(i32::try_from(child.id()).expect("a pid")),
        nix::sys::signal::Signal::SIGKILL,
    )
    .expect("the command still waits");
    drop(child.wait_with_output());
    let limited = world.run(&["wait", id]);
    assert_eq!((limited.exit, limited.json()["state"].as_str()), (6, Some("running")), "{limited}");
    assert!(limited.stderr.contains("waiting up to 1s"), "{limited}");
    // What ends at once gets no note.
    assert_eq!(world.run(&["run", "nap", "s=0", "--wait"]).stderr, "");
    assert_eq!(world.run(&["wait", id, "--timeout=0.3"]).exit, 6);
}

#[test]
fn one_rule_for_the_exit_status_of_what_prints_a_result() {
    let world = world();
    world.define(
        "fail.json",
        &json!({"fail": {"description": "Fails.", "input": {}, "annotations": {"readOnlyHint": true},
            "run": {"process": {"argv": ["sh", "-c", "exit 3"]}}}}),
    );
    let ended = |name: &str, input: Value| {
        let id = world.start(name, &input);
        until("it has ended", || world.result_file(&id)["status"] != "pending");
        id
    };
    let denied = world.start("send", &json!({"n": 3}));
    crate::executor::bounds::decide(&world, &denied, "deny");
    until("it is denied", || world.result_file(&denied)["status"] == "denied");
    let running = world.start("nap", &json!({"s": 60}));
    let cases = [
        (ended("nap", json!({"s": 0})), 0, Value::Null),
        (ended("fail", json!({})), 1, json!("process-failed")),
        (denied, 5, json!("denied")),
        (running, 6, Value::Null),
    ];
    for (id, exit, code) in cases {
        for arguments in [
            vec!["read", &id],
            vec!["read", &id, "--jq=."],
            vec!["read", &id, "--lines=1-5"],
            vec!["read", &id, "--bytes=0-9"],
            vec!["wait", &id, "--timeout=0.1"],
            vec!["wait", &id, "--timeout=0.1", "--jq=."],
        ] {
            let ran = world.run(&arguments);
            assert_eq!(ran.exit, exit, "{arguments:?}: {ran}");
            if !code.is_null() {
                assert_eq!(ran.json()["error"]["code"], code, "{arguments:?}: {ran}");
            }
        }
    }
    let failed = world.run(&["run", "fail", "--wait", "--jq=.x"]);
    assert_eq!((failed.exit, failed.json()["error"]["code"].as_str()), (1, Some("process-failed")), "{failed}");
    let value = world.run(&["run", "ask_nothing", "--wait", "--jq=.x"]);
    assert_eq!(value.exit, 3, "{value}");
}

#[test]
fn jq_selects_from_a_result_that_is_waited_for() {
    let world = world();
    world.define(
        "list.json",
        &json!({"list": {"description": "Lists.", "input": {}, "annotations": {"readOnlyHint": true},
            "run": {"process": {"argv": ["printf", "[{\"id\": 1}, {\"id\": 2}]"], "output": "json"}}}}),
    );
    let ran = world.run(&["run", "list", "--wait", "--jq=.[1].id"]);
    assert_eq!((ran.exit, ran.stdout.as_str()), (0, "2\n"), "{ran}");
    let (one, two) = (world.start("list", &json!({})), world.start("list", &json!({})));
    assert_eq!(world.run(&["wait", &one, "--jq=map(.id)"]).json(), json!([1, 2]));
    let both = world.run(&["wait", &one, &two, "--jq=length"]).json();
    assert_eq!((&both[0]["id"], &both[0]["data"], &both[1]["data"]), (&json!(one), &json!(2), &json!(2)), "{both}");
    assert_eq!(world.run(&["run", "list", "--jq=.x"]).exit, 2, "--jq needs --wait");
}

#[test]
fn cancelling_an_ended_task_says_how_it_ended() {
    let world = world();
    let id = world.start("nap", &json!({"s": 0}));
    assert_eq!(world.run(&["wait", &id]).exit, 0);
    assert_snapshot!(world.run(&["cancel", &id]), @r#"
    exit: 5
    --- stderr
    {"error":{"code":"already-ended","message":"task `ID` cannot be cancelled: it has already ended as `succeeded`","hint":"its result: agent-magic-tool read ID"}}
    "#);
}
