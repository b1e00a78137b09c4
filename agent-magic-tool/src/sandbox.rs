//! Whether an executor that we start here would be crippled.
//!
//! Coding agents run their shell in sandboxes without network and with most folders read-only, and
//! a child inherits that for good. Such an executor would take every task and fail it.

use std::{fs, io};

use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};
use protocol::paths::Paths;

/// Set by sandboxes for those inside.
const MARKS: [&str; 3] = ["CODEX_SANDBOX", "CODEX_SANDBOX_NETWORK_DISABLED", "SANDBOX_RUNTIME"];

/// What an executor could not do if it were started here; `None` if nothing stands in its way.
pub(crate) fn obstacle(paths: &Paths) -> Option<String> {
    if let Some(mark) = paths.first_set(&MARKS) {
        return Some(format!("`{mark}` says that this is a sandbox"));
    }
    if let Err(error) = writable(paths) {
        return Some(format!("the state folder `{}` cannot be written: {error}", paths.state.display()));
    }
    if let Err(error) = socket(AddressFamily::Inet, SockType::Stream, SockFlag::SOCK_CLOEXEC, None) {
        return Some(format!("network sockets are refused: {}", io::Error::from(error)));
    }
    let first = fs::read_to_string("/proc/1/comm").unwrap_or_default();
    (first.trim_end() == "bwrap").then(|| "this is a bubblewrap sandbox".to_owned())
}

fn writable(paths: &Paths) -> io::Result<()> {
    paths.make_state()?;
    tempfile::Builder::new().prefix(".writable-").tempfile_in(&paths.state).map(drop)
}
