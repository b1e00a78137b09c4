//! The configuration: what a human decided for this machine.
//!
//! `default-config.toml` documents every setting and holds its default; the file of the user is
//! laid over it. Nothing here is read from the agent's side.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use protocol::command_executor::ForeignCommands;
use protocol::duration::PositiveDuration;
use protocol::paths::Paths;
use serde::{Deserialize, Deserializer, de};
use url::Url;

use crate::base::trust::{self, Distrust};
use crate::config::secret::SecretName;

/// Every setting with its default, as a commented file.
pub const DEFAULTS: &str = include_str!("../default-config.toml");

mod agent;
mod hook;
pub mod log;
pub mod secret;

pub use agent::{AgentSettings, ModelPrice, ModelSettings, ProviderKind};
pub use hook::{HookReceiver, HookSettings, NamePatterns};

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    pub agent: AgentSettings,
    /// The models that there are, by the names that people give them.
    pub models: BTreeMap<String, ModelSettings>,
    pub catalog: CatalogSettings,
    pub access: AccessSettings,
    pub confirm: ConfirmSettings,
    pub executor: ExecutorSettings,
    pub files: FileSettings,
    pub http: HttpSettings,
    pub page: PageSettings,
    pub shell: ShellSettings,
    /// Who is told when a task is final.
    pub hooks: BTreeMap<String, HookSettings>,
    pub wake: WakeSettings,
    pub telemetry: TelemetrySettings,
    /// Where secrets come from that are not stored here.
    pub secrets: BTreeMap<String, SecretSource>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CatalogSettings {
    /// Folders of discovery JSON.
    pub folders: Vec<PathBuf>,
    /// Which shipped packs are there.
    pub packs: Vec<String>,
}

/// What callers may use.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AccessSettings {
    pub allow: Vec<String>,
    pub deny: Vec<String>,
    pub privileges: Vec<String>,
    pub admin: bool,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConfirmSettings {
    /// What happens to a subtool that changes something and does not say whether a human must agree.
    pub writes: RuleAction,
    /// How long a question waits for its answer.
    pub wait: PositiveDuration,
    /// How many tasks may wait for a human at once.
    pub waiting: usize,
    /// How many of these one session may have.
    pub waiting_per_session: usize,
    /// How many questions one user's callers may ask in an hour; 0 is no limit.
    pub asks_per_hour: usize,
    /// How long what was denied is not asked again.
    pub cool_down: PositiveDuration,
    /// Whether the human's desktop tells that something waits.
    pub notify: bool,
    /// A program and its arguments that are told so too; none if empty.
    pub on_confirmation: Vec<String>,
    pub rules: Vec<RuleSettings>,
}

/// One of the human's rules.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RuleSettings {
    /// Names or globs; none is every subtool.
    #[serde(default)]
    pub tools: Vec<String>,
    /// It is about subtools with any of these; none is whatever their tags.
    #[serde(default)]
    pub tags: Vec<String>,
    /// An expression over `input` and `caller`.
    #[serde(default)]
    pub when: Option<String>,
    pub then: RuleAction,
    /// Told to whoever asks why.
    #[serde(default)]
    pub because: Option<String>,
    /// Calls that it must be about; checked when it is read.
    #[serde(default, rename = "match")]
    pub matches: Vec<RuleSample>,
    /// Calls that it must not be about.
    #[serde(default, rename = "not_match")]
    pub not_matches: Vec<RuleSample>,
}

/// A call to try a rule on.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RuleSample {
    pub tool: String,
    #[serde(default)]
    pub tags: Vec<String>,
    #[serde(default)]
    pub input: serde_json::Map<String, serde_json::Value>,
    #[serde(default)]
    pub session: Option<String>,
    #[serde(default)]
    pub folder: Option<PathBuf>,
}

/// What a rule says, the weakest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RuleAction {
    Allow,
    Ask,
    Refuse,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExecutorSettings {
    /// It stops by itself after this long without an open task.
    pub idle: PositiveDuration,
    /// How many tasks run at once.
    pub concurrency: u32,
    /// How many tasks may be open at once, in all.
    pub open_tasks: usize,
    /// How many of them one session of one user may have open.
    pub open_tasks_per_session: usize,
    /// How many bytes the inputs of open tasks may have, in all.
    pub open_bytes: u64,
    /// How many of these one session of one user may have.
    pub open_bytes_per_session: u64,
    /// One attempt's timeout where the subtool names none.
    pub timeout: PositiveDuration,
    /// How long running tasks may go on when the executor is told to stop.
    pub grace: PositiveDuration,
    /// Data above this many bytes lies beside its result file.
    pub inline_bytes: usize,
    /// A task whose data has more bytes than this fails.
    pub output_bytes: u64,
    /// How long result files and records of ended tasks are kept.
    pub keep: PositiveDuration,
    /// Beyond this many bytes of them the oldest go earlier; 0 is no limit.
    pub keep_bytes: u64,
    /// What is logged, in the syntax of `RUST_LOG`.
    pub log: String,
    pub log_format: LogFormat,
    /// A log of more bytes is put aside, and the one before it dropped.
    pub log_bytes: u64,
}

/// How a line of the log is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LogFormat {
    /// As fits the place: JSON in the file, for the journal where that listens, else for a reader.
    Auto,
    /// One JSON object a line.
    Json,
    Plain,
    /// For systemd's journal: with its priorities, and without a time and colours.
    Journald,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileSettings {
    /// The folders that the file subtools may read; `.` is the folder from which the caller asks.
    pub roots: Vec<PathBuf>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HttpSettings {
    /// Hosts on loopback, link-local and private addresses that a URL from the input may name.
    pub private_hosts: Vec<String>,
    /// Another base URL for a declared one, like a company's own GitHub.
    pub endpoints: BTreeMap<String, String>,
    /// The largest body that is taken.
    pub max_bytes: u64,
    pub user_agent: String,
}

/// What an agent's one tool, a command line, carries out.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ShellSettings {
    pub others: ForeignCommands,
}

