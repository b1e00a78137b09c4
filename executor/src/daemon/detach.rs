//! Becoming a process of its own: whoever started the executor may be killed, with its whole
//! process group, and whoever reads its pipes must see them end.

use std::fs::{self, File};
use std::io;
use std::os::fd::RawFd;

use nix::unistd;

/// Standard input, output and error are left to [`let_go_of_stderr`] and the one who starts us.
const FIRST_OTHER: RawFd = 3;

/// Leaves the session, the folder, and every descriptor that was inherited by accident.
///
/// To be called before anything is opened and before any thread is started.
pub fn from_caller() -> io::Result<()> {
    for descriptor in inherited()? {
        match unistd::close(descriptor) {
            // One of them was the folder that was read just now.
            Ok(()) | Err(nix::Error::EBADF) => {}
            Err(error) => return Err(error.into()),
        }
    }
    match unistd::setsid() {
        // We lead our own process group already: nobody kills it by accident.
        Ok(_) | Err(nix::Error::EPERM) => {}
        Err(error) => return Err(error.into()),
    }
    std::env::set_current_dir("/")
}

/// Closes the way back to the one who started us: from here on there is only the log.
pub fn let_go_of_stderr() {
    let nowhere = File::options().write(true).open("/dev/null");
    if let Err(error) = nowhere.and_then(|nowhere| Ok(unistd::dup2_stderr(&nowhere)?)) {
        tracing::warn!(%error, "standard error stays what it was");
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
