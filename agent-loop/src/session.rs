//! A session with a runtime of its own, for a program that has one.
//!
//! The thread that opens a session blocks in [`Session::run`]; other threads send commands through a [`LoopSender`].

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use ground::base::async_runtime;
use ground::config::Config;
use ground::results::trigger::Trigger;
use protocol::caller::Caller;
use protocol::code::Code;
use protocol::error::{ErrorBody, chain};
use protocol::mailbox::Mailbox;
use protocol::paths::Paths;
use protocol::shell::Shell;
use tokio::runtime::Runtime;
use tokio::signal::unix::{SignalKind, signal};

use super::driver::LoopObserver;
use super::journal::SessionStore;
use super::model::ledger::SpendingAccount;
use super::model_factory::ModelFactory;
pub use super::session_loop::LoopSender;
use super::session_loop::{LoopContext, LoopOptions, SessionLoop, io_error};
use crate::brief::AgentBrief;
use crate::model::prompt::PromptMode;

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

/// An open session and its runtime.
#[derive(Debug)]
pub struct Session {
    runtime: SessionRuntime,
    session_loop: SessionLoop,
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

impl Deref for Session {
    type Target = SessionLoop;

    fn deref(&self) -> &SessionLoop {
        &self.session_loop
    }
}

impl DerefMut for Session {
    fn deref_mut(&mut self) -> &mut SessionLoop {
        &mut self.session_loop
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
        let runtime = async_runtime::start_with_threads(2)?;
        let mailbox = Mailbox::open(&paths.mailbox).map_err(|error| {
            ErrorBody::new(Code::BadMailbox, chain(&error)).hint("see what is wrong: agent-magic-tool doctor")
        })?;
        paths.create_state().map_err(|error| io_error("failed to create the state folder", &error))?;
        let sessions = match &options.brief {
            Some(_) => SessionStore::of_delegated_agents(paths),
            None => SessionStore::in_state(&paths.state),
        };
        let resumed = options.session.as_deref().map(|word| sessions.resume(word)).transpose()?;
        let SessionOptions { model, steps, stream, focus, brief, caller, session: _ } = options;
        let mode = PromptMode::of(config, config.restricts_to_reading(&caller));
        let instructions = brief.as_ref().and_then(|brief| brief.system.clone());
        let model_factory = ModelFactory::new(config, paths, mode, focus)?.instructed(instructions).streaming(stream);
        let model_factory = Arc::new(model_factory.at_expense_of(SpendingAccount::of(&caller, config)));
        let trigger = Trigger::new(mailbox.clone());
        let context = LoopContext { config, mailbox, shell, model_factory, trigger, observer };
        let folder = caller.folder.clone();
        let options = LoopOptions { model, steps, brief, caller, ..LoopOptions::default() };
        let opening = SessionLoop::open(options, context, resumed, || sessions.create(folder, None));
        let session_loop = runtime.block_on(Box::pin(opening))?;
        Ok(Self { runtime: SessionRuntime(Some(runtime)), session_loop })
    }

    /// Runs the loop until it ends. Blocks.
    pub fn run(&mut self) -> Result<(), ErrorBody> {
        self.runtime.block_on(self.session_loop.run())
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
        let interrupted = self.session_loop.interrupted();
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
