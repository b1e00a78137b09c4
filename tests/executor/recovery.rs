//! Recovery: a killed executor loses no task, and no task runs twice unless that is harmless.

use std::collections::BTreeMap;
use std::fs;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use nix::unistd::Pid;
use serde_json::{Value, json};

use super::load::{StopOnDrop, torture_readers};
use crate::myworld;
use crate::world::{World, is_alive, until};

/// A subtool that appends a line to the file of its name, and then takes a moment.
fn marking(annotations: &Value) -> Value {
    json!({
        "description": "Leaves a mark and takes a moment.",
        "input": {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]},
        "annotations": annotations, "confirm": "never",
        "run": {"process": {"argv": ["sh", "-c", "echo x >> \"marks/$1\"; sleep 0.05", "mark", "{{ name }}"], "folder": "."}}
    })
}

#[tokio::test]
async fn after_random_kills_every_task_ends_and_runs_twice_only_if_that_is_harmless() {
    const TASKS: usize = 200;
    const CALLERS: usize = 8;
    const KILLS: usize = 3;
    let server = myworld::World::start().await;
    let world = World::new();
    let endpoints = server.as_ref().map(|server| {
        let endpoint = server.endpoint("gmail.googleapis.com");
        format!("[http.endpoints]\n\"https://gmail.googleapis.com\" = \"{endpoint}\"\n")
    });
    world.configure(&format!("[confirm]\nwrites = \"allow\"\n{}", endpoints.unwrap_or_default()));
    if let Some(server) = &server {
        world.run_with(&["secret", "set", "google"], &server.google_token);
    }
    fs::create_dir(world.folder().join("marks")).expect("made");
    world.define(
        "marks.json",
        &json!({
            "once": marking(&json!({})),
            "idempotent": marking(&json!({"idempotentHint": true})),
            "readonly": marking(&json!({"readOnlyHint": true}))
        }),
    );
    let mail = if server.is_some() { "gmail_send_message" } else { "once" };
    let kinds = ["once", "idempotent", "readonly", mail];
    // The kills happen after these numbers of accepted tasks, derived from the clock. A failure reports them.
    let seed = std::time::UNIX_EPOCH.elapsed().expect("a clock").subsec_nanos() as usize;
    let moments: Vec<_> = (0..KILLS).map(|kill| (kill * TASKS + seed % TASKS) / KILLS).collect();
    let (next, accepted, stop) = (AtomicUsize::new(0), Mutex::new(BTreeMap::new()), AtomicBool::new(false));
    thread::scope(|scope| {
        let reader = scope.spawn(|| torture_readers(&world, &stop));
        let stop_reader = StopOnDrop(&stop);
        let callers: Vec<_> = (0..CALLERS)
            .map(|_| {
                scope.spawn(|| {
                    loop {
                        let number = next.fetch_add(1, Ordering::Relaxed);
                        if number >= TASKS {
                            return;
                        }
                        let (kind, name) = (kinds[number % kinds.len()], format!("m{number}"));
                        let input = match kind {
                            "gmail_send_message" => json!({"to": ["bob@example.com"], "subject": name, "body": "x"}),
                            _ => json!({"name": name}),
                        };
                        let id = world.start(kind, &input);
                        accepted.lock().expect("no thread panicked").insert(id, (kind, name));
                    }
                })
            })
            .collect();
        for moment in &moments {
            until("enough tasks were accepted", || accepted.lock().expect("no thread panicked").len() >= *moment);
            world.kill_executor();
        }
        for caller in callers {
            caller.join().expect("a caller");
        }
        // One more kill with the remaining tasks open. Then any command starts an executor.
        world.kill_executor();
        assert_eq!(world.run(&["list", "--format=names"]).exit, 0);
        for id in accepted.lock().expect("no thread panicked").keys() {
            until("the task has ended", || world.result_file(id)["status"] != "pending");
        }
        drop(stop_reader);
        reader.join().expect("a reader without failures");
    });
    let accepted = accepted.into_inner().expect("no thread panicked");
    assert_eq!(accepted.len(), TASKS, "killed after {moments:?}");
    let mut effects: BTreeMap<String, usize> = BTreeMap::new();
    for entry in fs::read_dir(world.folder().join("marks")).expect("a folder").flatten() {
        let lines = fs::read_to_string(entry.path()).expect("a mark").lines().count();
        effects.insert(entry.file_name().to_str().expect("a name").to_owned(), lines);
    }
    if let Some(server) = &server {
        for message in server.sent().await {
            let headers = message["payload"]["headers"].as_array().expect("headers").clone();
            let subject = headers.iter().find(|header| header["name"] == "Subject").expect("a subject");
            *effects.entry(subject["value"].as_str().expect("a text").to_owned()).or_default() += 1;
        }
    }
    let mut ends: BTreeMap<String, usize> = BTreeMap::new();
    for (id, (kind, name)) in &accepted {
        let file = world.result_file(id);
        let times = effects.get(name).copied().unwrap_or(0);
        let status = file["status"].as_str().expect("a status");
        *ends.entry(format!("{kind} {status}")).or_default() += 1;
        let case = format!("{kind} {name} happened {times} times, killed after {moments:?}: {file}");
        match (*kind, status) {
            // After two killed executors there is no third attempt: the task might be the cause.
            ("idempotent", "unknown") | ("readonly", "failed") => assert_eq!(file["_meta"]["attempts"], 2, "{case}"),
            ("idempotent" | "readonly", _) => assert!(status == "succeeded" && times >= 1, "{case}"),
            (_, "succeeded") => assert_eq!(times, 1, "{case}"),
            // The server may refuse a message under this load; then it was not sent.
            ("gmail_send_message", "failed") => assert_eq!(times, 0, "{case}"),
            (_, "unknown") => assert!(times <= 1 && file["error"]["hint"].is_string(), "{case}"),
            _ => panic!("{case}"),
        }
    }
    assert!(ends.keys().any(|end| end.ends_with("succeeded")), "{ends:?}");
}

