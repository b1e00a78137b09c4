//! What goes in and comes out of a session: a question, and the events of the turn that answers it.

use std::sync::Arc;
use std::time::Duration;

use agent_loop::machine::{Budget, Spending};
use agent_loop::model::answer_options::AnswerOptions;
use agent_loop::model::conversation::{Image, StopReason, ToolCall, ToolResult};
use agent_loop::model::provider::ToolDefinition;
use protocol::caller::Caller;
use protocol::code::Code;
use protocol::error::ErrorBody;
use protocol::task::{State, TaskId};
use protocol::tool_scope::ToolScope;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with_macros::skip_serializing_none;
use tokio::sync::mpsc;
use uuid::Uuid;

use crate::delivery::Receipt;
use crate::error_shape::ErrorShape;
use crate::limits::ConcurrencyPermit;
use crate::service::{FIRST_EVENT, SessionService};

/// What an event weighs besides its text.
const EVENT_BYTES: usize = 128;

/// Who asks, as an interface knows it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub struct Asker {
    /// The client's session, like `llama-127.0.0.1` or `slack-C012-1712.34`. It is the session's name for as long as the
    /// session exists. A client may also give a session's number, like `101`.
    pub session: String,
    /// Where the client is: `api`, `openai`, `ollama`, `slack`, `a2a`.
    pub interface: String,
    /// The name of the API key that the client showed, if any.
    pub key: Option<String>,
    /// How many agents above this one were started by an agent.
    pub depth: u8,
    /// What the client may use; it only narrows.
    pub tool_scope: ToolScope,
    pub read_only: bool,
    /// Whether its tasks wait for a human though no one is there who decides.
    pub can_decide: bool,
    /// The one model that answers this client, if its key says so.
    pub model: Option<String>,
    /// The client may not read its sessions, only ask.
    pub only_asks: bool,
    /// Nothing in its messages is a command.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_no_commands: bool,
}

impl Asker {
    /// The model to ask: the one of the client's key, or else the one that is wanted.
    pub(crate) fn allowed_model(&self, wanted: Option<String>) -> Result<Option<String>, ErrorBody> {
        match (&self.model, wanted) {
            (Some(only), Some(wanted)) if *only != wanted => {
                let message = format!("this API key is answered by the model `{only}` alone, not by `{wanted}`");
                Err(ErrorBody::new(Code::NeedsScope, message).hint("leave the model out"))
            }
            (Some(only), _) => Ok(Some(only.clone())),
            (None, wanted) => Ok(wanted),
        }
    }

    /// The caller of this client's calls: `base`, narrowed to what the client may do.
    pub(crate) fn narrow(&self, base: &Caller) -> Caller {
        Caller {
            read_only: base.read_only || self.read_only,
            depth: base.depth.max(self.depth),
            tool_scope: base.tool_scope.also(&self.tool_scope),
            ..base.clone()
        }
    }
}

/// A message for a session, from the interface to the loop, and in the ledger. Its lines that begin with `!word` are
/// commands, performed in order; the session keeps the rest, which goes to the model.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Question {
    pub id: Uuid,
    pub asker: Asker,
    pub text: String,
    /// What was said before it elsewhere, with which a new session begins.
    #[serde(skip)]
    pub earlier: Vec<ClientMessage>,
    /// What its commands printed, which its client reads before the answer.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub printed: String,
    /// A name in `[models]` that answers this question only.
    pub model: Option<String>,
    #[serde(default)]
    pub limits: QuestionLimits,
    #[serde(default)]
    pub when_busy: WhenBusy,
    /// The client sends this again until it gets an answer: a repetition with the same value is not asked again.
    pub repeat_key: Option<String>,
    /// Whether a repetition gets the answer again that was delivered before.
    #[serde(skip)]
    pub answers_again: bool,
    /// The client does not wait for the answer: it reads what became of its question by itself.
    #[serde(default)]
    pub is_polled: bool,
}

impl Question {
    pub fn new(asker: Asker, text: String) -> Self {
        Self {
            id: Uuid::now_v7(),
            asker,
            text,
            earlier: Vec::new(),
            printed: String::new(),
            model: None,
            limits: QuestionLimits::default(),
            when_busy: WhenBusy::default(),
            repeat_key: None,
            answers_again: false,
            is_polled: false,
        }
    }
}

/// Limits of one question, which only lower those of the configuration.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct QuestionLimits {
    pub steps: Option<u32>,
    pub tokens: Option<u64>,
    pub cost: Option<f64>,
    pub calls: Option<u32>,
    /// When the work on it is stopped.
    pub deadline: Option<Duration>,
}

