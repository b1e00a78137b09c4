//! The configuration file: reads it, merges it over the defaults, and says where a mistake is.
//!
//! A file is valid as a whole or not at all. Messages name the line of a mistake and never quote it, since they also
//! reach agents and a line may hold a secret that was written in the wrong place.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::{io, iter};

use protocol::access::AccessFilter;
use protocol::code::Code;
use protocol::error::{ErrorBody, chain};
use protocol::paths::Paths;
use protocol::regular_file;
use protocol::tool_scope::check_profile_name;
use protocol::trust::{self, Distrust};
use toml::de::{DeTable, DeValue};
use url::Url;

use super::known::{KnownConfigurations, UsedConfiguration};
use super::{Config, DEFAULTS, agent, databases};

/// The largest configuration file.
const MAX_CONFIG_BYTES: u64 = 4 << 20;

/// What the keys begin with that say what is not allowed.
const RESTRICTING: [&str; 5] = ["access.", "confirm.rules", "confirm.writes", "profiles.", "rate_limits."];

#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("failed to read config `{path}`")]
    Read { path: PathBuf, source: io::Error },
    /// `place` is the file with the line and the column, if those are known.
    #[error("config `{place}` is not valid: {reason}")]
    Malformed { place: String, reason: String },
    /// It was in force before.
    #[error("config `{path}` is gone: it was there before, and what it forbids must not become allowed")]
    Gone { path: PathBuf },
    /// It says nothing any more, and what was in force before forbade or limited something.
    #[error("config `{path}` is empty: it had rules before, and what they forbid must not become allowed")]
    Emptied { path: PathBuf },
    /// The record or the mailbox was last used with another file.
    #[error(
        "the executor was last used with {before}, and here it would be {here}: what the other one forbids must not \
         become allowed"
    )]
    Elsewhere { here: UsedConfiguration, before: UsedConfiguration },
    /// Another user can have written the file.
    #[error("config `{path}` cannot be trusted: {distrust}")]
    Untrusted { path: PathBuf, distrust: Distrust },
}

impl ConfigError {
    /// Returns what a human can do about the error.
    pub fn hint(&self) -> String {
        let remedy = match self {
            Self::Untrusted { distrust, .. } => distrust.remedy(),
            Self::Gone { .. } => Some(
                "put it back; or, if a human wants none any more: agent-magic-tool executor stop, then \
                 agent-magic-tool executor start --without-configuration"
                    .to_owned(),
            ),
            Self::Emptied { .. } => Some(
                "put its settings back, or write `rules = []` under `[confirm]`; or, if a human wants none any more: \
                 agent-magic-tool executor stop, then agent-magic-tool executor start --without-configuration"
                    .to_owned(),
            ),
            Self::Elsewhere { .. } => Some(
                "use the `HOME`, `XDG_CONFIG_HOME` and `AGENT_MAGIC_TOOL_SUBTOOLS` of before; or, if a human means this \
                 one: agent-magic-tool executor start --with-this-configuration"
                    .to_owned(),
            ),
            Self::Read { .. } | Self::Malformed { .. } => None,
        };
        remedy.unwrap_or_else(|| {
            "correct the file, then: agent-magic-tool doctor; every setting and its default: agent-magic-tool doctor \
             --settings"
                .to_owned()
        })
    }
}

/// The text of the configuration file; a missing file has no text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigText {
    path: PathBuf,
    text: String,
    is_missing: bool,
}

/// A configuration, and the values that it was made of.
#[derive(Debug)]
pub struct ParsedConfig {
    pub config: Config,
    pub values: ConfigValues,
}

/// Every value of a configuration by its key, like `confirm.writes`. A list is one value.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ConfigValues(BTreeMap<String, toml::Value>);

impl ConfigText {
    /// A text that is to be written to the file at `path`.
    pub fn new(path: &Path, text: String) -> Self {
        Self { path: path.to_owned(), text, is_missing: false }
    }

