//! The page's address: its host name and port, which stay the same when the executor restarts.
//!
//! The host name is random, so the page shares no browser storage with other pages on `localhost`. The id behind it
//! also identifies the record of tasks, so that an approval for one record is not valid for another.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::{fs, io};

use serde::{Deserialize, Serialize};

use super::write_private;
use crate::task::confirmation::nonce;

/// The file in the executor's folder.
const FILE_NAME: &str = "page.json";

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PageSite {
    /// The random id of this executor's record; part of every digest.
    pub instance: String,
    /// Like `amt-0123456789ab.localhost`.
    pub host: String,
    /// 0 until the page has listened for the first time.
    pub port: u16,
}

impl PageSite {
    /// Loads the address from the executor's folder; makes a new one if the file is missing or invalid.
    pub fn load_or_create(folder: &Path) -> io::Result<Self> {
        match fs::read(path(folder)) {
            Ok(bytes) => {
                if let Ok(site) = serde_json::from_slice(&bytes) {
                    return Ok(site);
                }
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        let instance = nonce();
        let site = Self { host: format!("amt-{}.localhost", &instance[..12]), instance, port: 0 };
        site.save(folder)?;
        Ok(site)
    }

    /// The page's origin, as a browser sends it.
    pub fn origin(&self) -> String {
        format!("http://{}:{}", self.host, self.port)
    }

    /// Listens on both loopback addresses at one port: the last port if it is free, else another, which is saved. If
    /// another program had one of the two addresses, a browser would treat it as the same origin.
    pub fn listen(&mut self, folder: &Path) -> io::Result<Vec<TcpListener>> {
        const MAX_ATTEMPTS: u32 = 20;
        let mut outcome = listen_at(self.port);
        for _ in 0..MAX_ATTEMPTS {
            if outcome.is_ok() {
                break;
            }
            outcome = listen_at(0);
        }
        let listeners = outcome?;
        let port = listeners[0].local_addr()?.port();
        if port != self.port {
            self.port = port;
            self.save(folder)?;
        }
        Ok(listeners)
    }

    fn save(&self, folder: &Path) -> io::Result<()> {
        write_private(folder, FILE_NAME, self)
    }
}

fn listen_at(port: u16) -> io::Result<Vec<TcpListener>> {
    let ipv4 = TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, port)))?;
    let port = ipv4.local_addr()?.port();
    match TcpListener::bind(SocketAddr::from((Ipv6Addr::LOCALHOST, port))) {
        Ok(ipv6) => Ok(vec![ipv4, ipv6]),
        // Without IPv6 on this machine, no other program can take that address.
        Err(error) if matches!(error.kind(), io::ErrorKind::AddrNotAvailable | io::ErrorKind::Unsupported) => {
            Ok(vec![ipv4])
        }
        Err(error) => Err(error),
    }
}

fn path(folder: &Path) -> PathBuf {
    folder.join(FILE_NAME)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_stays_the_same_and_covers_ipv4_and_ipv6() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let mut site = PageSite::load_or_create(folder.path()).expect("the address is created");
        let listeners = site.listen(folder.path()).expect("a free port");
        for listener in &listeners {
            assert_eq!(listener.local_addr().expect("bound").port(), site.port);
        }
        for taken in ["127.0.0.1", "::1"].iter().zip(&listeners).map(|(address, _)| address) {
            assert!(TcpListener::bind((*taken, site.port)).is_err(), "{taken} is taken");
        }
        drop(listeners);
        let mut again = PageSite::load_or_create(folder.path()).expect("the address is loaded");
        assert_eq!(again, site);
        let _listeners = again.listen(folder.path()).expect("the same port");
        assert_eq!(again, site);
    }

    #[test]
    fn a_port_that_another_program_holds_is_not_shared() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let mut site = PageSite::load_or_create(folder.path()).expect("the address is created");
        let squatter = TcpListener::bind("[::1]:0").or_else(|_| TcpListener::bind("127.0.0.1:0")).expect("a port");
        site.port = squatter.local_addr().expect("bound").port();
        let taken = site.port;
        let _listeners = site.listen(folder.path()).expect("another port");
        assert_ne!(site.port, taken);
        assert_eq!(
            PageSite::load_or_create(folder.path()).expect("the address is loaded").port,
            site.port,
            "the new port is saved"
        );
    }

    #[test]
    fn an_invalid_file_is_replaced() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        fs::write(path(folder.path()), "{").expect("the file is written");
        assert!(PageSite::load_or_create(folder.path()).expect("the address is created").host.ends_with(".localhost"));
    }
}
