//! Where a human says yes, how sure that is here, and what waits for it. Only looks.

use executor::config::Config;
use protocol::mailbox::Mailbox;
use protocol::task::State;
use serde_json::Value;

use super::Check;
use crate::commands::executor::ask_status;
use crate::context::Context;
use crate::result::ResultFile;

/// How sure a yes is: as far as one user account goes, and what would go further.
const SURE: &str = "a yes there is as sure as your user account: an agent of the same user that drives your browser or \
                    terminal could forge it; another user for the executor would close that";
/// So many tasks that wait are named.
const NAMED: usize = 20;

pub(super) fn reached(config: &Config, mailbox: Option<&Mailbox>, context: &Context) -> Check {
    const NAME: &str = "page";
    if !config.page.enabled {
        let message = "it is switched off by `enabled = false` under [page], and nobody can say yes";
        return Check::good(NAME, message);
    }
    let running = mailbox.filter(|mailbox| mailbox.executor().is_ok_and(|pid| pid.is_some()));
    let Some(mailbox) = running else {
        return Check::good(NAME, format!("it is served by the executor, and none runs; {SURE}"));
    };
    let page = match ask_status(mailbox, context) {
        Ok(status) => status["page"].clone(),
        Err(error) => {
            let message = format!("the executor did not say where it is: {}", error.body().message);
            return Check::bad(NAME, message, "agent-magic-tool executor status");
        }
    };
    let found = waiting(mailbox);
    let count = page["waiting"].as_u64().unwrap_or_default();
    let Some(origin) = page["origin"].as_str() else {
        let message = format!("the executor serves none, and {count} tasks wait for a yes");
        let hint = format!("its log says why: {}", context.paths.log().display());
        return Check { found, ..Check::bad(NAME, message, hint) };
    };
    let open = if page["online"] == true { "somebody has it open" } else { "nobody has it open" };
    let message = format!("`{origin}` listens, {open}, {count} tasks wait for a yes; {SURE}");
    // Whoever waits in vain may need to be told how to get there.
    let is_awaited = count > 0 && page["online"] != true;
    let hint = is_awaited.then(|| "a human opens it with: agent-magic-tool executor page".to_owned());
    Check { hint, found, ..Check::good(NAME, message) }
}

/// The tasks that wait, the oldest first, as their result files say.
fn waiting(mailbox: &Mailbox) -> Vec<String> {
    let ids = mailbox.results_of().unwrap_or_default();
    let files = ids.into_iter().filter_map(|id| ResultFile::read(mailbox, id).ok());
    let line = |file: ResultFile| {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (tool, since) = (text(file.field("tool")), text(file.field("created_at")));
        let asked = file.field("confirmation");
        format!(
            "`{}`: `{tool}` waits since {since}, until {}: {}",
            file.id,
            text(&asked["expires_at"]),
            text(&asked["why"])
        )
    };
    files.filter(|file| file.state == State::AwaitingConfirmation).take(NAMED).map(line).collect()
}