    /// Reads the file at `path`, if only this user can have written it.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        if let Err(distrust) = trust::check(path)
            && distrust.is_writable_by_others()
        {
            return Err(ConfigError::Untrusted { path: path.to_owned(), distrust });
        }
        let (text, is_missing) = match regular_file::read_text(path, MAX_CONFIG_BYTES) {
            Ok(text) => (text, false),
            Err(error) if error.kind() == io::ErrorKind::NotFound => (String::new(), true),
            Err(source) => return Err(ConfigError::Read { path: path.to_owned(), source }),
        };
        Ok(Self { path: path.to_owned(), text, is_missing })
    }

    /// Reads the configuration file of this user. It is not gone if it was in force before.
    pub fn of_user(paths: &Paths) -> Result<Self, ConfigError> {
        let path = paths.config_file();
        let text = Self::read(&path)?;
        let is_known = || KnownConfigurations::of(paths).contains();
        if text.is_missing && is_known().map_err(|source| ConfigError::Read { path: path.clone(), source })? {
            return Err(ConfigError::Gone { path });
        }
        let restricted = || KnownConfigurations::of(paths).restricted();
        if text.is_blank() && restricted().map_err(|source| ConfigError::Read { path: path.clone(), source })? {
            return Err(ConfigError::Emptied { path });
        }
        Ok(text)
    }

    /// Whether there is no file.
    pub fn is_missing(&self) -> bool {
        self.is_missing
    }

    pub fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    /// Whether there is a file that sets nothing: it is empty, or has only comments and headers of tables.
    pub fn is_blank(&self) -> bool {
        !self.is_missing
            && self.text.parse().is_ok_and(|own: toml::Table| ConfigValues::of(&own) == ConfigValues::default())
    }

    /// Merges the file over the defaults and checks every value.
    pub fn parse(&self) -> Result<ParsedConfig, ConfigError> {
        let own: toml::Table = self
            .text
            .parse()
            .map_err(|error: toml::de::Error| self.malformed(error.span().map(|span| span.start), error.message()))?;
        let mut merged: toml::Table = defaults().parse().expect("the shipped defaults are valid TOML");
        merge(&mut merged, own);
        let values = ConfigValues::of(&merged);
        let mut config: Config = serde_path_to_error::deserialize(toml::Value::Table(merged)).map_err(|error| {
            let path = error.path().to_string();
            let reason = error.into_inner().message().to_owned();
            let place = self.offset_of(&path, &reason);
            let reason = if path == "." { reason } else { format!("`{path}`: {reason}") };
            self.malformed(place, &reason)
        })?;
        agent::choose_the_only_model(&mut config.agent, &config.models);
        agent::check(&config.agent, &config.models).map_err(|reason| self.malformed(None, &reason))?;
        databases::check(&config.databases)
            .map_err(|(path, reason)| self.malformed(self.offset_of(&path, ""), &format!("`{path}`: {reason}")))?;
        self.check_access(&config)?;
        self.check_endpoints(&config)?;
        Ok(ParsedConfig { config, values })
    }

    /// Refuses a pattern that cannot be read: without it, more would be allowed than the human wrote.
    fn check_access(&self, config: &Config) -> Result<(), ConfigError> {
        let of_profiles = config.profiles.iter().map(|(name, profile)| (format!("profiles.{name}"), profile.access()));
        for (section, rules) in iter::once(("access".to_owned(), config.access.clone())).chain(of_profiles) {
            if let Err(error) = AccessFilter::new(&rules) {
                return Err(self.mistake_at(&format!("{section}.{}", error.place), &error.to_string()));
            }
        }
        let mistake = config.profiles.iter().find_map(|(name, profile)| Some((name, profile.mistake(name)?)));
        if let Some((name, (key, why))) = mistake {
            return Err(self.mistake_at(&format!("profiles.{name}{key}"), &why));
        }
        for (path, scope) in config.named_scopes() {
            if let Some(mistake) = scope.mistake() {
                return Err(self.mistake_at(&path, &mistake.to_string()));
            }
        }
        let unknown = config.used_profiles().into_iter().find(|(_, name)| !config.profiles.contains_key(name));
        unknown.map_or(Ok(()), |(path, name)| {
            let message = if check_profile_name(&name).is_ok() {
                format!("there is no profile `{name}`; write [profiles.{name}]")
            } else {
                format!("`{name}` is not the name of a profile; write it without `@`, as in [profiles.NAME]")
            };
            Err(self.mistake_at(&path, &message))
        })
    }

    /// Refuses an endpoint that replaces nothing, or leads nowhere: requests would go to the host that it was to replace.
    fn check_endpoints(&self, config: &Config) -> Result<(), ConfigError> {
        let is_base = |text: &str| Url::parse(text).is_ok_and(|url| matches!(url.scheme(), "http" | "https"));
        for (declared, own) in &config.http.endpoints {
            if let Some(wrong) = [declared, own].into_iter().find(|text| !is_base(text)) {
                let path = format!("http.endpoints.\"{declared}\"");
                let message = format!("`{wrong}` is no base URL of a definition, like `https://api.github.com`");
                return Err(self.malformed(self.offset_of("http.endpoints", ""), &format!("`{path}`: {message}")));
            }
        }
        Ok(())
    }

    /// The error of a mistake at `path`, like `confirm.rules[0].tools[1]`.
    pub fn mistake_at(&self, path: &str, message: &str) -> ConfigError {
        self.malformed(self.offset_of(path, ""), &format!("`{path}`: {message}"))
    }

    /// The line of the value at `path`, counted from 1.
    pub fn line_of(&self, path: &str) -> Option<usize> {
        let before = self.text.get(..self.offset_of(path, "")?)?;
        Some(before.matches('\n').count() + 1)
    }

    fn malformed(&self, offset: Option<usize>, reason: &str) -> ConfigError {
        let place = match offset.and_then(|offset| self.text.get(..offset)) {
            Some(before) => {
                let line = before.matches('\n').count() + 1;
                let column = before.chars().rev().take_while(|character| *character != '\n').count() + 1;
                format!("{}:{line}:{column}", self.path.display())
            }
            None => self.path.display().to_string(),
        };
        ConfigError::Malformed { place, reason: reason.trim().replace('\n', " ") }
    }

    fn offset_of(&self, path: &str, reason: &str) -> Option<usize> {
        offset_in(&self.text, path, reason)
    }
}

