//! Messages about tasks that wait for a human: what waits, and a button that says No. A yes is given on the page only.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use protocol::task::{State, TaskId};
use serde_json::{Value, json};

use super::envelope::{NO_BUTTON, NoClick, SlackThread};
use super::markup::mrkdwn_lines;
use super::records::WaitingRecord;
use super::web::{post_body, update_body};

/// What Slack shows of one section.
const MAX_SECTION: usize = 2900;

/// The messages with a button that stand in Slack.
#[derive(Debug, Default)]
pub(crate) struct WaitingMessages(Mutex<HashMap<TaskId, OpenWaitingMessage>>);

#[derive(Debug, Clone)]
struct OpenWaitingMessage {
    record: WaitingRecord,
    /// Who pressed No.
    refused_by: Option<String>,
    /// What the message says below what waits.
    news: Option<String>,
}

/// A new text for a message, and whether it is the last one.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct WaitingUpdate {
    pub(crate) record: WaitingRecord,
    pub(crate) news: String,
    pub(crate) is_last: bool,
}

impl WaitingMessages {
    pub(crate) fn insert(&self, record: WaitingRecord) {
        let message = OpenWaitingMessage { record, refused_by: None, news: None };
        self.lock().insert(message.record.task, message);
    }

    pub(crate) fn contains(&self, task: TaskId) -> bool {
        self.lock().contains_key(&task)
    }

    /// Remembers who said No, if the button is really that of the task; returns its thread.
    pub(crate) fn refuse(&self, click: &NoClick) -> Option<SlackThread> {
        let mut messages = self.lock();
        let is_its =
            |record: &WaitingRecord| record.thread.channel == click.thread.channel && record.message == click.message;
        let message = messages.get_mut(&click.task).filter(|message| is_its(&message.record))?;
        message.refused_by.get_or_insert_with(|| click.user.clone());
        Some(message.record.thread.clone())
    }

    /// The No was too late.
    pub(crate) fn forget_refusal(&self, task: TaskId) {
        if let Some(message) = self.lock().get_mut(&task) {
            message.refused_by = None;
        }
    }

    /// What the message of a task has to say now, if that is new.
    pub(crate) fn news(&self, task: TaskId, state: State) -> Option<WaitingUpdate> {
        let mut messages = self.lock();
        let message = messages.get_mut(&task)?;
        let news = news_of(state, message.refused_by.as_deref())?;
        let is_new = message.news.as_ref() != Some(&news);
        message.news = Some(news.clone());
        let record = message.record.clone();
        if state.is_final() {
            messages.remove(&task);
        }
        is_new.then_some(WaitingUpdate { record, news, is_last: state.is_final() })
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<TaskId, OpenWaitingMessage>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How it went on; `None` while the task still waits.
fn news_of(state: State, refused_by: Option<&str>) -> Option<String> {
    Some(match (state, refused_by) {
        (State::AwaitingConfirmation, _) => return None,
        (State::Cancelled, Some(user)) => format!("<@{user}> said *No*: it was cancelled."),
        (State::Accepted | State::Queued | State::Running, _) => "*Approved* on the page; it runs.".to_owned(),
        (State::Succeeded, _) => "*Done*: it succeeded.".to_owned(),
        (State::Failed, _) => "It *failed*.".to_owned(),
        (State::Denied, _) => "*Denied* on the page.".to_owned(),
        (State::Expired, _) => "*Expired*: no decision came in time.".to_owned(),
        (State::Cancelled, None) => "It was *cancelled*.".to_owned(),
        (State::TimedOut, _) => "It took *too long* and was stopped.".to_owned(),
        (State::Unknown, _) => "It is *not known* whether it took effect; the page says what to check.".to_owned(),
    })
}

/// What waits, in Slack's markup, short enough for one section.
pub(crate) fn waiting_text(message: &str) -> String {
    let lines: Vec<_> = mrkdwn_lines(message).into_iter().map(|line| line.text).collect();
    let mut text = String::new();
    for line in lines {
        if text.encode_utf16().count() + line.encode_utf16().count() > MAX_SECTION {
            text.push('…');
            break;
        }
        text.push_str(&line);
        text.push('\n');
    }
    text.trim_end().to_owned()
}

/// The message about a task that waits. Its button cancels the task; no button approves it.
pub(crate) fn waiting_message(thread: &SlackThread, task: TaskId, text: &str) -> Value {
    let button = json!({"type": "button", "action_id": NO_BUTTON, "style": "danger", "value": task.to_string(),
                        "text": {"type": "plain_text", "text": "No"}});
    let mut body = post_body(&thread.channel, &thread.ts, text);
    body["blocks"] = json!([section(text), {"type": "actions", "elements": [button]}]);
    body
}

/// The same message when it is decided, without the button.
pub(crate) fn decided_message(update: &WaitingUpdate) -> Value {
    let WaitingUpdate { record, news, .. } = update;
    let mut body = update_body(&record.thread.channel, &record.message, &format!("{}\n{news}", record.text));
    body["blocks"] = json!([section(&record.text), section(news)]);
    body
}

fn section(text: &str) -> Value {
    json!({"type": "section", "text": {"type": "mrkdwn", "text": text, "verbatim": true}})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_says_how_it_went_on_once_for_each_change() {
        let messages = WaitingMessages::default();
        let task = TaskId::new();
        let thread = SlackThread { channel: "C1".into(), ts: "1.0".into() };
        let record = WaitingRecord { task, thread, message: "1.2".into(), text: "`send` waits".into() };
        messages.insert(record.clone());
        assert_eq!(messages.news(task, State::AwaitingConfirmation), None);
        let refuse = |channel: &str, message: &str, user: &str| {
            let thread = SlackThread { channel: channel.to_owned(), ts: "1.0".to_owned() };
            let (message, user) = (message.to_owned(), user.to_owned());
            messages.refuse(&NoClick { task, user, thread, message, is_allowed: true }).is_some()
        };
        assert!(!refuse("C1", "1.3", "U1") && !refuse("C2", "1.2", "U1"), "another message");
        assert!(refuse("C1", "1.2", "U1"));
        messages.forget_refusal(task);
        assert_eq!(messages.news(task, State::Queued).map(|update| update.is_last), Some(false));
        assert_eq!(messages.news(task, State::Running), None, "the same words");
        assert!(refuse("C1", "1.2", "U2"));
        let update = messages.news(task, State::Cancelled).expect("new");
        assert_eq!(update, WaitingUpdate { record, news: "<@U2> said *No*: it was cancelled.".into(), is_last: true });
        assert!(!messages.contains(task));
        assert_eq!(messages.news(task, State::Cancelled), None);
    }

    #[test]
    fn no_button_approves() {
        let thread = SlackThread { channel: "C1".into(), ts: "1.0".into() };
        let body =
            waiting_message(&thread, TaskId::new(), &waiting_text("**send** to <!channel>\n\nhttps://127.0.0.1:1/"));
        let buttons = body.pointer("/blocks/1/elements").and_then(Value::as_array).expect("a list");
        assert_eq!(buttons.len(), 1);
        assert_eq!(buttons[0]["text"]["text"], "No");
        assert_eq!(
            body.pointer("/blocks/0/text/text").expect("a text"),
            "*send* to &lt;!channel&gt;\n\n<https://127.0.0.1:1/>"
        );
        assert!(waiting_text(&"a long line\n".repeat(1000)).encode_utf16().count() <= 3000);
    }
}
