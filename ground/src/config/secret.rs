//! Secrets: resolved only inside the executor, at the moment of use.
//!
//! A [`Secret`] never appears in `Debug` output, `Display` output or errors. Everything that leaves the executor goes
//! through [`Secrets::redact`], because servers may echo what they receive; reasons of failures also go through
//! [`credential::mask`], because they may quote credentials that are not ours.

use std::borrow::Cow;
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::{Arc, PoisonError, RwLock};
use std::{fmt, fs};

use nix::fcntl::OFlag;
use protocol::code::Code;
use protocol::error::ErrorBody;
use protocol::paths::Paths;
use protocol::trust::{self, Distrust};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use serde_json::Value;

use crate::base::{children, credential};
use crate::config::programs::{self, ProgramSettings};
use crate::config::seal::Seal;
use crate::config::{Config, SecretSource};
use crate::task::failure::Failure;
use crate::task::name::is_name;

mod hosts;
mod lock;
mod place;
mod redaction;

pub use place::{InvalidPlace, SecretPlace};
pub use redaction::HiddenTexts;
use redaction::KnownSecrets;
pub use redaction::StreamRedaction;

/// The name of a secret; definitions refer to it as `secret:NAME`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SecretName(String);

/// Does not quote the text, which may be the secret itself, typed in the wrong place.
#[derive(Debug, thiserror::Error)]
#[error("not a valid secret name; use 1 to 64 of the characters a-z A-Z 0-9 _ -")]
pub struct InvalidSecretName;

/// Does not quote the text, for the same reason.
#[derive(Debug, thiserror::Error)]
#[error("not a secret reference; write `secret:NAME` and store the value with: agent-magic-tool secret set NAME")]
pub struct InvalidReference;

impl SecretName {
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether `text` starts with `secret:` but is not a valid reference.
    pub fn is_malformed_reference(text: &str) -> bool {
        text.starts_with("secret:") && Self::in_reference(text).is_none()
    }

    /// Returns the name in `secret:NAME`, or `None` if `text` is not such a reference.
    pub fn in_reference(text: &str) -> Option<Self> {
        text.strip_prefix("secret:")?.parse().ok()
    }
}

impl FromStr for SecretName {
    type Err = InvalidSecretName;

    fn from_str(text: &str) -> Result<Self, InvalidSecretName> {
        if is_name(text) { Ok(Self(text.to_owned())) } else { Err(InvalidSecretName) }
    }
}

/// Writes the reference, `secret:NAME`.
impl fmt::Display for SecretName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "secret:{}", self.0)
    }
}

impl<'de> Deserialize<'de> for SecretName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<'de, str>::deserialize(deserializer)?;
        Self::in_reference(&text).ok_or_else(|| de::Error::custom(InvalidReference))
    }
}

impl Serialize for SecretName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl JsonSchema for SecretName {
    fn schema_name() -> Cow<'static, str> {
        "SecretName".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "description": "A reference to a secret: `secret:NAME`.",
            "pattern": "^secret:[a-zA-Z0-9_-]{1,64}$"
        })
    }
}

/// A secret's value.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    pub fn new(value: String) -> Self {
        Self(value)
    }

    /// Returns the value itself, only for sending it to a server or program.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// Returns why `value` is not a good secret; `None` if it is. A value that ordinary text contains would be redacted
/// there too, and a short one is not redacted at all.
pub fn weakness(value: &str) -> Option<&'static str> {
    const MIN_BYTES: usize = 8;
    const MIN_DISTINCT: usize = 5;
    const MAX_WORD_BYTES: usize = 15;
    let distinct: std::collections::HashSet<char> = value.chars().collect();
    let is_word = value.chars().skip(1).all(|character| character.is_ascii_lowercase())
        || value.chars().all(|character| character.is_ascii_uppercase());
    if value.len() < MIN_BYTES {
        Some("it has fewer than 8 bytes")
    } else if distinct.len() < MIN_DISTINCT {
        Some("it repeats a few characters")
    } else if is_word && value.len() <= MAX_WORD_BYTES {
        Some("it is an ordinary word")
    } else {
        None
    }
}

#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    #[error("the secret `{name}` is not set")]
    NotSet { name: String },
    #[error("failed to get the secret `{name}` from `{from}`: {reason}")]
    Source { name: String, from: String, reason: String },
    #[error("the secret `{name}` may not go to `{host}`, only to {allowed}")]
    Host { name: String, host: String, allowed: String },
    #[error("the secret `{name}` would go to `{host}` over plain http, where others can read it")]
    Plain { name: String, host: String },
    #[error("what is stored of secrets is not believed: {0}")]
    Distrusted(Distrust),
    #[error("failed to access the secrets folder `{path}`")]
    Folder { path: PathBuf, source: io::Error },
}

