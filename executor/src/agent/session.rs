//! A session opened: the model, its key and its prompt, the journal, the one tool, all from the configuration.
//!
//! The one place where the loop meets a runtime. Whoever opens a session blocks in [`Session::run`] and speaks
//! to it through [`LoopSender`].

use std::io;
use std::ops::Deref;
use std::path::PathBuf;
use std::sync::Arc;

use protocol::caller::Caller;
use protocol::code::Code;
use protocol::command_executor::CommandExecutor;
use protocol::error::{ErrorBody, chain};
use protocol::mailbox::Mailbox;
use protocol::paths::Paths;
use protocol::shell::Shell;
use tokio::runtime::Runtime;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Notify, mpsc};

use super::driver::{ActiveModel, Driver, DriverParts, LoopCommand, LoopObserver};
use super::journal::{JournalError, SessionStore};
use super::machine::{Budget, LoopSettings, Machine, MachineEffect, Spending};
use super::one_tool::{self, OneTool};
use crate::config::secret::Secrets;
use crate::config::{Config, ModelSettings};
use crate::model::conversation::{JournalEntry, StopReason};
use crate::model::prompt::{self, PromptSection};
use crate::model::provider::ModelFailure;
use crate::model::provider::client::ModelClient;
use crate::model::registry::ModelRegistry;
use crate::model::view::ContextBounds;
use crate::net::clients::HttpClients;
use crate::results::trigger::Trigger;
use crate::runner::agent::AgentBrief;

/// How many wishes may wait; whoever has more waits himself.
const WISHES: usize = 16;

/// Which session to open, and how.
#[derive(Debug, Clone, Default)]
pub struct SessionOptions {
    /// The name of a model; the session's own, or the configured one, if absent.
    pub model: Option<String>,
    /// A session's number or id; a new one if absent.
    pub session: Option<String>,
    /// Overrides the configuration.
    pub steps: Option<u32>,
    pub stream: Option<bool>,
    /// Stands at the end of the system prompt.
    pub focus: Option<String>,
    /// What it was told by the agent that called it, if one did: its limits, its part, its session.
    pub brief: Option<AgentBrief>,
    /// Who asks: the folder and depth of its tasks.
    pub caller: Caller,
}

/// Makes seats: which models there are, and what they are given.
#[derive(Debug)]
pub struct ModelFactory {
    config: Config,
    models: ModelRegistry,
    clients: HttpClients,
    secrets: Secrets,
    prompt_folder: PathBuf,
    focus: Option<String>,
    /// Of an agent that was called by another one.
    own_part: Option<String>,
    stream: bool,
}

/// The way to a session at work.
pub type LoopSender = mpsc::Sender<LoopCommand>;

/// An open session.
#[derive(Debug)]
pub struct Session {
    runtime: SessionRuntime,
    driver: Driver,
    effects: Vec<MachineEffect>,
    commands: mpsc::Receiver<LoopCommand>,
    sender: Option<LoopSender>,
    interrupted: Arc<Notify>,
    models: Arc<ModelFactory>,
}

/// A runtime until the session is dropped.
#[derive(Debug)]
struct SessionRuntime(Option<Runtime>);

impl Deref for SessionRuntime {
    type Target = Runtime;

    fn deref(&self) -> &Runtime {
        self.0.as_ref().expect("the runtime is there until the session is dropped")
    }
}

