//! A lease on an open file: while it is held, no program can open the file for writing, or at all.
//!
//! What was read under a read lease is what the file still contains. A write lease is only given while no one else has
//! the file open. The kernel makes a program that opens the file wait, for 45 seconds unless the machine is set up
//! otherwise, so a lease is held for a moment only. Dropping the file ends it, but not at once if a program is being
//! started meanwhile: until that program is executed, it shares all open files. So before others are to open the file,
//! the lease is ended with [`release`].

use std::fs::File;

#[cfg(target_os = "linux")]
use std::{io, os::fd::AsRawFd as _};

#[cfg(target_os = "linux")]
use nix::libc;

/// From `fcntl.h`; the same number on every Linux.
#[cfg(target_os = "linux")]
const F_SETSIG: libc::c_int = 10;

/// What a lease keeps other programs from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeaseKind {
    /// Opening the file for writing. The file must be open for reading only.
    Read,
    /// Opening the file.
    Write,
}

/// Whether a lease is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lease {
    Held,
    /// Another program has the file open, for writing in the case of a read lease.
    InUse,
    /// The system, the file system or the owner of the file does not permit it.
    Unsupported,
}

#[cfg(target_os = "linux")]
pub fn acquire(file: &File, kind: LeaseKind) -> Lease {
    let kind = match kind {
        LeaseKind::Read => libc::F_RDLCK,
        LeaseKind::Write => libc::F_WRLCK,
    };
    // The kernel sends a signal when a program waits; the usual one, SIGIO, would end the process.
    let asked =
        control(file, F_SETSIG, libc::SIGURG).and_then(|()| control(file, libc::F_SETLEASE, libc::c_int::from(kind)));
    match asked {
        Ok(()) => Lease::Held,
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Lease::InUse,
        Err(_) => Lease::Unsupported,
    }
}

#[cfg(not(target_os = "linux"))]
pub fn acquire(_: &File, _: LeaseKind) -> Lease {
    Lease::Unsupported
}

/// Ends a lease that is held, if any, also for a program that shares the open file.
#[cfg(target_os = "linux")]
pub fn release(file: &File) {
    // Without a lease there is nothing to end.
    control(file, libc::F_SETLEASE, libc::c_int::from(libc::F_UNLCK)).ok();
}

#[cfg(not(target_os = "linux"))]
pub fn release(_: &File) {}

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
        if acquire(&file, LeaseKind::Read) == Lease::Unsupported {
            return;
        }
        let write = || OpenOptions::new().write(true).custom_flags(libc::O_NONBLOCK).open(&path);
        assert_eq!(write().expect_err("held").kind(), io::ErrorKind::WouldBlock);
        fs::read(&path).expect("reading is not affected");
        drop(file);
        let writer = write().expect("the lease has ended");
        assert_eq!(acquire(&File::open(&path).expect("it opens"), LeaseKind::Read), Lease::InUse);
        drop(writer);
    }

    #[test]
    fn a_write_lease_is_only_given_if_no_one_else_has_the_file_open() {
        let path = tempfile::NamedTempFile::new().expect("a file").into_temp_path();
        let file = OpenOptions::new().write(true).open(&path).expect("it opens");
        if acquire(&file, LeaseKind::Write) == Lease::Unsupported {
            return;
        }
        let read = || OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(&path);
        assert_eq!(read().expect_err("held").kind(), io::ErrorKind::WouldBlock);
        drop(file);
        let reader = read().expect("the lease has ended");
        let file = OpenOptions::new().write(true).open(&path).expect("it opens");
        assert_eq!(acquire(&file, LeaseKind::Write), Lease::InUse);
        drop(reader);
        assert_eq!(acquire(&file, LeaseKind::Write), Lease::Held);
    }

    #[test]
    fn a_lease_is_released_although_the_open_file_is_shared() {
        let path = tempfile::NamedTempFile::new().expect("a file").into_temp_path();
        let file = OpenOptions::new().write(true).open(&path).expect("it opens");
        let shared = file.try_clone().expect("a second descriptor");
        if acquire(&file, LeaseKind::Write) == Lease::Unsupported {
            return;
        }
        release(&file);
        drop(file);
        let read = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(&path);
        read.expect("the lease has ended");
        drop(shared);
    }
}
