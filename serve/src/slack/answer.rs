//! One question from its thread to its answer.

use std::time::Duration;

use ground::base::backoff::RandomPauses;
use ground::config::slack::SlackMode;
use protocol::code::Code;
use protocol::error::ErrorBody;
use serde_json::{Value, json};

use super::contract::{SlackError, SlackSessions};
use super::dispatch::{SlackContext, SlackWork};
use super::envelope::SlackThread;
use super::recorder::RecordNote;
use super::records::{OpenQuestion, WaitingRecord};
use super::reply::{ReplyCall, SlackReply};
use super::waiting::{waiting_message, waiting_text};
use super::web::{CallError, DELETE, POST, SlackToken, UPDATE, post_body, update_body};
use crate::service::turn::{EventId, Question, SessionEvent, TurnOutcome, TurnStream, WaitingNews};

/// How long a service that stops may be ahead of us.
const STOP_NOTICE: Duration = Duration::from_secs(5);

/// Why an answer did not reach its thread.
#[derive(Debug)]
enum ReplyFailure {
    /// We stop; it is asked again after the restart.
    Stopping,
    /// It cannot be shown in this thread.
    Undeliverable(String),
    Fatal(SlackError),
}

/// One answer that is being shown.
struct Answering<'a, S> {
    context: &'a std::sync::Arc<SlackContext<S>>,
    thread: &'a SlackThread,
    /// The key of the question.
    question: String,
    reply: SlackReply,
    /// Everything that the model wrote in this turn.
    written: String,
}

/// Asks a question and shows its answer. `is_asked` is called when the session has the question.
pub(crate) async fn answer<S: SlackSessions>(
    context: &std::sync::Arc<SlackContext<S>>,
    open: &OpenQuestion,
    is_asked: impl FnOnce() + Send,
) -> Result<(), SlackError> {
    let (key, thread) = (open.question.key(), &open.question.thread);
    let asked = Question {
        model: context.settings.model.clone(),
        repeat_key: Some(format!("slack-{key}")),
        ..Question::new(context.asker(thread), open.question.text.clone())
    };
    let stream = context.sessions.ask(asked).await;
    is_asked();
    let reply = SlackReply::new(open.messages.clone());
    let mut answering = Answering { context, thread, question: key.clone(), reply, written: String::new() };
    let shown = match stream {
        Ok(mut stream) => answering.follow(&mut stream).await.map(|()| Some(stream)),
        Err(error) => answering.fail(&error).await.map(|()| None),
    };
    let stream = match shown {
        Ok(stream) => stream,
        Err(ReplyFailure::Stopping) => return Ok(()),
        Err(ReplyFailure::Fatal(error)) => return Err(error),
        Err(ReplyFailure::Undeliverable(reason)) => {
            tracing::error!("the answer to {key} cannot be posted in Slack: {reason}");
            None
        }
    };
    // First here: a crash in between must not ask the question again.
    context.recorder.note(RecordNote::Answered { question: key }).await;
    if let Some(receipt) = stream.and_then(|stream| stream.receipt()) {
        receipt.give();
    }
    Ok(())
}

