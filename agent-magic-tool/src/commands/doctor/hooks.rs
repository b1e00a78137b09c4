//! Checks the deliveries to hooks. Changes nothing.

use ground::config::Config;
use protocol::error::chain;
use protocol::paths::Paths;
use protocol::wording::inflected;
use store::outbox::UndeliveredHook;
use store::sqlite;

use super::Check;

pub(super) fn check(config: &Config, paths: &Paths) -> Check {
    const NAME: &str = "hooks";
    let configured = match config.hooks.len() {
        0 => "none configured".to_owned(),
        count => format!("{count} configured"),
    };
    let undelivered = match sqlite::undelivered(&paths.store()) {
        Ok(undelivered) => undelivered,
        Err(error) => return Check::bad(NAME, chain(&error), "agent-magic-tool executor start"),
    };
    if undelivered.is_empty() {
        return Check::good(NAME, format!("{configured}, nothing to deliver"));
    }
    let sum = |count: fn(&UndeliveredHook) -> u64| undelivered.iter().map(count).sum::<u64>();
    let (waiting, failing, given_up) = (sum(|hook| hook.waiting), sum(|hook| hook.failing), sum(|hook| hook.given_up));
    let message =
        format!("{configured}; {} waiting, {given_up} given up", inflected(waiting, "delivery", "deliveries"));
    let found = undelivered.iter().map(|hook| line(hook, config)).collect();
    if failing == 0 && given_up == 0 {
        return Check { found, ..Check::good(NAME, message) };
    }
    let hint = "check the receiver; a running executor retries the waiting deliveries";
    Check { found, ..Check::bad(NAME, message, hint) }
}

fn line(hook: &UndeliveredHook, config: &Config) -> String {
    let UndeliveredHook { hook: name, waiting, failing, given_up, oldest, reason } = hook;
    let removed = if config.hooks.contains_key(name) { "" } else { " (no longer configured)" };
    let reason = reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default();
    format!(
        "`{name}`{removed}: {waiting} waiting since {oldest}, {failing} of them failed, {given_up} given up{reason}"
    )
}
