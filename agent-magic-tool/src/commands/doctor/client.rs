//! Checks the client whose shell this runs in: whether its sandbox allows writing the mailbox, and whether it is
//! woken.

use agent_side::context::Context;
use agent_side::wake_promise::WakePromise;
use protocol::mailbox::Mailbox;

use super::Check;

const NAME: &str = "client";

pub(super) fn check(context: &Context, mailbox: Option<&Mailbox>) -> Check {
    let paths = &context.paths;
    let client = paths.clients().next().map(|(client, _)| client);
    let folder = mailbox.map_or_else(|| paths.mailbox.clone(), Mailbox::inbox);
    if let Err(error) = tempfile::Builder::new().prefix(".writable-").tempfile_in(folder) {
        let message = format!("the mailbox `{}` is not writable from here: {error}", paths.mailbox.display());
        return Check::bad(NAME, message, sandbox_hint(client, &paths.mailbox.display().to_string()));
    }
    let Some(client) = client else { return Check::good(NAME, "no known client detected") };
    match mailbox.map(|mailbox| WakePromise::of(context, mailbox)) {
        Some(WakePromise::Hook(_) | WakePromise::Loop) => {
            Check::good(NAME, format!("{client}, which is woken in this session"))
        }
        // Not a failure, since a client that uses `wait` needs no hook.
        Some(WakePromise::None) | None => Check {
            hint: Some(format!("to wake it when results are ready: agent-magic-tool setup {client}")),
            ..Check::good(NAME, format!("{client}, whose hook has not run in this session, so it must use `wait`"))
        },
    }
}

/// How to allow this client's sandbox to write the mailbox.
fn sandbox_hint(client: Option<&str>, mailbox: &str) -> String {
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
        _ => format!("make this folder writable in the client's sandbox: {mailbox}"),
    }
}
