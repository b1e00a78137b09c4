//! `wait`, `read`, `tasks` and `cancel`: from the placeholder to the final result.

use std::path::Path;
use std::time::Instant;

use insta::assert_snapshot;
use serde_json::{Value, json};

use crate::world::{World, until};

fn world() -> World {
    let world = World::new();
    let sleep = json!({"description": "Takes its time.", "input": {"type": "object", "properties": {"s": {"type": "number"}}, "required": ["s"]},
        "annotations": {"readOnlyHint": true}, "run": {"process": {"argv": ["sleep", "{{ s }}"]}}});
    let numbers = json!({"description": "Counts from one.", "input": {"type": "object", "properties": {"to": {"type": "integer"}}},
        "annotations": {"readOnlyHint": true}, "run": {"process": {"argv": ["seq", "1", "{{ to }}"], "output": "lines"}}});
    let fail = json!({"description": "Fails and says why.", "input": {},
        "annotations": {"readOnlyHint": true}, "run": {"process": {"argv": ["sh", "-c", "echo sorry >&2; exit 3"]}}});
    world.define("some.json", &json!({"sleep": sleep, "numbers": numbers, "fail": fail}));
    world
}

#[test]
fn a_wait_that_times_out_reports_a_pending_task() {
    let world = world();
    let id = world.start("sleep", &json!({"s": 60}));
    let ran = world.run(&["wait", &id, "--timeout=100ms"]);
    assert_eq!(
        (ran.exit, ran.json()["status"].as_str(), ran.json()["state"].as_str()),
        (6, Some("pending"), Some("running")),
        "{ran}"
    );
    let ran = world.run(&["run", "sleep", "s=60", "--wait=50ms"]);
    assert_eq!(ran.exit, 6, "{ran}");
}

#[test]
fn waiting_uses_no_processor_time() {
    let world = world();
    let id = world.start("sleep", &json!({"s": 60}));
    let script = format!("TIMEFORMAT='%U %S'; time '{}' wait {id} --timeout=2s >/dev/null 2>&1", crate::world::PROGRAM);
    let ran = world.transcript(&world.within("bash", &["-c", &script]).output().expect("bash"));
    let spent: f64 = ran.stderr.split_whitespace().map(|seconds| seconds.parse::<f64>().expect("seconds")).sum();
    assert!(spent < 0.5, "two seconds of waiting used {spent} s of processor time: {ran}");
}