impl From<SecretError> for Failure {
    fn from(error: SecretError) -> Self {
        let code = match error {
            SecretError::Host { .. } | SecretError::Plain { .. } => Code::ForbiddenAddress,
            _ => Code::SecretMissing,
        };
        let failure = Self::new(code, error.to_string());
        match error {
            SecretError::Host { name, host, .. } => failure.hint(format!(
                "if it is meant for that host, a human allows it with: agent-magic-tool secret allow {name} {host}"
            )),
            SecretError::Plain { name, host } => failure.hint(format!(
                "use https; or a human allows it with: agent-magic-tool secret allow {name} http://{host}"
            )),
            SecretError::NotSet { name } => {
                failure.hint(format!("a human sets it with: agent-magic-tool secret set {name}"))
            }
            SecretError::Source { .. } => failure.hint("a human must check `[secrets]` in the configuration"),
            SecretError::Distrusted(distrust) => {
                let remedy = distrust.remedy().map(|remedy| format!("; a human mends it: {remedy}"));
                failure.hint(format!("another user may have written it{}", remedy.unwrap_or_default()))
            }
            SecretError::Folder { .. } => {
                failure.hint("a human must check its owner and mode: agent-magic-tool doctor")
            }
        }
    }
}

/// The secrets of one user: stored as files of mode 0600 in a folder of mode 0700, or taken from configured sources.
#[derive(Clone)]
pub struct Secrets {
    folder: PathBuf,
    sources: std::collections::BTreeMap<String, SecretSource>,
    /// Where the programs of sources are found; `None`: where the executor finds its own.
    programs: Option<ProgramSettings>,
    /// `http.private_hosts`: plain HTTP to them is no danger.
    private_hosts: Vec<String>,
    /// Every value handed out so far, with its name: what must be redacted. Shared with the secrets of earlier and
    /// later configurations.
    exposed: Arc<RwLock<KnownSecrets>>,
    seal: Arc<Seal>,
    host_lists: Arc<hosts::KnownHostLists>,
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Secrets").field("folder", &self.folder).finish_non_exhaustive()
    }
}

impl Secrets {
    /// The secrets of this user.
    pub fn of(paths: &Paths, config: &Config) -> Self {
        let private_hosts = config.http.private_hosts.clone();
        let programs = Some(config.programs.clone());
        Self { programs, private_hosts, ..Self::new(paths.secrets(), config.secrets.clone()) }
    }

    pub fn new(folder: PathBuf, sources: std::collections::BTreeMap<String, SecretSource>) -> Self {
        let seal = Arc::new(Seal::at(folder.join(".inputs.key")));
        Self {
            folder,
            sources,
            programs: None,
            private_hosts: Vec::new(),
            exposed: Arc::default(),
            seal,
            host_lists: Arc::default(),
        }
    }

    /// What seals and opens hidden inputs.
    pub fn seal(&self) -> &Arc<Seal> {
        &self.seal
    }

    /// The same store with the sources of another configuration. What was handed out stays redacted.
    #[must_use]
    pub fn with_sources_of(&self, config: &Config) -> Self {
        Self {
            sources: config.secrets.clone(),
            programs: Some(config.programs.clone()),
            private_hosts: config.http.private_hosts.clone(),
            ..self.clone()
        }
    }

    /// Returns the value of `name`, for what stays on this machine: a program's environment, a signature. What is sent
    /// comes from [`Self::get_for`]. A configured source takes precedence over a stored value.
    pub async fn get(&self, name: &SecretName) -> Result<Secret, SecretError> {
        let value = match self.sources.get(name.as_str()) {
            Some(SecretSource::Env(variable)) => std::env::var(variable)
                .map_err(|_| source_error(name, variable, "the environment variable is not set"))?,
            Some(SecretSource::Command(argv)) => from_command(name, argv, self.programs.as_ref()).await?,
            None => self.stored(name)?,
        };
        let secret = Secret(value.trim_end_matches(['\r', '\n']).to_owned());
        self.watch(name.as_str(), secret.expose());
        Ok(secret)
    }

    /// Returns the stored value of `name`, of which the caller must [`Self::watch_renewed`] what must not be seen: for
    /// a record that the executor writes itself.
    pub fn stored_record(&self, name: &SecretName) -> Result<Secret, SecretError> {
        self.stored(name).map(Secret)
    }

    /// Whether `name` has a configured source or is stored. Opens nothing, and runs no command.
    pub fn is_set(&self, name: &str) -> bool {
        self.sources.contains_key(name) || self.folder.join(name).exists()
    }

