//! Where a stored secret may go: to which hosts, and into the environment of which programs.
//!
//! The list is kept beside the values. Every part of the executor that sends a secret over the network gets it from
//! [`Secrets::get_for`], which asks [`Secrets::may_go`]; packs and imports ask that too before they are taken over. A
//! secret without a list goes where the definitions and settings of the human name it, but no import may use it before
//! it has one. Never to a public host over plain HTTP, unless the list says `http://HOST`. Programs on the list are asked
//! about by packs and imports alone: a program gets what its definition gives it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use protocol::file_state::FileState;
use protocol::regular_file;
use protocol::wording::quoted;
use url::{Host, Url};

use super::place::{SecretHost, SecretPlace};
use super::{Secret, SecretError, SecretName, Secrets};

/// Names of secrets have no dot, so the file is not taken for one.
const FILE: &str = ".hosts.json";
const MAX_FILE_BYTES: u64 = 4 << 20;

type HostLists = BTreeMap<String, BTreeSet<SecretPlace>>;

/// The lists that were read last, and from which file.
pub(super) type KnownHostLists = Mutex<Option<(FileState, Arc<HostLists>)>>;

impl Secrets {
    /// Returns the value of `name`, to be sent to `url`.
    pub async fn get_for(&self, name: &SecretName, url: &Url) -> Result<Secret, SecretError> {
        self.may_go(name, url)?;
        self.get(name).await
    }

    /// Fails if `name` may not be sent to `url`. A list that cannot be read allows nothing.
    pub fn may_go(&self, name: &SecretName, url: &Url) -> Result<(), SecretError> {
        let lists = self.host_lists()?;
        let listed = lists.get(name.as_str());
        let covering: Vec<_> = listed.into_iter().flatten().filter(|place| place.covers(url)).collect();
        let host = SecretHost::exact(url);
        let name = || name.as_str().to_owned();
        if let (Some(listed), true) = (listed, covering.is_empty()) {
            return Err(SecretError::Host { name: name(), host: host.to_string(), allowed: quoted(listed) });
        }
        if covering.iter().any(|place| place.allows_plain(url)) { Ok(()) } else { self.refuse_plain(name(), url) }
    }

    /// Fails if a part of `name` would go to `url`, which the secret itself names, over plain HTTP.
    pub fn check_plain(&self, name: &SecretName, url: &Url) -> Result<(), SecretError> {
        let is_allowed = |place: &SecretPlace| place.allows_plain(url);
        let is_allowed = self.hosts(name)?.is_some_and(|hosts| hosts.iter().any(is_allowed));
        if is_allowed { Ok(()) } else { self.refuse_plain(name.as_str().to_owned(), url) }
    }

    fn refuse_plain(&self, name: String, url: &Url) -> Result<(), SecretError> {
        if matches!(url.scheme(), "http" | "ws") && !self.is_near(url) {
            return Err(SecretError::Plain { name, host: SecretHost::exact(url).to_string() });
        }
        Ok(())
    }

    /// The hosts of `name`; `None` if it has no list.
    pub fn hosts(&self, name: &SecretName) -> Result<Option<BTreeSet<SecretPlace>>, SecretError> {
        Ok(self.host_lists()?.get(name.as_str()).cloned())
    }

    /// Lets `name` go to `hosts` too, since a human said so. Durable when it returns.
    pub fn allow(&self, name: &SecretName, hosts: impl IntoIterator<Item = SecretPlace>) -> Result<(), SecretError> {
        self.change(name, |list| list.extend(hosts))
    }

    /// Lets `name` go to these `hosts` and to no others. Durable when it returns.
    pub fn set_hosts(&self, name: &SecretName, hosts: BTreeSet<SecretPlace>) -> Result<(), SecretError> {
        self.change(name, |list| *list = hosts)
    }

    /// Removes the list of `name`. Durable when it returns.
    pub(super) fn forget_hosts(&self, name: &SecretName) -> Result<(), SecretError> {
        if self.hosts(name)?.is_none() {
            return Ok(());
        }
        self.change_lists(|lists| drop(lists.remove(name.as_str())))
    }

