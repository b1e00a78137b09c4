//! Performs the effects of the machine: model requests, tool calls, retry delays, journal entries, sleep.
//!
//! At most one request, or the calls of one turn, run at a time. Meanwhile the driver accepts commands and
//! watches for tasks that end. It writes each entry to the journal before it performs the effects that follow.

use std::pin::Pin;
use std::sync::Arc;

use protocol::command_executor::OpenedTask;
use tokio::sync::{Notify, mpsc};

use super::journal::Journal;
use super::machine::{LoopPhase, LoopSettings, Machine, MachineEffect, MachineEvent, Spending};
use crate::model::conversation::{EndedTask, JournalEntry, StopReason, ToolCall, ToolResult};
use crate::model::provider::{ModelFailure, ModelRequest, Provider, ToolDefinition};
use crate::model::view::{self, CallStyle, ContextBounds};
use crate::results::trigger::Trigger;

/// Performs the tool calls of a model.
pub trait Tools: Send + Sync {
    /// Returns the offered tools, which are the same for every request.
    fn definitions(&self) -> Vec<ToolDefinition>;

    /// Performs one call. `key` identifies the call: it is the same if the call is repeated after a crash.
    fn call<'a>(&'a self, call: &'a ToolCall, key: &'a str) -> Pin<Box<dyn Future<Output = ToolResult> + Send + 'a>>;

    /// Makes sure that an executor runs. Called regularly while the loop waits for open tasks.
    fn ensure_executor(&self);
}

/// Receives the events of a loop, to show them to someone.
pub trait LoopObserver: Send + Sync {
    fn observe(&self, event: LoopEvent<'_>);
}

/// What happens in a loop.
#[derive(Debug)]
pub enum LoopEvent<'a> {
    /// A piece of the model's answer.
    Text(&'a str),
    /// An answer is complete. The spending since the question, and of the whole session.
    Turn {
        question: Spending,
        session: Spending,
    },
    Call(&'a ToolCall),
    Result(&'a ToolResult),
    /// The model is told that these tasks ended.
    Woken(&'a [EndedTask]),
    /// The loop sleeps until one of these tasks ends.
    Asleep(&'a [OpenedTask]),
    /// A request failed and is retried after `delay`.
    Retry {
        failure: &'a ModelFailure,
        delay: std::time::Duration,
    },
    /// A request failed and is not retried.
    GaveUp(&'a ModelFailure),
    /// The work on a question ended.
    Done {
        reason: StopReason,
        question: Spending,
    },
}

/// A command to a running loop.
pub enum LoopCommand {
    Ask(String),
    /// Stops the current request or call.
    Cancel,
    Undo,
    Clear,
    /// Switches to another model.
    UseModel(Box<ActiveModel>),
    /// Ends the loop once it is idle. A sleeping loop first waits for its open tasks.
    Leave,
}

/// The model that answers, with its system prompt and limits.
pub struct ActiveModel {
    pub name: String,
    pub provider: Arc<dyn Provider>,
    pub system: String,
    /// Whether the model has native tool calls.
    pub native_calls: bool,
    pub bounds: ContextBounds,
}

impl std::fmt::Debug for LoopCommand {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Ask(_) => "Ask",
            Self::Cancel => "Cancel",
            Self::Undo => "Undo",
            Self::Clear => "Clear",
            Self::UseModel(_) => "UseModel",
            Self::Leave => "Leave",
        })
    }
}

impl std::fmt::Debug for ActiveModel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ActiveModel").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Runs the loop of one session.
pub struct Driver {
    machine: Machine,
    journal: Journal,
    active_model: ActiveModel,
    tools: Arc<dyn Tools>,
    trigger: Trigger,
    observer: Arc<dyn LoopObserver>,
    stop_reason: Option<StopReason>,
}

impl std::fmt::Debug for Driver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Driver")
            .field("machine", &self.machine)
            .field("active_model", &self.active_model)
            .finish_non_exhaustive()
    }
}

/// The parts of a driver.
#[expect(missing_debug_implementations, reason = "its parts are trait objects, and `Driver::new` takes it apart")]
pub struct DriverParts {
    pub settings: LoopSettings,
    pub journal: Journal,
    /// The entries of the session so far.
    pub entries: Vec<JournalEntry>,
    pub active_model: ActiveModel,
    pub tools: Arc<dyn Tools>,
    pub trigger: Trigger,
    pub observer: Arc<dyn LoopObserver>,
}

type Work = Pin<Box<dyn Future<Output = MachineEvent> + Send>>;

impl Driver {
    /// Restores the session. The caller passes the returned effects to [`Driver::run`].
    pub fn new(parts: DriverParts) -> (Self, Vec<MachineEffect>) {
        let (machine, effects) = Machine::restore(parts.settings, parts.entries);
        let DriverParts { journal, active_model, tools, trigger, observer, .. } = parts;
        (Self { machine, journal, active_model, tools, trigger, observer, stop_reason: None }, effects)
    }

