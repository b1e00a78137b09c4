//! Carries out what the machine wants: requests, calls, pauses, the journal, the sleep.
//!
//! One request or one turn's calls are under way at a time; beside them people may say something at any
//! moment, and tasks may end. An entry is in the journal before what follows from it is done.

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

/// Carries out what a model calls.
pub trait Tools: Send + Sync {
    /// What is offered; the same at every request.
    fn offered(&self) -> Vec<ToolDefinition>;

    /// Carries one call out. `key` is the same when the same call is carried out again after a crash.
    fn call<'a>(&'a self, call: &'a ToolCall, key: &'a str) -> Pin<Box<dyn Future<Output = ToolResult> + Send + 'a>>;

    /// Called now and then while the loop sleeps: sees to it that open tasks have somebody who performs them.
    fn nudge(&self);
}

/// Who sees and hears what goes on.
pub trait LoopObserver: Send + Sync {
    fn observe(&self, news: LoopEvent<'_>);
}

/// What goes on, for whoever watches.
#[derive(Debug)]
pub enum LoopEvent<'a> {
    /// A piece of an answer.
    Text(&'a str),
    /// An answer is whole; what was used up since the question, and in the whole session.
    Turn {
        spent: Spending,
        total: Spending,
    },
    Call(&'a ToolCall),
    Result(&'a ToolResult),
    /// The model is told of these.
    Woken(&'a [EndedTask]),
    /// Nothing to do until one of these ends.
    Asleep(&'a [OpenedTask]),
    Retry {
        failed: &'a ModelFailure,
        pause: std::time::Duration,
    },
    GaveUp(&'a ModelFailure),
    /// A question has come to its end.
    Done {
        reason: StopReason,
        spent: Spending,
    },
}

/// What somebody wants of a running loop.
pub enum LoopCommand {
    Ask(String),
    /// Stop what is under way.
    Cancel,
    Undo,
    Clear,
    /// From now on this one answers.
    Model(Box<ActiveModel>),
    /// The loop ends when it has nothing under way but open tasks.
    Leave,
}

/// The model that answers, and what it is given.
pub struct ActiveModel {
    pub name: String,
    pub provider: Arc<dyn Provider>,
    pub system: String,
    /// Whether it calls tools in its provider's own form.
    pub native: bool,
    pub bounds: ContextBounds,
}

impl std::fmt::Debug for LoopCommand {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Ask(_) => "Ask",
            Self::Cancel => "Cancel",
            Self::Undo => "Undo",
            Self::Clear => "Clear",
            Self::Model(_) => "Model",
            Self::Leave => "Leave",
        })
    }
}

impl std::fmt::Debug for ActiveModel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Seat").field("name", &self.name).finish_non_exhaustive()
    }
}

/// One session at work.
pub struct Driver {
    machine: Machine,
    journal: Journal,
    active_model: ActiveModel,
    tools: Arc<dyn Tools>,
    trigger: Trigger,
    observer: Arc<dyn LoopObserver>,
    last: Option<StopReason>,
}

impl std::fmt::Debug for Driver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Driver")
            .field("machine", &self.machine)
            .field("seat", &self.active_model)
            .finish_non_exhaustive()
    }
}

/// What a driver is made of.
#[expect(missing_debug_implementations, reason = "its parts are traits; it is taken apart at once")]
pub struct DriverParts {
    pub settings: LoopSettings,
    pub journal: Journal,
    /// What was said in the session before.
    pub entries: Vec<JournalEntry>,
    pub active_model: ActiveModel,
    pub tools: Arc<dyn Tools>,
    pub trigger: Trigger,
    pub observer: Arc<dyn LoopObserver>,
}

type Work = Pin<Box<dyn Future<Output = MachineEvent> + Send>>;

impl Driver {
    /// Takes the session up where it was; the effects go to [`Driver::run`].
    pub fn new(parts: DriverParts) -> (Self, Vec<MachineEffect>) {
        let (machine, effects) = Machine::restore(parts.settings, parts.entries);
        let DriverParts { journal, active_model, tools, trigger, observer, .. } = parts;
        (Self { machine, journal, active_model, tools, trigger, observer, last: None }, effects)
    }

    pub fn machine(&self) -> &Machine {
        &self.machine
    }

    pub fn journal(&self) -> &Journal {
        &self.journal
    }

    /// The model that answers.
    pub fn model(&self) -> &str {
        &self.active_model.name
    }

