//! Settings: one whole configuration, ready for use, and the cell that always holds the one in force.
//!
//! Settings never change: an edit of the configuration makes new ones, which replace these as a whole. A step of the
//! event loop and an attempt each use one. `daemon/reload.rs` reads the file and decides when.

use std::sync::Arc;

use catalog::Sources;
use ground::config::{Config, ConfigError};
use jiff::Timestamp;
use net::clients::HttpClientsError;
use protocol::caller::Caller;
use protocol::clock;
use protocol::error::chain;
use protocol::mailbox::presence::ConfigProblem;
use runner::RunnerContext;
use runner::sql::{KnownTables, TableRules};
use tokio::sync::watch;

use super::policy::{Policy, RuleError};

/// One configuration in use.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Counts the configurations of this executor, from 1.
    pub version: u64,
    pub applied_at: Timestamp,
    /// The keys that this configuration changed, compared with the one before.
    pub changed: Vec<String>,
    /// The changed keys that take effect only in the next executor.
    pub needs_restart: Vec<String>,
    /// Why the file as it is now is not in use; `None` if it is.
    pub problem: Option<ConfigProblem>,
    pub policy: Arc<Policy>,
    pub sources: Sources,
    pub runner_context: Arc<RunnerContext>,
}

/// A configuration that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Rules(#[from] RuleError),
    #[error(transparent)]
    Http(#[from] HttpClientsError),
}

impl SettingsError {
    /// Returns what a human can do about the error.
    pub fn hint(&self) -> String {
        match self {
            Self::Config(error) => error.hint(),
            Self::Rules(_) => "every rule and what it must match: agent-magic-tool doctor --settings".to_owned(),
            Self::Http(_) => "every setting and its default: agent-magic-tool doctor --settings".to_owned(),
        }
    }
}

impl Settings {
    pub fn new(version: u64, sources: Sources, mut runner_context: RunnerContext) -> Result<Self, RuleError> {
        let known = KnownTables::of(&runner_context);
        let policy = Arc::new(Policy::new(&runner_context.config)?.with_tables(known));
        let table_rules: Arc<dyn TableRules> = Arc::clone(&policy) as _;
        runner_context.table_rules = Some(table_rules);
        Ok(Self {
            version,
            applied_at: clock::now(),
            changed: Vec::new(),
            needs_restart: Vec::new(),
            problem: None,
            policy,
            sources,
            runner_context: Arc::new(runner_context),
        })
    }

    /// The settings of the next configuration. Changes nothing if that cannot be used.
    pub fn with_config(&self, config: Config, sources: Sources) -> Result<Self, SettingsError> {
        let runner_context = self.runner_context.with_config(config)?;
        Ok(Self::new(self.version + 1, sources, runner_context)?)
    }

    /// The same, for a configuration that names what does not exist, when there is no better one: every call needs a
    /// human until it is mended.
    #[must_use]
    pub fn holding(self, error: &ConfigError) -> Self {
        let message = chain(error);
        let policy =
            Policy::clone(&self.policy).holding(format!("everything needs a human until this is mended: {message}"));
        let message = format!("{message}; there is no earlier one, so every call needs a human");
        let problem = ConfigProblem { message, hint: error.hint(), since: clock::now() };
        Self { policy: Arc::new(policy), problem: Some(problem), ..self }
    }

    pub fn config(&self) -> &Config {
        &self.runner_context.config
    }

    /// The caller, whose models get no more than its profiles say.
    pub(super) fn within_profiles(&self, caller: Caller) -> Caller {
        let profiles = &self.config().profiles;
        let trusts = caller.tool_scope.profiles().filter_map(|name| profiles.get(name)?.trust);
        match trusts.min() {
            Some(trust) => caller.trusted_with(trust),
            None => caller,
        }
    }
}

/// Always holds the settings in force. Clones share them.
#[derive(Debug, Clone)]
pub struct LiveSettings(watch::Receiver<Arc<Settings>>);

impl LiveSettings {
    pub(super) fn new(settings: watch::Receiver<Arc<Settings>>) -> Self {
        Self(settings)
    }

    /// Settings that stay as they are.
    pub fn fixed(settings: Settings) -> Self {
        Self(watch::channel(Arc::new(settings)).1)
    }

    pub fn current(&self) -> Arc<Settings> {
        Arc::clone(&self.0.borrow())
    }

    /// What runners share under the present configuration.
    pub fn runner_context(&self) -> Arc<RunnerContext> {
        Arc::clone(&self.0.borrow().runner_context)
    }
}
