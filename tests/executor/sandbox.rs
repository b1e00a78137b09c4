//! Calls from inside a sandbox like those of coding agents: no sockets, no network, and everything read-only except
//! the mailbox.

use std::fs;
use std::process::Command;

use serde_json::json;

use crate::skip::skip;
use crate::world::{PROGRAM, Transcript, World};

/// Forbids `socket` and `socketpair` on x86-64 with EPERM, and allows everything else. Classic BPF for `seccomp(2)`:
/// code, jump if true, jump if false, operand.
const NO_SOCKETS: [(u16, u8, u8, u32); 7] = [
    (0x20, 0, 0, 4),           // load the architecture
    (0x15, 0, 4, 0xC000_003E), // not x86-64: allow
    (0x20, 0, 0, 0),           // load the system call's number
    (0x15, 1, 0, 41),          // socket: refuse
    (0x15, 0, 1, 53),          // socketpair: refuse
    (0x06, 0, 0, 0x0005_0001), // EPERM
    (0x06, 0, 0, 0x7FFF_0000), // allow
];

/// Runs the program with `arguments` inside the sandbox; `None` if there is no sandbox on this machine.
fn inside(world: &World, arguments: &[&str]) -> Option<Transcript> {
    let filter = world.folder().join("no-sockets.bpf");
    let bytes = NO_SOCKETS.iter().flat_map(|(code, yes, no, operand)| {
        [code.to_le_bytes().as_slice(), &[*yes, *no], operand.to_le_bytes().as_slice()].concat()
    });
    fs::write(&filter, bytes.collect::<Vec<u8>>()).expect("written");
    fs::create_dir_all(world.mailbox()).expect("made");
    let script = r#"exec 10<"$1"; mailbox=$2; shift 2
        exec bwrap --ro-bind / / --dev /dev --proc /proc --bind "$mailbox" "$mailbox" --unshare-net --unshare-pid \
            --die-with-parent --seccomp 10 -- "$@""#;
    let filter = filter.display().to_string();
    let mailbox = world.mailbox().display().to_string();
    let words = [&["-c", script, "sandbox", &filter, &mailbox, PROGRAM], arguments].concat();
    let mut command = world.within("bash", &words);
    is_available(&mut world.within("bash", &["-c", script, "sandbox", &filter, &mailbox, "true"]))
        .then(|| world.transcript(&command.output().expect("bash")))
}

fn is_available(command: &mut Command) -> bool {
    let tried = command.output().expect("bash");
    if !tried.status.success() {
        skip(&format!("no bubblewrap sandbox here: {}", String::from_utf8_lossy(&tried.stderr).trim()));
    }
    tried.status.success()
}

#[test]
fn doctor_names_the_setting_for_each_client() {
    let world = World::new();
    let mailbox = world.mailbox().display().to_string();
    fs::create_dir_all(&mailbox).expect("made");
    // Creates the mailbox before it becomes read-only.
    world.run(&["doctor"]);
    let words = ["--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--unshare-pid", "--die-with-parent", "--"];
    if !is_available(&mut world.within("bwrap", &[&words[..], &["true"]].concat())) {
        return;
    }
    let hint = |variable: &str| {
        let mut command = world.within("bwrap", &[&words[..], &[PROGRAM, "doctor"]].concat());
        let ran = world.transcript(&command.env(variable, "1").output().expect("bwrap"));
        let checks = ran.json()["checks"].as_array().expect("checks").clone();
        let check = checks.into_iter().find(|check| check["name"] == "client").expect("the check of the client");
        assert_eq!(check["ok"], false, "{ran}");
        check["hint"].as_str().expect("a hint").replace(&mailbox, "MAILBOX")
    };
    let hints = ["CODEX_THREAD_ID", "CLAUDE_CODE_SESSION_ID", "GEMINI_CLI", "NONE"].map(hint).join("\n");
    insta::assert_snapshot!(hints, @r#"
    in ~/.codex/config.toml: [sandbox_workspace_write] writable_roots = ["MAILBOX"]; or: codex --add-dir MAILBOX
    in ~/.claude/settings.json: "sandbox": {"filesystem": {"allowWrite": ["MAILBOX"]}}
    start it with: SANDBOX_MOUNTS=MAILBOX:MAILBOX:rw
    make this folder writable in the client's sandbox: MAILBOX
    "#);
}

#[test]
fn all_commands_for_agents_work_with_an_executor_outside_the_sandbox() {
    let world = World::new();
    assert_eq!(world.run(&["executor", "start"]).exit, 0);
    let Some(listed) = inside(&world, &["list", "tools", "--query=list files of a folder", "--format=names"]) else {
        return;
    };
    assert_eq!((listed.exit, &listed.json()[0]), (0, &json!("files_list")), "{listed}");
    let Some(ran) = inside(&world, &["run", "files_list", "path=."]) else { return };
    assert_eq!((ran.exit, &ran.json()["status"]), (0, &json!("pending")), "{ran}");
    let id = ran.json()["id"].as_str().expect("an id").to_owned();
    let Some(waited) = inside(&world, &["wait", &id]) else { return };
    assert_eq!((waited.exit, &waited.json()["status"]), (0, &json!("succeeded")), "{waited}");
    let Some(read) = inside(&world, &["read", &id, "--jq", ".entries | length"]) else { return };
    assert_eq!((read.exit, read.json().as_u64()), (0, Some(1)), "{read}");
    let Some(slow) = inside(&world, &["run", "files_list", "--wait"]) else { return };
    assert_eq!((slow.exit, &slow.json()["status"]), (0, &json!("succeeded")), "{slow}");
}

#[test]
fn no_executor_is_started_inside_and_the_hint_is_for_the_human() {
    let world = World::new();
    let Some(ran) = inside(&world, &["run", "files_list"]) else { return };
    assert_eq!((ran.exit, ran.error()["code"].as_str()), (7, Some("no-executor")), "{ran}");
    assert!(ran.error()["hint"].as_str().is_some_and(|hint| hint.contains("agent-magic-tool executor start")), "{ran}");
    assert!(
        fs::read_dir(world.mailbox().join("inbox")).expect("a folder").next().is_none(),
        "a request was left in the inbox"
    );
    assert!(world.executor().is_none());
}
