//! Counting instructions: the one figure that noise does not touch.
//!
//! valgrind's callgrind counts them and names every function that was executed. Where it is not
//! installed nothing can be said.

use std::collections::BTreeSet;
use std::fs;
use std::process::{Command, Stdio};

/// What a command executed.
#[derive(Debug)]
pub(crate) struct Profile {
    pub(crate) instructions: u64,
    /// The names that the symbols of the program give; none where it was stripped.
    pub(crate) functions: BTreeSet<String>,
}

/// Whether anything can be counted here.
pub(crate) fn can_count() -> bool {
    let asked = Command::new("valgrind").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    asked.is_ok_and(|status| status.success())
}

/// Executes `command` to its end, which must be a good one.
pub(crate) fn profile(command: &Command) -> Profile {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("profile");
    let mut counted = Command::new("valgrind");
    counted
        .arg("--tool=callgrind")
        .arg(format!("--callgrind-out-file={}", file.display()))
        .arg(command.get_program())
        .args(command.get_args())
        .env_clear()
        .stdin(Stdio::null());
    for (key, value) in command.get_envs() {
        if let Some(value) = value {
            counted.env(key, value);
        }
    }
    if let Some(current) = command.get_current_dir() {
        counted.current_dir(current);
    }
    let output = counted.output().expect("valgrind starts");
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    let text = fs::read_to_string(file).expect("the profile");
    let instructions = text
        .lines()
        .find_map(|line| line.strip_prefix("summary: ").or(line.strip_prefix("totals: ")))
        .and_then(|count| count.trim().parse().ok())
        .expect("a profile has a sum");
    // `fn=(12) name` at the first mention, `fn=(12)` at later ones.
    let functions = text
        .lines()
        .filter_map(|line| line.strip_prefix("fn=").or(line.strip_prefix("cfn=")))
        .filter_map(|function| Some(function.split_once(") ")?.1.to_owned()))
        .collect();
    Profile { instructions, functions }
}
