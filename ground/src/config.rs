//! The configuration: what a human decided for this machine.
//!
//! `default-config.toml` documents every setting and contains its default; the user's file overrides it.
//! Nothing here is read from files that an agent controls.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use protocol::access::AccessRules;
use protocol::caller::Caller;
use protocol::command_executor::ForeignCommands;
use protocol::duration::PositiveDuration;
use protocol::mailbox::for_callers::{CallerSettings, Lacking};
use protocol::paths::Paths;
use protocol::tool_scope::ToolScope;
use serde::{Deserialize, Deserializer, Serialize, de};
use url::Url;

use crate::config::programs::ProgramSettings;
use crate::config::secret::{SecretName, Secrets};
use crate::task::confirmation::Assurance;

/// Every setting with its default, as a commented TOML file.
pub const DEFAULTS: &str = include_str!("../default-config.toml");

mod agent;
pub mod api_keys;
mod databases;
mod file;
mod hook;
pub mod key_file;
pub mod known;
pub mod log;
mod mcp;
mod packs;
mod profile;
pub mod programs;
mod rate_limit;
pub mod seal;
pub mod secret;
mod serve;
pub mod slack;
pub mod state;

pub use agent::{AgentSettings, ModelPrice, ModelSettings, ProviderKind, ReasoningEffort};
pub use databases::DatabaseSettings;
pub use file::offset_in;
pub use file::{ConfigError, ConfigText, ConfigValues, ParsedConfig, check_in_force};
pub use hook::{HookReceiver, HookSettings, NamePatterns};
pub use mcp::{McpClientSettings, McpSettings};
pub use packs::PackSettings;
pub use profile::ProfileSettings;
pub use rate_limit::{RateLimit, RateLimitSettings};
pub use serve::ServeSettings;

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    pub agent: AgentSettings,
    /// The configured models, by the names that the human gave them.
    pub models: BTreeMap<String, ModelSettings>,
    /// The databases that subtools may ask, by the names that the human gave them.
    pub databases: BTreeMap<String, DatabaseSettings>,
    pub catalog: CatalogSettings,
    /// What the human decided about packs, by their names.
    pub packs: BTreeMap<String, PackSettings>,
    pub access: AccessRules,
    /// The rights of some callers, by the names that the human gave them.
    pub profiles: BTreeMap<String, ProfileSettings>,
    pub confirm: ConfirmSettings,
    pub rate_limits: RateLimitSettings,
    pub executor: ExecutorSettings,
    pub files: FileSettings,
    pub programs: ProgramSettings,
    pub http: HttpSettings,
    pub page: PageSettings,
    pub shell: ShellSettings,
    pub mcp: McpSettings,
    pub serve: ServeSettings,
    /// The receivers that are notified when a task is final.
    pub hooks: BTreeMap<String, HookSettings>,
    pub wait: WaitSettings,
    pub wake: WakeSettings,
    pub telemetry: TelemetrySettings,
    /// Sources of secrets other than the secret store.
    pub secrets: BTreeMap<String, SecretSource>,
    /// Values that definitions use as `{{ vars.NAME }}`.
    pub vars: BTreeMap<String, DefinitionVariable>,
}

/// The value of a variable: what is written in a definition in its place.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(try_from = "serde_json::Value")]
pub struct DefinitionVariable(serde_json::Value);

impl DefinitionVariable {
    pub fn value(&self) -> &serde_json::Value {
        &self.0
    }
}

impl TryFrom<serde_json::Value> for DefinitionVariable {
    type Error = &'static str;

