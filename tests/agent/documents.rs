//! The one JSON document that `agent --json` prints, whatever happens: a program that reads it learns how its question
//! ended without reading notes.

use std::path::Path;
use std::process::Command;

use serde_json::json;

use super::stub::{Stub, StubAnswer};
use crate::world::{self, Transcript, World};

/// Changes a world before the question is asked in it.
type Change = fn(&World, &mut Command);

/// Asks, with `words` after `agent --json`, in a world that has a model, and that `change` then changes.
fn ask(script: &[StubAnswer], change: Change, words: &[&str]) -> Transcript {
    let world = World::new();
    let _stub = Stub::start(&world, script.to_vec(), "");
    let mut command = world.command(&[&["agent", "--json"], words].concat());
    change(&world, &mut command);
    world.transcript(&command.output().expect("the program runs"))
}

#[test]
fn a_question_that_never_began_is_a_document_as_well() {
    let nothing: Change = |_, _| ();
    let rows: [(&str, &[&str], Change); 17] = [
        ("no-model", &["Hello"], |world, _| world.configure("")),
        ("no-model", &["--model", "gpt", "Hello"], nothing),
        ("bad-config", &["Hello"], |world, _| world.configure("[agent")),
        ("bad-config", &["Hello"], |world, _| world.configure("[agent]\nmodle = \"openai\"\n")),
        ("bad-config", &["Hello"], |_, command| {
            command.env("AGENT_MAGIC_TOOL_SCOPE", "git_*");
        }),
        ("bad-config", &["Hello"], |_, command| {
            command.env_remove("HOME");
        }),
        ("io", &["Hello"], |world, _| {
            std::fs::create_dir_all(world.state().parent().expect("a folder")).expect("made");
            std::fs::write(world.state(), "a file where the folder should be").expect("written");
        }),
        ("not-found", &["--session", "199", "Hello"], nothing),
        ("not-found", &["--session", "no such", "Hello"], nothing),
        ("not-found", &["--continue"], nothing),
        ("not-found", &["--continue", "Hello"], nothing),
        ("usage", &["--session", "101", "--continue", "Hello"], nothing),
        ("usage", &["--session"], nothing),
        ("usage", &["--steps", "many", "Hello"], nothing),
        ("usage", &["--no-such-option", "Hello"], nothing),
        ("usage", &[" "], nothing),
        ("usage", &[], nothing),
    ];
    for (code, words, change) in rows {
        let ran = ask(&[StubAnswer::says("Hello!")], change, words);
        let document = ran.json();
        assert_eq!(
            (&document["termination"], &document["error"]["code"]),
            (&json!("not_started"), &json!(code)),
            "{ran}"
        );
        assert_eq!(document["error"], ran.error(), "both streams tell of the same error: {ran}");
        assert!(ran.exit != 0, "{words:?}: {ran}");
    }
}

#[test]
fn a_question_that_failed_later_is_the_whole_document_with_the_error() {
    let world = World::new();
    let _stub = Stub::start(&world, vec![StubAnswer::error(401, "no")], "");
    let ran = world.run(&["agent", "--json", "Hello"]);
    let document = ran.json();
    assert_eq!((ran.exit, &document["termination"]), (1, &json!("provider_failed")), "{ran}");
    assert_eq!((&document["error"]["code"], &document["session"]), (&json!("model-failed"), &json!(101)), "{ran}");
    assert_eq!(document["error"], ran.error(), "{ran}");

    let ran = ask(&[StubAnswer::says("Hello!")], |_, _| (), &["--report", "no/such/folder/report.md", "Hello"]);
    let document = ran.json();
    assert_eq!((ran.exit, &document["termination"]), (1, &json!("completed")), "{ran}");
    assert_eq!((&document["answer"], &document["error"]["code"]), (&json!("Hello!"), &json!("io")), "{ran}");
}

#[test]
fn work_that_broke_off_is_not_called_completed() {
    let world = World::new();
    let _stub = Stub::start(&world, vec![StubAnswer::says(&"long ".repeat(20_000))], "");
    let limited = format!("trap '' XFSZ; ulimit -f 32; exec {} agent --json Hello", quoted(&world::program()));
    let ran = world.transcript(&world.within("sh", &["-c", &limited]).output().expect("it runs"));
    let document = ran.json();
    assert_eq!((&document["termination"], &document["error"]), (&json!("broken_off"), &ran.error()), "{ran}");
    assert!(ran.exit != 0, "{ran}");
}

fn quoted(path: &Path) -> String {
    format!("'{}'", path.display())
}
