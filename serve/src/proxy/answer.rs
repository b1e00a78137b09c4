//! What a chat shows of a turn: the answer as it comes, and words where a human is waited for.
//!
//! A chat has one stream of text, so it stays quiet: a task that waits for a human is mentioned once, as a paragraph of its
//! own; that the answer begins anew is said if something of it was shown; why it ended early is said. Other news of tasks,
//! and notes about the connection to the model, are for interfaces that have a place for them.

use std::collections::{HashSet, VecDeque};
use std::time::{Duration, Instant};

use agent_loop::model::conversation::StopReason;
use protocol::task::TaskId;

use super::failure::ProxyFailure;
use crate::delivery::Receipt;
use crate::service::stopping;
use crate::service::turn::{LoggedEvent, SessionEvent, TurnOutcome, TurnStream};

/// How long a stream may be silent. Servers between us and the client close one after a minute or so.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// How long the status of a streamed answer waits for the turn to begin: a turn that fails at once is an error with a
/// status, not a stream.
const MAX_STATUS_DELAY: Duration = Duration::from_secs(1);

/// How long the model must be silent until it has paused.
const PAUSE: Duration = Duration::from_millis(700);

const STARTS_OVER: &str = "(The connection to the model broke. The answer starts over.)";
const STOPPED: &str = "(Stopped. Open tasks go on, and the next answer reports them.)";

/// A piece of what the client gets.
#[derive(Debug)]
pub(crate) enum AnswerPiece {
    Text(String),
    /// Nothing happened for a while.
    Silence,
    End(Box<AnswerEnd>),
    Failure(ProxyFailure),
}

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

/// The answer of one turn.
#[derive(Debug)]
pub(crate) struct AnswerStream {
    turn: TurnStream,
    keep_alive: Duration,
    /// Pieces that are next.
    ready: VecDeque<AnswerPiece>,
    /// Tasks of which was said that they wait.
    mentioned: HashSet<TaskId>,
    /// All text so far.
    text: String,
    /// What the model has said since the turn began, or began anew.
    said: String,
    /// Words of ours that wait for the model to pause: they must not stand in the middle of a sentence.
    held: VecDeque<String>,
    ending: TextEnd,
    /// The text that came before the turn, and with which the answer begins: what commands printed, and the answer to an
    /// earlier question.
    preface: String,
    began: Instant,
    first_text: Option<Instant>,
    /// Whether the model was given one request only, so that it is no limit that ended its work.
    is_one_step: bool,
}

impl AnswerStream {
    pub(crate) fn new(turn: TurnStream) -> Self {
        Self {
            turn,
            keep_alive: KEEP_ALIVE,
            ready: VecDeque::new(),
            mentioned: HashSet::new(),
            text: String::new(),
            said: String::new(),
            held: VecDeque::new(),
            ending: TextEnd::Other,
            preface: String::new(),
            began: Instant::now(),
            first_text: None,
            is_one_step: false,
        }
    }

    /// The answer to a prompt that needs no more than one request.
    pub(crate) fn of_one_step(turn: TurnStream) -> Self {
        Self { is_one_step: true, ..Self::new(turn) }
    }

    /// The next piece. After an end or a failure there are no more.
    pub(crate) async fn next(&mut self) -> AnswerPiece {
        if let Some(ready) = self.ready.pop_front() {
            return ready;
        }
        loop {
            let patience = if self.held.is_empty() { self.keep_alive } else { PAUSE };
            let Ok(event) = tokio::time::timeout(patience, self.turn.next()).await else {
                self.release();
                return self.ready.pop_front().unwrap_or(AnswerPiece::Silence);
            };
            // The turn goes on without us, or after a restart.
            let Some(logged) = event else { return AnswerPiece::Failure(stopping().into()) };
            if let Some(piece) = self.piece(&logged) {
                return piece;
            }
        }
    }

    /// Waits a moment for the turn to begin; an error if it failed.
    pub(crate) async fn begun(&mut self) -> Result<(), ProxyFailure> {
        let Ok(piece) = tokio::time::timeout(MAX_STATUS_DELAY, self.next()).await else { return Ok(()) };
        match piece {
            AnswerPiece::Failure(failure) => Err(failure),
            piece => {
                self.ready.push_front(piece);
                Ok(())
            }
        }
    }

    /// Waits for the end. Returns the answer without the text between calls.
    pub(crate) async fn whole(&mut self) -> Result<(String, Box<AnswerEnd>), ProxyFailure> {
        loop {
            match self.next().await {
                AnswerPiece::Text(_) | AnswerPiece::Silence => {}
                AnswerPiece::Failure(failure) => return Err(failure),
                AnswerPiece::End(end) => {
                    let answer = &end.outcome.answer;
                    let text = match end.outcome.stop_reason {
                        StopReason::Cancelled => format!("{answer}\n\n{STOPPED}").trim_start().to_owned(),
                        _ => answer.clone(),
                    };
                    return Ok((text, end));
                }
            }
        }
    }

    /// The receipt for the end or the failure that was read.
    pub(crate) fn receipt(&self) -> Option<Receipt> {
        self.turn.receipt()
    }

    fn piece(&mut self, logged: &LoggedEvent) -> Option<AnswerPiece> {
        match &logged.event {
            SessionEvent::Text { text } if logged.id.is_preface() => {
                self.preface.push_str(text);
                self.say(text);
            }
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
            }
            event => self.other(event),
        }
        self.ready.pop_front()
    }

    fn other(&mut self, event: &SessionEvent) {
        match event {
            SessionEvent::Task(_) | SessionEvent::Note { .. } => return,
            SessionEvent::Gate(news) => {
                if self.mentioned.insert(news.id) {
                    self.held.push_back(news.message.clone());
                }
                if self.ending == TextEnd::Text && !self.text.ends_with('\n') {
                    return;
                }
            }
            _ => {}
        }
        self.release();
        match event {
            SessionEvent::Restart if !std::mem::take(&mut self.said).is_empty() => self.paragraph(STARTS_OVER),
            SessionEvent::Done(outcome) => self.end(outcome),
            SessionEvent::Error { error } => self.ready.push_back(AnswerPiece::Failure(error.clone().into())),
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
        self.ready.push_back(AnswerPiece::Text(text.to_owned()));
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
        let answer = outcome.answer.strip_prefix(self.preface.as_str()).unwrap_or(&outcome.answer);
        let missing = match outcome.stop_reason {
            StopReason::Cancelled => STOPPED.to_owned(),
            _ => unsaid(&self.said, answer).to_owned(),
        };
        if !missing.is_empty() {
            let gap = self.gap();
            self.say(&format!("{gap}{missing}"));
        }
        let now = Instant::now();
        let thinking = self.first_text.unwrap_or(now) - self.began;
        self.ready.push_back(AnswerPiece::End(Box::new(AnswerEnd { outcome, thinking, total: now - self.began })));
    }
}

/// The part of the answer with which the model's text does not end.
fn unsaid<'a>(said: &str, answer: &'a str) -> &'a str {
    let (said, answer) = (said.trim_end(), answer.trim());
    if said.ends_with(answer) {
        return "";
    }
    match answer.rsplit_once("\n\n") {
        Some((before, rest)) if said.ends_with(before.trim_end()) => rest,
        _ => answer,
    }
}

#[cfg(test)]
mod tests;
