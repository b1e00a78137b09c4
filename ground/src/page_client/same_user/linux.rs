//! Asks the kernel who owns the other end of a connection.
//!
//! A TCP connection within this machine has two sockets. The kernel says who owns the other one, by `NETLINK_SOCK_DIAG`
//! (the layouts are in `linux/netlink.h` and `linux/inet_diag.h`), or by `/proc/net/tcp` where that is not available.

use std::fs;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd as _, OwnedFd};

use nix::sys::socket::sockopt::ReceiveTimeout;
use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, recv, sendto, setsockopt, socket,
};
use nix::sys::time::{TimeVal, TimeValLike as _};
use nix::unistd::Uid;

const ESTABLISHED: u8 = 1;
const IPPROTO_TCP: u8 = 6;
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const NLM_F_REQUEST: u16 = 1;
const NETLINK_HEADER_BYTES: usize = 16;

/// Returns the user whose program at `peer` is connected to us at `local`.
pub(super) fn owner(peer: SocketAddr, local: SocketAddr) -> io::Result<Uid> {
    owner_by_netlink(peer, local).or_else(|_| owner_in_table(peer, local))
}

/// Returns the owner of the socket at `source` that is connected to `target`.
fn owner_by_netlink(source: SocketAddr, target: SocketAddr) -> io::Result<Uid> {
    let netlink: OwnedFd =
        socket(AddressFamily::Netlink, SockType::Raw, SockFlag::SOCK_CLOEXEC, SockProtocol::NetlinkSockDiag)?;
    setsockopt(&netlink, ReceiveTimeout, &TimeVal::seconds(1))?;
    let request = diagnosis_request(source, target);
    sendto(netlink.as_raw_fd(), &request, &NetlinkAddr::new(0, 0), MsgFlags::empty())?;
    let mut answer = [0; 512];
    let length = recv(netlink.as_raw_fd(), &mut answer, MsgFlags::empty())?;
    owner_in_answer(&answer[..length])
}

/// An `inet_diag_req_v2` for exactly one socket.
fn diagnosis_request(source: SocketAddr, target: SocketAddr) -> Vec<u8> {
    let family = if source.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 } as u8;
    let mut body = vec![family, IPPROTO_TCP, 0, 0];
    body.extend(u32::MAX.to_ne_bytes()); // In any state.
    body.extend(source.port().to_be_bytes());
    body.extend(target.port().to_be_bytes());
    for address in [source.ip(), target.ip()] {
        body.extend(padded(address));
    }
    body.extend(0_u32.to_ne_bytes()); // On any interface.
    body.extend([0xff; 8]); // With any cookie.
    let mut request = Vec::with_capacity(NETLINK_HEADER_BYTES + body.len());
    let length = u32::try_from(NETLINK_HEADER_BYTES + body.len()).expect("a short message");
    request.extend(length.to_ne_bytes());
    request.extend(SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    request.extend(NLM_F_REQUEST.to_ne_bytes());
    request.extend([0; 8]); // Sequence and port: there is one request on this socket.
    request.extend(body);
    request
}

/// An address in 16 bytes.
fn padded(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V6(address) => address.octets(),
        IpAddr::V4(address) => {
            let mut bytes = [0; 16];
            bytes[..4].copy_from_slice(&address.octets());
            bytes
        }
    }
}

/// Reads an `inet_diag_msg`.
fn owner_in_answer(answer: &[u8]) -> io::Result<Uid> {
    const STATE: usize = NETLINK_HEADER_BYTES + 1;
    const UID: usize = NETLINK_HEADER_BYTES + 64;
    const INODE: usize = UID + 4;
    let number = |at: usize| Some(u32::from_ne_bytes(answer.get(at..at + 4)?.try_into().ok()?));
    let kind = answer.get(4..6).map(|kind| u16::from_ne_bytes([kind[0], kind[1]]));
    let (Some(SOCK_DIAG_BY_FAMILY), Some(state), Some(uid), Some(inode)) =
        (kind, answer.get(STATE), number(UID), number(INODE))
    else {
        return Err(io::Error::new(io::ErrorKind::NotFound, "no such socket"));
    };
    known_owner(*state, uid, inode.into())
}

/// Finds the socket in `/proc/net/tcp` or `tcp6`.
fn owner_in_table(source: SocketAddr, target: SocketAddr) -> io::Result<Uid> {
    let table = if source.is_ipv4() { "/proc/net/tcp" } else { "/proc/net/tcp6" };
    let (source, target) = (in_table(source), in_table(target));
    let table = fs::read_to_string(table)?;
    let found = table.lines().find_map(|line| {
        let fields: Vec<_> = line.split_ascii_whitespace().collect();
        let [_, local, remote, state, _, _, _, uid, _, inode, ..] = fields.as_slice() else { return None };
        let is_it = *local == source && *remote == target;
        is_it.then_some((u8::from_str_radix(state, 16).ok()?, uid.parse().ok()?, inode.parse().ok()?))
    });
    let (state, uid, inode) = found.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "no such socket"))?;
    known_owner(state, uid, inode)
}

/// An address as `/proc/net/tcp` writes it: words of the machine's byte order in hexadecimal digits.
fn in_table(address: SocketAddr) -> String {
    let bytes = padded(address.ip());
    let length = if address.is_ipv4() { 4 } else { 16 };
    let words = bytes[..length].chunks(4).map(|word| u32::from_ne_bytes([word[0], word[1], word[2], word[3]]));
    let words: Vec<_> = words.map(|word| format!("{word:08X}")).collect();
    format!("{}:{:04X}", words.concat(), address.port())
}

/// Only an open socket that has an owner counts: of one that was closed meanwhile, the kernel no longer knows the
/// owner, and says 0.
fn known_owner(state: u8, uid: u32, inode: u64) -> io::Result<Uid> {
    if state == ESTABLISHED && inode != 0 {
        return Ok(Uid::from_raw(uid));
    }
    Err(io::Error::new(io::ErrorKind::NotConnected, "it was closed"))
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn both_ways_know_the_owner_of_an_open_connection_and_of_no_other() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(listener) = TcpListener::bind(address) else { continue };
            let local = listener.local_addr().expect("bound");
            let client = TcpStream::connect(local).expect("connected");
            let (accepted, peer) = listener.accept().expect("accepted");
            for asked in [owner_by_netlink, owner_in_table] {
                assert_eq!(asked(peer, local).expect("known"), Uid::effective(), "{address}");
                let mut other = peer;
                other.set_port(1);
                assert!(asked(other, local).is_err(), "there is no such connection");
            }
            drop(client);
            assert!(owner_by_netlink(peer, local).is_err(), "a closed socket has no owner");
            assert!(owner_in_table(peer, local).is_err());
            drop(accepted);
        }
    }
}
