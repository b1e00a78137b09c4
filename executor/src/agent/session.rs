//! Opens a session from the configuration: the model with its key and prompt, the journal, the one tool.
//!
//! Only this module creates a runtime for the loop. The thread that opens a session blocks in
//! [`Session::run`]; other threads send commands through a [`LoopSender`].

use std::io;
use std::ops::Deref;
use std::path::PathBuf;
use std::sync::Arc;

use nix::unistd::Uid;
use protocol::caller::Caller;
use protocol::code::Code;
use protocol::command_executor::CommandExecutor;
use protocol::data_class::DataClass;
use protocol::error::{ErrorBody, chain};
use protocol::mailbox::Mailbox;
use protocol::paths::Paths;
use protocol::shell::Shell;
use tokio::runtime::Runtime;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Notify, mpsc};

use super::driver::{self, ActiveModel, Driver, DriverParts, LoopCommand, LoopObserver};
use super::journal::{JournalError, SessionStore};
use super::machine::{Budget, LoopSettings, Machine, MachineEffect, Spending};
use super::one_tool::{self, OneTool};
use crate::config::secret::Secrets;
use crate::config::{Config, ModelSettings};
use crate::model::conversation::{self, JournalEntry, StopReason};
use crate::model::ledger::{Budgeted, DailyBudget, Ledger};
use crate::model::prompt::{self, PromptMode, PromptSection};
use crate::model::provider::ModelFailure;
use crate::model::provider::client::{ModelClient, trust_of};
use crate::model::registry::ModelRegistry;
use crate::model::view::ContextBounds;
use crate::net::clients::HttpClients;
use crate::results::trigger::Trigger;
use crate::runner::agent::AgentBrief;

/// Capacity of the command channel; senders wait when it is full.
const COMMAND_CAPACITY: usize = 16;

/// Which session to open, and how.
#[derive(Debug, Clone, Default)]
pub struct SessionOptions {
    /// The name of a model; if absent, the model that the session used last, or the configured one.
    pub model: Option<String>,
    /// A session's number or id; a new one if absent.
    pub session: Option<String>,
    /// Overrides `agent.steps` of the configuration.
    pub steps: Option<u32>,
    /// Overrides `agent.stream` of the configuration.
    pub stream: Option<bool>,
    /// Added to the end of the system prompt.
    pub focus: Option<String>,
    /// The instructions and limits from the agent that delegates to this one, if any.
    pub brief: Option<AgentBrief>,
    /// The caller of the session's tasks: folder, depth, tool scope.
    pub caller: Caller,
}

/// Creates the active model of a session: its client and its system prompt.
#[derive(Debug)]
pub struct ModelFactory {
    models: ModelRegistry,
    ledger: Arc<Ledger>,
    budget: DailyBudget,
    mode: PromptMode,
    clients: HttpClients,
    secrets: Secrets,
    prompt_folder: PathBuf,
    focus: Option<String>,
    /// The instructions for a delegated agent, added to the end of the system prompt.
    instructions: Option<String>,
    stream: bool,
}

/// Sends commands to a running session.
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
    model_factory: Arc<ModelFactory>,
}

/// The runtime of a session; `None` only while the session is dropped.
#[derive(Debug)]
struct SessionRuntime(Option<Runtime>);

impl Deref for SessionRuntime {
    type Target = Runtime;

    fn deref(&self) -> &Runtime {
        self.0.as_ref().expect("the runtime exists until the session is dropped")
    }
}

