//! The small program: the agent's side alone. What it does itself it does as the full one, and the rest it hands on.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde_json::json;

use crate::skip::skip;
use crate::world::{PROGRAM, Transcript, World, full_program};

/// The small program beside the full one.
fn small() -> PathBuf {
    let small = Path::new(PROGRAM).with_file_name("agent-magic-tool-small");
    assert!(small.exists(), "build it first: cargo build -p agent-magic-tool-agent-side");
    small
}

fn run(world: &World, program: &Path, arguments: &[&str]) -> Transcript {
    world.transcript(&world.within(program, arguments).output().expect("it starts"))
}

/// The small program in a folder of its own, so that it finds no full one.
fn alone(world: &World) -> PathBuf {
    let folder = world.folder().join("alone");
    fs::create_dir_all(&folder).expect("made");
    let program = folder.join("agent-magic-tool");
    // A copy that a test beside this one has just inherited, open for writing, cannot be started.
    if fs::hard_link(small(), &program).is_err() {
        fs::copy(small(), &program).expect("copied");
    }
    program
}

/// A definition whose description has this word.
fn define(world: &World, echoed: &str) {
    let echo = json!({"description": format!("Echoes {echoed}."), "annotations": {"readOnlyHint": true},
        "input": {"type": "object", "properties": {"text": {"type": "string"}}},
        "run": {"process": {"argv": ["echo", "{{ text }}"]}}});
    world.define("echo.json", &json!({ "echo_text": echo }));
}

#[test]
fn it_prints_what_the_full_program_prints() {
    let world = World::new();
    world.configure("[catalog]\nlearn = false\n");
    define(&world, "words");
    assert_eq!(world.run(&["executor", "start"]).exit, 0);
    // Makes the executor publish its listing.
    assert_eq!(run(&world, &small(), &["list", "tools", "echo_text"]).exit, 0);
    for arguments in [
        &["list", "tools", "--query=echo words"][..],
        &["list", "tools", "--query=send mail", "--format=typescript"],
        &["list", "tools", "--limit=3", "--format=names"],
        &["list", "tools", "echo_text"],
        &["list", "packs"],
        &["list", "tools", "echo_txt"],
        &["list", "tools", "--in=none"],
        &["list", "nonsense"],
        &["list", "tools", "--nonsense"],
        &["run", "echo_text", "text=hello", "--dry-run"],
        &["run", "echo_txt"],
        &["run", "echo_text", "--text=hello"],
        &["echo_text"],
        &["wait", "nonsense"],
        &["read"],
        &["help", "read"],
        &["inspect", "echo_text"],
        &["--help"],
        &["search", "mail"],
        &[],
    ] {
        let (full, small) = (world.run(arguments), run(&world, &small(), arguments));
        assert_eq!((small.exit, small.stdout, small.stderr), (full.exit, full.stdout, full.stderr), "{arguments:?}");
    }
}

#[test]
fn every_edit_is_seen_by_the_next_list() {
    let world = World::new();
    define(&world, "start");
    assert_eq!(world.run(&["executor", "start"]).exit, 0);
    for program in [small(), alone(&world)] {
        for word in ["apple", "banana", "cherry", "damson", "elder"] {
            define(&world, word);
            let listed = run(&world, &program, &["list", "tools", "echo_text"]);
            assert!(listed.stdout.contains(&format!("Echoes {word}.")), "{word}: {listed}");
            let found = run(&world, &program, &["list", "tools", "--query", word, "--format=names"]);
            assert_eq!(found.json()[0], "echo_text", "{word}: {found}");
        }
    }
}

#[test]
fn a_listing_that_was_changed_or_damaged_in_the_mailbox_is_made_anew() {
    let world = World::new();
    define(&world, "words");
    assert_eq!(world.run(&["executor", "start"]).exit, 0);
    let (program, published) = (alone(&world), world.mailbox().join("listing"));
    let listed = || run(&world, &program, &["list", "tools", "echo_text"]).stdout;
    assert!(listed().contains("Echoes words."));
    let original = fs::read(&published).expect("it is published");
    let words = |bytes: &[u8], from: &[u8], to: &[u8]| {
        let at = bytes.windows(from.len()).position(|part| part == from).expect("the description");
        [&bytes[..at], to, &bytes[at + from.len()..]].concat()
    };
    let forged = words(&original, b"Echoes words.", b"Echoes lies!!");
    let other = world.mailbox().join("other");
    for change in ["in place", "by another file", "by a pipe", "by a folder", "by nothing", "with damaged settings"] {
        match change {
            "in place" => fs::write(&published, &forged).expect("written"),
            "by another file" => {
                fs::write(&other, &forged).expect("written");
                fs::rename(&other, &published).expect("renamed");
            }
            "by a pipe" => {
                nix::unistd::mkfifo(&other, nix::sys::stat::Mode::S_IRWXU).expect("made");
                fs::rename(&other, &published).expect("renamed");
            }
            "by a folder" => {
                fs::remove_file(&published).expect("removed");
                fs::create_dir_all(published.join("more")).expect("made");
            }
            "by nothing" => fs::remove_file(&published).expect("removed"),
            _ => fs::write(world.mailbox().join("for-callers.json"), "{").expect("written"),
        }
        let said = listed();
        assert!(said.contains("Echoes words.") && !said.contains("lies"), "{change}: {said}");
    }
    assert!(world.run(&["list", "tools", "echo_text"]).stdout.contains("Echoes words."), "the cache is another file");
}

