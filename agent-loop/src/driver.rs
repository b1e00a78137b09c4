//! Performs the effects of the machine: model requests, tool calls, retry delays, journal entries, sleep.
//!
//! At most one request, or the calls of one turn, run at a time. Meanwhile the driver accepts commands and
//! watches for tasks that end. It writes each entry to the journal before it performs the effects that follow.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};

use ground::results::trigger::Trigger;
use protocol::caller::CallBudget;
use protocol::code::{Code, Exit};
use protocol::command_executor::{CallProgress, OpenedTask};
use protocol::data_class::DataClass;
use protocol::error::ErrorBody;
use protocol::task::{State as TaskState, TaskId};
use tokio::sync::{Notify, mpsc, oneshot};

use super::journal::Journal;
use super::machine::{Budget, LoopPhase, LoopSettings, Machine, MachineEffect, MachineEvent, Spending};
use crate::model::answer_options::{AnswerOptions, ToolChoice};
use crate::model::conversation::{
    self, EndedTask, JournalEntry, ModelTurn, StopReason, TaskSpending, ToolCall, ToolResult,
};
use crate::model::provider::{ModelFailure, ModelRequest, Provider, ToolDefinition};
use crate::model::view::{self, CallStyle, ContextBounds};

/// Performs the tool calls of a model.
pub trait Tools: Send + Sync {
    /// Returns the offered tools, which are the same for every request.
    fn definitions(&self) -> Vec<ToolDefinition>;

    /// Performs one call. `report` is told of each task as soon as it exists, which may be long before the call has ended.
    fn call<'a>(
        &'a self,
        call: &'a ToolCall,
        origin: CallOrigin,
        report: TaskReporter,
    ) -> Pin<Box<dyn Future<Output = ToolResult> + Send + 'a>>;

    /// Returns whether the call would wait for a human. Runs nothing.
    fn needs_human<'a>(&'a self, call: &'a ToolCall) -> Pin<Box<dyn Future<Output = bool> + Send + 'a>>;

    /// Sets the most sensitive data that the model may get from here on.
    fn trust(&self, trust: DataClass);

    /// Makes sure that an executor runs. Called regularly while the loop waits for open tasks.
    fn ensure_executor(&self);
}

/// Where a call comes from.
#[derive(Debug)]
pub struct CallOrigin {
    /// Identifies the call: it is the same if the call is repeated after a crash.
    pub key: String,
    /// The question, and how many calls may be made for it; `None` if there is no limit.
    pub budget: Option<CallBudget>,
}