    /// Whether `[secrets]` takes `name` from elsewhere, so that a stored value would not count.
    pub fn has_source(&self, name: &str) -> bool {
        self.sources.contains_key(name)
    }

    /// Redacts `value` and its encodings from this moment on; also for derived secrets like an OAuth access token.
    pub fn watch(&self, label: &str, value: &str) {
        let replacement = format!("[secret:{label}]");
        let is_known = self.exposed.read().unwrap_or_else(PoisonError::into_inner).contains(value, &replacement);
        if !is_known {
            self.exposed.write().unwrap_or_else(PoisonError::into_inner).insert(value, &replacement);
        }
    }

    /// Like [`Self::watch`], for values that are renewed all the time: of each label, only the last ones stay known.
    pub fn watch_renewed(&self, label: &str, value: &str) {
        let replacement = format!("[secret:{label}]");
        let is_known = self.exposed.read().unwrap_or_else(PoisonError::into_inner).contains(value, &replacement);
        if !is_known {
            self.exposed.write().unwrap_or_else(PoisonError::into_inner).renew(value, &replacement);
        }
    }

    /// Replaces every known secret in `text`, encoded or not, with its name.
    pub fn redact<'a>(&self, text: &'a str) -> Cow<'a, str> {
        self.exposed.read().unwrap_or_else(PoisonError::into_inner).redact(text)
    }

    /// Returns what replaces the secrets that are known now, and `hidden`, in data that is written to a file.
    pub fn stream_redaction(&self, hidden: &HiddenTexts) -> StreamRedaction {
        let mut stream = StreamRedaction::default();
        self.exposed.read().unwrap_or_else(PoisonError::into_inner).extend_stream(&mut stream);
        hidden.extend_stream(&mut stream);
        stream
    }

    /// Removes the known secrets and what looks like a credential from the reason of a failure.
    pub fn redact_reason(&self, reason: &str) -> String {
        credential::mask(&self.redact(reason)).into_owned()
    }

    /// Redacts every string in `value`, including the keys of objects.
    pub fn redact_value(&self, value: &mut Value) {
        match value {
            Value::String(text) => {
                if let Cow::Owned(redacted) = self.redact(text) {
                    *text = redacted;
                }
            }
            Value::Array(items) => items.iter_mut().for_each(|item| self.redact_value(item)),
            Value::Object(fields) => {
                if fields.keys().any(|key| matches!(self.redact(key), Cow::Owned(_))) {
                    *fields = std::mem::take(fields)
                        .into_iter()
                        .map(|(key, value)| (self.redact(&key).into_owned(), value))
                        .collect();
                }
                fields.values_mut().for_each(|field| self.redact_value(field));
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    /// Removes the known secrets and what looks like a credential from the message, the hint and the details of
    /// `error`.
    pub fn redact_error(&self, error: &mut ErrorBody) {
        error.message = self.redact(&error.message).into_owned();
        error.hint = error.hint.take().map(|hint| self.redact(&hint).into_owned());
        error.details.values_mut().for_each(|value| self.redact_value(value));
        credential::mask_error(error);
    }

    /// Stores `value`, replacing what was there. Durable when it returns.
    pub fn set(&self, name: &SecretName, value: &str) -> Result<(), SecretError> {
        self.write(name, value).map_err(|source| SecretError::Folder { path: self.folder.clone(), source })
    }

    /// Removes the stored value and the list of its hosts; false if there was no value.
    pub fn remove(&self, name: &SecretName) -> Result<bool, SecretError> {
        match fs::remove_file(self.folder.join(name.as_str())) {
            Ok(()) => self.forget_hosts(name).map(|()| true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(source) => Err(SecretError::Folder { path: self.folder.clone(), source }),
        }
    }

    /// Returns the sorted names of all secrets, each with its source.
    pub fn names(&self) -> Result<Vec<(String, String)>, SecretError> {
        let mut names: Vec<_> = self.sources.iter().map(|(name, source)| (name.clone(), source.describe())).collect();
        let entries = match fs::read_dir(&self.folder) {
            Ok(entries) => entries.collect::<Result<Vec<_>, _>>(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(error) => Err(error),
        };
        for entry in entries.map_err(|source| SecretError::Folder { path: self.folder.clone(), source })? {
            if let Some(name) = entry.file_name().to_str()
                && name.parse::<SecretName>().is_ok()
                && !self.sources.contains_key(name)
            {
                names.push((name.to_owned(), "stored".to_owned()));
            }
        }
        names.sort();
        Ok(names)
    }

    fn stored(&self, name: &SecretName) -> Result<String, SecretError> {
        // What was decided about secrets lies beside their folder, so one that lies elsewhere is another user's, or an agent's doing.
        if self.folder.is_symlink() {
            return Err(SecretError::Distrusted(Distrust::Link { path: self.folder.clone() }));
        }
        let path = self.folder.join(name.as_str());
        match fs::symlink_metadata(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(SecretError::NotSet { name: name.as_str().to_owned() });
            }
            Ok(metadata) if !metadata.is_file() || metadata.permissions().mode() & 0o077 != 0 => {
                return Err(source_error(name, "the secrets folder", "others can read the file; set the secret again"));
            }
            // In another state folder, it would be there without what was decided about it.
            Ok(metadata) if metadata.nlink() > 1 => {
                let reason = "its file has another name as well; set the secret again";
                return Err(source_error(name, "the secrets folder", reason));
            }
            _ => check_trusted(&path)?,
        }
        fs::read_to_string(&path).map_err(|error| source_error(name, "the secrets folder", &error.to_string()))
    }

    fn write(&self, name: &SecretName, value: &str) -> io::Result<()> {
        let path = self.folder.join(name.as_str());
        let earlier = fs::OpenOptions::new().write(true).custom_flags(OFlag::O_NOFOLLOW.bits()).open(&path);
        self.replace(name.as_str(), value.as_bytes())?;
        // It may have another name, which no longer is that of a secret.
        match earlier {
            Ok(earlier) => earlier.set_len(0).and_then(|()| earlier.sync_all()),
            Err(_) => Ok(()),
        }
    }
}

impl Secrets {
    /// Writes a file of the folder under a temporary name, and renames it. Durable when it returns.
    fn replace(&self, name: &str, content: &[u8]) -> io::Result<()> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.folder)?;
        fs::set_permissions(&self.folder, fs::Permissions::from_mode(0o700))?;
        let temporary = self.folder.join(format!(".{name}.{}", uuid::Uuid::now_v7().simple()));
        let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary)?;
        file.write_all(content)?;
        file.sync_all()?;
        fs::rename(&temporary, self.folder.join(name))?;
        fs::File::open(&self.folder)?.sync_all()
    }
}

