//! Notices: the desktop and a command are told that tasks are waiting; rarely, and never what the tasks contain.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use crate::skip::skip;
use crate::world::{Lines, World, until};

/// A text that is in every input, and must not be anywhere else.
const CANARY: &str = "canary-7e1f";
/// What the log says if a notice cannot be sent.
const COMMAND_FAILED: &str = "the `on_confirmation` command failed";
const DESKTOP_FAILED: &str = "failed to send a desktop notification";

/// A world with two subtools that need a confirmation, and an `on_confirmation` program that records its notices.
fn world(more: &str) -> World {
    let world = World::new();
    let ask = |description: &str| json!({"description": description, "input": {"type": "object"}, "confirm": "always", "run": {"process": {"argv": ["true"]}}});
    world.define("ask.json", &json!({"send_it": ask("Sends it."), "pay_it": ask("Pays it.")}));
    let program = recorder(&world, "tell", "cat");
    world.configure(&format!(
        "[confirm]\nwaiting_per_user = 100\nwaiting_per_session = 100\nasks_per_hour = 0\non_confirmation = [\"{}\", \"an argument\"]\n{more}
         [programs]\npath = [\"{}\", \"/usr/local/bin\", \"/usr/bin\", \"/bin\"]\n",
        program.display(),
        parent(&program).display()
    ));
    world
}

/// A program that appends the output of `read`, as one line, to `NAME.notices`, and its arguments and environment to
/// `NAME.arguments` and `NAME.environment`.
fn recorder(world: &World, name: &str, read: &str) -> PathBuf {
    let folder = world.home().join("bin");
    fs::create_dir_all(&folder).expect("made");
    let program = folder.join(name);
    let path = program.display();
    let script = format!(
        "#!/bin/sh\nprintf '%s\\n' \"$*\" >> '{path}.arguments'\nenv >> '{path}.environment'\n\
         line=$({read})\nprintf '%s\\n' \"$line\" >> '{path}.notices'\n"
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
fn a_command_gets_the_count_the_subtools_and_the_page_but_no_inputs() {
    let world = world("");
    ask(&world, "send_it", 1);
    until("the command gets a notice", || !lines(&world, "tell.notices").is_empty());
    let event: Value = serde_json::from_str(&lines(&world, "tell.notices")[0]).expect("JSON");
    let origin = world.run(&["executor", "status"]).json()["page"]["origin"].clone();
    assert!(origin.as_str().is_some_and(|origin| origin.starts_with("http://") && !origin.contains('#')), "{origin}");
    let expected = json!({"type": "confirmation.waiting", "waiting": 1, "tools": ["send_it"], "page": origin});
    assert_eq!(event, expected);
    assert_eq!(lines(&world, "tell.arguments"), ["an argument"]);
    let log = fs::read_to_string(world.log()).expect("a log");
    assert!(!log.contains(COMMAND_FAILED), "{log}");
}

/// T28, T40.
#[test]
fn many_confirmations_cause_few_notices() {
    let world = world("");
    recorder(&world, "notify-send", "printf desktop");
    // A program of that name in the PATH of who starts the executor is not the one that is called.
    let other = world.folder().join("other");
    fs::create_dir_all(&other).expect("made");
    fs::write(other.join("notify-send"), format!("#!/bin/sh\ntouch '{}/called'\n", other.display())).expect("written");
    fs::set_permissions(other.join("notify-send"), Permissions::from_mode(0o755)).expect("set");
    let path = format!("{}:{}", other.display(), std::env::var("PATH").unwrap_or_default());
    let mut start = world.command(&["executor", "start"]);
    start
        .env("PATH", path)
        .env("DISPLAY", ":99")
        .env("DBUS_SESSION_BUS_ADDRESS", "unix:path=/x")
        .env("SOME_TOKEN", CANARY);
    assert_eq!(start.status().expect("ran").code(), Some(0));
    for number in 0..50 {
        ask(&world, if number % 2 == 0 { "send_it" } else { "pay_it" }, number);
    }
    let waiting = || world.run(&["executor", "status"]).json()["page"]["waiting"].clone();
    assert_eq!(waiting(), 50);
    until("both get a notice", || {
        ["tell.notices", "notify-send.notices"].iter().all(|name| !lines(&world, name).is_empty())
    });
    // At least 30 seconds are between two notices, and the 50 tasks take less than a minute even on a slow machine.
    for name in ["tell.notices", "notify-send.notices"] {
        let notices = lines(&world, name);
        assert!(notices.len() <= 3, "{notices:?}");
    }
    assert!(!other.join("called").exists());
    let shown = lines(&world, "notify-send.arguments");
    assert_eq!(shown[0], "--app-name=agent-magic-tool -- A task waits for your yes send_it");
    for name in
        ["tell.notices", "tell.arguments", "tell.environment", "notify-send.arguments", "notify-send.environment"]
    {
        let all = lines(&world, name).join("\n");
        assert!(!all.is_empty() && !all.contains(CANARY), "{name}: {all}");
    }
    let environment = lines(&world, "notify-send.environment").join("\n");
    assert!(environment.contains("DISPLAY=:99") && environment.contains("DBUS_SESSION_BUS_ADDRESS=unix:path=/x"));
}

/// A desktop that shows notifications: a session bus with a notification server.
struct Desktop {
    bus: Child,
    address: String,
    server: Child,
    shown: PathBuf,
}

impl Desktop {
    /// Starts the desktop. If the real programs are not installed, reports a skipped test and returns `None`.
    fn start(world: &World) -> Option<Self> {
        let is_installed =
            |program: &str| Command::new(program).arg("--version").stdout(Stdio::null()).status().is_ok();
        let python = std::env::var("AGENT_MAGIC_TOOL_TEST_DBUS").ok();
        let Some(python) = python.filter(|_| is_installed("dbus-daemon") && is_installed("notify-send")) else {
            skip("desktop notifications: tests/run installs what they need");
            return None;
        };
        let address = format!("--address=unix:path={}", world.home().join("bus").display());
        let bus = ["--session", "--nofork", "--nosyslog", "--print-address=1", &address];
        let (bus, address) = start_and_read_line(&mut world.within("dbus-daemon", &bus));
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/executor/notices/desktop.py");
        let shown = world.home().join("shown");
        let mut desktop = world.within(python, &[]);
        desktop.arg(script).arg(&shown).env("DBUS_SESSION_BUS_ADDRESS", &address);
        let (server, ready) = start_and_read_line(&mut desktop);
        assert_eq!(ready, "ready");
        Some(Self { bus, address, server, shown })
    }

    fn shown(&self) -> Vec<Value> {
        let text = fs::read_to_string(&self.shown).unwrap_or_default();
        text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }
}

impl Drop for Desktop {
    fn drop(&mut self) {
        for child in [&mut self.server, &mut self.bus] {
            child.kill().expect("killed");
            child.wait().expect("ended");
        }
    }
}

/// Starts a program and waits for the line that it prints when it is ready.
fn start_and_read_line(command: &mut Command) -> (Child, String) {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("started");
    let line = Lines::of(child.stdout.take().expect("a pipe")).next();
    (child, line)
}

/// T40, with the real `notify-send` and a real bus: desktops interpret markup in notifications, so there must be none.
#[test]
fn a_desktop_notification_contains_only_the_count_and_the_subtools() {
    let world = world("");
    let Some(desktop) = Desktop::start(&world) else { return };
    let names = ["--help", "-u", "--urgency", "a", "pay_it", "send_it"];
    let hostile =
        ["<b>pay_it</b>", "<img src='file:///x'>", "a&amp;b", "a\nSystem: all is well", "\u{202e}ti_yap", "pay it", ""];
    for (number, name) in names[..4].iter().chain(&hostile).enumerate() {
        let description = format!("Tells <b>{CANARY}</b>.");
        world.define(
            &format!("more-{number}.json"),
            &json!({*name: {"description": description, "input": {"type": "object"}, "confirm": "always", "run": {"process": {"argv": ["true"]}}}}),
        );
    }
    for name in hostile {
        let refused = world.run(&["run", "--reason=x", "--", name]);
        assert!([2, 3].contains(&refused.exit), "{name:?} is not a valid name: {refused}");
    }
    for (number, name) in names.iter().enumerate() {
        let input = json!({"number": number, "text": format!("<b>{CANARY}</b>")}).to_string();
        let reason = format!("--reason=<i>{CANARY}</i>");
        let mut ask = world.command(&["run", "--input", &input, &reason, "--", name]);
        ask.env("AGENT_MAGIC_TOOL_SESSION", format!("<u>{CANARY}</u>"));
        let asked = world.transcript(&ask.output().expect("ran"));
        assert_eq!(asked.exit, 0, "{asked}");
    }
    // All of them are waiting when an executor with a desktop starts.
    assert_eq!(world.run(&["executor", "stop"]).exit, 0);
    let mut start = world.command(&["executor", "start"]);
    start.env("DISPLAY", ":99").env("DBUS_SESSION_BUS_ADDRESS", &desktop.address);
    assert_eq!(start.status().expect("ran").code(), Some(0));
    until("the notification is shown", || !desktop.shown().is_empty());
    let expected = json!({"app": "agent-magic-tool", "replaces": 0, "icon": "", "title": "6 tasks wait for your yes",
        "body": "--help, --urgency, -u, a, pay_it and 1 more", "actions": [], "hints": ["sender-pid", "urgency"]});
    assert_eq!(desktop.shown(), [expected]);
    assert_eq!(world.run(&["executor", "stop"]).exit, 0);
    let log = fs::read_to_string(world.log()).expect("a log");
    assert!(!log.contains(COMMAND_FAILED) && !log.contains(DESKTOP_FAILED), "{log}");
}

#[test]
fn without_a_display_or_with_notify_off_there_is_no_desktop_notification() {
    for (more, display) in [("", None), ("notify = false\n", Some(":99"))] {
        let world = world(more);
        recorder(&world, "notify-send", "printf desktop");
        let mut start = world.command(&["executor", "start"]);
        start.envs(display.map(|display| ("DISPLAY", display)));
        assert_eq!(start.status().expect("ran").code(), Some(0));
        ask(&world, "send_it", 1);
        // The command and the desktop get a notice at the same time.
        until("the command gets a notice", || !lines(&world, "tell.notices").is_empty());
        assert_eq!(world.run(&["executor", "stop"]).exit, 0);
        assert!(!world.home().join("bin/notify-send.arguments").exists(), "{more}");
    }
}

#[test]
fn a_hanging_or_missing_command_delays_nothing() {
    let world = World::new();
    world.define("ask.json", &json!({"send_it": {"description": "Sends it.", "input": {"type": "object"}, "confirm": "always",
        "run": {"process": {"argv": ["true"]}}}, "say": {"description": "Says it.", "input": {"type": "object"}, "confirm": "never",
        "run": {"process": {"argv": ["echo", "said"]}}}}));
    let started = world.home().join("started");
    world.configure(&format!(
        "[confirm]\non_confirmation = [\"sh\", \"-c\", \"trap '' TERM; touch '{}'; cat > /dev/null; exec sleep 600\"]\n",
        started.display()
    ));
    let id = ask(&world, "send_it", 1);
    until("the command hangs", || started.exists());
    assert_eq!(world.result_of("say", &json!({}))["data"], "said");
    assert_eq!(world.run(&["executor", "stop"]).exit, 0, "the executor should not wait for the command");

    world.configure("[confirm]\non_confirmation = [\"/nowhere/tell\"]\n");
    assert_eq!(world.run(&["executor", "start"]).exit, 0);
    // Each executor sends a notice for the tasks that are already waiting.
    until("the command was tried", || fs::read_to_string(world.log()).is_ok_and(|log| log.contains(COMMAND_FAILED)));
    assert_eq!(world.result_file(&id)["state"], "awaiting_confirmation");
}

fn parent(path: &Path) -> &Path {
    path.parent().expect("a path in a folder")
}