/// Is told what a running call does.
pub type TaskReporter = Box<dyn Fn(CallProgress<'_>) + Send>;

/// Receives the events of a loop, to show them to someone.
pub trait LoopObserver: Send + Sync {
    fn observe(&self, event: LoopEvent<'_>);
}

/// What happens in a loop.
#[derive(Debug)]
pub enum LoopEvent<'a> {
    /// The work on a question begins.
    Asked(&'a str),
    /// A piece of the model's answer.
    Text(&'a str),
    /// An answer is complete. The spending since the question, and of the whole session.
    Turn {
        turn: &'a ModelTurn,
        question: Spending,
        session: Spending,
    },
    /// Something that the user should know.
    Note(&'a str),
    Call(&'a ToolCall),
    /// A call that is running created this task.
    Opened(&'a OpenedTask),
    /// A call that is running waits for this task.
    WaitsFor(&'a OpenedTask),
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
    /// Switches to another model, and says to the second one, if there is one, whether that is done or why not.
    UseModel(Box<ActiveModel>, Option<oneshot::Sender<Result<(), ErrorBody>>>),
    /// Shows the user this many characters of a result; 0 means all.
    ShowAtMost(usize),
    /// Sets the limits of the questions from here on.
    Limit {
        steps: u32,
        budget: Budget,
    },
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
    /// The most sensitive data that it may get.
    pub trust: DataClass,
}

impl ActiveModel {
    /// How the model writes its calls.
    fn call_style(&self) -> CallStyle {
        if self.native_calls { CallStyle::Native } else { CallStyle::Text }
    }
}

impl std::fmt::Debug for LoopCommand {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Ask(_) => "Ask",
            Self::Cancel => "Cancel",
            Self::Undo => "Undo",
            Self::Clear => "Clear",
            Self::UseModel(..) => "UseModel",
            Self::ShowAtMost(_) => "ShowAtMost",
            Self::Limit { .. } => "Limit",
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
    options: AnswerOptions,
    trigger: Trigger,
    observer: Arc<dyn LoopObserver>,
    hold_turns: bool,
    stop_reason: Option<StopReason>,
    /// The tasks of the calls that are running, by the ids of the calls.
    opened: OpenedByCall,
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
    /// What the caller wants of the answers.
    pub options: AnswerOptions,
    pub trigger: Trigger,
    pub observer: Arc<dyn LoopObserver>,
    /// Whether none of the calls of one turn runs before a human has decided, if one of them needs that.
    pub hold_turns: bool,
}

/// The result of a call that was held for another one, which a human did not approve.
const NOT_RUN: &str = "not run: another call of the same turn was not approved. If this one makes sense without it, make it again by itself.";

/// Tasks and the ids of the calls that created them; `None` once the calls are stopped, so that nothing is reported that
/// the machine does not know.
type OpenedByCall = Arc<Mutex<Option<Vec<(String, OpenedTask)>>>>;

type Work = Pin<Box<dyn Future<Output = MachineEvent> + Send>>;

impl Driver {
    /// Restores the session. The caller passes the returned effects to [`Driver::run`].
    pub fn new(parts: DriverParts) -> (Self, Vec<MachineEffect>) {
        let (mut machine, effects) = Machine::restore(parts.settings, parts.entries);
        machine.set_call_style(parts.active_model.call_style());
        let DriverParts { journal, active_model, tools, options, trigger, observer, hold_turns, .. } = parts;
        let (stop_reason, opened) = (None, OpenedByCall::default());
        let driver =
            Self { machine, journal, active_model, tools, options, trigger, observer, hold_turns, stop_reason, opened };
        (driver, effects)
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

    /// Returns the most sensitive data that the model may get.
    pub fn trust(&self) -> DataClass {
        self.active_model.trust
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
                    Some(command) => match self.accept(command) {
                        Some(event) => event,
                        None => continue,
                    },
                },
                event = async { work.as_mut().expect("there is work").await }, if work.is_some() => {
                    work = None;
                    self.with_spending(event)
                }
                ended = ended(&self.trigger, &ids, tools.as_ref()), if !ids.is_empty() => MachineEvent::Ended(
                    ended.into_iter().filter_map(|(id, state)| {
                        let OpenedTask { id, tool, result_file } = open.iter().find(|task| task.id == id)?.clone();
                        let spent = spending_of(&self.trigger, id);
                        Some(EndedTask { id, tool, state, result_file, spent })
                    }).collect(),
                ),
            };
            if event.interrupts() {
                let opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner).take();
                self.machine.opened(opened.unwrap_or_default());
            }
            let effects = self.machine.handle(event);
            self.perform(effects, &mut work)?;
        }
    }

    /// Adds what the tasks spent whose results the calls returned.
    fn with_spending(&self, event: MachineEvent) -> MachineEvent {
        let MachineEvent::Called(mut results) = event else { return event };
        for result in &mut results {
            let class = |id: &TaskId| DataClass::of_result(self.trigger.result(*id)?.as_object()?);
            result.data_class = result.data_class.max(result.collected.iter().filter_map(class).max());
            result.spent = result.collected.iter().filter_map(|id| spending_of(&self.trigger, *id)).collect();
        }
        MachineEvent::Called(results)
    }

    /// Turns a command into an event for the machine, and switches the model if asked to. A model that may not get
    /// what is in the conversation is not switched to.
    fn accept(&mut self, command: LoopCommand) -> Option<MachineEvent> {
        Some(match command {
            LoopCommand::Ask(text) => MachineEvent::Asked(text),
            LoopCommand::Cancel | LoopCommand::Leave => MachineEvent::Cancelled,
            LoopCommand::Undo => MachineEvent::Undone,
            LoopCommand::Clear => MachineEvent::Cleared,
            LoopCommand::ShowAtMost(chars) => MachineEvent::ShowsAtMost(chars),
            LoopCommand::Limit { steps, budget } => {
                self.machine.set_limits(steps, budget);
                return None;
            }
            LoopCommand::UseModel(active_model, told) => {
                let class = conversation::data_class(self.machine.entries());
                let refused = (class > active_model.trust).then(|| beyond_trust(&active_model.name, class));
                if let Some(told) = told {
                    let answer = refused.as_ref().map_or(Ok(()), |refused| Err(refused.clone()));
                    drop(told.send(answer));
                }
                if let Some(refused) = refused {
                    let note = format!("{}; still using {}", refused.message, self.active_model.name);
                    self.observer.observe(LoopEvent::Note(&note));
                    return None;
                }
                self.active_model = *active_model;
                self.tools.trust(self.active_model.trust);
                self.machine.set_call_style(self.active_model.call_style());
                MachineEvent::UsesModel(self.active_model.name.clone())
            }
        })
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
            JournalEntry::Answered { turn } | JournalEntry::Discarded { turn } | JournalEntry::Diagnosed { turn } => {
                turn.notes.iter().for_each(|note| self.observer.observe(LoopEvent::Note(note)));
                let (question, session) = (self.machine.question_spending(), self.machine.session_spending());
                self.observer.observe(LoopEvent::Turn { turn, question, session });
            }
            JournalEntry::Asked { text, .. } => self.observer.observe(LoopEvent::Asked(text)),
            JournalEntry::Woken { tasks } => self.observer.observe(LoopEvent::Woken(tasks)),
            _ => {}
        }
    }

    fn request(&self, with_tools: bool) -> Work {
        let active_model = &self.active_model;
        let style = if with_tools { active_model.call_style() } else { CallStyle::Text };
        let request = ModelRequest {
            system: active_model.system.clone(),
            messages: view::messages(self.machine.entries(), style, active_model.bounds),
            tools: if style == CallStyle::Native { self.tools.definitions() } else { Vec::new() },
            options: match style {
                CallStyle::Native => self.options.clone(),
                CallStyle::Text => AnswerOptions { tool_choice: ToolChoice::Auto, ..self.options.clone() },
            },
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

    fn call_budget(&self) -> Option<CallBudget> {
        let calls = self.machine.budget().calls;
        let asked = self.machine.entries().iter().filter(|entry| matches!(entry, JournalEntry::Asked { .. })).count();
        (calls > 0).then(|| CallBudget { question: self.journal.question(asked), calls })
    }

    /// Performs the calls of one turn in order, since a later call may depend on an earlier one.
    fn call(&mut self, turn: usize, calls: Vec<ToolCall>) -> Work {
        let tools = Arc::clone(&self.tools);
        let observer = Arc::clone(&self.observer);
        let session = self.journal.label();
        let budget = self.call_budget();
        let decisions = (self.hold_turns && calls.len() > 1).then(|| self.trigger.again());
        // A call that was stopped may still report to the old one.
        self.opened = Arc::new(Mutex::new(Some(Vec::new())));
        let opened = Arc::clone(&self.opened);
        Box::pin(async move {
            let mut results: Vec<Option<ToolResult>> = vec![None; calls.len()];
            let perform = async |number: usize| {
                let call = &calls[number];
                observer.observe(LoopEvent::Call(call));
                let report = reporter(&call.id, &opened, &observer);
                let origin = CallOrigin { key: format!("{session}-{turn}-{number}"), budget: budget.clone() };
                let result = tools.call(call, origin, report).await;
                observer.observe(LoopEvent::Result(&result));
                result
            };
            let mut is_denied = false;
            if let Some(decisions) = decisions {
                let mut waiting = Vec::new();
                for (number, call) in calls.iter().enumerate() {
                    if tools.needs_human(call).await {
                        let result = perform(number).await;
                        is_denied |= result.status == Exit::Refused as u8;
                        waiting.extend(result.opened.iter().map(|task| task.id));
                        results[number] = Some(result);
                    }
                }
                let states = decisions.wait_for_decisions(&waiting).await;
                is_denied |= states
                    .iter()
                    .any(|(_, state)| matches!(state, TaskState::Denied | TaskState::Expired | TaskState::Cancelled));
            }
            for (number, call) in calls.iter().enumerate() {
                if results[number].is_none() {
                    results[number] = Some(if is_denied {
                        ToolResult::new(call, NOT_RUN, Exit::Refused as u8)
                    } else {
                        perform(number).await
                    });
                }
            }
            MachineEvent::Called(results.into_iter().flatten().collect())
        })
    }
}

/// Tells the observer what the call `call` does, and collects the tasks that it opens.
fn reporter(call: &str, opened: &OpenedByCall, observer: &Arc<dyn LoopObserver>) -> TaskReporter {
    let (call, opened, observer) = (call.to_owned(), Arc::clone(opened), Arc::clone(observer));
    Box::new(move |progress| {
        let mut opened = opened.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(opened) = opened.as_mut() else { return };
        match progress {
            CallProgress::Opened(task) => {
                opened.push((call.clone(), task.clone()));
                observer.observe(LoopEvent::Opened(task));
            }
            CallProgress::WaitsFor(task) => observer.observe(LoopEvent::WaitsFor(task)),
        }
    })
}

/// The error for a conversation that a model may not see.
pub(super) fn beyond_trust(model: &str, class: DataClass) -> ErrorBody {
    let message = format!("the conversation contains `{}` data, which the model `{model}` may not get", class.as_str());
    ErrorBody::new(Code::TrustZone, message).hint("start another session with it, or set `trust` under [models.NAME]")
}

/// Returns what a final task spent on models, if it used any.
fn spending_of(trigger: &Trigger, id: TaskId) -> Option<TaskSpending> {
    TaskSpending::of(id, &trigger.result(id)?)
}

/// How often a sleeping loop makes sure that an executor runs.
const ENSURE_EXECUTOR_INTERVAL: std::time::Duration = std::time::Duration::from_secs(5);

/// Waits until at least one of the tasks is final. Cancel-safe.
async fn ended(trigger: &Trigger, ids: &[TaskId], tools: &dyn Tools) -> Vec<ground::results::trigger::FinalState> {
    loop {
        if let Ok(ended) = tokio::time::timeout(ENSURE_EXECUTOR_INTERVAL, trigger.wait_for_any(ids)).await {
            return ended;
        }
        tools.ensure_executor();
    }
}