/// How agents of other makers are woken.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WakeSettings {
    /// How long a hook waits that its client waits for.
    pub wait: PositiveDuration,
    /// How long one waits that its client lets run beside the conversation.
    pub wait_beside: PositiveDuration,
}

/// The human's page.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PageSettings {
    /// Whether it is served at all. Without it nobody can say yes.
    pub enabled: bool,
    /// A session that is not used for this long ends.
    pub idle: PositiveDuration,
}

/// Who is told how the executor fares. Nobody, unless a human says so.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TelemetrySettings {
    /// The collector that traces and metrics are sent to, over OTLP.
    #[serde(deserialize_with = "unless_empty")]
    pub otlp: Option<Url>,
    /// Headers that are sent along.
    pub otlp_headers: BTreeMap<String, SecretName>,
    /// How long changes are gathered before they are sent.
    pub every: PositiveDuration,
    /// Where metrics can be read.
    #[serde(deserialize_with = "unless_empty")]
    pub prometheus: Option<SocketAddr>,
}

/// An empty text switches it off.
fn unless_empty<'de, D: Deserializer<'de>, T: FromStr<Err: Display>>(deserializer: D) -> Result<Option<T>, D::Error> {
    let text = String::deserialize(deserializer)?;
    if text.is_empty() { Ok(None) } else { text.parse().map(Some).map_err(de::Error::custom) }
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SecretSource {
    /// An environment variable of the executor.
    Env(String),
    /// A program that prints it, like `["pass", "show", "github"]`.
    Command(Vec<String>),
}

impl SecretSource {
    pub fn describe(&self) -> String {
        match self {
            Self::Env(variable) => format!("environment variable {variable}"),
            Self::Command(argv) => format!("command {}", argv.join(" ")),
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("failed to read config `{path}`")]
    Read { path: PathBuf, source: io::Error },
    #[error("failed to understand config `{path}`: {reason}")]
    Malformed { path: PathBuf, reason: String },
    /// It might be somebody else's word.
    #[error("config `{path}` cannot be trusted: {distrust}")]
    Untrusted { path: PathBuf, distrust: Distrust },
}

impl ConfigError {
    /// What a human can do about it.
    pub fn hint(&self) -> String {
        let remedy = match self {
            Self::Untrusted { distrust, .. } => distrust.remedy(),
            Self::Read { .. } | Self::Malformed { .. } => None,
        };
        remedy.unwrap_or_else(|| "every setting and its default: agent-magic-tool doctor --settings".to_owned())
    }
}

impl Config {
    /// The configuration of this user.
    pub fn read(paths: &Paths) -> Result<Self, ConfigError> {
        Self::load(&paths.config_file())
    }

    /// The defaults with the file at `path` laid over them; a missing file changes nothing, but that it is
    /// missing must be as sure as what it would say.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        if let Err(distrust) = trust::check(path)
            && distrust.is_of_others()
        {
            return Err(ConfigError::Untrusted { path: path.to_owned(), distrust });
        }
        let mut merged: toml::Table = DEFAULTS.parse().expect("the shipped defaults are valid TOML");
        match std::fs::read_to_string(path) {
            Ok(text) => {
                let own: toml::Table = text.parse().map_err(|error: toml::de::Error| malformed(path, &error))?;
                lay_over(&mut merged, own);
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(source) => return Err(ConfigError::Read { path: path.to_owned(), source }),
        }
        let config: Self =
            toml::Value::Table(merged).try_into().map_err(|error: toml::de::Error| malformed(path, &error))?;
        match agent::check(&config.agent, &config.models) {
            Ok(()) => Ok(config),
            Err(reason) => Err(ConfigError::Malformed { path: path.to_owned(), reason }),
        }
    }
}

impl Default for Config {
    fn default() -> Self {
        toml::from_str(DEFAULTS).expect("the shipped defaults fit the types")
    }
}

fn malformed(path: &Path, error: &toml::de::Error) -> ConfigError {
    ConfigError::Malformed { path: path.to_owned(), reason: error.to_string().trim().to_owned() }
}

/// Tables are merged key by key; anything else is replaced.
fn lay_over(base: &mut toml::Table, own: toml::Table) {
    for (key, value) in own {
        match (base.get_mut(&key), value) {
            (Some(toml::Value::Table(base)), toml::Value::Table(own)) => lay_over(base, own),
            (_, value) => {
                base.insert(key, value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_users_file_is_laid_over_the_defaults() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("config.toml");
        std::fs::write(&path, "[executor]\nconcurrency = 3\n[secrets.github]\nenv = \"GITHUB_TOKEN\"\n")
            .expect("written");
        let config = Config::load(&path).expect("it loads");
        assert_eq!(config.executor.concurrency, 3);
        assert_eq!(config.executor.timeout, Config::default().executor.timeout);
        assert_eq!(config.secrets["github"], SecretSource::Env("GITHUB_TOKEN".to_owned()));
    }

    #[test]
    fn a_mistake_names_the_file_and_the_key() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("config.toml");
        std::fs::write(&path, "[executor]\nconcurency = 3\n").expect("written");
        let error = Config::load(&path).expect_err("an unknown key").to_string();
        assert!(error.contains("config.toml") && error.contains("concurency"), "{error}");
    }
}
