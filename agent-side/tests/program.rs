//! The small program as a file: it needs no other, and says what it cannot do alone.

use std::fs;
use std::process::{Command, Output};

const SMALL: &str = env!("CARGO_BIN_EXE_agent-magic-tool-small");

/// Runs a copy that lies alone in a folder, without a home and without a search path.
fn alone(arguments: &[&str]) -> Output {
    let folder = tempfile::tempdir().expect("a folder");
    let program = folder.path().join("agent-magic-tool");
    fs::copy(SMALL, &program).expect("copied");
    let mut command = Command::new(&program);
    command.args(arguments).env_clear().env("HOME", folder.path());
    command.env("AGENT_MAGIC_TOOL_DIR", folder.path().join("mailbox")).output().expect("it starts")
}

#[test]
fn it_is_linked_without_libraries() {
    const INTERPRETER: usize = 3;
    let program = fs::read(SMALL).expect("it is there");
    // ELF64: where the program headers are, how large each is, and how many there are.
    let number =
        |at: usize, bytes: usize| program[at..at + bytes].iter().rev().fold(0, |all, it| all << 8 | usize::from(*it));
    let (start, size, count) = (number(32, 8), number(54, 2), number(56, 2));
    let kinds: Vec<_> = (0..count).map(|index| number(start + index * size, 4)).collect();
    assert!(count > 0 && !kinds.contains(&INTERPRETER), "{kinds:?}: it is loaded by an interpreter");
}

#[test]
fn alone_it_explains_itself_and_says_what_is_missing() {
    for arguments in [&["--version"][..], &[], &["help", "run"], &["list", "--help"]] {
        let printed = alone(arguments);
        assert!(printed.status.success() && printed.stderr.is_empty(), "{arguments:?}: {printed:?}");
        assert!(String::from_utf8_lossy(&printed.stdout).contains("agent-magic-tool"), "{arguments:?}");
    }
    for (arguments, exit, code, words) in [
        (&["doctor"][..], 1, "cannot-start", "libexec"),
        (&["pack", "list"], 1, "cannot-start", "libexec"),
        (&["list", "tools"], 7, "no-executor", "executor start"),
        (&["run", "x"], 7, "no-executor", ""),
        (&["nonsense"], 2, "usage", "list"),
        (&["run", "x", "--nonsense"], 2, "usage", ""),
        (&["--for-version=0.0.0", "list"], 1, "cannot-start", "another small program"),
    ] {
        let printed = alone(arguments);
        let error = String::from_utf8_lossy(&printed.stderr);
        assert!(error.contains(&format!("\"code\":\"{code}\"")) && error.contains(words), "{arguments:?}: {error}");
        assert_eq!((printed.status.code(), printed.stdout.len()), (Some(exit), 0), "{arguments:?}: {error}");
    }
}