/// The program is found in the configured folders, which also are its `PATH`.
async fn from_command(
    name: &SecretName,
    argv: &[String],
    settings: Option<&ProgramSettings>,
) -> Result<String, SecretError> {
    let from = argv.join(" ");
    let Some((program, arguments)) = argv.split_first() else {
        return Err(source_error(name, "command", "the command is empty"));
    };
    let failed = |error: io::Error| source_error(name, &from, &error.to_string());
    let folders = settings.map_or(&[][..], |settings| &settings.path);
    let found = programs::find(program.as_ref(), folders.iter().cloned()).unwrap_or_else(|| program.into());
    let mut command = tokio::process::Command::new(found);
    command
        .envs(settings.map(|settings| ("PATH", settings.search_path())))
        .args(arguments)
        .stdin(std::process::Stdio::null())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::null())
        .kill_on_drop(true);
    let (child, _registered) = children::spawn(&mut command).map_err(failed)?;
    let output = child.wait_with_output().await.map_err(failed)?;
    if !output.status.success() {
        return Err(source_error(name, &from, &output.status.to_string()));
    }
    String::from_utf8(output.stdout).map_err(|_| source_error(name, &from, "its output is not UTF-8"))
}

/// Fails if another user can have written the file of the secrets folder at `path`.
fn check_trusted(path: &Path) -> Result<(), SecretError> {
    match trust::check(path) {
        Err(distrust) if distrust.is_writable_by_others() => Err(SecretError::Distrusted(distrust)),
        Ok(()) | Err(_) => Ok(()),
    }
}

fn source_error(name: &SecretName, from: &str, reason: &str) -> SecretError {
    SecretError::Source { name: name.as_str().to_owned(), from: from.to_owned(), reason: reason.to_owned() }
}

impl From<SecretError> for ErrorBody {
    fn from(error: SecretError) -> Self {
        Failure::from(error).error
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_string_and_key_of_a_value_is_redacted() {
        let secrets = Secrets::new(PathBuf::new(), std::collections::BTreeMap::new());
        secrets.watch("token", "s3cr3t-token");
        let mut value = json!({"echo": ["Bearer s3cr3t-token", 1, null], "s3cr3t-token": {"deep": "s3cr3t-token"}});
        secrets.redact_value(&mut value);
        assert_eq!(
            value,
            json!({"echo": ["Bearer [secret:token]", 1, null], "[secret:token]": {"deep": "[secret:token]"}})
        );
    }
}
