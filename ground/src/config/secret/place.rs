//! The places of a secret's list: hosts, and programs that get it in their environment.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use protocol::command_names::shell_words;
use protocol::invisible;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use url::Url;

use super::SecretName;

/// A domain whose hosts all belong to one service, which has one account for all of them.
const SHARED_DOMAIN: &str = "googleapis.com";
/// What begins the place of a program.
const PROGRAM: &str = "program:";

/// Where a secret may go.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum SecretPlace {
    Host(SecretHost),
    /// The environment of a program, by its command line. What it does with the secret, nothing can say.
    Program(String),
}

#[derive(Debug, thiserror::Error)]
#[error(
    "`{0}` is not a place for a secret; write HOST, HOST:PORT or *.DOMAIN, with http:// before it to allow plain HTTP, \
     or program:COMMAND LINE"
)]
pub struct InvalidPlace(String);

impl SecretPlace {
    /// The host of `url`, as the list has it.
    pub fn of(url: &Url) -> Option<Self> {
        SecretHost::of(url).map(Self::Host)
    }

    /// The program that `command` starts in `folder`, with the constants of `env`, which can change what it runs.
    pub fn of_program(command: &[String], env: &BTreeMap<String, String>, folder: Option<&str>) -> Self {
        let constants = env.iter().filter(|(_, text)| SecretName::in_reference(text).is_none());
        let constants = constants.map(|(name, text)| format!("{name}={text}"));
        let line = shell_words(&constants.chain(command.iter().cloned()).collect::<Vec<_>>());
        let line = match folder {
            Some(folder) => format!("cd {} && {line}", shell_words(&[folder.to_owned()])),
            None => line,
        };
        Self::Program(invisible::escaped(&line))
    }

    /// Whether this allows what `url` leads to, whatever its scheme.
    pub fn covers(&self, url: &Url) -> bool {
        matches!(self, Self::Host(host) if host.covers(url))
    }

    pub(super) fn allows_plain(&self, url: &Url) -> bool {
        matches!(self, Self::Host(host) if host.is_plain && host.covers(url))
    }
}

impl FromStr for SecretPlace {
    type Err = InvalidPlace;

    fn from_str(text: &str) -> Result<Self, InvalidPlace> {
        match text.strip_prefix(PROGRAM).map(str::trim) {
            Some("") => Err(InvalidPlace(text.to_owned())),
            Some(line) => Ok(Self::Program(line.to_owned())),
            None => text.parse().map(Self::Host),
        }
    }
}

impl fmt::Display for SecretPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host(host) => host.fmt(f),
            Self::Program(line) => write!(f, "{PROGRAM}{line}"),
        }
    }
}

impl Serialize for SecretPlace {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for SecretPlace {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

/// `HOST`, `HOST:PORT`, `*.DOMAIN`, or one of these after `http://`, which allows plain HTTP.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct SecretHost {
    is_plain: bool,
    host: String,
    port: Option<u16>,
}

impl SecretHost {
    fn of(url: &Url) -> Option<Self> {
        let exact = Self::exact(url);
        let is_shared = exact.host.strip_suffix(SHARED_DOMAIN).is_some_and(|rest| rest.ends_with('.'));
        let host = if is_shared { format!("*.{SHARED_DOMAIN}") } else { exact.host };
        (!host.is_empty()).then_some(Self { host, ..exact })
    }

    /// The host of `url`, and no other of its domain.
    pub(super) fn exact(url: &Url) -> Self {
        let host = url.host_str().unwrap_or_default().trim_end_matches('.').to_ascii_lowercase();
        Self { is_plain: false, host, port: url.port() }
    }

    fn covers(&self, url: &Url) -> bool {
        let host = Self::exact(url).host;
        let is_host = match self.host.strip_prefix("*.") {
            Some(domain) => host.strip_suffix(domain).is_some_and(|rest| rest.len() > 1 && rest.ends_with('.')),
            None => host == self.host,
        };
        is_host && self.port == url.port()
    }

    /// Whether it is the host of `url`, at any port if it names none.
    pub(super) fn is_host_of(&self, url: &Url) -> bool {
        self.host == Self::exact(url).host && self.port.is_none_or(|port| url.port() == Some(port))
    }
}

impl FromStr for SecretHost {
    type Err = InvalidPlace;

    fn from_str(text: &str) -> Result<Self, InvalidPlace> {
        let invalid = || InvalidPlace(text.to_owned());
        let (is_plain, place) = match text.split_once("://") {
            Some(("http", rest)) => (true, rest),
            Some(("https", rest)) => (false, rest),
            Some(_) => return Err(invalid()),
            None => (false, text),
        };
        let place = place.trim_end_matches('/');
        let (wildcard, name) = place.strip_prefix("*.").map_or(("", place), |domain| ("*.", domain));
        let url = Url::parse(&format!("https://{name}/")).map_err(|_| invalid())?;
        let is_host_only =
            url.username().is_empty() && url.password().is_none() && !name.contains(['/', '?', '#', '@']);
        let host = url.host_str().filter(|_| is_host_only && !name.contains('*')).ok_or_else(invalid)?;
        Ok(Self { is_plain, host: format!("{wildcard}{host}"), port: url.port() })
    }
}

impl fmt::Display for SecretHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_plain { "http://" } else { "" })?;
        f.write_str(&self.host)?;
        self.port.map_or(Ok(()), |port| write!(f, ":{port}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_host_is_refused() {
        for text in
            ["", "https://", "a/b", "user@a.example", "ftp://a.example", "*", "*.*.example", "a.*.example", "a b"]
        {
            assert!(text.parse::<SecretPlace>().is_err(), "{text}");
        }
        let google: Url = "https://gmail.googleapis.com/x".parse().expect("a URL");
        assert_eq!(SecretPlace::of(&google).map(|host| host.to_string()).as_deref(), Some("*.googleapis.com"));
    }

    #[test]
    fn a_program_is_known_by_all_that_says_what_it_runs() {
        let words = |text: &str| -> Vec<String> { text.split(' ').map(str::to_owned).collect() };
        let env = |pairs: &[(&str, &str)]| {
            pairs.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect::<BTreeMap<_, _>>()
        };
        let own = SecretPlace::of_program(&words("npx -y server"), &env(&[("KEY", "secret:key")]), None);
        assert_eq!(own.to_string(), "program:npx -y server");
        assert_eq!(own.to_string().parse::<SecretPlace>().expect("a place"), own);
        let url: Url = "https://server/".parse().expect("a URL");
        assert!(!own.covers(&url) && "program: ".parse::<SecretPlace>().is_err());
        for other in [
            SecretPlace::of_program(&words("npx server"), &env(&[]), None),
            SecretPlace::of_program(&words("npx -y server"), &env(&[("PATH", "/tmp/evil")]), None),
            SecretPlace::of_program(&words("npx -y server"), &env(&[]), Some("/tmp/evil")),
            SecretPlace::of_program(&["npx".to_owned(), "-y server".to_owned()], &env(&[]), None),
            SecretPlace::of_program(&words("cd /tmp && npx -y server"), &env(&[]), None),
            SecretPlace::of_program(&words("npx -y\nserver"), &env(&[]), None),
        ] {
            assert_ne!(other, own);
            assert_eq!(other.to_string().lines().count(), 1, "{other}");
        }
        let there = SecretPlace::of_program(&words("npx"), &env(&[("MODE", "a b")]), Some("/a b"));
        assert_eq!(there.to_string(), r#"program:cd "/a b" && "MODE=a b" npx"#);
    }
}
