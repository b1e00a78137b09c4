//! One session's loop: its journal, its model and the one tool, on the runtime of its caller.
//!
//! A program with one session uses [`super::session::Session`], which brings a runtime of its own.

use std::io;
use std::sync::Arc;

use ground::config::Config;
use ground::results::trigger::Trigger;
use protocol::caller::{Caller, session_label};
use protocol::code::Code;
use protocol::command_executor::CommandExecutor;
use protocol::error::{ErrorBody, chain};
use protocol::mailbox::Mailbox;
use protocol::shell::Shell;
use tokio::sync::{Notify, mpsc};

use super::client_tools::WithClientTools;
use super::driver::{self, Driver, DriverParts, LoopCommand, LoopObserver, Tools};
use super::journal::{Journal, JournalError};
use super::machine::{Budget, LoopSettings, Machine, MachineEffect, Spending};
use super::model_factory::ModelFactory;
use super::one_tool::{self, OneTool};
use crate::brief::AgentBrief;
use crate::model::answer_options::AnswerOptions;
use crate::model::conversation::{self, JournalEntry, StopReason};
use crate::model::provider::{ModelFailure, ToolDefinition};

/// Capacity of the command channel; senders wait when it is full.
const COMMAND_CAPACITY: usize = 16;

/// Sends commands to a running session.
pub type LoopSender = mpsc::Sender<LoopCommand>;

/// What a session's loop works with. Sessions of one process may share all of it but the observer.
#[expect(missing_debug_implementations, reason = "an observer is a trait object")]
pub struct LoopContext<'a> {
    pub config: &'a Config,
    pub mailbox: Mailbox,
    pub shell: Arc<dyn Shell>,
    pub model_factory: Arc<ModelFactory>,
    pub trigger: Trigger,
    pub observer: Arc<dyn LoopObserver>,
}

/// How a loop is opened.
#[derive(Debug, Clone, Default)]
pub struct LoopOptions {
    /// The name of a model; if absent, the model that the session used last, or the configured one.
    pub model: Option<String>,
    /// Overrides `agent.steps` of the configuration.
    pub steps: Option<u32>,
    /// The instructions and limits from the agent that delegates to this one, if any.
    pub brief: Option<AgentBrief>,
    /// The caller of the session's tasks: folder, depth, tool scope.
    pub caller: Caller,
    /// Tools that the caller performs itself.
    pub client_tools: Vec<ToolDefinition>,
    /// What the caller wants of the answers.
    pub answers: AnswerOptions,
}

/// An open session, which runs on its caller's runtime.
#[derive(Debug)]
pub struct SessionLoop {
    driver: Driver,
    effects: Vec<MachineEffect>,
    commands: mpsc::Receiver<LoopCommand>,
    sender: Option<LoopSender>,
    interrupted: Arc<Notify>,
    model_factory: Arc<ModelFactory>,
}

impl SessionLoop {
    /// Opens a session: the resumed one, or the one that `create` makes. `create` is called last, so that no empty
    /// session stays behind when something is missing.
    pub async fn open(
        options: LoopOptions,
        context: LoopContext<'_>,
        resumed: Option<(Journal, Vec<JournalEntry>)>,
        create: impl FnOnce() -> Result<Journal, JournalError>,
    ) -> Result<Self, ErrorBody> {
        let LoopContext { config, mailbox, shell, model_factory, trigger, observer } = context;
        let settings = settings(config, &options);
        let last_used = resumed.iter().flat_map(|(_, entries)| entries.iter().rev()).find_map(|entry| match entry {
            JournalEntry::UsesModel { name } => Some(name.as_str()),
            _ => None,
        });
        let last_used = last_used.filter(|name| model_factory.models().choose(Some(name)).is_ok());
        let active_model = model_factory.activate(options.model.as_deref().or(last_used)).await?;
        let (journal, entries) = match resumed {
            Some(resumed) => resumed,
            None => (create()?, Vec::new()),
        };
        // The agent that delegated finds the tasks of this session by the session that it passed on.
        let delegated_session = options.brief.and(options.caller.session.clone());
        // What a client of a server has started works for that client.
        let own_label = match options.caller.client() {
            Some(client) => session_label(Some(client), None, &journal.header.id.simple().to_string()),
            None => journal.label(),
        };
        let caller = Caller { session: delegated_session.or(Some(own_label)), wakes: true, ..options.caller };
        let executor = CommandExecutor::new(shell, mailbox, caller).with_foreign_commands(config.shell.others);
        let own: Arc<dyn Tools> = Arc::new(OneTool::new(executor, active_model.trust));
        let tools = match options.client_tools {
            tools if tools.is_empty() => own,
            tools => Arc::new(WithClientTools::new(own, tools)),
        };
        let (hold_turns, options) = (config.agent.hold_turns, options.answers);
        let parts =
            DriverParts { settings, journal, entries, active_model, tools, options, trigger, observer, hold_turns };
        let (driver, effects) = Driver::new(parts);
        let class = conversation::data_class(driver.machine().entries());
        if class > driver.trust() {
            return Err(driver::beyond_trust(driver.model(), class));
        }
        let (sender, commands) = mpsc::channel(COMMAND_CAPACITY);
        let interrupted = Arc::new(Notify::new());
        Ok(Self { driver, effects, commands, sender: Some(sender), interrupted, model_factory })
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

    /// Makes the current work stop and [`Self::run`] end, when it is told.
    pub fn interrupted(&self) -> Arc<Notify> {
        Arc::clone(&self.interrupted)
    }

    /// Runs the loop until it ends.
    pub async fn run(&mut self) -> Result<(), ErrorBody> {
        let effects = std::mem::take(&mut self.effects);
        let ran = self.driver.run(effects, &mut self.commands, &self.interrupted).await;
        ran.map_err(|error| io_error("failed to write the session journal", &error))
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
}

/// Returns the loop settings. A brief can only lower the limits of the configuration.
fn settings(config: &Config, options: &LoopOptions) -> LoopSettings {
    let (agent, brief) = (&config.agent, options.brief.as_ref());
    let steps = options.steps.unwrap_or(agent.steps);
    let client_tools: Vec<_> = options.client_tools.iter().map(|tool| tool.name.clone()).collect();
    let budget = Budget::of(agent);
    LoopSettings {
        steps: brief.and_then(|brief| brief.steps).map_or(steps, |limit| steps.min(limit)),
        reflect_after: agent.reflect_after,
        diagnose: agent.diagnose,
        retries: agent.retries,
        budget: brief.map_or(budget, |brief| budget.lowered(brief.tokens, brief.cost, None)),
        tools: [one_tool::definition().name].into_iter().chain(client_tools.iter().cloned()).collect(),
        client_tools,
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
            .hint("the provider's message is in the log: agent-magic-tool logs agent (of a server: logs serve)")
    }
}

pub(super) fn io_error(what: &str, error: &io::Error) -> ErrorBody {
    ErrorBody::new(Code::Io, format!("{what}: {error}"))
}
