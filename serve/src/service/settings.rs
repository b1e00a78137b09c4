//! The configuration in force: read again when its file changes.

use std::sync::{Arc, Mutex, PoisonError};

use agent_loop::model::prompt::PromptMode;
use agent_loop::model_factory::ModelFactory;
use ground::config::Config;
use protocol::code::Code;
use protocol::error::{ErrorBody, chain};
use protocol::file_state::FileState;
use protocol::paths::Paths;
use tokio::sync::watch;

/// A configuration and what was made from it.
#[derive(Debug, Clone)]
pub(crate) struct ServiceSettings {
    pub(crate) config: Arc<Config>,
    factory: Arc<ModelFactory>,
    read_only_factory: Arc<ModelFactory>,
}

impl ServiceSettings {
    fn of(config: Config, paths: &Paths) -> Result<Self, ErrorBody> {
        let factory =
            |read_only| ModelFactory::new(&config, paths, PromptMode::of(&config, read_only), None).map(Arc::new);
        Ok(Self { factory: factory(false)?, read_only_factory: factory(true)?, config: Arc::new(config) })
    }

    pub(crate) fn factory(&self, read_only: bool) -> Arc<ModelFactory> {
        Arc::clone(if read_only { &self.read_only_factory } else { &self.factory })
    }
}

/// The settings in force, and the file that they were read from.
#[derive(Debug)]
pub(crate) struct SettingsSource {
    paths: Paths,
    current: Mutex<(ServiceSettings, Option<FileState>)>,
    /// Why the changed file is not in force.
    problem: watch::Sender<Option<String>>,
}

impl SettingsSource {
    pub(crate) fn new(paths: Paths, config: Config) -> Result<Self, ErrorBody> {
        let state = FileState::at(&paths.config_file());
        let current = Mutex::new((ServiceSettings::of(config, &paths)?, state));
        Ok(Self { paths, current, problem: watch::Sender::new(None) })
    }

    /// The settings in force. A changed file that is not valid changes nothing.
    pub(crate) fn current(&self) -> ServiceSettings {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        let now = FileState::at(&self.paths.config_file());
        if now != current.1 {
            current.1 = now;
            let read = Config::read(&self.paths)
                .map_err(|error| ErrorBody::new(Code::BadConfig, chain(&error)))
                .and_then(|config| ServiceSettings::of(config, &self.paths));
            match read {
                Ok(settings) => {
                    current.0 = settings;
                    self.problem.send_replace(None);
                }
                Err(error) => {
                    tracing::warn!(error = error.message, "the changed configuration is not in force");
                    self.problem.send_replace(Some(error.message));
                }
            }
        }
        current.0.clone()
    }

    /// Why the file that was read last is not in force, whenever that changes.
    pub(crate) fn problem(&self) -> watch::Receiver<Option<String>> {
        self.problem.subscribe()
    }
}
