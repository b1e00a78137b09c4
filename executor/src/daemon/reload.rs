//! Reloading: notices that the configuration file changed, and makes the settings that follow from it.
//!
//! A file that cannot be used changes nothing: the settings in force stay, and say why. Applies nothing itself; the
//! event loop does, between two steps (`live.rs`).

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use catalog::Sources;
use ground::config::known::KnownConfigurations;
use ground::config::{Config, ConfigError, ConfigText, ConfigValues, ParsedConfig, check_in_force};
use protocol::clock;
use protocol::error::chain;
use protocol::file_state::FileState;
use protocol::mailbox::presence::ConfigProblem;
use protocol::paths::Paths;

use crate::intake::settings::{Settings, SettingsError};
use crate::intake::targets::{self, Unmatched};

/// The keys, or beginnings of keys, that take effect only in the next executor: what they describe is set up once.
const RESTART_KEYS: [&str; 8] = [
    "executor.log",
    "executor.log_bytes",
    "executor.log_format",
    "page.enabled",
    "page.port",
    "telemetry.every",
    "telemetry.otlp",
    "telemetry.prometheus",
];

/// A file that changed within this time may change again without another time stamp, so its text is compared.
const MAX_CLOCK_TICK: Duration = Duration::from_millis(50);
/// The longest pause between two writes of one edit: a younger file may be incomplete, and is read a moment later.
pub(super) const MAX_WRITE_PAUSE: Duration = Duration::from_millis(10);
/// The longest pause if the file is empty, which is rarely what a human wants.
const MAX_EMPTY_PAUSE: Duration = Duration::from_millis(100);
/// A file that changes all the time is read after this long all the same.
const MAX_SETTLING: Duration = Duration::from_millis(200);

/// The configuration file, as it was read last.
pub(super) struct ConfigFile {
    paths: Paths,
    path: PathBuf,
    /// The state of the file; `None` if it is missing.
    file_state: Option<FileState>,
    /// The text that was read last, if that succeeded.
    text: Option<ConfigText>,
    /// Whether there was a file when it was read last. From then on it must not be gone.
    is_from_file: bool,
    /// Whether the file may have changed without a new state.
    is_young: bool,
    /// Since when every look found a file that may be incomplete.
    settling_since: Option<Instant>,
    /// The values in force.
    values: ConfigValues,
    /// The values with which the executor started.
    started_with: ConfigValues,
}

impl ConfigFile {
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Reads the file for the first time.
    pub(super) fn read(paths: &Paths) -> Result<(Self, ParsedConfig), ConfigError> {
        let path = paths.config_file();
        let state = FileState::at(&path);
        check_in_force(paths)?;
        let text = ConfigText::of_user(paths)?;
        let parsed = text.parse()?;
        let (values, started_with) = (parsed.values.clone(), parsed.values.clone());
        // The first look reads it again, in case it changed meanwhile.
        let file = Self {
            paths: paths.clone(),
            path,
            file_state: state,
            is_from_file: !text.is_missing(),
            text: Some(text),
            is_young: true,
            settling_since: None,
            values,
            started_with,
        };
        Ok((file, parsed))
    }

    /// Remembers what is used, and whether there is a file: from now on, it must not be gone.
    pub(super) fn remember(&self) {
        let known = KnownConfigurations::of(&self.paths);
        let added = if self.is_from_file { known.add(self.values.restrict()) } else { Ok(()) };
        if let Err(error) = added.and_then(|()| known.record_use()) {
            tracing::warn!(%error, "failed to remember which configuration is used");
        }
    }

    /// Whether the file changed so recently that the edit may be incomplete. A file that was renamed into place is
    /// complete at once.
    pub(super) fn is_settling(&mut self) -> bool {
        let is_incomplete = match fs::metadata(&self.path) {
            Ok(found) => {
                let (state, is_empty) = (FileState::of(&found), found.len() == 0);
                let pause = if is_empty { MAX_EMPTY_PAUSE } else { MAX_WRITE_PAUSE };
                let is_in_place = is_empty || self.file_state.is_none_or(|known| known.is_of_same_file(&state));
                Some(state) != self.file_state
                    && is_in_place
                    && found.modified().is_ok_and(|at| is_younger_than(at, pause))
            }
            // An editor may replace the file by removing it first.
            Err(_) => self.file_state.is_some(),
        };
        if !is_incomplete {
            self.settling_since = None;
            return false;
        }
        self.settling_since.get_or_insert_with(Instant::now).elapsed() < MAX_SETTLING
    }

