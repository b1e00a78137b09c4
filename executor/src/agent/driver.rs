//! Carries out what the machine wants: requests, calls, pauses, the journal, the sleep.
//!
//! One request or one turn's calls are under way at a time; beside them people may say something at any
//! moment, and tasks may end. An entry is in the journal before what follows from it is done.

use std::pin::Pin;
use std::sync::Arc;

use protocol::command_executor::Opened;
use tokio::sync::{Notify, mpsc};

use super::journal::Journal;
use super::machine::{Effect, Event, Machine, Phase, Settings, Spent};
use crate::delivery::trigger::Trigger;
use crate::model::conversation::{Call, CallResult, Ended, Entry, Termination};
use crate::model::provider::{Failed, Provider, Request, Tool};
use crate::model::view::{self, Bounds, Style};

/// Carries out what a model calls.
pub trait Tools: Send + Sync {
    /// What is offered; the same at every request.
    fn offered(&self) -> Vec<Tool>;

    /// Carries one call out. `key` is the same when the same call is carried out again after a crash.
    fn call<'a>(&'a self, call: &'a Call, key: &'a str) -> Pin<Box<dyn Future<Output = CallResult> + Send + 'a>>;

    /// Called now and then while the loop sleeps: sees to it that open tasks have somebody who performs them.
    fn nudge(&self);
}

