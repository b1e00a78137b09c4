//! The answer to a status request: what this executor is and how many tasks it has.

use std::path::Path;

use jiff::Timestamp;
use protocol::mailbox::presence::ExecutorIdentity;
use protocol::mailbox::request::Answer;
use serde_json::json;

use super::task_driver::TaskDriver;

pub(super) fn status(identity: &ExecutorIdentity, mailbox: &Path, tasks: &TaskDriver, now: Timestamp) -> Answer {
    let counts: serde_json::Map<_, _> =
        tasks.dispatcher.counts().into_iter().map(|(state, count)| (state.to_string(), count.into())).collect();
    Answer::Status(json!({
        "pid": identity.pid,
        "version": identity.version,
        "mailbox": mailbox,
        "subtools": identity.subtools,
        "uptime_s": now.duration_since(identity.started_at).as_secs(),
        "tasks": counts,
        "page": {
            "origin": tasks.page.origin(),
            "online": tasks.page.is_open(),
            "waiting": tasks.dispatcher.confirmations_pending(),
        },
    }))
}