#[test]
fn a_failed_task_reports_its_error() {
    let world = world();
    let id = world.start("fail", &json!({}));
    assert_snapshot!(world.run(&["wait", &id]), @r#"
    exit: 1
    --- stdout
    {"id":"ID","tool":"fail","status":"failed","error":{"code":"process-failed","message":"`sh` ended with status 3: sorry","details":{"exit_code":3,"stdout":"","stderr":"sorry\n"}}}
    "#);
}

#[test]
fn wait_returns_all_tasks_and_any_returns_the_first() {
    let world = world();
    let slow = world.start("sleep", &json!({"s": 60}));
    let quick = world.start("sleep", &json!({"s": 0}));
    let any = world.run(&["wait", &slow, &quick, "--any"]);
    assert_eq!((any.exit, any.json()["id"].as_str()), (0, Some(quick.as_str())), "{any}");
    let third = world.start("sleep", &json!({"s": 0.01}));
    let both = world.run(&["wait", &third, &quick]);
    let ids: Vec<_> = both.json().as_array().expect("several").iter().map(|file| file["id"].clone()).collect();
    assert_eq!((both.exit, ids), (0, vec![Value::from(third), Value::from(quick)]), "{both}");
}

#[test]
fn a_result_files_path_works_in_place_of_an_id() {
    let world = world();
    let id = world.start("sleep", &json!({"s": 0}));
    let path = world.mailbox().join(format!("results/result-{id}.json"));
    assert_eq!(world.run(&["wait", &path.display().to_string()]).exit, 0);
    assert_eq!(world.run(&["read", &format!("result-{id}.json")]).exit, 0);
    let elsewhere = world.folder().join(format!("result-{id}.json"));
    std::fs::copy(&path, &elsewhere).expect("copied");
    let ran = world.run(&["read", &elsewhere.display().to_string()]);
    assert_eq!((ran.exit, ran.error()["code"].as_str()), (3, Some("not-found")), "{ran}");
}

#[test]
fn an_unknown_task_is_reported_at_once() {
    let world = world();
    assert_snapshot!(world.run(&["wait", "01a1fce914ce72a8be531d1bffc6ef06"]), @r#"
    exit: 3
    --- stderr
    {"error":{"code":"unknown-task","message":"no task `ID` in the mailbox `MAILBOX`","hint":"to list the tasks: agent-magic-tool tasks"}}
    "#);
    assert_snapshot!(world.run(&["read", "../../etc/passwd"]), @r#"
    exit: 3
    --- stderr
    {"error":{"code":"unknown-task","message":"`../../etc/passwd` is not the name of a result file","hint":"to list the tasks: agent-magic-tool tasks"}}
    "#);
    assert_snapshot!(world.run(&["cancel", "01a1fce914ce72a8be531d1bffc6ef06"]), @r#"
    exit: 3
    --- stderr
    {"error":{"code":"unknown-task","message":"no open task `ID`","hint":"to list the tasks: agent-magic-tool tasks"}}
    "#);
}

/// What stands in the place of a file, and how it gets there.
type Forgery<'a> = (&'a str, &'a dyn Fn(&Path));

#[test]
fn a_forged_result_is_refused() {
    use std::os::unix::fs::{PermissionsExt as _, symlink};
    let world = world();
    let ids = [world.start("sleep", &json!({"s": 0})), world.start("numbers", &json!({"to": 40_000}))];
    for id in &ids {
        world.run(&["wait", id]);
    }
    let [id, large] = &ids;
    let file = |name: &str| world.mailbox().join(format!("results/result-{name}"));
    let (result, data) = (file(&format!("{id}.json")), file(&format!("{large}.data.json")));
    let elsewhere = world.folder().join("forged");
    let original = [&result, &data].map(|path| std::fs::read(path).expect("readable"));
    let put = |path: &Path, text: &[u8]| {
        std::fs::remove_file(path).expect("removed");
        std::fs::write(path, text).expect("written");
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).expect("private");
    };
    let forgeries: [Forgery<'_>; 5] = [
        ("a link", &|path| {
            std::fs::rename(path, &elsewhere).expect("moved");
            symlink(&elsewhere, path).expect("linked");
        }),
        ("another name", &|path| {
            std::fs::remove_file(&elsewhere).ok();
            std::fs::hard_link(path, &elsewhere).expect("linked");
        }),
        ("a file that others can write", &|path| {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o666)).expect("open to all");
        }),
        ("a pipe", &|path| {
            std::fs::remove_file(path).expect("removed");
            assert!(std::process::Command::new("mkfifo").arg(path).status().expect("mkfifo").success());
        }),
        ("the file of another task", &|path| {
            let other = if path == result { file(&format!("{large}.json")) } else { result.clone() };
            put(path, &std::fs::read(other).expect("readable"));
        }),
    ];
    for (what, forge) in forgeries {
        forge(&result);
        let tasks = world.run(&["tasks"]);
        assert!(tasks.exit == 0 && !tasks.stdout.contains(id.as_str()), "{what}: {tasks}");
        for command in ["read", "wait"] {
            let refused = world.run(&[command, id]);
            assert!(refused.exit != 0 && refused.stdout.is_empty(), "{what}: {refused}");
        }
        put(&result, &original[0]);
        assert_eq!(world.run(&["read", id]).exit, 0);
        forge(&data);
        for part in [["--lines", "1-2"], ["--bytes", "0-9"], ["--page", "1"], ["--jq", ".[0]"]] {
            let refused = world.run(&[&["read", large.as_str()], &part[..]].concat());
            assert!(refused.exit != 0 && refused.stdout.is_empty(), "{what}: {refused}");
        }
        put(&data, &original[1]);
        assert_eq!(world.run(&["read", large, "--lines", "1-2"]).exit, 0);
    }
}

#[test]
fn parts_of_the_data_can_be_read() {
    let world = world();
    let id = world.start("numbers", &json!({"to": 40_000}));
    let whole = world.run(&["wait", &id]).json();
    assert_eq!(whole["data"], Value::Null);
    assert!(whole["data_file"].is_string() && whole["preview"].is_string() && whole["read"].is_array(), "{whole}");
    let read = |arguments: &[&str]| world.run(&[&["read", id.as_str()], arguments].concat());
    assert_eq!(read(&["--jq", ".[41]"]).json(), "42");
    assert_eq!(read(&["--jq", ".[0], .[1]"]).json(), json!(["1", "2"]));
    assert_eq!(read(&["--jq", "length"]).json(), 40_000);
    assert_eq!(read(&["--bytes", "0-9"]).json()["text"], "[\n  \"1\",\n ");
    assert_eq!(read(&["--lines", "2-3"]).json()["text"], "  \"1\",\n  \"2\",");
    let wrong_level = read(&["--jq", ".data[0]"]);
    assert_ne!(wrong_level.exit, 70, "{wrong_level}");
    assert_snapshot!(read(&["--jq", ".["]), @r#"
    exit: 2
    --- stderr
    {"error":{"code":"usage","message":"`.[` is not a valid jq expression: syntax error","hint":"EXPR is jq, like `.[0].id`"}}
    "#);
    assert_snapshot!(read(&["--bytes", "9-1"]), @r#"
    exit: 2
    --- stderr
    {"error":{"code":"usage","message":"`--bytes`: the range `9-1` ends before it starts","hint":"write the smaller number first, like 1-200"}}
    "#);
}

#[test]
fn tasks_lists_open_and_ended_tasks() {
    let world = world();
    let slow = world.start("sleep", &json!({"s": 60}));
    let quick = world.start("fail", &json!({}));
    world.run(&["wait", &quick]);
    let ids = |arguments: &[&str]| -> Vec<String> {
        let ran = world.run(&[&["tasks"], arguments].concat());
        assert_eq!(ran.exit, 0, "{ran}");
        ran.json()
            .as_array()
            .expect("a list")
            .iter()
            .map(|task| task["id"].as_str().expect("an id").to_owned())
            .collect()
    };
    assert_eq!(ids(&[]), [quick.clone(), slow.clone()]);
    assert_eq!(ids(&["--state=pending"]), std::slice::from_ref(&slow));
    assert_eq!(ids(&["--state=failed"]), std::slice::from_ref(&quick));
    let why = &world.result_file(&quick)["error"];
    let listed = world.run(&["tasks"]).json();
    assert_eq!(listed[0]["error"], json!({"code": why["code"], "message": why["message"]}), "its error, without more");
    assert_eq!(listed[1]["error"], Value::Null);
    assert!(ids(&["--state=succeeded"]).is_empty());
    assert_eq!(world.run(&["tasks", "--state=done"]).exit, 2);
}

#[test]
fn a_running_task_can_be_cancelled() {
    let world = world();
    let started = Instant::now();
    let id = world.start("sleep", &json!({"s": 600}));
    until("it runs", || world.result_file(&id)["state"] == "running");
    let ran = world.run(&["cancel", &id]);
    assert_eq!(ran.exit, 0, "{ran}");
    let ended = world.run(&["wait", &id]);
    assert_eq!((ended.exit, ended.json()["status"].as_str()), (1, Some("cancelled")), "{ended}");
    assert!(started.elapsed().as_secs() < 60);
}

#[test]
fn a_task_that_exceeds_its_timeout_is_stopped() {
    let world = world();
    world.define(
        "long.json",
        &json!({"long": {"description": "Takes too long.", "input": {}, "timeout": "100ms",
        "annotations": {"readOnlyHint": true}, "run": {"process": {"argv": ["sh", "-c", "echo begun; sleep 60"]}}}}),
    );
    let ended = world.result_of("long", &json!({}));
    assert_eq!(ended["status"], "timed_out", "{ended}");
    assert_eq!(ended["error"]["message"], "it took longer than 100ms");
    assert!(ended["error"]["details"].to_string().contains("begun"), "{ended}");
}
