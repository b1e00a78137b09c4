//! Ports for servers that cannot choose one themselves.

use std::net::TcpListener;
use std::sync::atomic::{AtomicU32, Ordering};

/// A port that is still free when a server listens on it, which takes some servers most of a minute: below those that the
/// kernel gives to whoever asks for any, and another one at each call in this process.
pub(crate) fn free_port() -> u16 {
    const FIRST: u32 = 12_000;
    const COUNT: u32 = 20_000;
    static CALLS: AtomicU32 = AtomicU32::new(0);
    // Tests in other processes begin elsewhere.
    let ours = std::process::id().wrapping_mul(7_919);
    let next = || ours.wrapping_add(CALLS.fetch_add(1, Ordering::Relaxed)) % COUNT;
    let mut ports = (0..COUNT).map(|_| u16::try_from(FIRST + next()).expect("a port"));
    ports.find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok()).expect("a free port")
}
