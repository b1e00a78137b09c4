//! Closes this process to the other programs of its user: its memory, its environment and its open files.
//!
//! The executor opens secrets and knows the keys of the page's sessions. Other programs of the user can still send it
//! signals, and root can do everything.

use std::io;

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// Lets no other process of this user read or trace this one (Linux), and writes no core dump. The programs that it
/// starts are not closed, but do not dump core either unless they ask for it.
pub fn close_process() -> io::Result<()> {
    let (_, hard) = getrlimit(Resource::RLIMIT_CORE)?;
    setrlimit(Resource::RLIMIT_CORE, 0, hard)?;
    #[cfg(target_os = "linux")]
    nix::sys::prctl::set_dumpable(false)?;
    Ok(())
}
