//! What Slack sends over a socket, and what it means to us.
//!
//! Decides what is a question, from the message and the settings alone; whether it came before is decided by the
//! records.

use ground::config::slack::SlackSettings;
use protocol::task::TaskId;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::plain::{mentions, mentions_someone, plain};

/// The button that cancels a task.
pub(crate) const NO_BUTTON: &str = "agent_magic_tool_no";

/// The kinds of messages that people write; all others tell of edits, deletions and memberships.
const WRITTEN_SUBTYPES: [&str; 3] = ["file_share", "thread_broadcast", "me_message"];

/// Who we are in the workspace.
#[derive(Debug, Clone)]
pub(crate) struct SlackIdentity {
    pub(crate) user: String,
    pub(crate) team: String,
}

/// A thread: where a session is.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SlackThread {
    pub(crate) channel: String,
    /// The message that the thread hangs on.
    pub(crate) ts: String,
}

impl SlackThread {
    pub(crate) fn session(&self) -> String {
        format!("slack-{}-{}", self.channel, self.ts)
    }

    pub(crate) fn is_direct(&self) -> bool {
        self.channel.starts_with('D')
    }
}

/// A question from a thread.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SlackQuestion {
    pub(crate) thread: SlackThread,
    /// The message that asks it.
    pub(crate) ts: String,
    pub(crate) user: String,
    pub(crate) text: String,
}

impl SlackQuestion {
    /// What tells it from every other question.
    pub(crate) fn key(&self) -> String {
        format!("{}-{}", self.thread.channel, self.ts)
    }
}

/// What is to be done about an envelope.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Inbound {
    Question(SlackQuestion),
    /// A message that is a question only if we take part in its thread.
    ThreadMessage(SlackQuestion),
    /// Someone asked who may not.
    Stranger {
        thread: SlackThread,
        user: String,
    },
    /// Someone pressed No.
    No(NoClick),
    Nothing,
}

/// A press of the button No.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NoClick {
    pub(crate) task: TaskId,
    pub(crate) user: String,
    /// The thread of the message, or the message itself.
    pub(crate) thread: SlackThread,
    /// The message with the button.
    pub(crate) message: String,
    pub(crate) is_allowed: bool,
}

/// An envelope that was read.
#[derive(Debug)]
pub(crate) struct SlackEnvelope {
    /// What its acknowledgement names.
    pub(crate) id: Option<String>,
    /// What tells the same event in another envelope.
    pub(crate) keys: Vec<String>,
    pub(crate) inbound: Inbound,
}

/// What a frame of the socket says.
#[derive(Debug)]
pub(crate) enum SocketFrame {
    Hello,
    /// Slack closes the connection soon, for this reason.
    Disconnect(String),
    Envelope(SlackEnvelope),
}

impl SocketFrame {
    /// Reads a frame; `None` if it is not a JSON object with a type.
    pub(crate) fn parse(text: &str, identity: &SlackIdentity, settings: &SlackSettings) -> Option<Self> {
        let frame: Value = serde_json::from_str(text).ok()?;
        let word = |name: &str| frame.get(name).and_then(Value::as_str);
        Some(match word("type")? {
            "hello" => Self::Hello,
            "disconnect" => Self::Disconnect(word("reason").unwrap_or_default().to_owned()),
            kind => {
                let payload = &frame["payload"];
                let (inbound, mut keys) = match kind {
                    "events_api" => event(payload, identity, settings),
                    "interactive" => (click(payload, identity, settings), Vec::new()),
                    _ => (Inbound::Nothing, Vec::new()),
                };
                let id = word("envelope_id").map(str::to_owned);
                keys.extend(id.as_ref().map(|id| format!("envelope {id}")));
                Self::Envelope(SlackEnvelope { id, keys, inbound })
            }
        })
    }
}