impl Session {
    pub fn open(
        opening: SessionOptions,
        paths: &Paths,
        config: Config,
        shell: Arc<dyn Shell>,
        observer: Arc<dyn LoopObserver>,
    ) -> Result<Self, ErrorBody> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        let runtime = runtime.map_err(|error| internal(&format!("no runtime can be had: {error}")))?;
        let mailbox = Mailbox::open(&paths.mailbox).map_err(|error| {
            ErrorBody::new(Code::BadMailbox, chain(&error)).hint("look what is wrong: agent-magic-tool doctor")
        })?;
        paths.create_state().map_err(|error| io_error("the state folder cannot be written", &error))?;
        let sessions = match &opening.brief {
            Some(_) => SessionStore::of_delegates(paths),
            None => SessionStore::in_state(&paths.state),
        };
        let (journal, entries) = match &opening.session {
            Some(word) => sessions.resume(word)?,
            None => (sessions.begin(opening.caller.folder.clone())?, Vec::new()),
        };
        let settings = settings(&config, opening.steps, opening.brief.as_ref());
        let others = config.shell.others;
        let own_part = opening.brief.as_ref().and_then(|brief| brief.system.clone());
        let models =
            Arc::new(ModelFactory { own_part, ..ModelFactory::new(config, paths, opening.focus, opening.stream)? });
        let used_before = entries.iter().rev().find_map(|entry| match entry {
            JournalEntry::UsesModel { name } => Some(name.as_str()),
            _ => None,
        });
        let name = opening.model.as_deref().or(used_before.filter(|name| models.models.choose(Some(name)).is_ok()));
        let active_model = runtime.block_on(models.take(name))?;
        // Whoever called it knows its tasks by the session that it was given.
        let given = opening.brief.and(opening.caller.session.clone());
        let caller = Caller { session: given.or_else(|| Some(journal.label())), wakes: true, ..opening.caller };
        let executor = CommandExecutor::new(shell, mailbox.clone(), caller).with_others(others);
        let tools = Arc::new(OneTool::new(executor));
        let trigger = Trigger::new(mailbox);
        let (driver, effects) =
            Driver::new(DriverParts { settings, journal, entries, active_model, tools, trigger, observer });
        let (sender, commands) = mpsc::channel(WISHES);
        let interrupted = Arc::new(Notify::new());
        Ok(Self {
            runtime: SessionRuntime(Some(runtime)),
            driver,
            effects,
            commands,
            sender: Some(sender),
            interrupted,
            models,
        })
    }

    /// The way to speak to it. The last one that is dropped makes it end when nothing is open any more.
    pub fn commands(&mut self) -> Option<LoopSender> {
        self.sender.take()
    }

    pub fn models(&self) -> Arc<ModelFactory> {
        Arc::clone(&self.models)
    }

    /// The number by which people name it.
    pub fn number(&self) -> u32 {
        self.driver.journal().number
    }

    pub fn id(&self) -> uuid::Uuid {
        self.driver.journal().head.id
    }

    pub fn machine(&self) -> &Machine {
        self.driver.machine()
    }

    /// Works until it ends; blocks.
    pub fn run(&mut self) -> Result<(), ErrorBody> {
        let effects = std::mem::take(&mut self.effects);
        self.runtime
            .block_on(self.driver.run(effects, &mut self.commands, &self.interrupted))
            .map_err(|error| io_error("the session's journal cannot be written", &error))
    }

    /// How the last question ended.
    pub fn termination(&self) -> Option<StopReason> {
        self.driver.last()
    }

    /// Since the last question, and in the whole session.
    pub fn spent(&self) -> (Spending, Spending) {
        (self.machine().spent(), self.machine().total())
    }

    /// The model that answers.
    pub fn model(&self) -> &str {
        self.driver.model()
    }

    /// From now on an interrupt of this process does nothing: whoever reads the keys says what it means.
    pub fn hold_interrupts(&self) {
        let _entered = self.runtime.enter();
        // Once there is a handler, the kernel's own never comes back.
        drop(signal(SignalKind::interrupt()));
    }

    /// From now on an interrupt of this process ends what is under way, and with it [`Session::run`].
    pub fn end_on_interrupt(&self) {
        let _entered = self.runtime.enter();
        let interrupted = Arc::clone(&self.interrupted);
        // Without it an interrupt ends the process, which is as good: the journal has everything.
        let Ok(mut interrupts) = signal(SignalKind::interrupt()) else { return };
        #[expect(clippy::disallowed_methods, reason = "ends with the session's runtime")]
        drop(tokio::spawn(async move {
            while interrupts.recv().await.is_some() {
                interrupted.notify_one();
            }
        }));
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // A call that still waits for something is waited for by nobody.
        if let Some(runtime) = self.runtime.0.take() {
            runtime.shutdown_background();
        }
    }
}

impl ModelFactory {
    pub fn new(config: Config, paths: &Paths, focus: Option<String>, stream: Option<bool>) -> Result<Self, ErrorBody> {
        let clients = HttpClients::new(&config).map_err(|error| ErrorBody::new(Code::BadConfig, chain(&error)))?;
        Ok(Self {
            models: ModelRegistry::new(&config),
            clients,
            secrets: Secrets::of(paths, &config),
            prompt_folder: paths.prompts(),
            focus,
            own_part: None,
            stream: stream.unwrap_or(config.agent.stream),
            config,
        })
    }

    pub fn models(&self) -> &ModelRegistry {
        &self.models
    }

