//! The answer to a status request: what this executor is and how many tasks it has.

use std::path::Path;

use jiff::Timestamp;
use protocol::mailbox::presence::ExecutorIdentity;
use protocol::mailbox::request::Answer;
use serde_json::{Value, json};

use super::task_driver::TaskDriver;
use crate::intake::settings::Settings;

/// Which configuration is in force, and why it is not the file if it is not.
fn config(file: &Path, settings: &Settings) -> Value {
    json!({
        "file": file,
        "version": settings.version,
        "applied_at": settings.applied_at.to_string(),
        "changed": settings.changed,
        "needs_restart": settings.needs_restart,
        "problem": settings.problem,
    })
}

/// `config_file` is where this executor looks for its configuration.
pub(super) fn status(
    identity: &ExecutorIdentity,
    mailbox: &Path,
    config_file: &Path,
    tasks: &TaskDriver,
    now: Timestamp,
) -> Answer {
    let counts: serde_json::Map<_, _> =
        tasks.dispatcher.counts().into_iter().map(|(state, count)| (state.to_string(), count.into())).collect();
    let mut status = json!({
        "pid": identity.pid,
        "version": identity.version,
        "mailbox": mailbox,
        "subtools": identity.subtools,
        "uptime_s": now.duration_since(identity.started_at).as_secs(),
        "tasks": counts,
        "page": {
            "origin": tasks.page.origin(),
            "online": tasks.page.is_open(),
            "keys": tasks.dispatcher.approver_keys().keys.len(),
            "waiting": tasks.dispatcher.confirmations_pending(),
        },
        "config": config(config_file, &tasks.settings.current()),
    });
    if let Some(problem) = tasks.page.problem() {
        status["page"]["problem"] = problem.into();
    }
    Answer::Status(status)
}