/// Finds the value in TOML at `path`, like `confirm.rules[0].then`, or the key that `reason` calls unknown there.
pub fn offset_in(text: &str, path: &str, reason: &str) -> Option<usize> {
    let document = DeTable::parse(text).ok()?;
    let unknown = reason.strip_prefix("unknown field `").and_then(|rest| rest.split('`').next());
    let mut offset = None;
    let mut table = Some(document.get_ref());
    let mut array = None;
    for part in path.split(['.', '[']).map(|part| part.trim_end_matches(']')).filter(|part| !part.is_empty()) {
        let found = match (table, array) {
            (_, Some(items)) => {
                let items: &toml::de::DeArray<'_> = items;
                part.parse::<usize>().ok().and_then(|index| items.get(index)).map(|value| (value.span(), value))
            }
            (Some(fields), None) => {
                let field = fields.iter().find(|(key, _)| key.get_ref() == part);
                field.map(|(key, value)| (key.span(), value))
            }
            (None, None) => None,
        };
        let Some((span, value)) = found else { break };
        offset = Some(span.start);
        (table, array) = match value.get_ref() {
            DeValue::Table(fields) => (Some(fields), None),
            DeValue::Array(items) => (None, Some(items)),
            _ => (None, None),
        };
    }
    let key = table.zip(unknown).and_then(|(fields, name)| fields.iter().find(|(key, _)| key.get_ref() == name));
    key.map(|(key, _)| key.span().start).or(offset)
}

/// The defaults without their comments: to parse those took a tenth of the instructions of a `list`.
fn defaults() -> String {
    let mut text = String::with_capacity(DEFAULTS.len() / 4);
    for line in DEFAULTS.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        text.push_str(line);
        text.push('\n');
    }
    text
}

impl ConfigValues {
    fn of(table: &toml::Table) -> Self {
        let mut values = BTreeMap::new();
        flatten("", table, &mut values);
        Self(values)
    }

    /// Whether something in it forbids, asks or limits: it is not as the defaults have it.
    pub fn restrict(&self) -> bool {
        let defaults = Self::of(&defaults().parse().expect("the shipped defaults are valid TOML"));
        self.differing(&defaults).iter().any(|key| RESTRICTING.iter().any(|start| key.starts_with(start)))
    }

    /// Returns the keys whose values differ between the two, in order.
    pub fn differing(&self, other: &Self) -> Vec<String> {
        let keys = self.0.keys().chain(other.0.keys().filter(|key| !self.0.contains_key(*key)));
        let mut differing: Vec<_> = keys.filter(|key| self.0.get(*key) != other.0.get(*key)).cloned().collect();
        differing.sort();
        differing
    }
}

fn flatten(prefix: &str, table: &toml::Table, values: &mut BTreeMap<String, toml::Value>) {
    for (key, value) in table {
        let path = if prefix.is_empty() { key.clone() } else { format!("{prefix}.{key}") };
        match value {
            toml::Value::Table(inner) => flatten(&path, inner, values),
            other => drop(values.insert(path, other.clone())),
        }
    }
}

