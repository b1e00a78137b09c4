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
        Self::covering(command, &[])
    }

    /// A server to which what `covers` names belongs as well. A copy lies in the package `pack` too.
    fn covering(command: &[&str], covers: &[&str]) -> Self {
        let world = World::new();
        let script = world.folder().join("server.py");
        let text = fs::read_to_string(crooked_server()).expect("the server");
        fs::write(&script, format!("#!/usr/bin/env python3\n{text}")).expect("written");
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(&script, mode).expect("set");
        let path = script.display().to_string();
        let command: Vec<_> = command.iter().map(|word| word.replace("SCRIPT", &path)).collect();
        fs::create_dir(world.folder().join("pack")).expect("made");
        fs::write(world.folder().join("pack/__init__.py"), "").expect("written");
        fs::write(world.folder().join("pack/__main__.py"), &text).expect("written");
        let server = json!({"name": "copied", "command": command, "covers": covers, "folder": world.folder()});
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
        fs::write(self.world.folder().join("pack/__main__.py"), text).expect("written");
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

/// The words of the mark on a card.
const MARK: &str = "not bound to all that runs";

/// What a server loads is not among the files of its start: it is covered if a definition or Python's rules say so, and
/// where it is not, the card says that.
#[test]
fn what_a_server_loads_is_bound_if_it_is_covered_and_else_the_card_says_so() {
    let wrapped = |script: &'static str| ["bash", "-c", script];
    for (command, covers, shown, is_marked) in [
        (&wrapped("exec python3 server.py")[..], &[][..], None, true),
        (&wrapped("exec python3 server.py"), &["server.py"], Some("server.py"), false),
        (&wrapped("exec python3 -m pack"), &["pack"], Some("pack"), false),
        (&["python3", "-m", "server"], &[], Some("server.py"), true),
        (&["python3", "-u", "-m", "pack"], &[], Some("pack"), true),
        (&["python3", "-m", "pack"], &["pack"], Some("pack"), false),
        (
            &["python3", "-c", "import sys; sys.path.insert(0, '.'); import server"],
            &["server.py"],
            Some("server.py"),
            false,
        ),
        (&["env", "python3", "-m", "pack"], &[], None, true),
    ] {
        let copied = Copied::covering(command, covers);
        let (world, human) = (&copied.world, Human::of(&copied.world));
        let id = world.start("acts", &json!({"message": "b"}));
        let card = human.get("/").body.replace("&#x2f;", "/");
        let path = shown.map(|shown| world.folder().join(shown).display().to_string());
        assert!(path.as_ref().is_none_or(|path| card.contains(path)), "{command:?}: {card}");
        assert_eq!(card.contains(MARK), is_marked, "{command:?} {covers:?}");
        copied.change("Evil");
        human.approve(&id);
        let ended = world.end_of(&id);
        let expected = if shown.is_some() { json!("drifted") } else { json!(null) };
        assert_eq!(ended["error"]["code"], expected, "{command:?} {covers:?}: {ended}");

        // What is shown now runs, and leaves what is covered as it is. Compiled code beside it is not executed.
        let id = world.start("acts", &json!({"message": "c"}));
        human.approve(&id);
        assert_eq!(world.end_of(&id)["data"], "Evil: c", "{command:?} {covers:?}");
        assert!(shown.is_none() || !world.folder().join("pack/__pycache__").exists(), "{command:?}");
        let lint = world.run(&["lint"]).json();
        let findings = lint.as_array().expect("findings").iter();
        let count = findings.filter(|finding| finding["code"] == "uncovered-server").count();
        assert_eq!(count, usize::from(is_marked), "{command:?}: {lint}");
    }
}

#[test]
fn a_covered_file_that_a_running_server_may_still_load_is_compared_before_each_approved_call() {
    for covers in [&["pack"][..], &["pack/__main__.py"]] {
        let copied = Copied::covering(&["python3", "server.py"], covers);
        let (world, human) = (&copied.world, Human::of(&copied.world));
        assert_eq!(copied.looks(), "Echo: a");
        let id = world.start("acts", &json!({"message": "b"}));
        let module = world.folder().join("pack/__main__.py");
        fs::write(&module, "evil").expect("written");
        human.approve(&id);
        assert_eq!(world.end_of(&id)["error"]["code"], "drifted", "{covers:?}");
        let id = world.start("acts", &json!({"message": "b"}));
        human.approve(&id);
        assert_eq!(world.end_of(&id)["data"], "Echo: b", "{covers:?}: what is shown now runs");
    }
}

/// Compiles another server to where Python looks before it reads `server.py`, in a way that it never compares.
const COMPILE: &str = "import importlib.util, py_compile, sys
text = open('server.py').read().replace('Echo: ', 'Evil: ')
open('evil.py', 'w').write(text)
mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
py_compile.compile('evil.py', importlib.util.cache_from_source('server.py'), invalidation_mode=mode)";

#[test]
fn compiled_code_beside_a_covered_module_is_not_executed() {
    let copied = Copied::of(&["python3", "-m", "server"]);
    let (world, human) = (&copied.world, Human::of(&copied.world));
    let compiled = world.within("python3", &["-c", COMPILE]).status().expect("it starts");
    assert!(compiled.success() && world.folder().join("__pycache__").exists());
    let id = world.start("acts", &json!({"message": "b"}));
    human.approve(&id);
    assert_eq!(world.end_of(&id)["data"], "Echo: b");
}

#[test]
fn a_remembered_approval_ends_when_a_covered_file_changes() {
    let copied = Copied::covering(&["bash", "-c", "exec python3 server.py"], &["pack", "server.py"]);
    let (world, human) = (&copied.world, Human::of(&copied.world));
    let id = world.start("acts", &json!({"message": "a"}));
    let mut grant = human.pending_task(&id);
    grant["fields"] = json!([]);
    grant["expires_in"] = "1h".into();
    assert_eq!(human.post("/grants", &grant).status, 200);
    assert_eq!(world.end_of(&id)["data"], "Echo: a");
    assert_eq!(world.result_of("acts", &json!({"message": "a"}))["data"], "Echo: a", "it runs unasked");
    fs::write(world.folder().join("pack/other.py"), "").expect("written");
    let id = world.start("acts", &json!({"message": "a"}));
    assert_eq!(world.result_file(&id)["state"], "awaiting_confirmation", "a file is there that was not shown");
}

#[test]
fn what_cannot_be_shown_of_a_server_asks_no_human() {
    for (covers, expected) in [("none.py", "No such file"), ("/", "more than"), ("sock", "not a regular file")] {
        let copied = Copied::covering(&["python3", "server.py"], &[covers]);
        let _socket = std::os::unix::net::UnixListener::bind(copied.world.folder().join("sock")).expect("a socket");
        let ran = copied.world.run(&["run", "acts", "message=a"]);
        assert_eq!(ran.error()["code"], "cannot-start", "{covers}: {ran}");
        assert!(ran.stderr.contains(expected), "{covers}: {ran}");
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
