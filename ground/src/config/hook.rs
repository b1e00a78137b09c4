//! `[hooks]`: each hook has one receiver, and filters for the tasks that it is notified of.

use std::fmt;

use globset::{Glob, GlobSet, GlobSetBuilder};
use protocol::duration::PositiveDuration;
use protocol::task::State;
use serde::{Deserialize, Deserializer, de};
use url::Url;

use crate::config::secret::SecretName;

/// Settings of one hook.
#[derive(Debug, Clone, Deserialize)]
#[serde(try_from = "HookTable")]
pub struct HookSettings {
    pub receiver: HookReceiver,
    /// Filters; an absent one matches every task.
    pub tools: Option<NamePatterns>,
    pub sessions: Option<NamePatterns>,
    pub states: Option<Vec<State>>,
    /// The timeout of one delivery.
    pub timeout: PositiveDuration,
    /// The pause after the first failure.
    pub backoff: PositiveDuration,
    /// The age of an event after which its delivery is abandoned.
    pub give_up: PositiveDuration,
}

#[derive(Clone)]
pub enum HookReceiver {
    /// A program and its arguments.
    Command(Vec<String>),
    Webhook {
        url: Url,
        secret: SecretName,
    },
}

/// Omits the path of the URL, which may contain a secret.
impl fmt::Debug for HookReceiver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Command(argv) => f.debug_tuple("Command").field(&argv.first()).finish(),
            Self::Webhook { url, .. } => f.debug_tuple("Webhook").field(&url.host_str()).finish(),
        }
    }
}

/// A set of names and globs.
#[derive(Debug, Clone)]
pub struct NamePatterns(GlobSet);

impl NamePatterns {
    pub fn matches(&self, name: &str) -> bool {
        self.0.is_match(name)
    }
}

impl<'de> Deserialize<'de> for NamePatterns {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut set = GlobSetBuilder::new();
        for glob in Vec::<String>::deserialize(deserializer)? {
            set.add(Glob::new(&glob).map_err(de::Error::custom)?);
        }
        set.build().map(Self).map_err(de::Error::custom)
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct HookTable {
    command: Option<Vec<String>>,
    url: Option<String>,
    secret: Option<SecretName>,
    tools: Option<NamePatterns>,
    sessions: Option<NamePatterns>,
    states: Option<Vec<State>>,
    #[serde(default = "timeout")]
    timeout: PositiveDuration,
    #[serde(default = "backoff")]
    backoff: PositiveDuration,
    #[serde(default = "give_up")]
    give_up: PositiveDuration,
}

fn timeout() -> PositiveDuration {
    PositiveDuration::from_secs(30)
}

fn backoff() -> PositiveDuration {
    PositiveDuration::from_secs(1)
}

fn give_up() -> PositiveDuration {
    PositiveDuration::from_secs(72 * 60 * 60)
}

impl TryFrom<HookTable> for HookSettings {
    type Error = String;

    fn try_from(table: HookTable) -> Result<Self, String> {
        let HookTable { command, url, secret, tools, sessions, states, timeout, backoff, give_up } = table;
        let receiver = match (command, url, secret) {
            (Some(argv), None, None) if argv.is_empty() => return Err("`command` is empty".to_owned()),
            (Some(argv), None, None) => HookReceiver::Command(argv),
            (None, Some(url), Some(secret)) => {
                let url = Url::parse(&url).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
                // The message must not quote the URL, which may contain a secret.
                HookReceiver::Webhook { url: url.ok_or("`url` is not an http or https URL")?, secret }
            }
            (None, Some(_), None) => return Err("a `url` needs a `secret` to sign with".to_owned()),
            (Some(_), _, _) => return Err("a hook has a `command`, or a `url` with its `secret`, not both".to_owned()),
            (None, None, _) => return Err("a hook needs a `command`, or a `url` with its `secret`".to_owned()),
        };
        if let Some(state) = states.iter().flatten().find(|state| !state.is_final()) {
            return Err(format!("`{state}` is not a final state"));
        }
        Ok(Self { receiver, tools, sessions, states, timeout, backoff, give_up })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hook_has_one_receiver_and_errors_say_what_is_wrong() {
        let read = |text: &str| toml::from_str::<HookSettings>(text).map_err(|error| error.message().to_owned());
        assert!(read("command = [\"x\"]\nstates = [\"failed\"]").is_ok());
        let hook = read("url = \"https://example.com/T0PSECRET\"\nsecret = \"secret:s\"").expect("a hook");
        assert!(!format!("{hook:?}").contains("T0PSECRET"), "{hook:?}");
        for (text, mistake) in [
            ("", "needs a `command`"),
            ("command = []", "is empty"),
            ("command = [\"x\"]\nurl = \"http://a\"\nsecret = \"secret:s\"", "not both"),
            ("url = \"http://a\"", "needs a `secret`"),
            ("url = \"ftp://a\"\nsecret = \"secret:s\"", "not an http or https URL"),
            ("url = \"http://a\"\nsecret = \"whsec_x\"", "not a secret reference"),
            ("command = [\"x\"]\nstates = [\"running\"]", "`running` is not a final state"),
            ("command = [\"x\"]\ntools = [\"a[\"]", "unclosed"),
            ("command = [\"x\"]\ntool = [\"a\"]", "unknown field `tool`"),
        ] {
            let error = read(text).expect_err(text);
            assert!(error.contains(mistake), "{text}: {error}");
        }
    }
}