    fn try_from(value: serde_json::Value) -> Result<Self, Self::Error> {
        match &value {
            serde_json::Value::String(text) if ["{{", "{%", "{#"].iter().any(|open| text.contains(open)) => {
                Err("a variable cannot contain a template")
            }
            serde_json::Value::Array(_) | serde_json::Value::Object(_) | serde_json::Value::Null => {
                Err("a variable is a text, a number or a boolean")
            }
            _ => Ok(Self(value)),
        }
    }
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CatalogSettings {
    /// Folders with discovery JSON.
    pub folders: Vec<PathBuf>,
    /// The packs to load, if `packs` does not decide.
    pub packs: Vec<String>,
    /// Whether searches remember which subtool was run after them.
    pub learn: bool,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConfirmSettings {
    /// What happens to a subtool that changes something and does not say whether a human must approve it.
    pub writes: RuleAction,
    /// Whether a change must be shown by a dry run before it is made, where it can be.
    pub dry_run_first: bool,
    /// How long a task waits for a decision.
    pub wait: PositiveDuration,
    /// How many tasks may wait for a human at once.
    pub waiting: usize,
    /// How many tasks of one Unix user's callers may wait for a human at once.
    pub waiting_per_user: usize,
    /// How many tasks of one session may wait for a human at once.
    pub waiting_per_session: usize,
    /// How many confirmations one user's callers may request per hour; 0 means no limit.
    pub asks_per_hour: usize,
    /// How long a denied call is refused without asking again.
    pub cool_down: PositiveDuration,
    /// Whether a desktop notification shows that tasks wait.
    pub notify: bool,
    /// A program and its arguments, run when tasks wait; empty means none.
    pub on_confirmation: Vec<String>,
    /// The file with the keys of the approver, which belongs to root; `None` for one of the executor's own.
    #[serde(deserialize_with = "none_if_empty")]
    pub keys: Option<PathBuf>,
    pub rules: Vec<RuleSettings>,
    pub marks: Vec<MarkSettings>,
}

/// A risk mark of the human: what to say on the card of a call.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MarkSettings {
    /// Names or globs of subtools; empty means every subtool.
    #[serde(default)]
    pub tools: Vec<String>,
    /// The mark applies to subtools with any of these tags; empty means every subtool.
    #[serde(default)]
    pub tags: Vec<String>,
    /// An expression over `input` and `caller`, which also has `hour` and `weekday`.
    #[serde(default)]
    pub when: Option<String>,
    /// The words of the mark.
    pub say: String,
}

/// One confirmation rule of the human.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RuleSettings {
    /// Names or globs of subtools; empty means every subtool.
    #[serde(default)]
    pub tools: Vec<String>,
    /// The rule applies to subtools with any of these tags; empty means every subtool.
    #[serde(default)]
    pub tags: Vec<String>,
    /// The rule applies to calls that do this in a database: globs over `db.DATABASE.TABLE.write`; empty means every call.
    #[serde(default)]
    pub gates: Vec<String>,
    /// An expression over `input` and `caller`.
    #[serde(default)]
    pub when: Option<String>,
    pub then: RuleAction,
    /// How strong an approval must be, if the rule asks.
    #[serde(default)]
    pub min_assurance: Option<Assurance>,
    /// The reason shown to humans and callers.
    #[serde(default)]
    pub because: Option<String>,
    /// Calls that the rule must apply to; checked when the rule is loaded.
    #[serde(default, rename = "match")]
    pub matches: Vec<RuleSample>,
    /// Calls that the rule must not apply to; checked when the rule is loaded.
    #[serde(default, rename = "not_match")]
    pub not_matches: Vec<RuleSample>,
}

/// A sample call to check a rule with.
#[derive(Debug, Clone, PartialEq, Deserialize)]
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

/// What a rule does with a call, weakest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RuleAction {
    Allow,
    Ask,
    Refuse,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExecutorSettings {
    /// The executor stops by itself after this long without an open task and without an open page.
    pub idle: PositiveDuration,
    /// How many tasks run at once.
    pub concurrency: u32,
    /// How many tasks may be open at once, in total.
    pub open_tasks: usize,
    /// How many tasks one session of one user may have open at once.
    pub open_tasks_per_session: usize,
    /// How many bytes the inputs of open tasks may have, in total.
    pub open_bytes: u64,
    /// How many bytes the inputs of one session's open tasks may have.
    pub open_bytes_per_session: u64,
    /// The timeout of one attempt, for subtools that define none.
    pub timeout: PositiveDuration,
    /// How long running tasks may continue after the executor was told to stop.
    pub grace: PositiveDuration,
    /// Data of more bytes than this is stored in a file beside the result file.
    pub inline_bytes: usize,
    /// A task with more bytes of data than this fails.
    pub output_bytes: u64,
    /// How many bytes of results one session may have.
    pub result_bytes_per_session: u64,
    /// How many bytes of results all sessions of one API key may have.
    pub result_bytes_per_key: u64,
    /// How many bytes of results there may be.
    pub result_bytes: u64,
    /// How long result files and records of ended tasks are kept.
    pub keep: PositiveDuration,
    /// When ended tasks take more bytes than this, the oldest are deleted earlier; 0 means no limit.
    pub keep_bytes: u64,
    /// What is logged, in the syntax of `RUST_LOG`.
    pub log: String,
    pub log_format: LogFormat,
    /// Whether the log contains the inputs of tasks.
    pub log_inputs: bool,
    /// The size at which the log file is rotated.
    pub log_bytes: u64,
}

