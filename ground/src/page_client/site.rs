//! The page's address: its host name and port, which are new at each start of the executor.
//!
//! The host name is random, so the page shares no browser storage with other pages on `localhost`, nor with whatever
//! takes the port after this executor has ended: no browser tab, cookie or service worker of an earlier address
//! counts at this one. The id of the executor's record, which is part of every digest, stays the same.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::{fs, io};

use crate::task::confirmation::nonce;
use crate::task::touch::relying_party_id;
use serde::{Deserialize, Serialize};

use super::write_private;

/// The file in the executor's folder.
const FILE_NAME: &str = "page.json";

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PageSite {
    /// The random id of this executor's record; part of every digest.
    pub instance: String,
    /// Like `01234567.amt-0123456789ab.localhost`: the first name is new at each start, the second stays.
    pub host: String,
    /// 0 while no page is served.
    pub port: u16,
}

impl PageSite {
    /// Loads the address from the executor's folder; makes a new one if the file is missing or invalid.
    pub fn load_or_create(folder: &Path) -> io::Result<Self> {
        if let Some(site) = Self::read(folder)? {
            return Ok(site);
        }
        let instance = nonce();
        let site = Self { host: String::new(), instance, port: 0 };
        site.save(folder)?;
        Ok(site)
    }

    /// Reads the address; `None` if the file is missing or invalid.
    pub fn read(folder: &Path) -> io::Result<Option<Self>> {
        match fs::read(path(folder)) {
            Ok(bytes) => Ok(serde_json::from_slice(&bytes).ok()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The host name that keys are bound to: the same for good, and that of the page or one above it.
    pub fn rp_id(&self) -> String {
        relying_party_id(&self.instance)
    }

    /// The page's origin, as a browser sends it.
    pub fn origin(&self) -> String {
        format!("http://{}:{}", self.host, self.port)
    }

    /// The name of the session's cookie. It is new at each start, like the host name: a program that had an earlier address
    /// may have left cookies for the name above in the browser.
    pub fn cookie_name(&self) -> String {
        format!("session-{}", self.host.split('.').next().unwrap_or_default())
    }

    /// Listens on both loopback addresses at `port`, or at a new one if that is 0, under a new host name, and saves them. If
    /// another program had one of the two addresses, a browser would treat it as the same origin.
    pub fn listen(&mut self, folder: &Path, port: u16) -> io::Result<Vec<TcpListener>> {
        const MAX_ATTEMPTS: u32 = 20;
        let mut outcome = listen_at(port);
        for _ in 0..MAX_ATTEMPTS {
            // Of a port that someone wants, there is no other one.
            if outcome.is_ok() || port != 0 {
                break;
            }
            outcome = listen_at(port);
        }
        let listeners = outcome?;
        self.port = listeners[0].local_addr()?.port();
        self.host = format!("{}.{}", &nonce()[..8], self.rp_id());
        self.save(folder)?;
        Ok(listeners)
    }

    /// Records that no page is served.
    pub fn close(&mut self, folder: &Path) -> io::Result<()> {
        if self.port == 0 {
            return Ok(());
        }
        self.port = 0;
        self.save(folder)
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
    fn the_address_covers_ipv4_and_ipv6_and_is_new_each_time() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let mut site = PageSite::load_or_create(folder.path()).expect("the address is created");
        assert_eq!(site.port, 0);
        let listeners = site.listen(folder.path(), 0).expect("a free port");
        for listener in &listeners {
            assert_eq!(listener.local_addr().expect("bound").port(), site.port);
        }
        for taken in ["127.0.0.1", "::1"].iter().zip(&listeners).map(|(address, _)| address) {
            assert!(TcpListener::bind((*taken, site.port)).is_err(), "{taken} is taken");
        }
        let mut again = PageSite::load_or_create(folder.path()).expect("the address is loaded");
        assert_eq!(again, site, "it is saved");
        let _listeners = again.listen(folder.path(), 0).expect("a free port");
        assert_eq!(again.instance, site.instance);
        assert!(again.port != site.port && again.host != site.host);
        let names = [&site, &again].map(|site| site.host.split_once('.').expect("several names").1.to_owned());
        assert_eq!(names[0], names[1], "the name above stays");
        assert!(again.listen(folder.path(), site.port).is_err(), "the port that is wanted is taken");
        drop(listeners);
        let (name, listeners) = (again.host.clone(), again.listen(folder.path(), site.port).expect("it is free"));
        assert_eq!(listeners[0].local_addr().expect("bound").port(), site.port);
        assert_ne!(again.host, name, "the name is new also at the same port");
        again.close(folder.path()).expect("it is saved");
        assert_eq!(PageSite::load_or_create(folder.path()).expect("the address is loaded").port, 0);
    }

    #[test]
    fn an_invalid_file_is_replaced() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        fs::write(path(folder.path()), "{").expect("the file is written");
        assert!(PageSite::load_or_create(folder.path()).expect("the address is created").instance.len() == 64);
    }
}