impl QuestionLimits {
    /// The limits of the question: those of the configuration, or lower ones.
    pub(super) fn lower(self, steps: u32, budget: Budget) -> (u32, Budget) {
        (self.steps.map_or(steps, |limit| limit.min(steps)), budget.lowered(self.tokens, self.cost, self.calls))
    }
}

/// What happens to a question while the session answers another one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WhenBusy {
    /// It waits while the session works. If the session only waits for tasks, it is asked at once; their ends are
    /// reported later.
    #[default]
    Interrupt,
    /// It waits until the other one has ended, with all of its tasks.
    Queue,
    /// It stops the other one.
    Cancel,
}

/// A conversation whose history the client keeps. Nothing of it is stored here.
#[derive(Debug, Clone, Default)]
pub struct ClientConversation {
    pub asker: Asker,
    /// The client's own system prompt, added to ours.
    pub system: Option<String>,
    /// The messages so far, the oldest first; the last one is the question, or has the results of the client's tools.
    pub messages: Vec<ClientMessage>,
    pub model: Option<String>,
    pub limits: QuestionLimits,
    /// Tools that the client performs itself.
    pub tools: Vec<ToolDefinition>,
    /// What the client wants of the answers.
    pub answers: AnswerOptions,
}

/// One message of a [`ClientConversation`].
#[derive(Debug, Clone, PartialEq)]
pub enum ClientMessage {
    User {
        text: String,
        images: Vec<Image>,
    },
    Assistant {
        text: String,
        calls: Vec<ToolCall>,
    },
    /// The results of the calls of the message before, in their order.
    Results(Vec<ToolResult>),
}

/// Where an event stands in its session: events of a session are ordered by it, also across restarts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EventId {
    /// The number of the question, counted from 1.
    pub turn: u64,
    /// When the session was loaded, in milliseconds: a turn that a restart interrupted begins anew.
    pub load: u64,
    pub number: u64,
    /// Whether it is the end of its turn, or came after that: a client that has it has the answer.
    pub is_over: bool,
}

/// What happens in a session. As a server-sent event its name is its type, and `tok` for a text.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum SessionEvent {
    /// A piece of the answer.
    Text { text: String },
    /// What a client reads before the answer of its turn: the output of its commands, an answer that it never got. To a
    /// client it is a text. A restart does not make it void.
    #[serde(rename = "text")]
    #[schemars(skip)]
    Preface { text: String },
    /// What came so far of this turn's answer is void: the request is made again.
    Restart,
    /// A task was started, moved on or ended.
    Task(TaskNews),
    /// A task waits for a human.
    #[serde(rename = "gate")]
    Waiting(WaitingNews),
    /// Something that the user should know, in words.
    Note { text: String },
    /// The turn ended; no event of this turn follows.
    Done(TurnOutcome),
    /// The turn ended without an answer; no event of this turn follows.
    Error {
        #[schemars(with = "ErrorShape")]
        error: ErrorBody,
    },
}

impl SessionEvent {
    pub fn is_last(&self) -> bool {
        matches!(self, Self::Done(_) | Self::Error { .. })
    }

    /// Whether the events only end because the server stops, and the turn goes on after that.
    pub(crate) fn is_stopping(&self) -> bool {
        matches!(self, Self::Error { error } if error.code == Code::NoExecutor)
    }
}

/// News about a task of the session.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct TaskNews {
    #[schemars(with = "String")]
    pub id: TaskId,
    pub subtool: String,
    #[schemars(with = "String")]
    pub state: State,
    /// The beginning of the result of a final task; how much is the session's preview length.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preview: Option<String>,
}

/// A task that waits for a human. Only the page, or a client whose API key may decide, can answer it.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[schemars(rename = "GateNews")]
pub struct WaitingNews {
    #[schemars(with = "String")]
    pub id: TaskId,
    pub subtool: String,
    /// What waits and where it is decided, in words for the user. It contains no secret link.
    pub message: String,
}

/// How a turn ended.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct TurnOutcome {
    /// The last answer of the model, or what the commands printed; after the preface, if there is one.
    pub answer: String,
    /// How many bytes of the answer are the preface.
    #[serde(skip)]
    pub preface_bytes: usize,
    pub termination: &'static str,
    /// A limit cut the work short.
    pub truncated: bool,
    /// The number of the session.
    pub session: u32,
    pub model: String,
    pub usage: TurnUsage,
    #[serde(skip)]
    pub stop_reason: StopReason,
    /// The calls of the client's own tools, if the model made some at the end.
    #[serde(skip)]
    pub calls: Vec<ToolCall>,
}

impl TurnOutcome {
    /// The outcome of a turn of which no more is known.
    pub(crate) fn of(session: u32, answer: String, reason: StopReason) -> Self {
        Self {
            answer,
            preface_bytes: 0,
            termination: reason.as_str(),
            truncated: reason.is_truncated(),
            session,
            model: String::new(),
            usage: TurnUsage::default(),
            stop_reason: reason,
            calls: Vec::new(),
        }
    }