    pub fn machine(&self) -> &Machine {
        &self.machine
    }

    pub fn journal(&self) -> &Journal {
        &self.journal
    }

    /// Returns the name of the model that answers.
    pub fn model(&self) -> &str {
        &self.active_model.name
    }

    /// Returns why the last question ended, if one did during this run.
    pub fn stop_reason(&self) -> Option<StopReason> {
        self.stop_reason
    }

    /// Runs until it is idle after [`LoopCommand::Leave`], or after all command senders are dropped.
    ///
    /// An interrupt cancels the current request or call and ends the loop; open tasks continue.
    pub async fn run(
        &mut self,
        effects: Vec<MachineEffect>,
        commands: &mut mpsc::Receiver<LoopCommand>,
        interrupted: &Notify,
    ) -> std::io::Result<()> {
        let mut work: Option<Work> = None;
        let mut is_leaving = false;
        self.perform(effects, &mut work)?;
        loop {
            if is_leaving && work.is_none() && self.machine.phase() == LoopPhase::Idle {
                return Ok(());
            }
            let open: Vec<_> = self.machine.open().cloned().collect();
            let ids: Vec<_> = open.iter().map(|task| task.id).collect();
            let tools = Arc::clone(&self.tools);
            let event = tokio::select! {
                biased;
                () = interrupted.notified() => {
                    is_leaving = true;
                    MachineEvent::Cancelled
                }
                command = commands.recv(), if !is_leaving => match command {
                    Some(LoopCommand::Leave) | None => {
                        is_leaving = true;
                        continue;
                    }
                    Some(command) => self.accept(command),
                },
                event = async { work.as_mut().expect("there is work").await }, if work.is_some() => {
                    work = None;
                    event
                }
                ended = ended(&self.trigger, &ids, tools.as_ref()), if !ids.is_empty() => MachineEvent::Ended(
                    ended.into_iter().filter_map(|(id, state)| {
                        let OpenedTask { id, tool, result_file } = open.iter().find(|task| task.id == id)?.clone();
                        Some(EndedTask { id, tool, state, result_file })
                    }).collect(),
                ),
            };
            let effects = self.machine.handle(event);
            self.perform(effects, &mut work)?;
        }
    }

    /// Turns a command into an event for the machine, and switches the model if asked to.
    fn accept(&mut self, command: LoopCommand) -> MachineEvent {
        match command {
            LoopCommand::Ask(text) => MachineEvent::Asked(text),
            LoopCommand::Cancel | LoopCommand::Leave => MachineEvent::Cancelled,
            LoopCommand::Undo => MachineEvent::Undone,
            LoopCommand::Clear => MachineEvent::Cleared,
            LoopCommand::UseModel(active_model) => {
                self.active_model = *active_model;
                MachineEvent::UsesModel(self.active_model.name.clone())
            }
        }
    }