/// Merges `own` into `base`: tables key by key, anything else is replaced.
fn merge(base: &mut toml::Table, own: toml::Table) {
    for (key, value) in own {
        match (base.get_mut(&key), value) {
            (Some(toml::Value::Table(base)), toml::Value::Table(own)) => merge(base, own),
            (_, value) => {
                base.insert(key, value);
            }
        }
    }
}

/// Fails if the secrets and the record were used with another configuration than that of this environment.
pub fn check_in_force(paths: &Paths) -> Result<(), ConfigError> {
    let elsewhere = KnownConfigurations::of(paths).elsewhere();
    match elsewhere.map_err(|source| ConfigError::Read { path: paths.config_file(), source })? {
        None => Ok(()),
        Some(before) => Err(ConfigError::Elsewhere { here: UsedConfiguration::of(paths), before }),
    }
}

impl From<ConfigError> for ErrorBody {
    fn from(error: ConfigError) -> Self {
        Self::new(Code::BadConfig, chain(&error)).hint(error.hint())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<ParsedConfig, String> {
        let text = ConfigText::new(Path::new("c.toml"), text.to_owned());
        text.parse().map_err(|error| error.to_string())
    }

    #[test]
    fn a_mistake_is_named_with_its_line_and_without_its_text() {
        for (text, place) in [
            ("[page]\nidle = 5 =\n", "`c.toml:2:10` is not valid: "),
            ("[page]\nenabled = \"yes\"\n", "`c.toml:2:1` is not valid: `page.enabled`: "),
            ("\n[executor]\nconcurency = 3\n", "`c.toml:3:1` is not valid: `executor.concurency`: unknown field"),
            ("[[confirm.rules]]\nthen = \"ask\"\n[[confirm.rules]]\nthen = \"s3cr3t\"\n", "`c.toml:4:1` is not valid"),
            ("[access]\ndeny = [\"a\", \"{x\"]\n", "`c.toml:2:14` is not valid: `access.deny[1]`: "),
        ] {
            let message = parsed(text).expect_err(text);
            assert!(message.contains(place) && !message.contains('\n'), "{message}");
            assert!(!message.contains("5 ="), "{message}");
        }
    }

    #[test]
    fn the_defaults_say_the_same_without_their_comments() {
        let table = |text: &str| text.parse::<toml::Table>().expect("valid TOML");
        assert_eq!(table(&defaults()), table(DEFAULTS));
        assert!(defaults().len() < DEFAULTS.len() / 2);
    }

    #[test]
    fn a_file_without_a_value_is_blank_and_only_what_is_not_allowed_restricts() {
        let text = |text: &str| ConfigText::new(Path::new("c.toml"), text.to_owned());
        for blank in ["", "\n \n", "# [confirm]\n# rules = []\n", "[confirm]\n"] {
            assert!(text(blank).is_blank(), "{blank}");
        }
        for other in ["[confirm]\nrules = []\n", "[page]\nenabled = false\n", "[confirm"] {
            assert!(!text(other).is_blank(), "{other}");
        }
        for (restricts, own) in [
            (true, "[[confirm.rules]]\nthen = \"refuse\"\n"),
            (true, "[confirm]\nwrites = \"refuse\"\n"),
            (true, "[access]\ndeny = [\"x\"]\n"),
            (true, "[rate_limits.tools]\nx = { calls = 1, per = \"1h\" }\n"),
            (false, "[confirm]\nrules = []\nwait = \"9m\"\n"),
            (false, "[models.m]\nprovider = \"ollama\"\n"),
            (false, ""),
        ] {
            assert_eq!(parsed(own).expect("it is valid").values.restrict(), restricts, "{own}");
        }
    }

    #[test]
    fn the_difference_of_two_configurations_is_a_list_of_keys() {
        let values = |text: &str| parsed(text).expect("it is valid").values;
        let before = values("[confirm]\nwrites = \"ask\"\n[secrets.a]\nenv = \"A\"\n");
        let after = values("[confirm]\nwrites = \"refuse\"\n[models.m]\nprovider = \"ollama\"\nmodel = \"m\"\n");
        let expected = ["confirm.writes", "models.m.model", "models.m.provider", "secrets.a.env"];
        assert_eq!(before.differing(&after), expected);
        assert_eq!(before.differing(&before), Vec::<String>::new());
    }
}
