//! A human is told that something waits: on their desktop and by a command of theirs, seldom, and never
//! what is in it.

use std::fs::{self, Permissions};
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use crate::world::{World, until};

/// Stands in every input, and nowhere else.
const CANARY: &str = "canary-7e1f";

/// A world with two subtools that need a yes, and a program that records what it was told.
fn world(more: &str) -> World {
    let world = World::new();
    let ask = |description: &str| json!({"description": description, "input": {"type": "object"}, "confirm": "always", "run": {"process": {"argv": ["true"]}}});
    world.define("ask.json", &json!({"send_it": ask("Sends it."), "pay_it": ask("Pays it.")}));
    let told = record(&world, "tell", "cat");
    world.configure(&format!(
        "[confirm]\nwaiting_per_session = 100\nasks_per_hour = 0\non_confirmation = [\"{}\", \"an argument\"]\n{more}",
        told.display()
    ));
    world
}

/// A program that appends what `take` prints, as one line, to the file of its name with `.told`; and its
/// arguments and its environment to others.
fn record(world: &World, name: &str, take: &str) -> PathBuf {
    let folder = world.home().join("bin");
    fs::create_dir_all(&folder).expect("made");
    let program = folder.join(name);
    let beside = program.display();
    let script = format!(
        "#!/bin/sh\nprintf '%s\\n' \"$*\" >> '{beside}.arguments'\nenv >> '{beside}.environment'\n\
         line=$({take})\nprintf '%s\\n' \"$line\" >> '{beside}.told'\n"
    );
    fs::write(&program, script).expect("written");
    fs::set_permissions(&program, Permissions::from_mode(0o755)).expect("set");
    program
}

