//! Detaching from the caller: the process that started the executor may be killed along with its process group, and
//! readers of its pipes must see them end.

use std::fs::{self, File};
use std::io;
use std::os::fd::RawFd;

use nix::unistd;

/// The caller sets up standard input and output, and [`close_stderr`] closes standard error.
const FIRST_OTHER: RawFd = 3;

/// Starts a session, changes to the root folder, and closes every inherited descriptor but the standard streams.
///
/// Must be called before any file is opened and before any thread is started.
pub fn from_caller() -> io::Result<()> {
    for descriptor in inherited()? {
        match unistd::close(descriptor) {
            // One of them was the listing of `/dev/fd` itself.
            Ok(()) | Err(nix::Error::EBADF) => {}
            Err(error) => return Err(error.into()),
        }
    }
    match unistd::setsid() {
        // This process already leads a process group, which protects it from signals to the caller's.
        Ok(_) | Err(nix::Error::EPERM) => {}
        Err(error) => return Err(error.into()),
    }
    std::env::set_current_dir("/")
}

/// Closes standard error: from here on there is only the log.
pub fn close_stderr() {
    let null = File::options().write(true).open("/dev/null");
    if let Err(error) = null.and_then(|null| Ok(unistd::dup2_stderr(&null)?)) {
        tracing::warn!(%error, "failed to close standard error");
    }
}

fn inherited() -> io::Result<Vec<RawFd>> {
    let mut descriptors = Vec::new();
    for entry in fs::read_dir("/dev/fd")? {
        let number = entry?.file_name().to_str().and_then(|name| name.parse::<RawFd>().ok());
        descriptors.extend(number.filter(|number| *number >= FIRST_OTHER));
    }
    Ok(descriptors)
}