/// The format of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LogFormat {
    /// JSON in the log file; on standard error, `Journald` if it goes to the systemd journal, otherwise `Plain`.
    Auto,
    /// One JSON object per line.
    Json,
    Plain,
    /// For the systemd journal: with priorities, without time and colors.
    Journald,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileSettings {
    /// The folders that the file subtools may read; `.` is the caller's folder.
    pub roots: Vec<PathBuf>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HttpSettings {
    /// Hosts that a URL from the input may name although they have loopback, link-local or private addresses.
    pub private_hosts: Vec<String>,
    /// Replacements for base URLs of definitions, for example a company's own GitHub server.
    pub endpoints: BTreeMap<String, String>,
    /// The largest response body.
    pub max_bytes: u64,
    pub user_agent: String,
}

/// What `command_executor`, the single tool of an agent, accepts.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ShellSettings {
    pub others: ForeignCommands,
}

/// How long commands wait for results.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WaitSettings {
    /// How long `wait` waits without a `--timeout`.
    pub limit: PositiveDuration,
}

/// How third-party agents are woken.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WakeSettings {
    /// How long a hook waits if its client is blocked meanwhile.
    pub wait: PositiveDuration,
    /// How long a hook waits if its client runs it in the background.
    pub wait_beside: PositiveDuration,
}

/// The human's page.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PageSettings {
    /// Whether the page is served. Without it no task can be approved.
    pub enabled: bool,
    /// Its port on loopback; 0 is any free one.
    pub port: u16,
    /// A session that is unused for this long ends.
    pub idle: PositiveDuration,
    /// How many lines of an input or a question a card shows at once; a longer one scrolls.
    pub preview_lines: NonZeroUsize,
}

/// Where traces and metrics go. Nowhere by default.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TelemetrySettings {
    /// The collector that traces and metrics are sent to, over OTLP.
    #[serde(deserialize_with = "none_if_empty")]
    pub otlp: Option<Url>,
    /// Headers of requests to the collector.
    pub otlp_headers: BTreeMap<String, SecretName>,
    /// How often changes are sent.
    pub every: PositiveDuration,
    /// The address on which Prometheus can scrape the metrics.
    #[serde(deserialize_with = "none_if_empty")]
    pub prometheus: Option<SocketAddr>,
}

