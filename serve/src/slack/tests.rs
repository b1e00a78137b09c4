//! The connector against the stand-in for Slack, with sessions that answer as each test says.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use agent_loop::model::conversation::StopReason;
use ground::base::backoff::Backoff;
use ground::config::SecretSource;
use ground::config::secret::Secrets;
use ground::config::slack::SlackSettings;
use protocol::error::ErrorBody;
use protocol::task::{State, TaskId};
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::{SlackConnector, SlackError, SlackSessions, SlackTiming};
use crate::service::turn::{
    Asker, EventId, LoggedEvent, Question, SessionEvent, TaskNews, TurnOutcome, TurnStream, WaitingNews,
};
use stand_in::{APP_TOKEN, BOT_TOKEN, StandIn};

#[cfg(test)]
mod answers;
#[cfg(test)]
mod questions;
#[cfg(test)]
mod sockets;
#[cfg(test)]
#[path = "../../../tests/serve/slack/stand_in.rs"]
mod stand_in;
#[cfg(test)]
mod waiting;

/// The user who may ask, in most tests.
const ANN: &str = "U0ANN";
const CHANNEL: &str = "C0GENERAL";

/// Sessions that record what they are asked, and answer when the test says so.
#[derive(Default)]
struct ScriptedSessions {
    asked: Mutex<VecDeque<AskedQuestion>>,
    /// The texts of all questions, in the order in which they came.
    order: Mutex<Vec<String>>,
    count: Mutex<usize>,
    followers: Mutex<Vec<(String, mpsc::UnboundedSender<Arc<LoggedEvent>>)>>,
    changed: Condvar,
}

/// A question whose turn the test plays.
struct AskedQuestion {
    question: Question,
    events: mpsc::UnboundedSender<Arc<LoggedEvent>>,
}

impl SlackSessions for ScriptedSessions {
    async fn ask(self: &Arc<Self>, question: Question) -> Result<TurnStream, ErrorBody> {
        let (events, received) = mpsc::unbounded_channel();
        self.order.lock().expect("no panics").push(question.text.clone());
        self.asked.lock().expect("no panics").push_back(AskedQuestion { question, events });
        *self.count.lock().expect("no panics") += 1;
        self.changed.notify_all();
        Ok(TurnStream::of(received, 101))
    }

    async fn follow(self: &Arc<Self>, asker: &Asker, _after: EventId) -> Result<TurnStream, ErrorBody> {
        let (events, received) = mpsc::unbounded_channel();
        self.followers.lock().expect("no panics").push((asker.session.clone(), events));
        self.changed.notify_all();
        Ok(TurnStream::of(received, 101))
    }
}

impl ScriptedSessions {
    /// Waits for a question with this text.
    #[track_caller]
    fn asked(&self, text: &str) -> AskedQuestion {
        let deadline = Instant::now() + Duration::from_secs(20);
        let mut asked = self.asked.lock().expect("no panics");
        loop {
            if let Some(at) = asked.iter().position(|asked| asked.question.text == text) {
                return asked.remove(at).expect("there");
            }
            let others: Vec<_> = asked.iter().map(|asked| &asked.question.text).collect();
            assert!(Instant::now() < deadline, "`{text}` is not asked, but {others:?}");
            asked = self.changed.wait_timeout(asked, Duration::from_millis(100)).expect("no panics").0;
        }
    }

    /// How many questions were asked so far.
    fn count(&self) -> usize {
        *self.count.lock().expect("no panics")
    }

    /// Sends an event to the followers of a session, as soon as there are some.
    #[track_caller]
    fn tell(&self, session: &str, event: &SessionEvent) {
        let deadline = Instant::now() + Duration::from_secs(20);
        let mut followers = self.followers.lock().expect("no panics");
        loop {
            followers.retain(|(_, sender)| !sender.is_closed());
            let mut was_told = false;
            for (_, sender) in followers.iter().filter(|(followed, _)| followed == session) {
                was_told |= sender.send(logged(event.clone())).is_ok();
            }
            if was_told {
                return;
            }
            assert!(Instant::now() < deadline, "`{session}` is not followed");
            followers = self.changed.wait_timeout(followers, Duration::from_millis(100)).expect("no panics").0;
        }
    }
}

impl AskedQuestion {
    fn session(&self) -> &str {
        &self.question.asker.session
    }

    fn event(&self, event: SessionEvent) {
        // The connector may have stopped.
        self.events.send(logged(event)).unwrap_or_default();
    }

    fn text(&self, text: &str) {
        self.event(SessionEvent::Text { text: text.to_owned() });
    }

    /// Ends the turn with this answer.
    fn done(&self, answer: &str) {
        self.event(SessionEvent::Done(TurnOutcome::of(101, answer.to_owned(), StopReason::Completed)));
    }

    fn waits(&self, task: TaskId) {
        let message = "`send_mail` waits for your decision on the page: agent-magic-tool executor page".to_owned();
        self.event(SessionEvent::Waiting(WaitingNews { id: task, subtool: "send_mail".to_owned(), message }));
    }
}

