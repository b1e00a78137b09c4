//! A session opened: the model, its key and its prompt, the journal, the one tool, all from the configuration.
//!
//! The one place where the loop meets a runtime. Whoever opens a session blocks in [`Session::run`] and speaks
//! to it through [`Wishes`].

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use tokio::runtime::Runtime;
use tokio::sync::mpsc;

use super::command_executor::CommandExecutor;
use super::conversation::{Entry, Termination};
use super::driver::{Audience, Driver, Parts, Seat, Wish};
use super::journal::{JournalError, Sessions};
use super::machine::{Budget, Effect, Machine, Settings, Spent};
use super::model::{Chosen, Models};
use super::one_tool::{self, OneTool};
use super::prompt;
use super::provider::Failed;
use super::provider::client::Client;
use super::shell::{Caller, Shell};
use super::view::Bounds;
use crate::code::Code;
use crate::config::Config;
use crate::log::chain;
use crate::mailbox::Mailbox;
use crate::places::Places;
use crate::runner::agent::Brief;
use crate::runner::http::Clients;
use crate::secret::Secrets;
use crate::task::ErrorBody;
use crate::trigger::Trigger;

/// How many wishes may wait; whoever has more waits himself.
const WISHES: usize = 16;

/// Which session to open, and how.
#[derive(Debug, Clone, Default)]
pub struct Opening {
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
    pub brief: Option<Brief>,
    /// Who asks: the folder and depth of its tasks.
    pub caller: Caller,
}

/// Makes seats: which models there are, and what they are given.
#[derive(Debug)]
pub struct Seats {
    config: Config,
    models: Models,
    clients: Clients,
    secrets: Secrets,
    prompt_folder: PathBuf,
    focus: Option<String>,
    /// Of an agent that was called by another one.
    own_part: Option<String>,
    stream: bool,
}

/// The way to a session at work.
pub type Wishes = mpsc::Sender<Wish>;

/// An open session.
#[derive(Debug)]
pub struct Session {
    runtime: Runtime,
    driver: Driver,
    effects: Vec<Effect>,
    wishes: mpsc::Receiver<Wish>,
    sender: Option<Wishes>,
    seats: Arc<Seats>,
}

impl Session {
    pub fn open(
        opening: Opening,
        places: &Places,
        config: Config,
        shell: Arc<dyn Shell>,
        audience: Arc<dyn Audience>,
    ) -> Result<Self, ErrorBody> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        let runtime = runtime.map_err(|error| internal(&format!("no runtime can be had: {error}")))?;
        let mailbox = Mailbox::open(&places.mailbox).map_err(|error| {
            ErrorBody::new(Code::BadMailbox, chain(&error)).hint("look what is wrong: agent-magic-tool doctor")
        })?;
        places.make_state().map_err(|error| io_error("the state folder cannot be written", &error))?;
        let sessions = match &opening.brief {
            Some(_) => Sessions::of_delegates(places),
            None => Sessions::in_state(&places.state),
        };
        let (journal, entries) = match &opening.session {
            Some(word) => sessions.resume(word)?,
            None => (sessions.begin(opening.caller.folder.clone())?, Vec::new()),
        };
        let settings = settings(&config, opening.steps, opening.brief.as_ref());
        let others = config.shell.others;
        let own_part = opening.brief.as_ref().and_then(|brief| brief.system.clone());
        let seats = Arc::new(Seats { own_part, ..Seats::new(config, places, opening.focus, opening.stream)? });
        let used_before = entries.iter().rev().find_map(|entry| match entry {
            Entry::UsesModel { name } => Some(name.as_str()),
            _ => None,
        });
        let name = opening.model.as_deref().or(used_before.filter(|name| seats.models.choose(Some(name)).is_ok()));
        let seat = runtime.block_on(seats.take(name))?;
        // Whoever called it knows its tasks by the session that it was given.
        let given = opening.brief.and(opening.caller.session.clone());
        let caller = Caller { session: given.or_else(|| Some(journal.label())), ..opening.caller };
        let executor = CommandExecutor::new(shell, mailbox.clone(), caller).with_others(others);
        let tools = Arc::new(OneTool::new(executor));
        let trigger = {
            let _entered = runtime.enter();
            Trigger::new(mailbox)
        };
        let (driver, effects) = Driver::new(Parts { settings, journal, entries, seat, tools, trigger, audience });
        let (sender, wishes) = mpsc::channel(WISHES);
        Ok(Self { runtime, driver, effects, wishes, sender: Some(sender), seats })
    }

    /// The way to speak to it. The last one that is dropped makes it end when nothing is open any more.
    pub fn wishes(&mut self) -> Option<Wishes> {
        self.sender.take()
    }

    pub fn seats(&self) -> Arc<Seats> {
        Arc::clone(&self.seats)
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
            .block_on(self.driver.run(effects, &mut self.wishes))
            .map_err(|error| io_error("the session's journal cannot be written", &error))
    }

    /// How the last question ended.
    pub fn termination(&self) -> Option<Termination> {
        self.driver.last()
    }

    /// Since the last question, and in the whole session.
    pub fn spent(&self) -> (Spent, Spent) {
        (self.machine().spent(), self.machine().total())
    }

    /// The model that answers.
    pub fn model(&self) -> &str {
        self.driver.model()
    }

    /// Sends [`Wish::Cancel`] when this process is interrupted; the second time it is left to the kernel.
    pub fn cancel_on_interrupt(&self) {
        let Some(sender) = self.sender.clone() else { return };
        let _entered = self.runtime.enter();
        let Ok(mut interrupts) = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::interrupt()) else {
            return;
        };
        #[expect(clippy::disallowed_methods, reason = "ends with the process, or with the session's runtime")]
        drop(tokio::spawn(async move {
            let weak = sender.downgrade();
            drop(sender);
            while interrupts.recv().await.is_some() {
                let Some(sender) = weak.upgrade() else { return };
                drop(sender.send(Wish::Cancel).await);
                drop(sender.send(Wish::Leave).await);
            }
        }));
    }
}