    /// The seat of a model; of the configured one where no name is given.
    pub async fn take(&self, name: Option<&str>) -> Result<ActiveModel, ErrorBody> {
        let chosen = self.models.choose(name)?;
        let (_, system) = self.prompt_for(Some(&chosen.model))?;
        let (native, bounds) =
            (chosen.model.tools, ContextBounds { messages: chosen.model.max_context, tokens: chosen.model.window });
        let name = chosen.name.clone();
        let client = ModelClient::new(chosen, self.stream, &self.clients, &self.secrets).await?;
        Ok(ActiveModel { name, provider: Arc::new(client), system, native, bounds })
    }

    /// The same for whoever is in no runtime; blocks while the key is looked up.
    pub fn take_here(&self, name: Option<&str>) -> Result<ActiveModel, ErrorBody> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.map_err(|error| internal(&format!("no runtime can be had: {error}")))?.block_on(self.take(name))
    }

    /// The sections that people added, and the whole system prompt of a model; of any that calls tools, where
    /// none is named and none is configured.
    pub fn prompt(&self, name: Option<&str>) -> Result<(Vec<PromptSection>, String), ErrorBody> {
        match self.models.choose(name) {
            Ok(chosen) => self.prompt_for(Some(&chosen.model)),
            Err(_) if name.is_none() => self.prompt_for(None),
            Err(error) => Err(error),
        }
    }

    fn prompt_for(&self, model: Option<&ModelSettings>) -> Result<(Vec<PromptSection>, String), ErrorBody> {
        let sections = prompt::sections(&self.prompt_folder).map_err(|error| {
            ErrorBody::new(Code::BadConfig, chain(&error)).hint("mend it, or take it out of `prompt/`")
        })?;
        let tool = one_tool::tool();
        let writes_calls = model.is_some_and(|model| !model.tools);
        let first = model.and_then(|model| model.system.as_deref());
        let mut text = prompt::compose(first, &sections, writes_calls.then_some(&tool));
        if let Some(focus) = &self.focus {
            text = format!("{text}\n\n# focus\n\nKeep to this: {focus}");
        }
        if let Some(part) = &self.own_part {
            text = format!("{text}\n\n# your part\n\n{part}");
        }
        Ok((sections, text))
    }

    /// What is configured about the loop.
    pub fn config(&self) -> &Config {
        &self.config
    }
}

/// A brief can only take away of what the configuration allows.
fn settings(config: &Config, steps: Option<u32>, brief: Option<&AgentBrief>) -> LoopSettings {
    let agent = &config.agent;
    let steps = steps.unwrap_or(agent.steps);
    let (mut tokens, mut cost) = (agent.tokens, agent.cost);
    if let Some(most) = brief.and_then(|brief| brief.tokens).filter(|most| tokens == 0 || *most < tokens) {
        tokens = most.max(1);
    }
    if let Some(most) = brief.and_then(|brief| brief.cost).filter(|most| cost <= 0.0 || *most < cost) {
        cost = most.max(f64::MIN_POSITIVE);
    }
    LoopSettings {
        steps: brief.and_then(|brief| brief.steps).map_or(steps, |most| steps.min(most)),
        reflect_after: agent.reflect_after,
        diagnose: agent.diagnose,
        retries: agent.retries,
        budget: Budget { tokens, cost },
        tools: vec![one_tool::tool().name],
    }
}

impl From<JournalError> for ErrorBody {
    fn from(error: JournalError) -> Self {
        let (code, hint) = match &error {
            JournalError::None(_) => (Code::NotFound, "the sessions that there are: agent-magic-tool agent --sessions"),
            JournalError::InUse(_) => (Code::SessionInUse, "end it there, or begin another one"),
            JournalError::Io { .. } | JournalError::Malformed { .. } => (Code::Io, "begin another session"),
        };
        Self::new(code, chain(&error)).hint(hint)
    }
}

impl From<ModelFailure> for ErrorBody {
    fn from(failed: ModelFailure) -> Self {
        Self::new(Code::ModelFailed, failed.message)
            .hint("what the provider said is in the log: agent-magic-tool doctor")
    }
}

fn io_error(what: &str, error: &io::Error) -> ErrorBody {
    ErrorBody::new(Code::Io, format!("{what}: {error}"))
}

fn internal(message: &str) -> ErrorBody {
    ErrorBody::new(Code::Internal, message)
}
