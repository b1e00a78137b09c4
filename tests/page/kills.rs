//! The executor is killed at each commit of each decision: the decision is in force as a whole, or was not made.

use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, Stdio};

use protocol::mailbox::Mailbox;
use protocol::mailbox::presence::ExecutorPhase;
use serde_json::{Value, json};

use super::human::Human;
use crate::world::{World, until, wait_for_end};

const STAGES: [&str; 3] = ["before", "inside", "after"];

/// Starts an executor that is killed when it passes the `nth` commit at `stage`, and waits until it serves.
fn doomed_executor(world: &World, stage: &str, nth: u32) -> Child {
    let mailbox = Mailbox::open(&world.mailbox()).expect("a mailbox");
    loop {
        let mut command = world.command(&["executor", "run"]);
        command.env("AGENT_MAGIC_TOOL_FAULT", format!("commit.{stage}:kill:{nth}")).stderr(Stdio::null());
        let mut child = command.spawn().expect("the program starts");
        let mut ended = None;
        until("the executor serves", || {
            ended = child.try_wait().expect("a child process");
            let identity = mailbox.identity().filter(|identity| identity.pid == child.id());
            ended.is_some() || identity.is_some_and(|identity| identity.phase == ExecutorPhase::Serving)
        });
        match ended {
            None => return child,
            // An executor that an earlier command started was faster.
            Some(status) => assert_eq!(status.code(), Some(7), "it should not commit anything by itself: {status}"),
        }
        world.kill_executor();
    }
}

fn world() -> World {
    let world = World::new();
    world.define(
        "marks.json",
        &json!({"mark": {"description": "Leaves a mark.",
            "input": {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}}},
            "run": {"process": {"argv": ["sh", "-c", "echo \"$1\" >> marks", "mark", "{{ name }}"], "folder": "."}}}}),
    );
    world
}

fn marks(world: &World) -> String {
    std::fs::read_to_string(world.folder().join("marks")).unwrap_or_default()
}

/// The body of an edit that changes the name to `bob`.
fn edit(human: &Human, id: &str) -> Value {
    let mut body = human.pending_task(id);
    body["input"] = json!({"name": "bob"});
    let shown: Value = serde_json::from_str(human.post("/edit", &body).body.trim()).expect("JSON");
    body["edited_digest"] = shown["digest"].clone();
    body
}

fn grant(human: &Human, id: &str) -> Value {
    let mut body = human.pending_task(id);
    body["fields"] = json!([]);
    body["expires_in"] = "8h".into();
    body
}

/// How many grants are neither revoked nor over.
fn grants(human: &Human) -> usize {
    human.get("/grants").body.matches("class=\"grant\" data-grant-id").count()
}

/// Makes one decision while the executor is killed at its `nth` commit, and checks what the next executor makes of it.
fn kill_during(verdict: &str, stage: &str, nth: u32) {
    let world = world();
    let case = format!("{verdict}, killed {stage} commit {nth}");
    let id = world.start("mark", &json!({"name": "eve"}));
    until("the task waits", || world.result_file(&id)["state"] == "awaiting_confirmation");
    world.kill_executor();
    let mut doomed = doomed_executor(&world, stage, nth);
    let human = Human::of(&world);
    let (path, body) = match verdict {
        "edit" => ("/decide-edit", edit(&human, &id)),
        "grant" => ("/grants", grant(&human, &id)),
        _ => ("/decide", human.decision(&id, verdict)),
    };
    let answer = human.post(path, &body);
    assert_eq!(wait_for_end(&mut doomed).signal(), Some(9), "{case}");
    let human = Human::of(&world);
    let was_decided = nth > 1 || stage == "after";
    assert!(was_decided || answer.status == 0, "{case}: an answer came before the decision was durable");
    if was_decided {
        assert_eq!(human.post(path, &body).status, 409, "{case}: it was decided");
    } else {
        assert_eq!(world.result_file(&id)["state"], "awaiting_confirmation", "{case}");
        assert_eq!((marks(&world).as_str(), grants(&human)), ("", 0), "{case}");
        assert_eq!(human.post(path, &body).status, 200, "{case}: the same decision still counts");
    }
    let ended = world.end_of(&id);
    let status = ended["status"].as_str().expect("a status");
    let name = if verdict == "edit" { "bob" } else { "eve" };
    if verdict == "deny" {
        assert_eq!((status, marks(&world).as_str()), ("denied", ""), "{case}");
    } else {
        assert!(matches!(status, "succeeded" | "unknown"), "{case}: {ended}");
        let marks = marks(&world);
        assert!(marks == format!("{name}\n") || status == "unknown" && marks.is_empty(), "{case}: {marks}");
    }
    assert_eq!(grants(&human), usize::from(verdict == "grant"), "{case}");
}

#[test]
fn a_kill_at_any_commit_of_a_decision_leaves_it_made_or_not_made() {
    std::thread::scope(|scope| {
        // An approved task starts with its decision, and its end is another commit.
        for (verdict, commits) in [("approve", 2), ("deny", 1), ("edit", 2), ("grant", 2)] {
            scope.spawn(move || {
                for stage in STAGES {
                    for nth in 1..=commits {
                        kill_during(verdict, stage, nth);
                    }
                }
            });
        }
    });
}

#[test]
fn a_kill_while_a_grant_is_revoked_leaves_it_valid_or_revoked() {
    let world = world();
    let human = Human::of(&world);
    let id = world.start("mark", &json!({"name": "eve"}));
    assert_eq!(human.post("/grants", &grant(&human, &id)).status, 200);
    world.end_of(&id);
    for stage in STAGES {
        world.kill_executor();
        let mut doomed = doomed_executor(&world, stage, 1);
        let human = Human::of(&world);
        let page = human.get("/grants").body;
        let grant = page.split("data-grant-id=\"").nth(1).and_then(|rest| rest.split('"').next()).expect("a grant");
        let answer = human.post("/grants/revoke", &json!({"id": grant}));
        assert_eq!((answer.status, wait_for_end(&mut doomed).signal()), (0, Some(9)), "{stage}");
        assert_eq!(grants(&Human::of(&world)), usize::from(stage != "after"), "killed {stage} the commit");
    }
    let asked = world.start("mark", &json!({"name": "eve"}));
    until("the revoked grant approves nothing", || world.result_file(&asked)["state"] == "awaiting_confirmation");
}