/// An empty string means `None`.
fn none_if_empty<'de, D: Deserializer<'de>, T: FromStr<Err: Display>>(deserializer: D) -> Result<Option<T>, D::Error> {
    let text = String::deserialize(deserializer)?;
    if text.is_empty() { Ok(None) } else { text.parse().map(Some).map_err(de::Error::custom) }
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SecretSource {
    /// An environment variable of the executor.
    Env(String),
    /// A program that prints the secret, like `["pass", "show", "github"]`.
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

impl Config {
    /// The settings that concern callers.
    pub fn for_callers(&self) -> CallerSettings {
        CallerSettings {
            wait: self.wait.limit,
            hook_wait: self.wake.wait,
            hook_wait_beside: self.wake.wait_beside,
            foreign_commands: self.shell.others,
            learns: self.catalog.learn,
        }
    }

    /// The tool scopes in other settings, each with its place.
    fn named_scopes(&self) -> Vec<(String, ToolScope)> {
        let of_clients = self.mcp.clients.iter().filter_map(|(client, settings)| {
            let subtools = ToolScope::of_list(settings.subtools.clone()?);
            Some((format!("mcp.clients.{client}.subtools"), subtools))
        });
        let of_slack =
            self.serve.slack.iter().map(|slack| ("serve.slack.tool_scope".to_owned(), slack.tool_scope.clone()));
        of_clients.chain(of_slack).collect()
    }

    /// The profiles that other settings name, each with the place where they do.
    fn used_profiles(&self) -> Vec<(String, String)> {
        let of_clients = self.mcp.clients.iter().filter_map(|(client, settings)| {
            Some((format!("mcp.clients.{client}.profile"), settings.profile.clone()?))
        });
        let slack = self.serve.slack.as_ref();
        let of_slack = slack.and_then(|slack| Some(("serve.slack.profile".to_owned(), slack.profile.clone()?)));
        let of_channels = slack
            .into_iter()
            .flat_map(|slack| &slack.channel_profiles)
            .map(|(channel, name)| (format!("serve.slack.channel_profiles.{channel}"), name.clone()));
        let scopes = self.named_scopes();
        let of_scopes = scopes
            .iter()
            .flat_map(|(path, scope)| scope.profiles().map(|name| (path.clone(), name.to_owned())).collect::<Vec<_>>());
        of_clients.chain(of_slack).chain(of_channels).chain(of_scopes).collect()
    }

    /// Whether a caller may only read.
    pub fn restricts_to_reading(&self, caller: &Caller) -> bool {
        let is_restricted = |name: &str| self.profiles.get(name).is_some_and(|profile| profile.read_only);
        caller.read_only || self.access.read_only || caller.tool_scope.profiles().any(is_restricted)
    }

    /// The setting by which callers with this tool scope must show a change by a dry run before they make it.
    pub fn demands_dry_run(&self, scope: &ToolScope) -> Option<String> {
        let demands = |name: &&str| self.profiles.get(*name).is_some_and(|profile| profile.dry_run_first);
        let of_profile = || scope.profiles().find(demands).map(|name| format!("profiles.{name}.dry_run_first"));
        match (self.confirm.dry_run_first, self.access.dry_run_first) {
            (true, _) => Some("confirm.dry_run_first".to_owned()),
            (false, true) => Some("access.dry_run_first".to_owned()),
            (false, false) => of_profile(),
        }
    }

    /// Those of these secrets and programs that are not there.
    pub fn lacking<'a>(
        &self,
        wanted: impl Iterator<Item = (&'a [String], Option<&'a PathBuf>)>,
        secrets: &Secrets,
    ) -> Lacking {
        let mut lacking = Lacking::default();
        for (names, program) in wanted {
            lacking.secrets.extend(names.iter().filter(|name| !secrets.is_set(name)).cloned());
            let is_missing = |program: &&PathBuf| {
                let found = programs::find(program, self.programs.path.iter().cloned());
                found.is_none_or(|found| !programs::is_program(&found))
            };
            lacking.programs.extend(program.filter(is_missing).cloned());
        }
        lacking
    }

    /// Reads the configuration of this user. A missing file means the defaults, unless it was in force before.
    pub fn read(paths: &Paths) -> Result<Self, ConfigError> {
        ConfigText::of_user(paths)?.parse().map(|parsed| parsed.config)
    }

    /// Reads the configuration of this user for what uses the secrets: only the one that they were used with before.
    pub fn in_force(paths: &Paths) -> Result<Self, ConfigError> {
        check_in_force(paths)?;
        Self::read(paths)
    }

    /// Reads the file at `path` and merges it over the defaults. A missing file means the defaults, but only if no
    /// other user can have removed it.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        ConfigText::read(path)?.parse().map(|parsed| parsed.config)
    }
}

impl Default for Config {
    fn default() -> Self {
        toml::from_str(DEFAULTS).expect("the shipped defaults fit the types")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn callers_go_by_the_defaults_until_an_executor_tells_them_others() {
        assert_eq!(Config::default().for_callers(), CallerSettings::default());
    }

    #[test]
    fn the_users_file_overrides_the_defaults() {
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
    fn an_error_names_the_file_and_the_key() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("config.toml");
        std::fs::write(&path, "[executor]\nconcurency = 3\n").expect("written");
        let error = Config::load(&path).expect_err("an unknown key").to_string();
        assert!(error.contains("config.toml:2:1") && error.contains("concurency"), "{error}");
    }
}
