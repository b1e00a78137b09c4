//! Checks whether the running executor uses the configuration file as it is now. Changes nothing.

use agent_side::context::Context;
use protocol::mailbox::Mailbox;
use serde_json::Value;

use super::Check;
use crate::commands::executor::{ask_status, foreign_configuration, page_problem, waits_for_restart};

/// Returns `None` if no executor is running.
pub(super) fn check(mailbox: &Mailbox, context: &Context) -> Option<Check> {
    const NAME: &str = "live";
    mailbox.executor().ok().flatten()?;
    let status = match ask_status(mailbox, context) {
        Ok(status) => status,
        Err(error) => {
            let message = format!("failed to ask the executor for its configuration: {}", error.body().message);
            return Some(Check::bad(NAME, message, "agent-magic-tool executor status"));
        }
    };
    let config = &status["config"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let since = text(&config["applied_at"]);
    if let Some(message) = foreign_configuration(config, context) {
        let hint = "to use this configuration: agent-magic-tool executor stop; to use both: a folder of its own for each in \
                    AGENT_MAGIC_TOOL_DIR";
        return Some(Check::bad(NAME, message, hint));
    }
    let problem = &config["problem"];
    if !problem.is_null() {
        let message = format!("the executor still uses the configuration of {since}: {}", text(&problem["message"]));
        return Some(Check::bad(NAME, message, text(&problem["hint"])));
    }
    if let Some(problem) = page_problem(&status) {
        return Some(Check::bad(NAME, problem, "or give `page.port` another number: agent-magic-tool executor status"));
    }
    Some(match waits_for_restart(config) {
        None => Check::good(NAME, format!("the executor uses the configuration of {since}")),
        Some(keys) => Check {
            hint: Some("agent-magic-tool executor stop; the next task starts a new one".to_owned()),
            ..Check::good(NAME, format!("the executor uses the configuration of {since}, but not yet {keys}"))
        },
    })
}