impl Session {
    /// Opens the session that `options` name, or creates one.
    pub fn open(
        options: SessionOptions,
        paths: &Paths,
        config: &Config,
        shell: Arc<dyn Shell>,
        observer: Arc<dyn LoopObserver>,
    ) -> Result<Self, ErrorBody> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        let runtime = runtime.map_err(|error| internal(&format!("failed to start the async runtime: {error}")))?;
        let mailbox = Mailbox::open(&paths.mailbox).map_err(|error| {
            ErrorBody::new(Code::BadMailbox, chain(&error)).hint("see what is wrong: agent-magic-tool doctor")
        })?;
        paths.create_state().map_err(|error| io_error("failed to create the state folder", &error))?;
        let sessions = match &options.brief {
            Some(_) => SessionStore::of_delegated_agents(paths),
            None => SessionStore::in_state(&paths.state),
        };
        let resumed = options.session.as_deref().map(|word| sessions.resume(word)).transpose()?;
        let settings = settings(config, options.steps, options.brief.as_ref());
        let others = config.shell.others;
        let instructions = options.brief.as_ref().and_then(|brief| brief.system.clone());
        let mode = PromptMode::of(config, options.caller.read_only);
        let model_factory = ModelFactory::new(config, paths, mode, options.focus)?;
        let stream = options.stream.unwrap_or(model_factory.stream);
        let model_factory = Arc::new(ModelFactory { instructions, stream, ..model_factory });
        let earlier = resumed.iter().flat_map(|(_, entries)| entries.iter().rev());
        let last_used = earlier.into_iter().find_map(|entry| match entry {
            JournalEntry::UsesModel { name } => Some(name.as_str()),
            _ => None,
        });
        let name =
            options.model.as_deref().or(last_used.filter(|name| model_factory.models.choose(Some(name)).is_ok()));
        let active_model = runtime.block_on(model_factory.activate(name))?;
        // Last, so that no empty session stays behind when something is missing.
        let (journal, entries) = match resumed {
            Some(resumed) => resumed,
            None => (sessions.create(options.caller.folder.clone())?, Vec::new()),
        };
        // The agent that delegated finds the tasks of this session by the session that it passed on.
        let delegated_session = options.brief.and(options.caller.session.clone());
        let caller =
            Caller { session: delegated_session.or_else(|| Some(journal.label())), wakes: true, ..options.caller };
        let executor = CommandExecutor::new(shell, mailbox.clone(), caller).with_foreign_commands(others);
        let tools = Arc::new(OneTool::new(executor, active_model.trust));
        let trigger = Trigger::new(mailbox);
        let hold_turns = config.agent.hold_turns;
        let (driver, effects) =
            Driver::new(DriverParts { settings, journal, entries, active_model, tools, trigger, observer, hold_turns });
        let class = conversation::data_class(driver.machine().entries());
        if class > driver.trust() {
            return Err(beyond_trust(driver.model(), class));
        }
        let (sender, commands) = mpsc::channel(COMMAND_CAPACITY);
        let interrupted = Arc::new(Notify::new());
        Ok(Self {
            runtime: SessionRuntime(Some(runtime)),
            driver,
            effects,
            commands,
            sender: Some(sender),
            interrupted,
            model_factory,
        })
    }

    /// Takes the sender of commands; `None` after the first call. Once it and its clones are dropped, the session ends
    /// as soon as it is idle and no task is open.
    pub fn take_sender(&mut self) -> Option<LoopSender> {
        self.sender.take()
    }

    pub fn model_factory(&self) -> Arc<ModelFactory> {
        Arc::clone(&self.model_factory)
    }

    /// Returns the session number, which is what users type.
    pub fn number(&self) -> u32 {
        self.driver.journal().number
    }

    pub fn id(&self) -> uuid::Uuid {
        self.driver.journal().header.id
    }

    pub fn machine(&self) -> &Machine {
        self.driver.machine()
    }

    /// Runs the loop until it ends. Blocks.
    pub fn run(&mut self) -> Result<(), ErrorBody> {
        let effects = std::mem::take(&mut self.effects);
        self.runtime
            .block_on(self.driver.run(effects, &mut self.commands, &self.interrupted))
            .map_err(|error| io_error("failed to write the session journal", &error))
    }

    /// Returns why the last question ended, if one did during this run.
    pub fn stop_reason(&self) -> Option<StopReason> {
        self.driver.stop_reason()
    }

    /// Returns the spending since the last question, and of the whole session.
    pub fn spending(&self) -> (Spending, Spending) {
        (self.machine().question_spending(), self.machine().session_spending())
    }

    /// Returns the name of the model that answers.
    pub fn model(&self) -> &str {
        self.driver.model()
    }

    /// Makes this process ignore SIGINT, because the chat reads Ctrl-C as a key.
    pub fn ignore_interrupts(&self) {
        let _entered = self.runtime.enter();
        // A handler, once installed, replaces the default action for the life of the process.
        drop(signal(SignalKind::interrupt()));
    }

    /// Makes SIGINT stop the current work and end [`Session::run`].
    pub fn end_on_interrupt(&self) {
        let _entered = self.runtime.enter();
        let interrupted = Arc::clone(&self.interrupted);
        // Without a handler SIGINT ends the process, which is fine because the journal is complete.
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
        // Do not wait for tool calls that still block.
        if let Some(runtime) = self.runtime.0.take() {
            runtime.shutdown_background();
        }
    }
}

impl ModelFactory {
    pub fn new(config: &Config, paths: &Paths, mode: PromptMode, focus: Option<String>) -> Result<Self, ErrorBody> {
        let clients = HttpClients::new(config).map_err(|error| ErrorBody::new(Code::BadConfig, chain(&error)))?;
        Ok(Self {
            models: ModelRegistry::new(config),
            ledger: Arc::new(Ledger::in_state(&paths.state)),
            budget: DailyBudget::of(&config.agent),
            mode,
            clients,
            secrets: Secrets::of(paths, config),
            prompt_folder: paths.prompts(),
            focus,
            instructions: None,
            stream: config.agent.stream,
        })
    }

    pub fn models(&self) -> &ModelRegistry {
        &self.models
    }