    /// The answer with what its client reads before it.
    pub(super) fn after(self, preface: &str) -> Self {
        Self { answer: format!("{preface}{}", self.answer), preface_bytes: preface.len(), ..self }
    }

    /// The part of the turn's own answer with which the text that was `said` in it does not end: a client that has the
    /// text reads nothing twice.
    pub(crate) fn unsaid(&self, said: &str) -> &str {
        let (said, answer) = (said.trim_end(), self.answer[self.preface_bytes..].trim());
        if said.ends_with(answer) {
            return "";
        }
        match answer.rsplit_once("\n\n") {
            Some((before, rest)) if said.ends_with(before.trim_end()) => rest,
            _ => answer,
        }
    }
}

/// What a turn used.
#[derive(Debug, Clone, Copy, Default, Serialize, JsonSchema)]
pub struct TurnUsage {
    pub requests: u32,
    pub input_tokens: u64,
    pub cached_tokens: u64,
    pub output_tokens: u64,
    pub cost: f64,
}

impl From<Spending> for TurnUsage {
    fn from(spent: Spending) -> Self {
        Self {
            requests: spent.requests,
            input_tokens: spent.usage.input,
            cached_tokens: spent.usage.cached,
            output_tokens: spent.usage.output,
            cost: spent.cost,
        }
    }
}

/// An event with its place.
#[derive(Debug, Clone)]
pub struct LoggedEvent {
    pub id: EventId,
    pub event: SessionEvent,
}

impl LoggedEvent {
    /// About how much memory it takes.
    pub(crate) fn weight(&self) -> usize {
        let text = match &self.event {
            SessionEvent::Text { text } | SessionEvent::Preface { text } | SessionEvent::Note { text } => text.len(),
            SessionEvent::Task(news) => news.preview.as_ref().map_or(0, String::len),
            SessionEvent::Done(outcome) => outcome.answer.len(),
            SessionEvent::Waiting(_) | SessionEvent::Error { .. } | SessionEvent::Restart => 0,
        };
        EVENT_BYTES + text
    }
}

/// The events of one turn, as they happen. Dropping it does not stop the turn: the answer waits for the client's next
/// question.
#[derive(Debug)]
pub struct TurnStream {
    events: mpsc::UnboundedReceiver<Arc<LoggedEvent>>,
    number: u32,
    /// What the prefaces said, with which the answer begins.
    preface: String,
    question: Option<Uuid>,
    /// As long as it exists, the client listens for the answer to the question.
    listening: Option<Arc<ConcurrencyPermit<Uuid>>>,
    /// The turn whose end was read.
    ended_turn: Option<u64>,
    /// What is told that the answer arrived.
    service: Option<Arc<SessionService>>,
}

impl TurnStream {
    /// A stream of these events, for a turn that needs no session.
    pub fn of(events: mpsc::UnboundedReceiver<Arc<LoggedEvent>>, number: u32) -> Self {
        Self {
            events,
            number,
            preface: String::new(),
            question: None,
            listening: None,
            ended_turn: None,
            service: None,
        }
    }

    /// A turn that no model answers: what commands print.
    pub(crate) fn told(session: u32, text: String) -> Self {
        let (sender, events) = mpsc::unbounded_channel();
        let outcome = TurnOutcome::of(session, text.clone(), StopReason::Completed);
        for event in [SessionEvent::Text { text }, SessionEvent::Done(outcome)] {
            drop(sender.send(Arc::new(LoggedEvent { id: FIRST_EVENT, event })));
        }
        Self::of(events, session)
    }

    /// A stream of a session's events.
    pub(crate) fn of_session(
        events: mpsc::UnboundedReceiver<Arc<LoggedEvent>>,
        number: u32,
        service: &Arc<SessionService>,
    ) -> Self {
        Self { service: Some(Arc::clone(service)), ..Self::of(events, number) }
    }

    /// The stream of this question, to which the client listens.
    pub(crate) fn of_question(self, question: Uuid, listening: ConcurrencyPermit<Uuid>) -> Self {
        Self { question: Some(question), listening: Some(Arc::new(listening)), ..self }
    }

    /// The next event; `None` after the last one.
    pub async fn next(&mut self) -> Option<Arc<LoggedEvent>> {
        let logged = self.events.recv().await?;
        if logged.event.is_last() && !logged.event.is_stopping() {
            self.ended_turn = Some(logged.id.turn);
        }
        match &logged.event {
            SessionEvent::Preface { text } => self.preface.push_str(text),
            SessionEvent::Done(outcome) if !self.preface.is_empty() => {
                let event = SessionEvent::Done(outcome.clone().after(&self.preface));
                return Some(Arc::new(LoggedEvent { id: logged.id, event }));
            }
            _ => {}
        }
        Some(logged)
    }