#[test]
fn queued_tasks_run_once_after_a_kill() {
    let world = World::new();
    world.configure("[confirm]\nwrites = \"allow\"\n[executor]\nconcurrency = 1\n");
    fs::create_dir(world.folder().join("marks")).expect("made");
    world.define("marks.json", &json!({"once": marking(&json!({}))}));
    let ids: Vec<_> = (0..10).map(|number| world.start("once", &json!({"name": format!("m{number}")}))).collect();
    world.kill_executor();
    let ran = world.run(&[&["wait"], ids.iter().map(String::as_str).collect::<Vec<_>>().as_slice()].concat());
    let files = ran.json();
    let files = files.as_array().expect("ten results");
    let ended = |status: &str| files.iter().filter(|file| file["status"] == status).count();
    assert_eq!(ended("succeeded") + ended("unknown"), 10, "{ran}");
    assert!(ended("unknown") <= 1, "only the running task may be unknown: {ran}");
    for (number, _) in ids.iter().enumerate() {
        let mark = world.folder().join(format!("marks/m{number}"));
        let lines = fs::read_to_string(mark).map_or(0, |text| text.lines().count());
        assert!(lines <= 1, "m{number} happened {lines} times");
    }
}

#[test]
fn a_program_that_outlives_its_executor_is_not_started_again() {
    let world = World::new();
    world.define(
        "count.json",
        &json!({"count": {"description": "Counts its starts.", "input": {}, "confirm": "never",
        "run": {"process": {"argv": ["sh", "-c", "echo x >> starts; sleep 5"], "folder": "."}}}}),
    );
    let id = world.start("count", &json!({}));
    until("the program has started", || world.folder().join("starts").exists());
    world.kill_executor();
    let ended = world.run(&["wait", &id]);
    assert_eq!((ended.exit, &ended.json()["status"]), (1, &json!("unknown")), "{ended}");
    assert_eq!(fs::read_to_string(world.folder().join("starts")).expect("a count"), "x\n");
}

#[test]
fn a_lost_result_file_is_written_again() {
    let world = World::new();
    let ended = world.result_of("files_list", &json!({}));
    let id = ended["id"].as_str().expect("an id");
    assert_eq!(world.run(&["executor", "stop"]).exit, 0);
    fs::remove_file(world.mailbox().join(format!("results/result-{id}.json"))).expect("removed");
    assert_eq!(world.run(&["executor", "start"]).exit, 0);
    until("the result is back", || world.mailbox().join(format!("results/result-{id}.json")).exists());
    assert_eq!(world.result_file(id)["data"], ended["data"]);
}

