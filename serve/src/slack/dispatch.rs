//! What is done about each event: every piece of work is a task of its own, and the questions of a thread are asked in
//! their order.

use std::collections::HashMap;
use std::sync::Arc;

use ground::config::slack::{SlackSettings, SlackWaiting};
use protocol::code::Code;
use serde_json::Value;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::answer::answer;
use super::contract::{SlackError, SlackSessions};
use super::envelope::{Inbound, NoClick, SlackThread};
use super::recorder::{RecordNote, SlackRecorder};
use super::records::{OpenQuestion, WaitingRecord};
use super::waiting::{WaitingMessages, WaitingUpdate, decided_message};
use super::web::{CallError, SlackToken, SlackWeb, UPDATE};
use crate::service::FIRST_EVENT;
use crate::service::turn::{Asker, EventId, Question, SessionEvent};

/// What is said to someone who may not ask, once.
const STRANGER: &str = "Sorry, I may not answer you here. The person who runs me can add you to `users`, or this \
                        channel to `channels`, under `[serve.slack]`.";
/// What is said to someone who may not press the button.
const NOT_YOURS: &str = "Only those whom I answer can say No here.";
const TOO_LATE: &str = "This no longer waits.";

/// So many threads may be remembered; those whose last question was asked are forgotten then.
const MAX_THREADS: usize = 1000;

/// What every piece of work needs.
pub(crate) struct SlackContext<S> {
    pub(crate) sessions: Arc<S>,
    pub(crate) web: Arc<SlackWeb>,
    pub(crate) settings: Arc<SlackSettings>,
    pub(crate) recorder: SlackRecorder,
    pub(crate) waiting: WaitingMessages,
    pub(crate) tracker: TaskTracker,
    pub(crate) ended: CancellationToken,
    /// Takes what ends the connector.
    pub(crate) failures: mpsc::UnboundedSender<SlackError>,
}

/// A piece of work.
pub(crate) enum SlackWork {
    Answer {
        open: OpenQuestion,
        /// Ready when the question before it in its thread was asked.
        before: Option<oneshot::Receiver<()>>,
        asked: oneshot::Sender<()>,
    },
    /// Keep the message about a waiting task up to date.
    Watch {
        record: WaitingRecord,
        after: EventId,
    },
    Refuse(NoClick),
    Decline {
        thread: SlackThread,
        user: String,
    },
}

/// Gives each event to a task.
pub(crate) struct SlackDispatch<S> {
    context: Arc<SlackContext<S>>,
    /// The last question of each thread, ready when it was asked.
    last: HashMap<SlackThread, oneshot::Receiver<()>>,
}

impl<S: SlackSessions> SlackDispatch<S> {
    /// Begins with the questions without an answer, and with the tasks that wait.
    pub(crate) fn start(context: Arc<SlackContext<S>>, open: Vec<OpenQuestion>, waiting: Vec<WaitingRecord>) -> Self {
        let mut dispatch = Self { context, last: HashMap::new() };
        for record in waiting {
            dispatch.context.waiting.insert(record.clone());
            dispatch.context.spawn(SlackWork::Watch { record, after: FIRST_EVENT });
        }
        for question in open {
            tracing::info!("the question {} has no answer yet", question.question.key());
            dispatch.ask(question);
        }
        dispatch
    }

    pub(crate) fn handle(&mut self, inbound: Inbound) {
        match inbound {
            Inbound::Question(question) => self.ask(OpenQuestion { question, messages: Vec::new() }),
            Inbound::Stranger { thread, user } => self.context.spawn(SlackWork::Decline { thread, user }),
            Inbound::No(click) => self.context.spawn(SlackWork::Refuse(click)),
            Inbound::ThreadMessage(_) | Inbound::Nothing => {}
        }
    }

    fn ask(&mut self, open: OpenQuestion) {
        if self.last.len() > MAX_THREADS {
            self.last.retain(|_, asked| asked.try_recv() == Err(oneshot::error::TryRecvError::Empty));
        }
        let (asked, next) = oneshot::channel();
        let before = self.last.insert(open.question.thread.clone(), next);
        self.context.spawn(SlackWork::Answer { open, before, asked });
    }
}