/// Who sees and hears what goes on.
pub trait Audience: Send + Sync {
    fn hear(&self, news: News<'_>);
}

/// What goes on, for whoever watches.
#[derive(Debug)]
pub enum News<'a> {
    /// A piece of an answer.
    Text(&'a str),
    /// An answer is whole; what was used up since the question, and in the whole session.
    Turn {
        spent: Spent,
        total: Spent,
    },
    Call(&'a Call),
    Result(&'a CallResult),
    /// The model is told of these.
    Woken(&'a [Ended]),
    /// Nothing to do until one of these ends.
    Asleep(&'a [Opened]),
    Retry {
        failed: &'a Failed,
        pause: std::time::Duration,
    },
    GaveUp(&'a Failed),
    /// A question has come to its end.
    Done {
        reason: Termination,
        spent: Spent,
    },
}

/// What somebody wants of a running loop.
pub enum Wish {
    Ask(String),
    /// Stop what is under way.
    Cancel,
    Undo,
    Clear,
    /// From now on this one answers.
    Model(Box<Seat>),
    /// The loop ends when it has nothing under way but open tasks.
    Leave,
}

/// The model that answers, and what it is given.
pub struct Seat {
    pub name: String,
    pub provider: Arc<dyn Provider>,
    pub system: String,
    /// Whether it calls tools in its provider's own form.
    pub native: bool,
    pub bounds: Bounds,
}

impl std::fmt::Debug for Wish {
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

impl std::fmt::Debug for Seat {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Seat").field("name", &self.name).finish_non_exhaustive()
    }
}

/// One session at work.
pub struct Driver {
    machine: Machine,
    journal: Journal,
    seat: Seat,
    tools: Arc<dyn Tools>,
    trigger: Trigger,
    audience: Arc<dyn Audience>,
    last: Option<Termination>,
}

impl std::fmt::Debug for Driver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Driver").field("machine", &self.machine).field("seat", &self.seat).finish_non_exhaustive()
    }
}

/// What a driver is made of.
#[expect(missing_debug_implementations, reason = "its parts are traits; it is taken apart at once")]
pub struct Parts {
    pub settings: Settings,
    pub journal: Journal,
    /// What was said in the session before.
    pub entries: Vec<Entry>,
    pub seat: Seat,
    pub tools: Arc<dyn Tools>,
    pub trigger: Trigger,
    pub audience: Arc<dyn Audience>,
}

type Work = Pin<Box<dyn Future<Output = Event> + Send>>;

impl Driver {
    /// Takes the session up where it was; the effects go to [`Driver::run`].
    pub fn new(parts: Parts) -> (Self, Vec<Effect>) {
        let (machine, effects) = Machine::restore(parts.settings, parts.entries);
        let Parts { journal, seat, tools, trigger, audience, .. } = parts;
        (Self { machine, journal, seat, tools, trigger, audience, last: None }, effects)
    }

    pub fn machine(&self) -> &Machine {
        &self.machine
    }

    pub fn journal(&self) -> &Journal {
        &self.journal
    }

    /// The model that answers.
    pub fn model(&self) -> &str {
        &self.seat.name
    }

    /// How the last question ended, if one did.
    pub fn last(&self) -> Option<Termination> {
        self.last
    }

    /// Works until somebody leaves, or nobody is there to wish anything and nothing is open. Interrupted, it
    /// leaves at once what is under way; open tasks go on.
    pub async fn run(
        &mut self,
        effects: Vec<Effect>,
        wishes: &mut mpsc::Receiver<Wish>,
        interrupted: &Notify,
    ) -> std::io::Result<()> {
        let mut work: Option<Work> = None;
        let mut is_leaving = false;
        self.carry_out(effects, &mut work)?;
        loop {
            if is_leaving && work.is_none() && self.machine.phase() == Phase::Idle {
                return Ok(());
            }
            let open: Vec<_> = self.machine.open().cloned().collect();
            let ids: Vec<_> = open.iter().map(|task| task.id).collect();
            let tools = Arc::clone(&self.tools);
            let event = tokio::select! {
                biased;
                () = interrupted.notified() => {
                    is_leaving = true;
                    Event::Cancelled
                }
                wish = wishes.recv(), if !is_leaving => match wish {
                    Some(Wish::Leave) | None => {
                        is_leaving = true;
                        continue;
                    }
                    Some(wish) => self.wished(wish),
                },
                event = async { work.as_mut().expect("there is work").await }, if work.is_some() => {
                    work = None;
                    event
                }
                ended = ended(&self.trigger, &ids, tools.as_ref()), if !ids.is_empty() => Event::Ended(
                    ended.into_iter().filter_map(|(id, state)| {
                        let Opened { id, tool, result_file } = open.iter().find(|task| task.id == id)?.clone();
                        Some(Ended { id, tool, state, result_file })
                    }).collect(),
                ),
            };
            let effects = self.machine.handle(event);
            self.carry_out(effects, &mut work)?;
        }
    }

    fn wished(&mut self, wish: Wish) -> Event {
        match wish {
            Wish::Ask(text) => Event::Asked(text),
            Wish::Cancel | Wish::Leave => Event::Cancelled,
            Wish::Undo => Event::Undone,
            Wish::Clear => Event::Cleared,
            Wish::Model(seat) => {
                self.seat = *seat;
                Event::UsesModel(self.seat.name.clone())
            }
        }
    }

    fn carry_out(&mut self, effects: Vec<Effect>, work: &mut Option<Work>) -> std::io::Result<()> {
        for effect in effects {
            match effect {
                Effect::Record(entry) => {
                    self.journal.add(&entry)?;
                    self.tell(&entry);
                }
                Effect::Ask { tools } => *work = Some(self.ask(tools)),
                Effect::Call { turn, calls } => *work = Some(self.call(turn, calls)),
                Effect::Abort => *work = None,
                Effect::Pause { length, failed, .. } => {
                    self.audience.hear(News::Retry { failed: &failed, pause: length });
                    *work = Some(Box::pin(async move {
                        tokio::time::sleep(length).await;
                        Event::RetryDue
                    }));
                }
                Effect::Sleep => {
                    let open: Vec<_> = self.machine.open().cloned().collect();
                    self.audience.hear(News::Asleep(&open));
                }
                Effect::GiveUp(failed) => self.audience.hear(News::GaveUp(&failed)),
                Effect::Done(reason) => {
                    self.last = Some(reason);
                    self.audience.hear(News::Done { reason, spent: self.machine.spent() });
                }
            }
        }
        Ok(())
    }

    fn tell(&self, entry: &Entry) {
        match entry {
            Entry::Answered { .. } | Entry::Diagnosed { .. } => {
                let (spent, total) = (self.machine.spent(), self.machine.total());
                self.audience.hear(News::Turn { spent, total });
            }
            Entry::Woken { tasks } => self.audience.hear(News::Woken(tasks)),
            _ => {}
        }
    }

    fn ask(&self, with_tools: bool) -> Work {
        let seat = &self.seat;
        let style = if with_tools && seat.native { Style::Native } else { Style::Text };
        let request = Request {
            system: seat.system.clone(),
            messages: view::messages(self.machine.entries(), style, seat.bounds),
            tools: if style == Style::Native { self.tools.offered() } else { Vec::new() },
        };
        let provider = Arc::clone(&seat.provider);
        let audience = Arc::clone(&self.audience);
        Box::pin(async move {
            let heard = move |text: &str| audience.hear(News::Text(text));
            match provider.ask(request, &heard).await {
                Ok(turn) => Event::Answered(turn),
                Err(failed) => Event::Failed(failed),
            }
        })
    }

    /// The calls of one turn, one after the other: a later one may stand on an earlier one.
    fn call(&self, turn: usize, calls: Vec<Call>) -> Work {
        let tools = Arc::clone(&self.tools);
        let audience = Arc::clone(&self.audience);
        let session = self.journal.label();
        Box::pin(async move {
            let mut results = Vec::new();
            for (number, call) in calls.iter().enumerate() {
                audience.hear(News::Call(call));
                let result = tools.call(call, &format!("{session}-{turn}-{number}")).await;
                audience.hear(News::Result(&result));
                results.push(result);
            }
            Event::Called(results)
        })
    }
}

/// How long a sleeping loop takes for granted that its tasks are seen to.
const NUDGE: std::time::Duration = std::time::Duration::from_secs(5);

async fn ended(
    trigger: &Trigger,
    ids: &[protocol::task::TaskId],
    tools: &dyn Tools,
) -> Vec<crate::delivery::trigger::End> {
    loop {
        if let Ok(ended) = tokio::time::timeout(NUDGE, trigger.ended(ids)).await {
            return ended;
        }
        tools.nudge();
    }
}