    fn change(&self, name: &SecretName, change: impl FnOnce(&mut BTreeSet<SecretPlace>)) -> Result<(), SecretError> {
        self.change_lists(|lists| change(lists.entry(name.as_str().to_owned()).or_default()))
    }

    fn change_lists(&self, change: impl FnOnce(&mut HostLists)) -> Result<(), SecretError> {
        // Two commands may change lists at once, and each writes all of them.
        let _lock = self.lock_hosts()?;
        let mut lists = (*self.host_lists()?).clone();
        change(&mut lists);
        let text = serde_json::to_string_pretty(&lists).expect("lists are plain JSON");
        self.replace(FILE, text.as_bytes()).map_err(|source| SecretError::Folder { path: self.folder.clone(), source })
    }

    /// The lists, which are read again only if the file is another one.
    fn host_lists(&self) -> Result<Arc<HostLists>, SecretError> {
        let path = self.folder.join(FILE);
        let failed = |source| SecretError::Folder { path: path.clone(), source };
        let state = match fs::symlink_metadata(&path) {
            Ok(metadata) => FileState::of(&metadata),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Arc::default()),
            Err(error) => return Err(failed(error)),
        };
        let mut known = self.host_lists.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((known_state, lists)) = known.as_ref()
            && *known_state == state
        {
            return Ok(Arc::clone(lists));
        }
        super::check_trusted(&path)?;
        // Another state than that of what is read now only means that it is read once more.
        let bytes = regular_file::read(&path, MAX_FILE_BYTES).map_err(failed)?;
        let lists: HostLists = serde_json::from_slice(&bytes).map_err(|error| failed(error.into()))?;
        let lists = Arc::new(lists);
        *known = Some((state, Arc::clone(&lists)));
        Ok(lists)
    }

    /// Whether what is sent to `url` stays on this machine or in its network, or a human listed the host as private.
    fn is_near(&self, url: &Url) -> bool {
        let is_listed = || {
            let mut listed = self.private_hosts.iter().filter_map(|host| host.parse::<SecretHost>().ok());
            listed.any(|listed| listed.is_host_of(url))
        };
        let is_near = match url.host() {
            Some(Host::Ipv4(address)) => address.is_loopback() || address.is_private() || address.is_link_local(),
            Some(Host::Ipv6(address)) => match address.to_ipv4_mapped() {
                Some(address) => address.is_loopback() || address.is_private() || address.is_link_local(),
                None => address.is_loopback() || address.is_unique_local() || address.is_unicast_link_local(),
            },
            Some(Host::Domain(name)) => {
                let name = name.trim_end_matches('.');
                // Names that the public DNS does not have.
                !name.contains('.')
                    || ["localhost", "local", "internal", "lan", "home.arpa", "test"]
                        .iter()
                        .any(|end| name.strip_suffix(end).is_some_and(|rest| rest.ends_with('.')))
            }
            None => false,
        };
        is_near || is_listed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn store() -> (tempfile::TempDir, Secrets, SecretName) {
        let folder = tempfile::tempdir().expect("a folder");
        let secrets = Secrets::new(folder.path().join("secrets"), BTreeMap::new());
        (folder, secrets, "github".parse().expect("a name"))
    }

    fn goes(secrets: &Secrets, name: &SecretName, url: &str) -> bool {
        secrets.may_go(name, &url.parse().expect("a URL")).is_ok()
    }

    #[test]
    fn a_secret_goes_only_to_the_hosts_of_its_list() {
        let (_folder, secrets, name) = store();
        let hosts = ["api.github.com", "127.0.0.1:8080", "*.example.com", "http://plain.example.org"];
        secrets.allow(&name, hosts.map(|host| host.parse().expect("a host"))).expect("stored");
        for (url, expected) in [
            ("https://api.github.com/user", true),
            ("https://API.GitHub.com./user", true),
            ("http://api.github.com/user", false),
            ("https://api.github.com:8443/", false),
            ("https://api.github.com.evil.example/", false),
            ("https://evil.example/api.github.com", false),
            ("http://127.0.0.1:8080/", true),
            ("http://127.0.0.1:8081/", false),
            ("https://shop.example.com/", true),
            ("https://example.com/", false),
            ("https://evilexample.com/", false),
            ("http://plain.example.org/", true),
            ("https://plain.example.org/", true),
        ] {
            assert_eq!(goes(&secrets, &name, url), expected, "{url}");
        }
        let other: SecretName = "other".parse().expect("a name");
        assert!(goes(&secrets, &other, "https://anything.example/"), "it has no list");
        secrets.set_hosts(&name, BTreeSet::new()).expect("stored");
        assert!(!goes(&secrets, &name, "https://api.github.com/user"), "an empty list allows nothing");
        assert_eq!(secrets.names().expect("read"), [], "the list is not a secret");
    }

    #[test]
    fn plain_http_carries_a_secret_only_within_the_own_network() {
        let (_folder, mut secrets, name) = store();
        secrets.private_hosts = vec!["intranet.example.net:8000".to_owned()];
        for (url, expected) in [
            ("http://127.0.0.1/", true),
            ("http://[::1]:9/", true),
            ("http://localhost:3000/", true),
            ("http://10.1.2.3/", true),
            ("http://192.168.0.4:81/", true),
            ("http://[fd00::1]/", true),
            ("http://[::ffff:10.0.0.1]/", true),
            ("http://postgres:5432/", true),
            ("http://printer.local/", true),
            ("http://intranet.example.net:8000/", true),
            ("http://intranet.example.net/", false),
            ("http://example.com/", false),
            ("http://93.184.216.34/", false),
            ("http://[2606:2800:220:1::1]/", false),
            ("http://localhost.example.com/", false),
            ("http://notlocal/", true),
            ("http://evil-local.example/", false),
            ("ws://example.com/", false),
            ("https://example.com/", true),
        ] {
            assert_eq!(goes(&secrets, &name, url), expected, "{url}");
        }
    }

    #[test]
    fn a_list_that_cannot_be_read_allows_nothing() {
        let (folder, secrets, name) = store();
        secrets.allow(&name, []).expect("stored");
        fs::write(folder.path().join("secrets").join(FILE), "{").expect("written");
        assert!(!goes(&secrets, &name, "https://api.github.com/"));
        assert!(secrets.allow(&name, []).is_err(), "it is not replaced by an empty one");
    }

    #[test]
    fn a_changed_list_is_seen_at_once_by_all_that_read_it_before() {
        let (folder, secrets, name) = store();
        let other = Secrets::new(folder.path().join("secrets"), BTreeMap::new());
        for host in ["a.example", "b.example", "c.example"] {
            let url = format!("https://{host}/");
            other.set_hosts(&name, BTreeSet::from([host.parse().expect("a host")])).expect("stored");
            assert!(goes(&secrets, &name, &url) && !goes(&secrets, &name, "https://z.example/"), "{host}");
        }
        // In place, with as many bytes.
        let file = folder.path().join("secrets").join(FILE);
        let text = fs::read_to_string(&file).expect("written").replace("c.example", "d.example");
        fs::write(&file, text).expect("written");
        assert!(goes(&secrets, &name, "https://d.example/") && !goes(&secrets, &name, "https://c.example/"));
        assert!(Arc::ptr_eq(&secrets.host_lists().expect("read"), &secrets.host_lists().expect("kept")));
    }

    #[test]
    fn changes_at_once_lose_no_list() {
        let (folder, secrets, name) = store();
        std::thread::scope(|scope| {
            for index in 0..20 {
                let (folder, name) = (folder.path().join("secrets"), &name);
                scope.spawn(move || {
                    let host = format!("h{index}.example").parse().expect("a host");
                    Secrets::new(folder, BTreeMap::new()).allow(name, [host]).expect("stored");
                });
            }
        });
        assert_eq!(secrets.hosts(&name).expect("read").map(|hosts| hosts.len()), Some(20));
    }

    #[test]
    fn a_removed_secret_keeps_no_list() {
        let (_folder, secrets, name) = store();
        let other: SecretName = "other".parse().expect("a name");
        for name in [&name, &other] {
            secrets.set(name, "a-value-0123456789").expect("stored");
            secrets.allow(name, ["a.example".parse().expect("a host")]).expect("stored");
        }
        assert!(secrets.remove(&name).expect("removed"));
        assert_eq!(secrets.hosts(&name).expect("read"), None);
        assert!(secrets.hosts(&other).expect("read").is_some());
    }
}
