//! The first things a new user meets: the bare command, `--help`, the manual page, completions, the demo.

use crate::world::World;

#[test]
fn the_bare_command_shows_a_model_how_to_start() {
    let world = World::new();
    let bare = world.run(&[]);
    assert_eq!((bare.exit, bare.stderr.as_str()), (0, ""), "{bare}");
    let lines: Vec<_> = bare.stdout.lines().take(9).collect();
    let first = lines.join("\n");
    for needed in [
        "agent-magic-tool list tools --query=",
        "agent-magic-tool run NAME key=value",
        "agent-magic-tool wait ID",
        "in English",
    ] {
        assert!(first.contains(needed), "`{needed}` is not in the first lines: {first}");
    }
    // What only a human may call costs a model tokens, and tempts it.
    for human in ["secret", "setup", "resolve", "doctor", "demo", "completions"] {
        let named = bare.stdout.split(|c: char| !c.is_ascii_alphanumeric() && c != '-').any(|word| word == human);
        assert!(!named, "`{human}` is in the bare call: {bare}");
    }
    let help = world.run(&["--help"]).stdout;
    assert!(help.contains("executor") && help.contains("Find a tool"), "{help}");
    assert_eq!(world.run(&["--version"]).stdout.trim(), concat!("agent-magic-tool ", env!("CARGO_PKG_VERSION")));
    assert!(!world.mailbox().exists(), "help must not create the mailbox");
}

#[test]
fn the_length_of_the_help_does_not_depend_on_the_catalog() {
    let world = World::new();
    let before = world.run(&["--help"]).stdout;
    let many: serde_json::Map<_, _> = (0..1000)
        .map(|number| {
            let subtool = serde_json::json!({"description": format!("Does the thing number {number}."), "input": {},
                "annotations": {"readOnlyHint": true}, "run": {"process": {"argv": ["true"]}}});
            (format!("thing_{number}"), subtool)
        })
        .collect();
    world.define("many.json", &many.into());
    assert_eq!(world.run(&["--help"]).stdout, before);
    let listed = world.run(&["list", "--query=thing number 77", "--limit=1", "--format=names"]);
    assert_eq!(listed.json(), serde_json::json!(["thing_77"]), "{listed}");
}

#[test]
fn help_with_a_command_is_that_commands_help() {
    let world = World::new();
    for command in ["list", "run", "executor start", "command-executor"] {
        let words: Vec<_> = command.split(' ').collect();
        let help = world.run(&[&["help"], &words[..]].concat());
        assert_eq!((help.exit, &help.stdout), (0, &world.run(&[&words[..], &["--help"]].concat()).stdout), "{help}");
    }
    assert_eq!(world.run(&["help"]).stdout, world.run(&["--help"]).stdout);
    let unknown = world.run(&["help", "search"]);
    assert_eq!((unknown.exit, unknown.error()["code"].as_str()), (2, Some("usage")), "{unknown}");
}

#[test]
fn every_commands_help_names_its_options() {
    let world = World::new();
    for (command, option) in [
        ("list", "--query"),
        ("run", "--dry-run"),
        ("wait", "--any"),
        ("read", "--jq"),
        ("tasks", "--state"),
        ("resolve", "--did-not"),
    ] {
        let help = world.run(&[command, "--help"]);
        assert!(help.exit == 0 && help.stdout.contains(option), "{help}");
    }
}

#[test]
fn bash_accepts_the_completions_and_man_prints_a_manual_page() {
    let world = World::new();
    let script = world.run(&["completions", "bash"]).stdout;
    let checked = world.transcript(&world.within("bash", &["-n", "-c", &script]).output().expect("bash"));
    assert_eq!((checked.exit, checked.stderr.as_str()), (0, ""));
    assert!(world.run(&["man"]).stdout.contains(".TH agent-magic-tool 1"));
}

#[test]
fn the_demo_shows_every_step() {
    let world = World::new();
    let demo = world.run(&["demo"]);
    assert_eq!((demo.exit, demo.stdout.contains("exit status")), (0, false), "{demo}");
    let positions: Vec<_> = [
        "list tools --query=",
        "\"files_search\"",
        "run files_search",
        "\"status\":\"pending\"",
        "\"status\":\"succeeded\"",
        "day-077.md",
        "publish.json",
        "agent-magic-tool agent",
        "run publish_report",
        "[stand-in]",
        "publish_report succeeded",
        "It is on the board",
        "The model was asked 5 times",
    ]
    .iter()
    .scan(0, |from, part| {
        let offset =
            demo.stdout[*from..].find(part).unwrap_or_else(|| panic!("`{part}` is missing after byte {from}: {demo}"));
        *from += offset;
        Some(*from)
    })
    .collect();
    assert!(positions.is_sorted());
    let (before, after) = demo.stdout.split_once("[stand-in]").expect("the approval");
    assert!(before.contains("waiting for publish_report") && !after.contains("waiting for publish_report"), "{demo}");
    assert!(!world.mailbox().exists(), "the demo must use a mailbox of its own");
}
