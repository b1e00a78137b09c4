//! Whether a connection to the page comes from our own Unix user: the kernel is asked before a byte is read.

use std::io;
use std::net::SocketAddr;

use nix::unistd::Uid;

#[cfg(target_os = "linux")]
mod linux;

/// Why a connection is refused.
#[derive(Debug, thiserror::Error)]
pub enum StrangerError {
    #[error("it comes from user {0}")]
    OtherUser(Uid),
    #[error("the kernel does not say whose it is: {0}")]
    Unknown(#[from] io::Error),
}

/// Fails unless the program at `peer`, which is connected to us at `local`, belongs to our own user.
#[cfg(target_os = "linux")]
pub fn check(peer: SocketAddr, local: SocketAddr) -> Result<(), StrangerError> {
    let owner = linux::owner(peer, local)?;
    if owner == Uid::effective() { Ok(()) } else { Err(StrangerError::OtherUser(owner)) }
}

/// Elsewhere the kernel is not asked; the session alone says who it is.
#[cfg(not(target_os = "linux"))]
pub fn check(_: SocketAddr, _: SocketAddr) -> Result<(), StrangerError> {
    Ok(())
}
