//! Checks the confirmation page: where it is, how secure an approval is, and which tasks wait for one. Changes
//! nothing.

use agent_side::context::Context;
use agent_side::result::ResultFile;
use ground::config::Config;
use protocol::caller::Caller;
use protocol::mailbox::Mailbox;
use protocol::task::State;
use protocol::wording::inflected;
use serde_json::Value;

use super::Check;
use crate::commands::executor::ask_status;

/// How secure an approval on the page is, and what would make it more secure.
const SECURITY: &str = "an approval there is as secure as your user account: an agent of the same user that controls \
                        your browser or terminal could forge it; a key that you touch (`agent-magic-tool approver enrol`) \
                        prevents that for what destroys something or goes outward";
/// The same with an enrolled key.
const SECURITY_OF_TOUCH: &str = "what destroys something or goes outward needs a touch of one of your keys; any other \
                                 approval is as secure as your user account";
/// How many waiting tasks are listed.
const MAX_LISTED: usize = 20;

pub(super) fn check(config: &Config, mailbox: Option<&Mailbox>, context: &Context) -> Check {
    const NAME: &str = "page";
    if !config.page.enabled {
        let message = "switched off by `enabled = false` under [page], so no task can be approved";
        return Check::good(NAME, message);
    }
    let running = mailbox.filter(|mailbox| mailbox.executor().is_ok_and(|pid| pid.is_some()));
    let Some(mailbox) = running else {
        return Check::good(NAME, format!("served by the executor, which is not running; {SECURITY}"));
    };
    let page = match ask_status(mailbox, context) {
        Ok(status) => status["page"].clone(),
        Err(error) => {
            let message = format!("failed to ask the executor for the page's address: {}", error.body().message);
            return Check::bad(NAME, message, "agent-magic-tool executor status");
        }
    };
    let found = waiting_tasks(mailbox, &context.caller);
    let count = page["waiting"].as_u64().unwrap_or_default();
    let waiting = inflected(count, "task waits", "tasks wait");
    let Some(origin) = page["origin"].as_str() else {
        let message = format!("the executor serves no page, and {waiting} for confirmation");
        let hint = format!("see the executor's log: {}", context.paths.log().display());
        return Check { found, ..Check::bad(NAME, message, hint) };
    };
    let security = if page["keys"].as_u64().unwrap_or_default() > 0 { SECURITY_OF_TOUCH } else { SECURITY };
    let open = if page["online"] == true { "open in a browser" } else { "not open in any browser" };
    let message = format!("served at `{origin}`, {open}, {waiting} for confirmation; {security}");
    // The human may need to learn how to open the page.
    let needs_human = count > 0 && page["online"] != true;
    let hint = needs_human.then(|| "a human opens it with: agent-magic-tool executor page".to_owned());
    Check { hint, found, ..Check::good(NAME, message) }
}

/// The tasks that wait for confirmation, oldest first, read from their result files.
fn waiting_tasks(mailbox: &Mailbox, caller: &Caller) -> Vec<String> {
    let ids = mailbox.tasks_with_results().unwrap_or_default();
    let files = ids.into_iter().filter_map(|id| ResultFile::read(mailbox, id, caller).ok());
    let line = |file: ResultFile| {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (tool, since) = (text(file.field("tool")), text(file.field("created_at")));
        let confirmation = file.field("confirmation");
        format!(
            "`{}`: `{tool}` has waited since {since}, expires at {}: {}",
            file.id,
            text(&confirmation["expires_at"]),
            text(&confirmation["why"])
        )
    };
    files.filter(|file| file.state == State::AwaitingConfirmation).take(MAX_LISTED).map(line).collect()
}