/// A backup of the state folder is of an earlier time than the mailbox: what has a final result did run, or is not run.
#[test]
fn a_restored_state_folder_repeats_no_effect() {
    let world = World::new();
    world.configure("[confirm]\nwrites = \"allow\"\n");
    fs::create_dir(world.folder().join("marks")).expect("made");
    let kinds = [("once", json!({}), "unknown", 1), ("idempotent", json!({"idempotentHint": true}), "succeeded", 2)];
    let definitions = kinds.iter().map(|(tool, annotations, ..)| ((*tool).to_owned(), marking(annotations)));
    world.define("marks.json", &definitions.collect());
    let ids = kinds.clone().map(|(tool, ..)| {
        let ran = world.run(&["run", tool, &format!("name={tool}"), "--in=1s"]);
        ran.json()["id"].as_str().expect("an id").to_owned()
    });
    assert_eq!(world.run(&["executor", "stop"]).exit, 0);
    let backup = world.home().join("backup");
    copy(&world.state(), &backup);
    assert_eq!(world.run(&["executor", "start"]).exit, 0);
    for id in &ids {
        until("it ends", || world.result_file(id)["status"] == "succeeded");
    }
    assert_eq!(world.run(&["executor", "stop"]).exit, 0);
    fs::remove_dir_all(world.state()).expect("removed");
    copy(&backup, &world.state());
    assert_eq!(world.run(&["executor", "start"]).exit, 0);
    for ((tool, _, status, marks), id) in kinds.iter().zip(&ids) {
        let marked = || fs::read_to_string(world.folder().join("marks").join(tool)).expect("marks").lines().count();
        until("it ends again", || world.result_file(id)["status"] == *status && marked() == *marks);
    }
    let ended = world.result_file(&ids[0]);
    assert_eq!(ended["error"]["code"], "unknown-outcome", "{ended:#}");
    assert!(ended["error"]["message"].as_str().is_some_and(|text| text.contains("restored backup")), "{ended:#}");
    assert_eq!(world.run(&["resolve", &ids[0], "--happened"]).exit, 0);
}

fn copy(from: &std::path::Path, to: &std::path::Path) {
    let copied = std::process::Command::new("cp").arg("-a").args([from, to]).status().expect("cp starts");
    assert!(copied.success());
}

/// A program, what it started in a session of its own, and a member of its group without our mark in its environment.
#[test]
fn what_a_killed_executor_left_running_ends_when_the_next_one_starts() {
    const PROGRAM: &str = "echo $$ >> pids; setsid sh -c 'echo $$ >> pids; sleep 600' & \
                           env -i sh -c 'echo $$ >> pids; sleep 600' & sleep 600";
    let worlds = [World::new(), World::new()];
    for world in &worlds {
        world.define(
            "long.json",
            &json!({"long": {"description": "Takes very long.", "input": {}, "confirm": "never",
                "run": {"process": {"argv": ["sh", "-c", PROGRAM]}}}}),
        );
        world.start("long", &json!({}));
        until("all of it runs", || pids(world).len() == 3);
    }
    let [killed, other] = &worlds;
    let before = pids(killed);
    killed.kill_executor().expect("a running executor");
    assert!(before.iter().all(|pid| is_alive(*pid)), "a killed executor can end nothing");
    assert_eq!(killed.run(&["executor", "start"]).exit, 0);
    until("nothing of it runs", || before.iter().all(|pid| !is_alive(*pid)));
    assert!(pids(other).iter().all(|pid| is_alive(*pid)), "programs of another executor go on");
    let log = fs::read_to_string(killed.log()).expect("a log");
    assert!(log.contains("killed the programs that the last executor left behind"), "{log}");
}

/// The processes that noted their ids.
fn pids(world: &World) -> Vec<Pid> {
    let noted = fs::read_to_string(world.folder().join("pids")).unwrap_or_default();
    noted.lines().filter_map(|pid| pid.parse().ok()).map(Pid::from_raw).collect()
}
