//! What the executor says of itself to whoever asks.

use jiff::Timestamp;
use protocol::mailbox::request::Answer;
use serde_json::json;

use super::Daemon;

impl Daemon {
    pub(super) fn status(&self, now: Timestamp) -> Answer {
        let counts: serde_json::Map<_, _> =
            self.dispatcher.counts().into_iter().map(|(state, count)| (state.to_string(), count.into())).collect();
        Answer::Status(json!({
            "pid": self.identity.pid,
            "version": self.identity.version,
            "mailbox": self.mailbox.root(),
            "subtools": self.identity.subtools,
            "uptime_s": now.duration_since(self.identity.started_at).as_secs(),
            "tasks": counts,
            "page": {
                "origin": self.notifier.page(),
                "online": self.approver.is_present(),
                "waiting": self.dispatcher.confirmations_pending(),
            },
        }))
    }
}