    /// How the last question ended, if one did.
    pub fn last(&self) -> Option<StopReason> {
        self.last
    }

    /// Works until somebody leaves, or nobody is there to wish anything and nothing is open. Interrupted, it
    /// leaves at once what is under way; open tasks go on.
    pub async fn run(
        &mut self,
        effects: Vec<MachineEffect>,
        commands: &mut mpsc::Receiver<LoopCommand>,
        interrupted: &Notify,
    ) -> std::io::Result<()> {
        let mut work: Option<Work> = None;
        let mut is_leaving = false;
        self.carry_out(effects, &mut work)?;
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
                    Some(command) => self.event_of_command(command),
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
            self.carry_out(effects, &mut work)?;
        }
    }

    fn event_of_command(&mut self, command: LoopCommand) -> MachineEvent {
        match command {
            LoopCommand::Ask(text) => MachineEvent::Asked(text),
            LoopCommand::Cancel | LoopCommand::Leave => MachineEvent::Cancelled,
            LoopCommand::Undo => MachineEvent::Undone,
            LoopCommand::Clear => MachineEvent::Cleared,
            LoopCommand::Model(active_model) => {
                self.active_model = *active_model;
                MachineEvent::UsesModel(self.active_model.name.clone())
            }
        }
    }

    fn carry_out(&mut self, effects: Vec<MachineEffect>, work: &mut Option<Work>) -> std::io::Result<()> {
        for effect in effects {
            match effect {
                MachineEffect::Record(entry) => {
                    self.journal.add(&entry)?;
                    self.tell(&entry);
                }
                MachineEffect::Ask { tools } => *work = Some(self.ask(tools)),
                MachineEffect::Call { turn, calls } => *work = Some(self.call(turn, calls)),
                MachineEffect::Abort => *work = None,
                MachineEffect::Pause { length, failed, .. } => {
                    self.observer.observe(LoopEvent::Retry { failed: &failed, pause: length });
                    *work = Some(Box::pin(async move {
                        tokio::time::sleep(length).await;
                        MachineEvent::RetryDue
                    }));
                }
                MachineEffect::Sleep => {
                    let open: Vec<_> = self.machine.open().cloned().collect();
                    self.observer.observe(LoopEvent::Asleep(&open));
                }
                MachineEffect::GiveUp(failed) => self.observer.observe(LoopEvent::GaveUp(&failed)),
                MachineEffect::Done(reason) => {
                    self.last = Some(reason);
                    self.observer.observe(LoopEvent::Done { reason, spent: self.machine.spent() });
                }
            }
        }
        Ok(())
    }

    fn tell(&self, entry: &JournalEntry) {
        match entry {
            JournalEntry::Answered { .. } | JournalEntry::Diagnosed { .. } => {
                let (spent, total) = (self.machine.spent(), self.machine.total());
                self.observer.observe(LoopEvent::Turn { spent, total });
            }
            JournalEntry::Woken { tasks } => self.observer.observe(LoopEvent::Woken(tasks)),
            _ => {}
        }
    }

    fn ask(&self, with_tools: bool) -> Work {
        let active_model = &self.active_model;
        let style = if with_tools && active_model.native { CallStyle::Native } else { CallStyle::Text };
        let request = ModelRequest {
            system: active_model.system.clone(),
            messages: view::messages(self.machine.entries(), style, active_model.bounds),
            tools: if style == CallStyle::Native { self.tools.offered() } else { Vec::new() },
        };
        let provider = Arc::clone(&active_model.provider);
        let observer = Arc::clone(&self.observer);
        Box::pin(async move {
            let heard = move |text: &str| observer.observe(LoopEvent::Text(text));
            match provider.ask(request, &heard).await {
                Ok(turn) => MachineEvent::Answered(turn),
                Err(failed) => MachineEvent::Failed(failed),
            }
        })
    }

    /// The calls of one turn, one after the other: a later one may stand on an earlier one.
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

/// How long a sleeping loop takes for granted that its tasks are seen to.
const NUDGE: std::time::Duration = std::time::Duration::from_secs(5);

async fn ended(
    trigger: &Trigger,
    ids: &[protocol::task::TaskId],
    tools: &dyn Tools,
) -> Vec<crate::results::trigger::FinalState> {
    loop {
        if let Ok(ended) = tokio::time::timeout(NUDGE, trigger.ended(ids)).await {
            return ended;
        }
        tools.nudge();
    }
}
