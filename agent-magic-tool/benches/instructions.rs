//! Counts instructions, the one measure without noise.
//!
//! valgrind's callgrind counts them and names every executed function. Without valgrind nothing is measured.

use std::collections::BTreeSet;
use std::fs;
use std::process::{Command, Stdio};

/// What a command executed.
#[derive(Debug)]
pub(crate) struct Profile {
    pub(crate) instructions: u64,
    /// The executed functions by symbol name; empty if the program is stripped.
    pub(crate) functions: BTreeSet<String>,
}

/// Whether valgrind is installed.
pub(crate) fn can_count() -> bool {
    let status = Command::new("valgrind").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}

/// Runs `command` to its end under valgrind. Panics if it fails.
pub(crate) fn profile(command: &Command) -> Profile {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("profile");
    let mut valgrind = Command::new("valgrind");
    valgrind
        .arg("--tool=callgrind")
        .arg(format!("--callgrind-out-file={}", file.display()))
        .arg(command.get_program())
        .args(command.get_args())
        .env_clear()
        .stdin(Stdio::null());
    for (key, value) in command.get_envs() {
        if let Some(value) = value {
            valgrind.env(key, value);
        }
    }
    if let Some(current) = command.get_current_dir() {
        valgrind.current_dir(current);
    }
    let output = valgrind.output().expect("valgrind starts");
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    let text = fs::read_to_string(file).expect("the profile");
    let instructions = text
        .lines()
        .find_map(|line| line.strip_prefix("summary: ").or(line.strip_prefix("totals: ")))
        .and_then(|count| count.trim().parse().ok())
        .expect("a profile has a summary");
    // `fn=(12) name` at the first mention, `fn=(12)` at later ones.
    let functions = text
        .lines()
        .filter_map(|line| line.strip_prefix("fn=").or(line.strip_prefix("cfn=")))
        .filter_map(|function| Some(function.split_once(") ")?.1.to_owned()))
        .collect();
    Profile { instructions, functions }
}
