//! What a chat shows of a turn: the answer as it comes, and words where a human is waited for.
//!
//! A chat has one stream of text, so it stays quiet: a task that waits for a human is mentioned once, as a paragraph of its
//! own; that the answer begins anew is said if something of it was shown; why it ended early is said. Other news of tasks,
//! and notes about the connection to the model, are for interfaces that have a place for them.

use std::collections::{HashSet, VecDeque};
use std::time::{Duration, Instant};

use agent_loop::model::conversation::StopReason;
use axum::response::Response;
use protocol::task::TaskId;
use serde_json::Value;

use super::failure::ProxyFailure;
use super::format::AnswerFormat;
use super::question::AnswerRecord;
use crate::delivery::Receipt;
use crate::service::stopping;
use crate::service::turn::{SessionEvent, TurnOutcome, TurnStream};

/// How long a stream may be silent. Servers between us and the client close one after a minute or so.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// How long the status of a streamed answer waits for the turn to begin: a turn that fails at once is an error with a
/// status, not a stream.
const MAX_STATUS_DELAY: Duration = Duration::from_secs(1);

/// How long the model must be silent until it has paused.
const PAUSE: Duration = Duration::from_millis(700);

const STARTS_OVER: &str = "(The connection to the model broke. The answer starts over.)";
const STOPPED: &str = "(Stopped. Open tasks go on, and the next answer reports them.)";

/// The end of an answer.
#[derive(Debug)]
pub(crate) struct AnswerEnd {
    pub(crate) outcome: TurnOutcome,
    /// From the question to the first text.
    pub(crate) thinking: Duration,
    /// From the question to the end.
    pub(crate) total: Duration,
}

/// What the text so far ends with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TextEnd {
    /// Text of the model, which may go on.
    Text,
    /// A paragraph of ours.
    Paragraph,
    /// Nothing of this turn.
    Other,
}

/// The answer of one turn, in the form of a protocol.
#[derive(Debug)]
pub(crate) struct AnswerStream<F> {
    turn: TurnStream,
    format: F,
    keep_alive: Duration,
    /// What is sent next.
    ready: VecDeque<String>,
    /// How it ended. Nothing follows what is ready then.
    ended: Option<Result<AnswerEnd, ProxyFailure>>,
    /// Tasks of which was said that they wait.
    mentioned: HashSet<TaskId>,
    /// All text so far.
    text: String,
    /// What the model has said since the turn began, or began anew.
    said: String,
    /// Words of ours that wait for the model to pause: they must not stand in the middle of a sentence.
    held: VecDeque<String>,
    ending: TextEnd,
    began: Instant,
    first_text: Option<Instant>,
    /// Whether the model was given one request only, so that it is no limit that ended its work.
    is_one_step: bool,
    /// Whether the client gets nothing but the last answer, which has a form of its own.
    only_answer: bool,
    /// Where it is recorded what the client got.
    record: Option<AnswerRecord>,
    /// Whether it ended with an answer.
    has_answer: bool,
}

impl<F: AnswerFormat> AnswerStream<F> {
    pub(crate) fn new(turn: TurnStream, format: F) -> Self {
        Self {
            turn,
            format,
            keep_alive: KEEP_ALIVE,
            ready: VecDeque::new(),
            ended: None,
            mentioned: HashSet::new(),
            text: String::new(),
            said: String::new(),
            held: VecDeque::new(),
            ending: TextEnd::Other,
            began: Instant::now(),
            first_text: None,
            is_one_step: false,
            only_answer: false,
            record: None,
            has_answer: false,
        }
    }

    /// The answer to a prompt that needs no more than one request, if it `is_one_step`.
    pub(super) fn of_one_step(self, is_one_step: bool) -> Self {
        Self { is_one_step, ..self }
    }

    /// The same with nothing but the last answer, if the answer has a form: words between calls are no part of it.
    pub(super) fn of_last_answer(self, only_answer: bool) -> Self {
        Self { only_answer, ..self }
    }

    /// The answer of a conversation that is told apart by its history.
    pub(super) fn recorded_as(self, record: Option<AnswerRecord>) -> Self {
        Self { record, ..self }
    }

    /// What is sent next; `None` after the end. The receipt comes with the last of it.
    pub(super) async fn next(&mut self) -> Option<(String, Option<Receipt>)> {
        while self.ready.is_empty() {
            if self.ended.is_some() {
                return None;
            }
            self.advance().await;
        }
        let sent = self.ready.pop_front()?;
        let is_last = self.ready.is_empty() && self.ended.is_some();
        Some((sent, if is_last { self.receipt() } else { None }))
    }

    /// Takes in the next event, or keeps the connection open without one.
    async fn advance(&mut self) {
        let patience = if self.held.is_empty() { self.keep_alive } else { PAUSE };
        match tokio::time::timeout(patience, self.turn.next()).await {
            Ok(Some(logged)) => self.take(&logged.event),
            // The turn goes on without us, or after a restart.
            Ok(None) => self.fail(stopping().into()),
            Err(_) => {
                self.release();
                if self.ready.is_empty() {
                    self.ready.push_back(self.format.keep_alive());
                }
            }
        }
    }