/// What an event of the Events API means, and its keys.
fn event(payload: &Value, identity: &SlackIdentity, settings: &SlackSettings) -> (Inbound, Vec<String>) {
    let event = &payload["event"];
    let word = |name: &str| event.get(name).and_then(Value::as_str).filter(|word| !word.is_empty());
    let mut keys: Vec<String> = payload["event_id"].as_str().map(|id| format!("event {id}")).into_iter().collect();
    let (Some(kind), Some(channel), Some(ts)) = (word("type"), word("channel"), word("ts")) else {
        return (Inbound::Nothing, keys);
    };
    // The same message comes as `app_mention` and as `message`.
    keys.push(format!("message {channel}-{ts}"));
    let is_written = word("subtype").is_none_or(|subtype| WRITTEN_SUBTYPES.contains(&subtype));
    let Some(user) = word("user").filter(|user| *user != identity.user && *user != "USLACKBOT") else {
        return (Inbound::Nothing, keys);
    };
    let is_hidden = event["hidden"].as_bool().unwrap_or_default();
    if word("bot_id").is_some() || !is_written || is_hidden || !matches!(kind, "app_mention" | "message") {
        return (Inbound::Nothing, keys);
    }
    let text = word("text").unwrap_or_default();
    let is_thread_message = word("thread_ts").is_some();
    let thread = SlackThread { channel: channel.to_owned(), ts: word("thread_ts").unwrap_or(ts).to_owned() };
    let is_direct = word("channel_type").map_or(thread.is_direct(), |kind| kind == "im");
    let is_addressed = kind == "app_mention" || is_direct || mentions(text, &identity.user);
    let may_be_ours = is_thread_message && settings.threads && !mentions_someone(text);
    if !is_addressed && !may_be_ours {
        return (Inbound::Nothing, keys);
    }
    let own_team = payload["team_id"].as_str().is_none_or(|team| team == identity.team);
    let is_member = own_team && word("user_team").or_else(|| word("team")).is_none_or(|team| team == identity.team);
    let question =
        SlackQuestion { text: question_text(text, event, identity), thread, ts: ts.to_owned(), user: user.to_owned() };
    let inbound = match (settings.allows(user, is_member, channel), is_addressed) {
        (false, true) => Inbound::Stranger { thread: question.thread, user: question.user },
        (false, false) => Inbound::Nothing,
        (true, _) if question.text.is_empty() => Inbound::Nothing,
        (true, true) => Inbound::Question(question),
        (true, false) => Inbound::ThreadMessage(question),
    };
    (inbound, keys)
}

/// The text, and which files came with it that are not read.
fn question_text(text: &str, event: &Value, identity: &SlackIdentity) -> String {
    let text = plain(text, &identity.user);
    let files = event["files"].as_array().map(Vec::as_slice).unwrap_or_default();
    let names: Vec<_> = files.iter().filter_map(|file| file["name"].as_str()).collect();
    if names.is_empty() {
        return text;
    }
    format!("{text}\n(Attached in Slack and not readable from here: {})", names.join(", ")).trim().to_owned()
}

fn click(payload: &Value, identity: &SlackIdentity, settings: &SlackSettings) -> Inbound {
    let word = |path: &str| payload.pointer(path).and_then(Value::as_str).unwrap_or_default();
    let actions = payload["actions"].as_array().map(Vec::as_slice).unwrap_or_default();
    let button = actions.iter().find(|action| action["action_id"] == NO_BUTTON);
    let task = button.and_then(|button| button["value"].as_str()).and_then(|task| task.parse::<TaskId>().ok());
    let Some(task) = task.filter(|_| word("/type") == "block_actions") else { return Inbound::Nothing };
    let channel = if word("/container/channel_id").is_empty() { "/channel/id" } else { "/container/channel_id" };
    let (user, channel) = (word("/user/id").to_owned(), word(channel).to_owned());
    let is_member = payload.pointer("/user/team_id").is_none_or(|team| *team == identity.team.as_str());
    let is_allowed = settings.allows(&user, is_member, &channel);
    let message = word("/container/message_ts").to_owned();
    let ts = Some(word("/container/thread_ts")).filter(|ts| !ts.is_empty()).unwrap_or(&message).to_owned();
    Inbound::No(NoClick { task, user, thread: SlackThread { channel, ts }, message, is_allowed })
}