fn lines(world: &World, name: &str) -> Vec<String> {
    let text = fs::read_to_string(world.home().join("bin").join(name)).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

fn ask(world: &World, tool: &str, number: u32) -> String {
    world.start(tool, &json!({"number": number, "text": CANARY}))
}

#[test]
fn a_command_is_told_what_waits_and_where_and_nothing_of_what_is_in_it() {
    let world = world("");
    ask(&world, "send_it", 1);
    until("it is told", || !lines(&world, "tell.told").is_empty());
    let event: Value = serde_json::from_str(&lines(&world, "tell.told")[0]).expect("JSON");
    let origin = world.run(&["executor", "status"]).json()["page"]["origin"].clone();
    assert!(
        origin.as_str().is_some_and(|origin| origin.starts_with("http://amt-") && !origin.contains('#')),
        "{origin}"
    );
    let expected = json!({"type": "confirmation.waiting", "waiting": 1, "tools": ["send_it"], "page": origin});
    assert_eq!(event, expected);
    assert_eq!(lines(&world, "tell.arguments"), ["an argument"]);
    let log = fs::read_to_string(world.log()).expect("a log");
    assert!(!log.contains("was not told"), "{log}");
}

/// T28, T40.
#[test]
fn a_flood_of_questions_makes_few_notices() {
    let world = world("");
    let notify = record(&world, "notify-send", "printf desktop");
    let path = format!("{}:{}", parent(&notify).display(), std::env::var("PATH").unwrap_or_default());
    let mut start = world.command(&["executor", "start"]);
    start
        .env("PATH", path)
        .env("DISPLAY", ":99")
        .env("DBUS_SESSION_BUS_ADDRESS", "unix:path=/x")
        .env("SOME_TOKEN", CANARY);
    assert_eq!(start.status().expect("it runs").code(), Some(0));
    for number in 0..50 {
        ask(&world, if number % 2 == 0 { "send_it" } else { "pay_it" }, number);
    }
    let waiting = || world.run(&["executor", "status"]).json()["page"]["waiting"].clone();
    assert_eq!(waiting(), 50);
    until("both are told", || !lines(&world, "tell.told").is_empty() && !lines(&world, "notify-send.told").is_empty());
    // Half a minute lies between two; the fifty came in less than two of these, even here.
    for name in ["tell.told", "notify-send.told"] {
        let told = lines(&world, name);
        assert!(told.len() <= 3, "{told:?}");
    }
    let shown = lines(&world, "notify-send.arguments");
    assert_eq!(shown[0], "--app-name=agent-magic-tool -- A task waits for your yes send_it");
    for name in ["tell.told", "tell.arguments", "tell.environment", "notify-send.arguments", "notify-send.environment"]
    {
        let all = lines(&world, name).join("\n");
        assert!(!all.is_empty() && !all.contains(CANARY), "{name}: {all}");
    }
    let environment = lines(&world, "notify-send.environment").join("\n");
    assert!(environment.contains("DISPLAY=:99") && environment.contains("DBUS_SESSION_BUS_ADDRESS=unix:path=/x"));
}

/// A desktop that shows notifications: a session bus, and what answers on it as a desktop would.
struct Desktop {
    bus: Child,
    address: String,
    screen: Child,
    shown: PathBuf,
}

impl Desktop {
    /// `None`, and said loudly, where the real programs are not there.
    fn of(world: &World) -> Option<Self> {
        let is_there = |program: &str| Command::new(program).arg("--version").stdout(Stdio::null()).status().is_ok();
        let python = std::env::var("AGENT_MAGIC_TOOL_TEST_DBUS").ok();
        let Some(python) = python.filter(|_| is_there("dbus-daemon") && is_there("notify-send")) else {
            // Past the harness, which would keep it to itself.
            writeln!(std::io::stderr(), "SKIPPED: a real desktop's notifications: tests/run installs what they need")
                .expect("said");
            return None;
        };
        let address = format!("--address=unix:path={}", world.home().join("bus").display());
        let bus = ["--session", "--nofork", "--nosyslog", "--print-address=1", &address];
        let (bus, address) = begin(&mut world.within("dbus-daemon", &bus));
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/executor/notices/desktop.py");
        let shown = world.home().join("shown");
        let mut desktop = world.within(python, &[]);
        desktop.arg(script).arg(&shown).env("DBUS_SESSION_BUS_ADDRESS", &address);
        let (screen, ready) = begin(&mut desktop);
        assert_eq!(ready, "ready");
        Some(Self { bus, address, screen, shown })
    }

    fn shown(&self) -> Vec<Value> {
        let text = fs::read_to_string(&self.shown).unwrap_or_default();
        text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }
}

impl Drop for Desktop {
    fn drop(&mut self) {
        for child in [&mut self.screen, &mut self.bus] {
            child.kill().expect("it is ours");
            child.wait().expect("it ended");
        }
    }
}

/// Starts a program that says a line once it is ready.
fn begin(command: &mut Command) -> (Child, String) {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("it starts");
    let mut said = String::new();
    BufReader::new(child.stdout.take().expect("a pipe")).read_line(&mut said).expect("it says it");
    (child, said.trim_end().to_owned())
}

/// T40, by the real `notify-send` and on a real bus: a desktop reads markup in what it is told, and there is
/// none.
#[test]
fn a_desktop_is_told_how_many_wait_and_for_which_subtools_and_nothing_else() {
    let world = world("");
    let Some(desktop) = Desktop::of(&world) else { return };
    let names = ["--help", "-u", "--urgency", "a", "pay_it", "send_it"];
    let hostile =
        ["<b>pay_it</b>", "<img src='file:///x'>", "a&amp;b", "a\nSystem: all is well", "\u{202e}ti_yap", "pay it", ""];
    for (number, name) in names[..4].iter().chain(&hostile).enumerate() {
        let told = format!("Tells <b>{CANARY}</b>.");
        world.define(
            &format!("more-{number}.json"),
            &json!({*name: {"description": told, "input": {"type": "object"}, "confirm": "always", "run": {"process": {"argv": ["true"]}}}}),
        );
    }
    for name in hostile {
        let refused = world.run(&["run", "--reason=x", "--", name]);
        assert!([2, 3].contains(&refused.exit), "{name:?} is the name of nothing: {refused}");
    }
    for (number, name) in names.iter().enumerate() {
        let input = json!({"number": number, "text": format!("<b>{CANARY}</b>")}).to_string();
        let reason = format!("--reason=<i>{CANARY}</i>");
        let mut ask = world.command(&["run", "--input", &input, &reason, "--", name]);
        ask.env("AGENT_MAGIC_TOOL_SESSION", format!("<u>{CANARY}</u>"));
        let asked = world.transcript(&ask.output().expect("it runs"));
        assert_eq!(asked.exit, 0, "{asked}");
    }
    // All of them wait by the time that an executor comes which has a desktop.
    assert_eq!(world.run(&["executor", "stop"]).exit, 0);
    let mut start = world.command(&["executor", "start"]);
    start.env("DISPLAY", ":99").env("DBUS_SESSION_BUS_ADDRESS", &desktop.address);
    assert_eq!(start.status().expect("it runs").code(), Some(0));
    until("it is shown", || !desktop.shown().is_empty());
    let expected = json!({"app": "agent-magic-tool", "replaces": 0, "icon": "", "title": "6 tasks wait for your yes",
        "body": "--help, --urgency, -u, a, pay_it and 1 more", "actions": [], "hints": ["sender-pid", "urgency"]});
    assert_eq!(desktop.shown(), [expected]);
    assert_eq!(world.run(&["executor", "stop"]).exit, 0);
    let log = fs::read_to_string(world.log()).expect("a log");
    assert!(!log.contains("was not told"), "{log}");
}

#[test]
fn without_a_display_or_where_it_is_not_wanted_no_desktop_is_told() {
    for (more, display) in [("", None), ("notify = false\n", Some(":99"))] {
        let world = world(more);
        let notify = record(&world, "notify-send", "printf desktop");
        let path = format!("{}:{}", parent(&notify).display(), std::env::var("PATH").unwrap_or_default());
        let mut start = world.command(&["executor", "start"]);
        start.env("PATH", path).envs(display.map(|display| ("DISPLAY", display)));
        assert_eq!(start.status().expect("it runs").code(), Some(0));
        ask(&world, "send_it", 1);
        // Both are told together, so that one that was not told by now is not.
        until("the command is told", || !lines(&world, "tell.told").is_empty());
        assert_eq!(world.run(&["executor", "stop"]).exit, 0);
        assert!(!world.home().join("bin/notify-send.arguments").exists(), "{more}");
    }
}

#[test]
fn a_command_that_hangs_or_is_missing_holds_nothing_up() {
    let world = World::new();
    world.define("ask.json", &json!({"send_it": {"description": "Sends it.", "input": {"type": "object"}, "confirm": "always",
        "run": {"process": {"argv": ["true"]}}}, "say": {"description": "Says it.", "input": {"type": "object"}, "confirm": "never",
        "run": {"process": {"argv": ["echo", "said"]}}}}));
    let marks = world.home().join("began");
    world.configure(&format!(
        "[confirm]\non_confirmation = [\"sh\", \"-c\", \"trap '' TERM; touch '{}'; cat > /dev/null; exec sleep 600\"]\n",
        marks.display()
    ));
    let id = ask(&world, "send_it", 1);
    until("it hangs", || marks.exists());
    assert_eq!(world.result_of("say", &json!({}))["data"], "said");
    assert_eq!(world.run(&["executor", "stop"]).exit, 0, "the end does not wait for it either");

    world.configure("[confirm]\non_confirmation = [\"/nowhere/tell\"]\n");
    assert_eq!(world.run(&["executor", "start"]).exit, 0);
    // What waits since before is told anew by each executor.
    until("it was tried", || fs::read_to_string(world.log()).is_ok_and(|log| log.contains("was not told")));
    assert_eq!(world.result_file(&id)["state"], "awaiting_confirmation");
}

fn parent(path: &Path) -> &Path {
    path.parent().expect("it lies in a folder")
}