#[test]
fn it_says_what_a_hit_lacks_without_seeing_the_secrets() {
    let world = World::new();
    let subtool = json!({"description": "Counts the stars.", "input": {}, "annotations": {"readOnlyHint": true},
        "run": {"http": {"base_url": "https://stars.example", "path": "/", "auth": {"bearer": "secret:stars"}}}});
    world.define("stars.json", &json!({ "stars_count": subtool }));
    assert_eq!(world.run(&["executor", "start"]).exit, 0);
    let program = alone(&world);
    let needs = || run(&world, &program, &["list", "tools", "stars_count"]).json()["stars_count"]["needs"].clone();
    assert!(needs().as_str().is_some_and(|needs| needs.contains("secret set stars")), "{}", needs());
    assert_eq!(world.run_with(&["secret", "set", "stars", "--weak"], "0123456789abcdef").exit, 0);
    assert_eq!(needs(), json!(null));
}

#[test]
fn its_one_tool_refuses_what_that_of_the_full_program_refuses() {
    let world = World::new();
    define(&world, "words");
    let answers = |program: &Path| {
        ["doctor", "lint", "inspect files_read", "secret list", "list tools files_read", "tasks --forget-session=x"]
            .map(|line| {
                let mut command = world.within(program, &["command-executor"]);
                command.env("AGENT_MAGIC_TOOL_SCOPE", "[[\"echo_text\"]]").stdin(Stdio::piped()).stdout(Stdio::piped());
                let mut child = command.spawn().expect("it starts");
                let mut stdin = child.stdin.take().expect("a pipe");
                writeln!(stdin, "{}", json!({ "command": line })).expect("written");
                drop(stdin);
                String::from_utf8(child.wait_with_output().expect("it ends").stdout).expect("UTF-8")
            })
    };
    let of_small = answers(&small());
    assert_eq!(of_small, answers(Path::new(PROGRAM)));
    assert!(of_small.iter().all(|answer| !answer.contains("\"exit\":0")), "{of_small:?}");
}

#[test]
fn a_full_program_of_another_version_is_refused() {
    let world = World::new();
    let mut command = world.within(full_program(), &["--for-version=0.0.1", "list", "tools"]);
    let refused = world.transcript(&command.output().expect("it starts"));
    assert_eq!((refused.exit, refused.error()["code"].as_str()), (1, Some("cannot-start")), "{refused}");
    assert!(refused.error()["message"].as_str().is_some_and(|said| said.contains("0.0.1")), "{refused}");
}

#[test]
fn a_sandbox_needs_nothing_but_it_and_the_mailbox() {
    let world = World::new();
    define(&world, "words");
    assert_eq!(world.run(&["executor", "start"]).exit, 0);
    let mailbox = world.mailbox().display().to_string();
    let program = alone(&world).display().to_string();
    let sandbox = |arguments: &[&str]| {
        let words = [
            "--ro-bind",
            &program,
            "/agent-magic-tool",
            "--bind",
            &mailbox,
            "/mailbox",
            "--dev",
            "/dev",
            "--proc",
            "/proc",
        ];
        let options = ["--unshare-all", "--die-with-parent", "--clearenv", "--setenv", "HOME", "/home"];
        let own = ["--setenv", "AGENT_MAGIC_TOOL_DIR", "/mailbox", "--", "/agent-magic-tool"];
        let words = [&words[..], &options, &own, arguments].concat();
        world.transcript(&world.within("bwrap", &words).output().expect("bwrap"))
    };
    let version = sandbox(&["--version"]);
    if version.exit != 0 {
        return skip(&format!("no bubblewrap sandbox here: {}", version.stderr.trim()));
    }
    let listed = sandbox(&["list", "tools", "--query=echo words", "--format=names"]);
    assert_eq!((listed.exit, &listed.json()[0]), (0, &json!("echo_text")), "{listed}");
    let ran = sandbox(&["run", "echo_text", "text=hello"]);
    assert_eq!((ran.exit, &ran.json()["status"]), (0, &json!("pending")), "{ran}");
    let id = ran.json()["id"].as_str().expect("an id").to_owned();
    let waited = sandbox(&["wait", &id]);
    assert_eq!((waited.exit, &waited.json()["data"]), (0, &json!("hello")), "{waited}");
    let read = sandbox(&["read", &id, "--jq", "length"]);
    assert_eq!((read.exit, read.stdout.as_str()), (0, "5\n"), "{read}");
    assert_eq!(sandbox(&["tasks"]).json()[0]["id"], json!(id));
    let refused = sandbox(&["doctor"]);
    assert_eq!((refused.exit, refused.error()["code"].as_str()), (1, Some("cannot-start")), "{refused}");
}