    /// Whether the last [`Self::is_settling`] found that it is.
    pub(super) fn was_settling(&self) -> bool {
        self.settling_since.is_some_and(|since| since.elapsed() < MAX_SETTLING)
    }

    /// Returns the settings that follow `current` if the file changed. If it cannot be used, they are the current ones
    /// with the problem.
    pub(super) fn look(&mut self, current: &Settings) -> Option<Settings> {
        let state = FileState::at(&self.path);
        if (state == self.file_state && !self.is_young) || self.is_settling() {
            return None;
        }
        self.settling_since = None;
        let read = ConfigText::read(&self.path);
        if FileState::at(&self.path) != state {
            // It changed while it was read. The next look reads it as a whole.
            self.is_young = true;
            return None;
        }
        self.file_state = state;
        self.is_young = fs::metadata(&self.path)
            .and_then(|found| found.modified())
            .is_ok_and(|at| is_younger_than(at, MAX_CLOCK_TICK));
        let text = match read {
            Ok(text) if self.text.as_ref() == Some(&text) => return None,
            Ok(text) if text.is_missing() && self.is_from_file => {
                self.text = Some(text);
                return with_problem(current, &ConfigError::Gone { path: self.path.clone() }.into());
            }
            Ok(text) if text.is_blank() && self.values.restrict() => {
                self.text = Some(text);
                return with_problem(current, &ConfigError::Emptied { path: self.path.clone() }.into());
            }
            Ok(text) => text,
            Err(error) => {
                self.text = None;
                // Descriptors or memory may have run out, which passes.
                self.is_young |= matches!(error, ConfigError::Read { .. });
                return with_problem(current, &error.into());
            }
        };
        self.text = Some(text.clone());
        self.is_from_file = !text.is_missing();
        match self.settings_of(&text, current) {
            Ok(settings) => Some(settings),
            Err(error) => with_problem(current, &error),
        }
    }

    /// Fails if a part of the configuration that forbids or limits is about nothing; notes what else is.
    fn check_targets(&self, text: &ConfigText, config: &Config) -> Result<(), ConfigError> {
        let (errors, warnings): (Vec<_>, Vec<_>) =
            targets::unmatched(config, &self.paths).into_iter().partition(|unmatched| unmatched.is_error);
        for Unmatched { path, message, .. } in warnings {
            tracing::warn!(path, message, "a part of the configuration is about nothing");
        }
        match errors.first() {
            Some(Unmatched { path, message, .. }) => Err(text.mistake_at(path, message)),
            None => Ok(()),
        }
    }

    /// What keeps the configuration that was read at the start from being relied on.
    pub(super) fn problem_at_start(&self, config: &Config) -> Option<ConfigError> {
        self.check_targets(self.text.as_ref()?, config).err()
    }

    /// Has the next look read the file again, since what it names may exist now.
    pub(super) fn read_again(&mut self) {
        (self.text, self.is_young) = (None, true);
    }

    fn settings_of(&mut self, text: &ConfigText, current: &Settings) -> Result<Settings, SettingsError> {
        let ParsedConfig { config, values } = text.parse()?;
        let changed = self.values.differing(&values);
        self.check_targets(text, &config)?;
        if changed.is_empty() && !current.policy.is_holding() {
            // The file is usable again, and says what is in force.
            return Ok(Settings { problem: None, ..current.clone() });
        }
        let sources = Sources::of(&self.paths, &config);
        let settings = current.with_config(config, sources)?;
        let mut needs_restart = self.started_with.differing(&values);
        needs_restart.retain(|key| is_restart_key(key));
        self.values = values;
        Ok(Settings { changed, needs_restart, ..settings })
    }
}

/// Whether a change of `key` takes effect only in the next executor.
fn is_restart_key(key: &str) -> bool {
    RESTART_KEYS.contains(&key)
}

/// The `current` settings with the reason why they stay in force; `None` if they already have it.
fn with_problem(current: &Settings, error: &SettingsError) -> Option<Settings> {
    let (message, hint) = (chain(error), error.hint());
    if current.problem.as_ref().is_some_and(|known| known.message == message) {
        return None;
    }
    let since = current.problem.as_ref().map_or_else(clock::now, |known| known.since);
    Some(Settings { problem: Some(ConfigProblem { message, hint, since }), ..current.clone() })
}

/// A time in the future, after the clock was set back, counts as young.
fn is_younger_than(at: SystemTime, age: Duration) -> bool {
    at.elapsed().map_or(true, |elapsed| elapsed < age)
}