    /// Begins a stream, after a moment in which the turn may begin; an error if it failed.
    pub(super) async fn begin(&mut self) -> Result<(), ProxyFailure> {
        // First: some formats number what they send.
        let head = self.format.begin();
        let begun = async {
            while self.ready.is_empty() {
                self.advance().await;
            }
        };
        // A turn that takes longer has begun for its client.
        drop(tokio::time::timeout(MAX_STATUS_DELAY, begun).await);
        match &self.ended {
            Some(Err(failure)) if self.text.is_empty() => Err(failure.clone()),
            _ => {
                self.ready.push_front(head);
                Ok(())
            }
        }
    }

    /// Waits for the end. Returns the answer as one document, without the text between calls.
    pub(super) async fn whole(&mut self) -> Result<Value, ProxyFailure> {
        let end = loop {
            match self.ended.take() {
                Some(ended) => break ended?,
                None => self.advance().await,
            }
            self.ready.clear();
        };
        let answer = &end.outcome.answer;
        let text = match end.outcome.stop_reason {
            StopReason::Cancelled => format!("{answer}\n\n{STOPPED}").trim_start().to_owned(),
            _ => answer.clone(),
        };
        if let Some(record) = &self.record {
            record.answered(&text);
        }
        Ok(self.format.whole(&text, &end))
    }

    /// An error before anything was sent.
    pub(super) fn refusal(&self, failure: ProxyFailure) -> Response {
        self.format.refusal(failure)
    }

    pub(super) fn stream_type(&self) -> &'static str {
        self.format.stream_type()
    }

    /// The receipt for the end or the failure that was read.
    pub(super) fn receipt(&self) -> Option<Receipt> {
        let receipt = self.turn.receipt()?;
        let Some(record) = self.record.clone().filter(|_| self.has_answer) else { return Some(receipt) };
        Some(Receipt::new(move || {
            record.delivered();
            receipt.give();
        }))
    }

    fn take(&mut self, event: &SessionEvent) {
        match event {
            SessionEvent::Preface { text } => return self.say(text),
            SessionEvent::Text { text } => {
                // The model's next step begins with a blank line.
                if text.starts_with('\n') {
                    self.release();
                }
                // A paragraph of ours ends with a blank line already.
                let is_apart = self.ending == TextEnd::Paragraph;
                self.say(if is_apart { text.trim_start_matches('\n') } else { text });
                self.said.push_str(text);
                self.ending = TextEnd::Text;
                return;
            }
            SessionEvent::Task(_) | SessionEvent::Note { .. } => return,
            SessionEvent::Waiting(news) => {
                if self.mentioned.insert(news.id) {
                    self.held.push_back(news.message.clone());
                }
                if self.ending == TextEnd::Text && !self.text.ends_with('\n') {
                    return;
                }
            }
            SessionEvent::Restart | SessionEvent::Done(_) | SessionEvent::Error { .. } => {}
        }
        self.release();
        match event {
            SessionEvent::Restart if !std::mem::take(&mut self.said).is_empty() => self.paragraph(STARTS_OVER),
            SessionEvent::Done(outcome) => self.end(outcome),
            SessionEvent::Error { error } => self.fail(error.clone().into()),
            _ => {}
        }
    }

    /// Says what waited for a pause.
    fn release(&mut self) {
        while let Some(words) = self.held.pop_front() {
            self.paragraph(&words);
        }
    }

    fn say(&mut self, text: &str) {
        if text.is_empty() {
            return;
        }
        self.first_text.get_or_insert_with(Instant::now);
        self.text.push_str(text);
        if !self.only_answer {
            self.ready.push_back(self.format.text(text));
        }
    }

    /// Adds words of ours, between blank lines.
    fn paragraph(&mut self, words: &str) {
        let gap = self.gap();
        self.say(&format!("{gap}{words}\n\n"));
        self.ending = TextEnd::Paragraph;
    }

    /// What is missing for a blank line at the end of the text.
    fn gap(&self) -> &'static str {
        match self.text.as_str() {
            "" => "",
            text if text.ends_with("\n\n") => "",
            text if text.ends_with('\n') => "\n",
            _ => "\n\n",
        }
    }

    /// The end; first what the answer says that no text said, like why it ended early.
    fn end(&mut self, outcome: &TurnOutcome) {
        let mut outcome = outcome.clone();
        if self.is_one_step && outcome.stop_reason == StopReason::MaxIterations {
            outcome.stop_reason = StopReason::Completed;
        }
        let missing = match outcome.stop_reason {
            StopReason::Cancelled => STOPPED,
            _ => outcome.unsaid(&self.said),
        };
        let missing = missing.to_owned();
        if !missing.is_empty() {
            let gap = self.gap();
            self.say(&format!("{gap}{missing}"));
        }
        if self.only_answer && !outcome.answer.is_empty() {
            self.ready.push_back(self.format.text(&outcome.answer));
        }
        self.has_answer = true;
        let now = Instant::now();
        let thinking = self.first_text.unwrap_or(now) - self.began;
        let end = AnswerEnd { outcome, thinking, total: now - self.began };
        if let Some(record) = &self.record {
            record.answered(&self.text);
        }
        self.ready.push_back(self.format.end(&end));
        self.ended = Some(Ok(end));
    }

    fn fail(&mut self, failure: ProxyFailure) {
        self.ready.push_back(self.format.fail(&failure));
        self.ended = Some(Err(failure));
    }
}

#[cfg(test)]
mod tests;