impl<S: SlackSessions> Answering<'_, S> {
    /// Shows the events of the turn until it ends.
    async fn follow(&mut self, stream: &mut TurnStream) -> Result<(), ReplyFailure> {
        let context = self.context;
        loop {
            let may_call = context.settings.mode == SlackMode::Stream && self.reply.may_stream();
            let method = self.reply.next_call().filter(|_| may_call).map(|call| method_of(&call));
            // Everything that comes while a turn in the channel is waited for is shown at once.
            let turn = async {
                match method {
                    Some(method) => context.web.pace.turn(&self.thread.channel, method).await,
                    None => std::future::pending().await,
                }
            };
            tokio::pin!(turn);
            loop {
                let logged = tokio::select! {
                    biased;
                    () = context.ended.cancelled() => return Err(ReplyFailure::Stopping),
                    logged = stream.next() => logged,
                    () = &mut turn => {
                        self.advance().await?;
                        break;
                    }
                };
                let Some(logged) = logged else {
                    let error =
                        ErrorBody::new(Code::NoExecutor, "the session ended before its answer").hint("ask again");
                    return self.fail(&error).await;
                };
                match &logged.event {
                    SessionEvent::Preface { text } => self.reply.push_preface(text),
                    SessionEvent::Text { text } => {
                        self.written.push_str(text);
                        self.reply.push(text);
                    }
                    SessionEvent::Restart => {
                        self.written.clear();
                        self.reply.restart();
                    }
                    SessionEvent::Note { text } => self.reply.push_paragraph(&format!("_{}_\n\n", text.trim())),
                    SessionEvent::Waiting(news) => self.waits(news, logged.id).await?,
                    // Each task that waits is watched by a piece of work of its own.
                    SessionEvent::Task(_) => {}
                    SessionEvent::Done(outcome) => {
                        self.complete(outcome);
                        return self.catch_up().await;
                    }
                    SessionEvent::Error { error } => return self.fail(error).await,
                }
                if method.is_none() {
                    break;
                }
            }
        }
    }

    /// Makes the next call, once; what fails is tried again later.
    async fn advance(&mut self) -> Result<(), ReplyFailure> {
        let Some(call) = self.reply.next_call() else { return Ok(()) };
        self.make(call).await.map(drop)
    }

    /// Makes calls until Slack shows everything.
    async fn catch_up(&mut self) -> Result<(), ReplyFailure> {
        let mut pauses = RandomPauses::new(self.context.web.timing().backoff);
        while let Some(call) = self.reply.next_call() {
            let turn = self.context.web.pace.turn(&self.thread.channel, method_of(&call));
            tokio::select! {
                () = self.context.ended.cancelled() => return Err(ReplyFailure::Stopping),
                () = turn => {}
            }
            if self.make(call).await? {
                pauses.reset();
                continue;
            }
            tokio::select! {
                () = self.context.ended.cancelled() => return Err(ReplyFailure::Stopping),
                () = tokio::time::sleep(pauses.next_pause()) => {}
            }
        }
        Ok(())
    }

    /// Makes one call; returns whether Slack took notice of it.
    async fn make(&mut self, call: ReplyCall) -> Result<bool, ReplyFailure> {
        let (method, web) = (method_of(&call), &self.context.web);
        let channel = &self.thread.channel;
        let body = match &call {
            ReplyCall::Post { text } => post_body(channel, &self.thread.ts, text),
            ReplyCall::Update { ts, text } => update_body(channel, ts, text),
            ReplyCall::Delete { ts } => json!({"channel": channel, "ts": ts}),
        };
        match web.call(SlackToken::Bot, method, &body).await {
            Ok(answer) => {
                self.reply.succeeded(&call, answer["ts"].as_str());
                if !matches!(call, ReplyCall::Update { .. }) {
                    self.note_messages().await;
                }
                Ok(true)
            }
            Err(CallError::RateLimited(pause)) => {
                tracing::info!("Slack wants no {method} for {pause:?}");
                web.pace.pause(method, pause);
                Ok(true)
            }
            Err(CallError::Temporary(error)) => {
                tracing::warn!("Slack's {method} failed: {error}");
                Ok(false)
            }
            Err(CallError::Token(error)) => Err(ReplyFailure::Fatal(error)),
            Err(CallError::Refused(error)) => {
                tracing::info!("Slack refuses {method}: {error}");
                if self.reply.refused(&call, &error) { Ok(true) } else { Err(ReplyFailure::Undeliverable(error)) }
            }
        }
    }

    async fn note_messages(&self) {
        let (question, messages) = (self.question.clone(), self.reply.messages());
        self.context.recorder.note(RecordNote::Posted { question, messages }).await;
    }

    /// Says that a task waits, below what was written so far.
    async fn waits(&mut self, news: &WaitingNews, event: EventId) -> Result<(), ReplyFailure> {
        let context = self.context;
        // After a restart the message stands there already.
        if context.waiting.contains(news.id) {
            return Ok(());
        }
        if context.settings.mode == SlackMode::Stream {
            self.catch_up().await?;
        }
        let text = waiting_text(&news.message);
        let body = waiting_message(self.thread, news.id, &text);
        context.web.pace.turn(&self.thread.channel, POST).await;
        let answer: Value = match context.web.insist(SlackToken::Bot, POST, &body, &context.ended).await {
            Ok(answer) => answer,
            Err(CallError::Token(error)) => return Err(ReplyFailure::Fatal(error)),
            Err(CallError::Refused(error)) => return Err(ReplyFailure::Undeliverable(error)),
            Err(CallError::Temporary(_) | CallError::RateLimited(_)) => return Err(ReplyFailure::Stopping),
        };
        let message = answer["ts"].as_str().unwrap_or_default().to_owned();
        let record = WaitingRecord { task: news.id, thread: self.thread.clone(), message, text };
        context.waiting.insert(record.clone());
        context.recorder.note(RecordNote::Waiting(record.clone())).await;
        context.spawn(SlackWork::Watch { record, after: event });
        if context.settings.mode == SlackMode::Stream {
            self.reply.settle();
            self.note_messages().await;
        }
        Ok(())
    }

    /// Sets the text that stays.
    fn complete(&mut self, outcome: &TurnOutcome) {
        let answer = outcome.answer.trim();
        if self.context.settings.mode == SlackMode::Final {
            // Only the answer itself, not what was said on the way to it.
            let text = if answer.is_empty() { self.reply.text().to_owned() } else { answer.to_owned() };
            self.reply.replace(&text);
        } else {
            let unsaid = outcome.unsaid(&self.written);
            if !unsaid.is_empty() {
                self.reply.push_paragraph(unsaid);
            }
        }
        if outcome.truncated {
            self.reply.push_paragraph(&format!("_A limit cut the work short ({})._", outcome.termination));
        } else if answer.is_empty() && self.written.trim().is_empty() {
            self.reply.push_paragraph(&format!("_It ended without an answer ({})._", outcome.termination));
        }
    }

    /// Shows why there is no answer.
    async fn fail(&mut self, error: &ErrorBody) -> Result<(), ReplyFailure> {
        let stopped = self.context.ended.cancelled();
        if error.code == Code::NoExecutor && tokio::time::timeout(STOP_NOTICE, stopped).await.is_ok() {
            return Err(ReplyFailure::Stopping);
        }
        let hint = error.hint.as_ref().map(|hint| format!("\n{hint}")).unwrap_or_default();
        self.reply.push_paragraph(&format!("**No answer:** {}{hint}", error.message));
        self.catch_up().await
    }
}

fn method_of(call: &ReplyCall) -> &'static str {
    match call {
        ReplyCall::Post { .. } => POST,
        ReplyCall::Update { .. } => UPDATE,
        ReplyCall::Delete { .. } => DELETE,
    }
}
