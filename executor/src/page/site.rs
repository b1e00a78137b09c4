//! The site: under which name and port this executor's page is found, the same from start to start.
//!
//! The name is random: what another page on this machine stores under `localhost` is not seen here, nor
//! the other way round. It also tells one record of tasks from another, so that a yes given to one is
//! none to the other.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::{fs, io};

use serde::{Deserialize, Serialize};

use super::keep;
use crate::task::confirmation::nonce;

/// Its file in the executor's folder.
const NAME: &str = "page.json";

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PageSite {
    pub instance: String,
    /// Like `amt-0123456789ab.localhost`.
    pub host: String,
    /// 0 until it was once listened at.
    pub port: u16,
}

impl PageSite {
    /// The site of the executor whose folder this is; made when there is none, or none that is whole.
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

    /// What a browser calls it.
    pub fn origin(&self) -> String {
        format!("http://{}:{}", self.host, self.port)
    }

    /// Listens on both loopback addresses at one port: the port of before if it is free, else another,
    /// which is kept. Were one of the two left to others, they would be the same origin to a browser.
    pub fn listen(&mut self, folder: &Path) -> io::Result<Vec<TcpListener>> {
        const TRIES: u32 = 20;
        let mut outcome = listen_at(self.port);
        for _ in 0..TRIES {
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
        keep(folder, NAME, self)
    }
}

fn listen_at(port: u16) -> io::Result<Vec<TcpListener>> {
    let four = TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, port)))?;
    let port = four.local_addr()?.port();
    match TcpListener::bind(SocketAddr::from((Ipv6Addr::LOCALHOST, port))) {
        Ok(six) => Ok(vec![four, six]),
        // A machine without IPv6: nobody else can have it either.
        Err(error) if matches!(error.kind(), io::ErrorKind::AddrNotAvailable | io::ErrorKind::Unsupported) => {
            Ok(vec![four])
        }
        Err(error) => Err(error),
    }
}

fn path(folder: &Path) -> PathBuf {
    folder.join(NAME)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_same_from_start_to_start_on_both_stacks() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut site = PageSite::load_or_create(folder.path()).expect("made");
        let listeners = site.listen(folder.path()).expect("a free port");
        for listener in &listeners {
            assert_eq!(listener.local_addr().expect("bound").port(), site.port);
        }
        for taken in ["127.0.0.1", "::1"].iter().zip(&listeners).map(|(address, _)| address) {
            assert!(TcpListener::bind((*taken, site.port)).is_err(), "{taken} is held");
        }
        drop(listeners);
        let mut again = PageSite::load_or_create(folder.path()).expect("read");
        assert_eq!(again, site);
        let _kept = again.listen(folder.path()).expect("the same port");
        assert_eq!(again, site);
    }

    #[test]
    fn a_port_that_another_holds_on_either_stack_is_not_shared() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut site = PageSite::load_or_create(folder.path()).expect("made");
        let squatter = TcpListener::bind("[::1]:0").or_else(|_| TcpListener::bind("127.0.0.1:0")).expect("a port");
        site.port = squatter.local_addr().expect("bound").port();
        let taken = site.port;
        let _kept = site.listen(folder.path()).expect("another port");
        assert_ne!(site.port, taken);
        assert_eq!(PageSite::load_or_create(folder.path()).expect("read").port, site.port, "it is kept");
    }

    #[test]
    fn a_broken_file_is_made_anew() {
        let folder = tempfile::tempdir().expect("a folder");
        fs::write(path(folder.path()), "{").expect("written");
        assert!(PageSite::load_or_create(folder.path()).expect("made").host.ends_with(".localhost"));
    }
}
