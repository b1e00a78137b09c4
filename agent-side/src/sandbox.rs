//! Detects sandboxes in which an executor would not work.
//!
//! Coding agents run their shell in sandboxes without network and with most folders read-only, and
//! a child process cannot leave them. An executor started there would accept every task and fail it.

use std::{fs, io};

use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};
use protocol::paths::Paths;

/// Environment variables that sandboxes set for the processes inside.
const SANDBOX_VARIABLES: [&str; 3] = ["CODEX_SANDBOX", "CODEX_SANDBOX_NETWORK_DISABLED", "SANDBOX_RUNTIME"];

/// Returns why an executor would not work if it were started here; `None` if it would.
pub fn obstacle(paths: &Paths) -> Option<String> {
    if let Some(variable) = paths.first_set(&SANDBOX_VARIABLES) {
        return Some(format!("`{variable}` is set, so this is a sandbox"));
    }
    if let Err(error) = check_writable(paths) {
        return Some(format!("the state folder `{}` is not writable: {error}", paths.state.display()));
    }
    if let Err(error) = socket(AddressFamily::Inet, SockType::Stream, SockFlag::SOCK_CLOEXEC, None) {
        return Some(format!("network sockets are not allowed: {}", io::Error::from(error)));
    }
    let first = fs::read_to_string("/proc/1/comm").unwrap_or_default();
    (first.trim_end() == "bwrap").then(|| "this is a bubblewrap sandbox".to_owned())
}

fn check_writable(paths: &Paths) -> io::Result<()> {
    paths.create_state()?;
    tempfile::Builder::new().prefix(".writable-").tempfile_in(&paths.state).map(drop)
}
