//! An approval of a call covers the program of the server: what a human was shown is what runs.

use std::fs;
use std::path::PathBuf;

use serde_json::{Value, json};

use super::crooked_server;
use crate::page::human::Human;
use crate::world::World;

/// A world with a server that is a copy of the crooked one, started in each way in which a program names its script.
struct Copied {
    world: World,
    script: PathBuf,
}

impl Copied {
    fn of(command: &[&str]) -> Self {
        let world = World::new();
        let script = world.folder().join("server.py");
        let text = fs::read_to_string(crooked_server()).expect("the server");
        fs::write(&script, format!("#!/usr/bin/env python3\n{text}")).expect("written");
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(&script, mode).expect("set");
        let path = script.display().to_string();
        let command: Vec<_> = command.iter().map(|word| word.replace("SCRIPT", &path)).collect();
        let server = json!({"name": "copied", "command": command, "folder": world.folder()});
        let tool = |extra: Value| {
            let mut definition = json!({"description": "Echoes.", "run": {"mcp": {"server": server, "tool": "echo"}},
                "input": {"type": "object", "properties": {"message": {"type": "string"}}}});
            for (key, value) in extra.as_object().into_iter().flatten() {
                definition[key] = value.clone();
            }
            definition
        };
        world.define(
            "copied.json",
            &json!({"looks": tool(json!({"annotations": {"readOnlyHint": true}})), "acts": tool(json!({}))}),
        );
        Self { world, script }
    }

    /// Changes what the server says.
    fn change(&self, word: &str) {
        let text = fs::read_to_string(crooked_server()).expect("the server");
        let text = text.replace("Echo: ", &format!("{word}: "));
        fs::write(&self.script, format!("#!/usr/bin/env python3\n{text}")).expect("written");
    }

    fn looks(&self) -> Value {
        self.world.result_of("looks", &json!({"message": "a"}))["data"].take()
    }
}

#[test]
fn an_approved_call_runs_the_program_that_was_shown_or_nothing() {
    for command in [&["SCRIPT"][..], &["python3", "SCRIPT"], &["env", "python3", "SCRIPT"]] {
        let copied = Copied::of(command);
        let (world, human) = (&copied.world, Human::of(&copied.world));
        let id = world.start("acts", &json!({"message": "b"}));
        let card = human.get("/").body.replace("&#x2f;", "/");
        assert!(card.contains(&copied.script.display().to_string()), "{command:?}: the card names no script");
        copied.change("Evil");
        human.approve(&id);
        let ended = world.end_of(&id);
        assert_eq!((&ended["status"], &ended["error"]["code"]), (&json!("failed"), &json!("drifted")), "{command:?}");

        assert_eq!(copied.looks(), "Evil: a", "{command:?}");
        let id = world.start("acts", &json!({"message": "b"}));
        copied.change("Worse");
        human.approve(&id);
        assert_eq!(world.end_of(&id)["data"], "Evil: b", "{command:?}: the server that runs is what was shown");

        // What was shown is the new program, so a server that was started before is not the one that is called.
        let id = world.start("acts", &json!({"message": "c"}));
        human.approve(&id);
        assert_eq!(world.end_of(&id)["data"], "Worse: c", "{command:?}");
    }
}

#[test]
fn an_approved_call_goes_to_the_server_that_is_there_if_it_runs_what_was_shown() {
    let copied = Copied::of(&["python3", "SCRIPT"]);
    let human = Human::of(&copied.world);
    let pids = || -> Vec<String> {
        let processes = fs::read_dir("/proc").expect("Linux").flatten();
        let is_ours = |pid: &String| {
            let words = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            words.contains(&copied.script.display().to_string())
        };
        processes.filter_map(|entry| entry.file_name().into_string().ok()).filter(is_ours).collect()
    };
    copied.looks();
    let before = pids();
    assert_eq!(before.len(), 1);
    let id = copied.world.start("acts", &json!({"message": "b"}));
    human.approve(&id);
    assert_eq!(copied.world.end_of(&id)["data"], "Echo: b");
    assert_eq!(pids(), before, "no other server was started");
}

#[test]
fn a_server_whose_program_is_not_there_asks_no_human() {
    let world = World::new();
    let server = json!({"name": "none", "command": ["no-such-program-here"]});
    world.define(
        "none.json",
        &json!({"acts": {"description": "Acts.", "input": {}, "run": {"mcp": {"server": server, "tool": "echo"}}}}),
    );
    let ran = world.run(&["run", "acts"]);
    assert_eq!(ran.error()["code"], "cannot-start", "{ran}");
    assert!(ran.stderr.contains("no-such-program-here"), "{ran}");
}