    fn perform(&mut self, effects: Vec<MachineEffect>, work: &mut Option<Work>) -> std::io::Result<()> {
        for effect in effects {
            match effect {
                MachineEffect::Record(entry) => {
                    self.journal.append(&entry)?;
                    self.report(&entry);
                }
                MachineEffect::Ask { tools } => *work = Some(self.request(tools)),
                MachineEffect::Call { turn, calls } => *work = Some(self.call(turn, calls)),
                MachineEffect::Abort => *work = None,
                MachineEffect::Pause { delay, failure, .. } => {
                    self.observer.observe(LoopEvent::Retry { failure: &failure, delay });
                    *work = Some(Box::pin(async move {
                        tokio::time::sleep(delay).await;
                        MachineEvent::RetryDue
                    }));
                }
                MachineEffect::Sleep => {
                    let open: Vec<_> = self.machine.open().cloned().collect();
                    self.observer.observe(LoopEvent::Asleep(&open));
                }
                MachineEffect::GiveUp(failure) => self.observer.observe(LoopEvent::GaveUp(&failure)),
                MachineEffect::Done(reason) => {
                    self.stop_reason = Some(reason);
                    self.observer.observe(LoopEvent::Done { reason, question: self.machine.question_spending() });
                }
            }
        }
        Ok(())
    }

    /// Reports a recorded entry to the observer.
    fn report(&self, entry: &JournalEntry) {
        match entry {
            JournalEntry::Answered { .. } | JournalEntry::Diagnosed { .. } => {
                let (question, session) = (self.machine.question_spending(), self.machine.session_spending());
                self.observer.observe(LoopEvent::Turn { question, session });
            }
            JournalEntry::Woken { tasks } => self.observer.observe(LoopEvent::Woken(tasks)),
            _ => {}
        }
    }

    fn request(&self, with_tools: bool) -> Work {
        let active_model = &self.active_model;
        let style = if with_tools && active_model.native_calls { CallStyle::Native } else { CallStyle::Text };
        let request = ModelRequest {
            system: active_model.system.clone(),
            messages: view::messages(self.machine.entries(), style, active_model.bounds),
            tools: if style == CallStyle::Native { self.tools.definitions() } else { Vec::new() },
        };
        let provider = Arc::clone(&active_model.provider);
        let observer = Arc::clone(&self.observer);
        Box::pin(async move {
            let on_text = move |text: &str| observer.observe(LoopEvent::Text(text));
            match provider.ask(request, &on_text).await {
                Ok(turn) => MachineEvent::Answered(turn),
                Err(failure) => MachineEvent::Failed(failure),
            }
        })
    }

    /// Performs the calls of one turn in order, since a later call may depend on an earlier one.
    fn call(&self, turn: usize, calls: Vec<ToolCall>) -> Work {
        let tools = Arc::clone(&self.tools);
        let observer = Arc::clone(&self.observer);
        let session = self.journal.label();
        Box::pin(async move {
            let mut results = Vec::new();
            for (number, call) in calls.iter().enumerate() {
                observer.observe(LoopEvent::Call(call));
                let result = tools.call(call, &format!("{session}-{turn}-{number}")).await;
                observer.observe(LoopEvent::Result(&result));
                results.push(result);
            }
            MachineEvent::Called(results)
        })
    }
}

/// How often a sleeping loop makes sure that an executor runs.
const ENSURE_EXECUTOR_INTERVAL: std::time::Duration = std::time::Duration::from_secs(5);

/// Waits until at least one of the tasks is final. Cancel-safe.
async fn ended(
    trigger: &Trigger,
    ids: &[protocol::task::TaskId],
    tools: &dyn Tools,
) -> Vec<crate::results::trigger::FinalState> {
    loop {
        if let Ok(ended) = tokio::time::timeout(ENSURE_EXECUTOR_INTERVAL, trigger.wait_for_any(ids)).await {
            return ended;
        }
        tools.ensure_executor();
    }
}