    /// Records that the client does not wait any longer, and will read by itself what became of its question.
    pub fn polled(self) -> Result<(), ErrorBody> {
        match (&self.service, self.question) {
            (Some(service), Some(question)) => service.polled(self.number, question),
            _ => Ok(()),
        }
    }

    /// The number of the session.
    pub fn session(&self) -> u32 {
        self.number
    }

    /// The question that it answers, by which [`SessionService::rejoin`] finds it after a restart. A stream that follows a
    /// session, or that no model answers, has none.
    pub fn question(&self) -> Option<Uuid> {
        self.question
    }

    /// The receipt for the whole answer that was read, to be given when the client has it; `None` if there is nothing to
    /// record. Without it, the session's next turn begins with the answer. Until then the client listens. An answer that
    /// only says that the server stops does not count.
    pub(crate) fn receipt(&self) -> Option<Receipt> {
        let (service, turn) = (Arc::clone(self.service.as_ref()?), self.ended_turn?);
        let (session, listening) = (self.number, self.listening.clone());
        Some(Receipt::new(move || {
            service.delivered(session, turn);
            drop(listening);
        }))
    }

    /// Waits for the end of the turn; an error event becomes an error.
    pub async fn outcome(&mut self) -> Result<TurnOutcome, ErrorBody> {
        while let Some(logged) = self.next().await {
            match &logged.event {
                SessionEvent::Done(outcome) => return Ok(outcome.clone()),
                SessionEvent::Error { error } => return Err(error.clone()),
                _ => {}
            }
        }
        Err(crate::service::stopping())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_only_lowers_the_limits_of_the_configuration() {
        let none = QuestionLimits::default();
        let steps = |steps| QuestionLimits { steps: Some(steps), ..none };
        let tokens = |tokens| QuestionLimits { tokens: Some(tokens), ..none };
        let cost = |cost| QuestionLimits { cost: Some(cost), ..none };
        // Of a budget, zero is no limit at all in the configuration; a question cannot ask for that.
        for ((max_steps, max_tokens, max_cost), asked, expected) in [
            ((25, 1_000, 2.0), none, (25, 1_000, 2.0)),
            ((25, 1_000, 2.0), steps(24), (24, 1_000, 2.0)),
            ((25, 1_000, 2.0), steps(0), (0, 1_000, 2.0)),
            ((25, 1_000, 2.0), steps(26), (25, 1_000, 2.0)),
            ((25, 1_000, 2.0), steps(u32::MAX), (25, 1_000, 2.0)),
            ((25, 1_000, 2.0), tokens(999), (25, 999, 2.0)),
            ((25, 1_000, 2.0), tokens(0), (25, 1, 2.0)),
            ((25, 1_000, 2.0), tokens(1_001), (25, 1_000, 2.0)),
            ((25, 0, 2.0), tokens(5), (25, 5, 2.0)),
            ((25, 0, 2.0), tokens(0), (25, 1, 2.0)),
            ((25, 1_000, 2.0), cost(1.5), (25, 1_000, 1.5)),
            ((25, 1_000, 2.0), cost(2.5), (25, 1_000, 2.0)),
            ((25, 1_000, 2.0), cost(f64::INFINITY), (25, 1_000, 2.0)),
            ((25, 1_000, 2.0), cost(f64::NAN), (25, 1_000, 2.0)),
            ((25, 1_000, 2.0), cost(0.0), (25, 1_000, f64::MIN_POSITIVE)),
            ((25, 1_000, 2.0), cost(-1.0), (25, 1_000, f64::MIN_POSITIVE)),
            ((25, 1_000, 0.0), cost(0.0), (25, 1_000, f64::MIN_POSITIVE)),
            ((25, 1_000, 0.0), cost(9.0), (25, 1_000, 9.0)),
        ] {
            let budget = Budget { tokens: max_tokens, cost: max_cost, calls: 0 };
            let (steps, Budget { tokens, cost, .. }) = asked.lower(max_steps, budget);
            let is_same = (steps, tokens) == (expected.0, expected.1) && cost.total_cmp(&expected.2).is_eq();
            assert!(is_same, "{asked:?}: {steps} {tokens} {cost}, not {expected:?}");
        }
        for (most, asked, expected) in
            [(9, None, 9), (9, Some(5), 5), (9, Some(10), 9), (9, Some(0), 1), (0, Some(5), 5)]
        {
            let limits = QuestionLimits { calls: asked, ..none };
            let (_, Budget { calls, .. }) = limits.lower(1, Budget { calls: most, ..Budget::default() });
            assert_eq!(calls, expected, "{asked:?} of {most}");
        }
    }
}