    /// Creates the active model with this name, or the configured one if `name` is `None`.
    pub async fn activate(&self, name: Option<&str>) -> Result<ActiveModel, ErrorBody> {
        let chosen = self.models.choose(name)?;
        let (_, system) = self.prompt_for(Some(&chosen.model))?;
        // An eighth is for the answer, the system prompt and the tool.
        let tokens = chosen.model.window() - chosen.model.window() / 8;
        let (native_calls, bounds) = (chosen.model.tools, ContextBounds { messages: chosen.model.max_context, tokens });
        let (name, trust) = (chosen.name.clone(), trust_of(&chosen.model));
        let client = ModelClient::new(chosen, self.stream, &self.clients, &self.secrets).await?;
        let client = Budgeted::new(client, Some(Arc::clone(&self.ledger)), self.budget, Uid::effective().as_raw());
        Ok(ActiveModel { name, provider: Arc::new(client), system, native_calls, bounds, trust })
    }

    /// Like [`Self::activate`], for a caller outside a runtime. Blocks while the key is read.
    pub fn activate_blocking(&self, name: Option<&str>) -> Result<ActiveModel, ErrorBody> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime
            .map_err(|error| internal(&format!("failed to start the async runtime: {error}")))?
            .block_on(self.activate(name))
    }

    /// Returns the sections that the user added, and the whole system prompt of a model. Without a name and a
    /// configured model, it is the prompt for a model with native tool calls.
    pub fn system_prompt(&self, name: Option<&str>) -> Result<(Vec<PromptSection>, String), ErrorBody> {
        match self.models.choose(name) {
            Ok(chosen) => self.prompt_for(Some(&chosen.model)),
            Err(_) if name.is_none() => self.prompt_for(None),
            Err(error) => Err(error),
        }
    }

    fn prompt_for(&self, model: Option<&ModelSettings>) -> Result<(Vec<PromptSection>, String), ErrorBody> {
        let sections = prompt::sections(&self.prompt_folder).map_err(|error| {
            ErrorBody::new(Code::BadConfig, chain(&error)).hint("fix the file, or remove it from `prompt/`")
        })?;
        let tool = one_tool::definition();
        let writes_calls = model.is_some_and(|model| !model.tools);
        let preamble = model.and_then(|model| model.system.as_deref());
        let mut text = prompt::compose(preamble, self.mode, &sections, writes_calls.then_some(&tool));
        if let Some(focus) = &self.focus {
            text = format!("{text}\n\n# focus\n\nKeep to this: {focus}");
        }
        if let Some(instructions) = &self.instructions {
            text = format!("{text}\n\n# your part\n\n{instructions}");
        }
        Ok((sections, text))
    }
}

/// Returns the loop settings. A brief can only lower the limits of the configuration.
fn settings(config: &Config, steps: Option<u32>, brief: Option<&AgentBrief>) -> LoopSettings {
    let agent = &config.agent;
    let steps = steps.unwrap_or(agent.steps);
    let (mut tokens, mut cost) = (agent.tokens, agent.cost);
    if let Some(limit) = brief.and_then(|brief| brief.tokens).filter(|limit| tokens == 0 || *limit < tokens) {
        tokens = limit.max(1);
    }
    if let Some(limit) = brief.and_then(|brief| brief.cost).filter(|limit| cost <= 0.0 || *limit < cost) {
        cost = limit.max(f64::MIN_POSITIVE);
    }
    LoopSettings {
        steps: brief.and_then(|brief| brief.steps).map_or(steps, |limit| steps.min(limit)),
        reflect_after: agent.reflect_after,
        diagnose: agent.diagnose,
        retries: agent.retries,
        budget: Budget { tokens, cost },
        tools: vec![one_tool::definition().name],
    }
}

impl From<JournalError> for ErrorBody {
    fn from(error: JournalError) -> Self {
        let (code, hint) = match &error {
            JournalError::NotFound(_) => (Code::NotFound, "list the sessions: agent-magic-tool agent --sessions"),
            JournalError::InUse(_) => (Code::SessionInUse, "end it there, or start another session"),
            JournalError::Io { .. } | JournalError::Malformed { .. } => (Code::Io, "start another session"),
        };
        Self::new(code, chain(&error)).hint(hint)
    }
}

impl From<ModelFailure> for ErrorBody {
    fn from(failure: ModelFailure) -> Self {
        Self::new(failure.class.code(), failure.message)
            .hint("the provider's message is in the log; to find it: agent-magic-tool doctor")
    }
}

/// The error for a conversation that a model may not see.
fn beyond_trust(model: &str, class: DataClass) -> ErrorBody {
    ErrorBody::new(Code::TrustZone, driver::beyond_trust(model, class))
        .hint("start another session with it, or set `trust` under [models.NAME]")
}

fn io_error(what: &str, error: &io::Error) -> ErrorBody {
    ErrorBody::new(Code::Io, format!("{what}: {error}"))
}

fn internal(message: &str) -> ErrorBody {
    ErrorBody::new(Code::Internal, message)
}
