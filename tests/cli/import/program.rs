//! Real programs are imported from what they say about themselves, and some of what is written is run.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use serde_json::{Value, json};

use super::{quiet_world, written};
use crate::world::{World, program};

/// Imports a program, checks that nothing is wrong with what was written, and returns the report.
fn imported(world: &World, words: &[&str]) -> Value {
    let imported = world.run(&[&["import", "cli"], words].concat());
    assert_eq!(imported.exit, 0, "{imported}");
    let lint = world.run(&["lint"]);
    assert_eq!(lint.exit, 0, "{lint}");
    imported.json()
}

/// Runs a subtool after a human approved it.
fn approved(world: &World, name: &str, input: &Value) -> Value {
    let id = world.start(name, input);
    assert_eq!(world.result_file(&id)["state"], "awaiting_confirmation", "what is not known to be harmless asks");
    world.decide(&id, "approve", "");
    world.end_of(&id)
}

#[test]
fn tar_is_imported_and_packs_files() {
    let world = quiet_world();
    imported(&world, &["tar"]);
    fs::write(world.folder().join("-note"), "年").expect("written");
    let input = json!({"create": true, "file": "a.tar", "argument_file": ["-note"]});
    let packed = approved(&world, "tar", &input);
    assert_eq!(packed["status"], "succeeded", "{packed}");
    let listed = approved(&world, "tar", &json!({"list": true, "file": "a.tar"}));
    assert_eq!(listed["data"], "-note", "a name that begins with `-` is a file, not an option: {listed}");
}

#[test]
fn git_is_imported_without_starting_what_its_usage_only_mentions() {
    let world = quiet_world();
    world.configure("");
    let report = imported(&world, &["git", "--name", "vcs"]);
    assert!(report["imported"].as_u64().is_some_and(|count| count > 60), "{report}");
    let made = approved(&world, "vcs_init", &json!({"directory": "repo"}));
    assert!(world.folder().join("repo/.git").exists(), "{made}");
    let file = written(&world, "vcs.json");
    assert_eq!(file["vcs_bisect_start"]["run"]["process"]["argv"][2], "start", "it is told from the usage alone");
    assert!(file.get("vcs_gui").is_none());
}

#[test]
fn our_own_program_is_imported_and_answers() {
    let world = quiet_world();
    let own = program().display().to_string();
    let report = imported(&world, &[&own, "--name", "own"]);
    assert!(report["imported"].as_u64().is_some_and(|count| count > 20), "{report}");
    let file = written(&world, "own.json");
    assert_eq!(file["own_list"]["run"]["process"]["argv"][0], json!(own));
    assert!(file["own_list"]["input"]["properties"]["query"]["description"].is_string(), "{}", file["own_list"]);
}

/// Writes a program into the world's folder, and returns its path.
fn script(world: &World, name: &str, text: &str) -> String {
    let path = world.folder().join(name);
    fs::write(&path, text).expect("written");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("executable");
    path.display().to_string()
}

#[test]
fn argparse_gives_choices_lists_and_subcommands() {
    let world = quiet_world();
    let tool = script(
        &world,
        "tool.py",
        "#!/usr/bin/env python3
import argparse, json
parser = argparse.ArgumentParser(description='Keeps notes of everything.')
commands = parser.add_subparsers(dest='command', required=True)
add = commands.add_parser('add', help='adds a note', description='Adds a note to the file.')
add.add_argument('--tag', action='append', help='a label; can be given multiple times')
add.add_argument('--mood', choices=['good', 'bad'], help='how it feels')
add.add_argument('--loud', action='store_true', help='in capitals')
add.add_argument('text', nargs='+', help='the words')
serve = commands.add_parser('serve', help='serves the notes')
print(json.dumps(vars(parser.parse_args())))
",
    );
    let report = imported(&world, &[&tool]);
    assert_eq!(report["left_out"], json!({"runs until it is stopped": ["tool.py serve"]}), "{report}");
    let input = json!({"tag": ["a", "--loud"], "mood": "good", "text": ["-x", "年"]});
    let added = approved(&world, "tool_py_add", &input);
    let expected =
        json!({"command": "add", "tag": ["a", "--loud"], "mood": "good", "loud": false, "text": ["-x", "年"]});
    let printed: Value = serde_json::from_str(added["data"].as_str().unwrap_or_default()).unwrap_or_default();
    assert_eq!(printed, expected, "{added}");
    let refreshed = world.run(&["import", "--refresh"]);
    assert_eq!(refreshed.json()["packs"][0]["source_changed"], false, "{refreshed}");
}

#[test]
fn a_program_that_does_not_end_or_has_no_help_is_refused() {
    let world = quiet_world();
    let silent = script(&world, "silent", "#!/bin/sh\nexit 1\n");
    let refused = world.run(&["import", "cli", &silent]);
    assert_eq!(refused.exit, 2, "{refused}");
    let message = refused.error()["message"].as_str().expect("a message").to_owned();
    assert!(message.contains("it printed nothing"), "{message}");
    let missing = world.run(&["import", "cli", "no-such-program"]);
    assert_eq!((missing.exit, &missing.error()["message"]), (3, &json!("no program `no-such-program`")));
    // Whatever a program leaves behind ends with its help, and what it prints is bounded.
    let endless = script(
        &world,
        "endless",
        "#!/bin/sh\necho 'Usage: endless [--quiet]'\nsleep 1000 >/dev/null 2>&1 &\nexec >&- 2>&-\nsleep 1000\n",
    );
    assert_eq!(imported(&world, &[&endless])["imported"], 1);
}