impl Seats {
    pub fn new(
        config: Config,
        places: &Places,
        focus: Option<String>,
        stream: Option<bool>,
    ) -> Result<Self, ErrorBody> {
        let clients = Clients::new(&config).map_err(|error| ErrorBody::new(Code::BadConfig, chain(&error)))?;
        Ok(Self {
            models: Models::new(&config),
            clients,
            secrets: places.secrets(&config),
            prompt_folder: places.prompts(),
            focus,
            own_part: None,
            stream: stream.unwrap_or(config.agent.stream),
            config,
        })
    }

    pub fn models(&self) -> &Models {
        &self.models
    }

    /// The seat of a model; of the configured one where no name is given.
    pub async fn take(&self, name: Option<&str>) -> Result<Seat, ErrorBody> {
        let chosen = self.models.choose(name)?;
        let sections = prompt::sections(&self.prompt_folder).map_err(|error| {
            ErrorBody::new(Code::BadConfig, chain(&error)).hint("mend it, or take it out of `prompt/`")
        })?;
        let Chosen { model, .. } = &chosen;
        let tool = one_tool::tool();
        let mut system = prompt::compose(model.system.as_deref(), &sections, (!model.tools).then_some(&tool));
        if let Some(focus) = &self.focus {
            system = format!("{system}\n\n# focus\n\nKeep to this: {focus}");
        }
        if let Some(part) = &self.own_part {
            system = format!("{system}\n\n# your part\n\n{part}");
        }
        let (native, bounds) = (model.tools, Bounds { messages: model.max_context, tokens: model.window });
        let name = chosen.name.clone();
        let client = Client::new(chosen, self.stream, &self.clients, &self.secrets).await?;
        Ok(Seat { name, provider: Arc::new(client), system, native, bounds })
    }

    /// What is configured about the loop.
    pub fn config(&self) -> &Config {
        &self.config
    }
}

/// A brief can only take away of what the configuration allows.
fn settings(config: &Config, steps: Option<u32>, brief: Option<&Brief>) -> Settings {
    let agent = &config.agent;
    let steps = steps.unwrap_or(agent.steps);
    let (mut tokens, mut cost) = (agent.tokens, agent.cost);
    if let Some(most) = brief.and_then(|brief| brief.tokens).filter(|most| tokens == 0 || *most < tokens) {
        tokens = most.max(1);
    }
    if let Some(most) = brief.and_then(|brief| brief.cost).filter(|most| cost <= 0.0 || *most < cost) {
        cost = most.max(f64::MIN_POSITIVE);
    }
    Settings {
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

impl From<Failed> for ErrorBody {
    fn from(failed: Failed) -> Self {
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
