//! The client in whose shell this runs: whether its sandbox lets the mailbox be written, and whether it is woken.

use protocol::mailbox::Mailbox;

use super::Check;
use crate::context::Context;
use crate::wake_promise::WakePromise;

const NAME: &str = "client";

pub(super) fn reached(context: &Context, mailbox: Option<&Mailbox>) -> Check {
    let paths = &context.paths;
    let client = paths.clients().next().map(|(client, _)| client);
    let folder = mailbox.map_or_else(|| paths.mailbox.clone(), Mailbox::inbox);
    if let Err(error) = tempfile::Builder::new().prefix(".writable-").tempfile_in(folder) {
        let message = format!("the mailbox `{}` cannot be written from here: {error}", paths.mailbox.display());
        return Check::bad(NAME, message, allow(client, &paths.mailbox.display().to_string()));
    }
    let Some(client) = client else { return Check::good(NAME, "called by none that is known") };
    match mailbox.map(|mailbox| WakePromise::of(context, mailbox)) {
        Some(WakePromise::Hook(_) | WakePromise::Loop) => {
            Check::good(NAME, format!("{client}, which is woken in this session"))
        }
        // Whoever waits needs no hook: it is told, and is no fault.
        Some(WakePromise::None) | None => Check {
            hint: Some(format!("to have it woken when results are ready: agent-magic-tool setup {client}")),
            ..Check::good(NAME, format!("{client}, whose hook has not run in this session: it must `wait`"))
        },
    }
}

/// What lets this client's sandbox write the mailbox.
fn allow(client: Option<&str>, mailbox: &str) -> String {
    match client {
        Some("codex") => {
            format!(
                "in ~/.codex/config.toml: [sandbox_workspace_write] writable_roots = [\"{mailbox}\"]; or: codex --add-dir {mailbox}"
            )
        }
        Some("claude-code") => {
            format!("in ~/.claude/settings.json: \"sandbox\": {{\"filesystem\": {{\"allowWrite\": [\"{mailbox}\"]}}}}")
        }
        Some("gemini-cli") => format!("start it with: SANDBOX_MOUNTS={mailbox}:{mailbox}:rw"),
        _ => format!("allow this folder to be written in the client's sandbox: {mailbox}"),
    }
}