impl<S: SlackSessions> SlackContext<S> {
    pub(crate) fn asker(&self, thread: &SlackThread) -> Asker {
        Asker {
            session: thread.session(),
            interface: "slack".to_owned(),
            tool_scope: self.settings.tool_scope_in(&thread.channel),
            read_only: self.settings.read_only,
            can_decide: self.settings.waiting == SlackWaiting::Wait,
            ..Asker::default()
        }
    }

    /// Starts a piece of work; it ends when it is done, or when the connector stops.
    pub(crate) fn spawn(self: &Arc<Self>, work: SlackWork) {
        let context = Arc::clone(self);
        self.tracker.spawn(async move {
            if let Err(error) = Box::pin(context.perform(work)).await {
                // Without a receiver we are stopping.
                drop(context.failures.send(error));
            }
        });
    }

    async fn perform(self: &Arc<Self>, work: SlackWork) -> Result<(), SlackError> {
        match work {
            SlackWork::Answer { open, before, asked } => {
                if let Some(before) = before {
                    // It also ends if that work did.
                    drop(before.await);
                }
                Box::pin(answer(self, &open, || asked.send(()).unwrap_or_default())).await
            }
            SlackWork::Watch { record, after } => self.watch(&record, after).await,
            SlackWork::Refuse(click) => self.refuse(&click).await,
            SlackWork::Decline { thread, user } => {
                self.web.whisper(&thread, &user, STRANGER).await;
                Ok(())
            }
        }
    }

    /// Follows the session of a task that waits, until its message needs no further update.
    async fn watch(&self, record: &WaitingRecord, after: EventId) -> Result<(), SlackError> {
        let asker = self.asker(&record.thread);
        let stream = self.sessions.follow(&asker, after).await;
        let mut stream = match stream {
            Ok(stream) => stream,
            Err(error) => {
                tracing::warn!("the message about {} stays as it is: {}", record.task, error.message);
                if error.code == Code::NotFound {
                    self.recorder.note(RecordNote::Settled(record.task)).await;
                }
                return Ok(());
            }
        };
        while self.waiting.contains(record.task) {
            let logged = tokio::select! {
                () = self.ended.cancelled() => return Ok(()),
                logged = stream.next() => logged,
            };
            let Some(logged) = logged else { return Ok(()) };
            if let SessionEvent::Task(news) = &logged.event
                && news.id == record.task
                && let Some(update) = self.waiting.news(news.id, news.state)
            {
                self.show(&update).await?;
            }
        }
        Ok(())
    }

    /// Brings the message about a task up to date.
    async fn show(&self, update: &WaitingUpdate) -> Result<(), SlackError> {
        let body = decided_message(update);
        self.web.pace.turn(&update.record.thread.channel, UPDATE).await;
        match self.web.insist(SlackToken::Bot, UPDATE, &body, &self.ended).await {
            Err(CallError::Token(error)) => return Err(error),
            Err(error) => tracing::warn!("failed to update the message about {}: {error:?}", update.record.task),
            Ok(_) => {}
        }
        if update.is_last {
            self.recorder.note(RecordNote::Settled(update.record.task)).await;
        }
        Ok(())
    }

    /// Someone pressed No: the task is cancelled, as its agent could do itself.
    async fn refuse(&self, click: &NoClick) -> Result<(), SlackError> {
        let whisper = async |text: &str| self.web.whisper(&click.thread, &click.user, text).await;
        if !click.is_allowed {
            whisper(NOT_YOURS).await;
            return Ok(());
        }
        let Some(thread) = self.waiting.refuse(click) else {
            whisper(TOO_LATE).await;
            return Ok(());
        };
        let cancel = Question::new(self.asker(&thread), format!("!cancel {}", click.task));
        let printed = match self.sessions.ask(cancel).await {
            Ok(mut stream) => stream.outcome().await.map(|outcome| outcome.answer),
            Err(error) => Err(error),
        };
        let printed = printed.unwrap_or_else(|error| error.message);
        let answer: Value = serde_json::from_str(printed.trim()).unwrap_or_default();
        let Some(state) = answer["state"].as_str().and_then(|state| state.parse().ok()) else {
            self.waiting.forget_refusal(click.task);
            whisper(&printed).await;
            return Ok(());
        };
        match self.waiting.news(click.task, state) {
            Some(update) => self.show(&update).await,
            None => Ok(()),
        }
    }
}
