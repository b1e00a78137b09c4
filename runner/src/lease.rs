//! A lease on an open file: while it is held, no program can open the file for writing.
//!
//! What was read under a lease is what the file still contains. The kernel makes a writer wait, for 45 seconds unless
//! the machine is set up otherwise, so a lease is held for a moment only. Dropping the file ends it.

use std::fs::File;

#[cfg(target_os = "linux")]
use std::{io, os::fd::AsRawFd as _};

#[cfg(target_os = "linux")]
use nix::libc;

/// From `fcntl.h`; the same number on every Linux.
#[cfg(target_os = "linux")]
const F_SETSIG: libc::c_int = 10;

/// Whether a file is kept from being written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lease {
    Held,
    /// A program has it open for writing now.
    OpenForWriting,
    /// The system, the file system or the owner of the file does not permit it.
    Unsupported,
}

/// Asks for a lease on a file that is open for reading only.
#[cfg(target_os = "linux")]
pub(crate) fn acquire(file: &File) -> Lease {
    // The kernel sends a signal when a writer waits; the usual one, SIGIO, would end the process.
    let asked = control(file, F_SETSIG, libc::SIGURG)
        .and_then(|()| control(file, libc::F_SETLEASE, libc::c_int::from(libc::F_RDLCK)));
    match asked {
        Ok(()) => Lease::Held,
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Lease::OpenForWriting,
        Err(_) => Lease::Unsupported,
    }
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn acquire(_: &File) -> Lease {
    Lease::Unsupported
}

#[cfg(target_os = "linux")]
#[expect(unsafe_code, reason = "no safe binding of fcntl knows leases")]
fn control(file: &File, command: libc::c_int, value: libc::c_int) -> io::Result<()> {
    // SAFETY: both commands take a number, and touch no memory of this process.
    match unsafe { libc::fcntl(file.as_raw_fd(), command, value) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::fs::{self, OpenOptions};
    use std::os::unix::fs::OpenOptionsExt as _;

    use super::*;

    #[test]
    fn a_file_under_a_lease_is_not_opened_for_writing() {
        let path = tempfile::NamedTempFile::new().expect("a file").into_temp_path();
        let file = File::open(&path).expect("it opens");
        if acquire(&file) == Lease::Unsupported {
            return;
        }
        let write = || OpenOptions::new().write(true).custom_flags(libc::O_NONBLOCK).open(&path);
        assert_eq!(write().expect_err("held").kind(), io::ErrorKind::WouldBlock);
        fs::read(&path).expect("reading is not affected");
        drop(file);
        let writer = write().expect("the lease has ended");
        assert_eq!(acquire(&File::open(&path).expect("it opens")), Lease::OpenForWriting);
        drop(writer);
    }
}