fn task_news(task: TaskId, state: State) -> SessionEvent {
    SessionEvent::Task(TaskNews { id: task, subtool: "send_mail".to_owned(), state, preview: None })
}

fn logged(event: SessionEvent) -> Arc<LoggedEvent> {
    Arc::new(LoggedEvent { id: EventId { turn: 1, load: 1, number: 1, is_over: false }, event })
}

/// A connector that runs, and all that it is connected to.
struct Setup {
    slack: StandIn,
    sessions: Arc<ScriptedSessions>,
    runtime: Runtime,
    tracker: TaskTracker,
    folder: tempfile::TempDir,
    settings: Value,
    running: Option<(CancellationToken, JoinHandle<Result<(), SlackError>>)>,
}

impl Setup {
    /// A connector with these settings more, connected.
    fn start(more: &Value) -> Self {
        let mut setup = Self::new(more);
        setup.connect();
        setup.slack.connected(1);
        setup
    }

    fn new(more: &Value) -> Self {
        let slack = StandIn::start();
        let mut settings = json!({"api_url": slack.api_url(), "users": [ANN], "interval": "5ms"});
        for (name, value) in more.as_object().expect("a table") {
            settings[name] = value.clone();
        }
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        Self {
            slack,
            sessions: Arc::default(),
            runtime: runtime.expect("a runtime"),
            tracker: TaskTracker::new(),
            folder: tempfile::tempdir().expect("a folder"),
            settings,
            running: None,
        }
    }

    fn connect(&mut self) {
        self.connect_as(APP_TOKEN, BOT_TOKEN);
    }

    fn connect_as(&mut self, app_token: &str, bot_token: &str) {
        let printed = |token: &str| SecretSource::Command(vec!["printf".to_owned(), token.to_owned()]);
        let sources = [("slack_app_token", app_token), ("slack_bot_token", bot_token)];
        let sources = sources.into_iter().map(|(name, token)| (name.to_owned(), printed(token))).collect();
        let settings: SlackSettings = serde_json::from_value(self.settings.clone()).expect("valid");
        let connector = SlackConnector {
            sessions: Arc::clone(&self.sessions),
            settings,
            secrets: Secrets::new(self.folder.path().join("secrets"), sources),
            folder: self.folder.path().join("slack"),
            timing: SlackTiming {
                backoff: Backoff { first: Duration::from_millis(20), max: Duration::from_millis(200) },
                ping: Duration::from_millis(200),
                silence: Duration::from_secs(3),
                acknowledge: Duration::from_secs(2),
                overlap: Duration::from_millis(500),
                settled: Duration::ZERO,
            },
        };
        let ended = CancellationToken::new();
        let running = self.tracker.spawn_on(connector.run(ended.clone()), self.runtime.handle());
        self.running = Some((ended, running));
    }

    /// Stops the connector as the server does.
    fn stop(&mut self) -> Result<(), SlackError> {
        let (ended, running) = self.running.take().expect("it runs");
        ended.cancel();
        self.runtime.block_on(running).expect("it does not panic")
    }

    /// Stops the connector in the middle of everything, as a crash does.
    fn crash(&mut self) {
        let (_, running) = self.running.take().expect("it runs");
        running.abort();
        self.runtime.block_on(running).expect_err("it was aborted");
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        std::mem::replace(&mut self.runtime, runtime.expect("a runtime")).shutdown_background();
    }

    /// Waits until the connector ends by itself.
    fn error(&mut self) -> SlackError {
        let (_, running) = self.running.take().expect("it runs");
        self.runtime.block_on(running).expect("it does not panic").expect_err("it ends with an error")
    }

    /// Connects again after it was stopped.
    fn reconnect(&mut self) {
        let before = self.slack.state().connections.len();
        self.connect();
        self.slack.connected(before + 1);
    }

    /// Waits until this stands in the connector's records.
    #[track_caller]
    fn recorded(&self, words: &str) {
        let path = self.folder.path().join("slack/deliveries.jsonl");
        self.slack.wait(&format!("a record of {words}"), |_| {
            std::fs::read_to_string(&path).unwrap_or_default().contains(words).then_some(())
        });
    }

    /// Ann mentions the app in a message of its own; returns the question.
    #[track_caller]
    fn ask(&self, ts: &str, text: &str) -> AskedQuestion {
        let envelope = self.slack.event(&stand_in::mention(ANN, CHANNEL, ts, text));
        self.slack.acknowledged(&envelope);
        self.sessions.asked(text)
    }

    /// Waits until the thread says exactly this.
    #[track_caller]
    fn shows(&self, ts: &str, texts: &[&str]) {
        self.slack.wait(&format!("{texts:?} in {ts}"), |state| {
            let in_thread = state.messages.iter().filter(|message| message.thread.as_deref() == Some(ts));
            in_thread.map(stand_in::StandInMessage::text).eq(texts.iter().copied()).then_some(())
        });
    }
}
