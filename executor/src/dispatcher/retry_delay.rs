//! How long a task waits before it is tried again.

use std::time::Duration;

use ground::task::Task;
use ground::task::failure::Retry;
use ground::task::retry_pause::retry_pause;
use jiff::SignedDuration;

use crate::catalog::definition::Definition;

/// The longest delay between two attempts, unless a server asks for a longer one.
pub(crate) const MAX_RETRY_DELAY: Duration = Duration::from_mins(5);
/// The longest delay that a server can ask for.
const MAX_ASKED_DELAY: Duration = Duration::from_hours(24);

/// Returns the delay before the next attempt: exponential backoff with up to 25% jitter, but at least what the server
/// asked for.
pub(super) fn retry_delay(definition: &Definition, task: &Task, retry: Retry) -> SignedDuration {
    let first = definition.retries.map_or(Duration::from_millis(500), |retries| retries.backoff.get());
    let min = match retry {
        Retry::After(min) => min.min(MAX_ASKED_DELAY),
        Retry::Never | Retry::Later => Duration::ZERO,
    };
    let pause = retry_pause(first, task.attempt.saturating_sub(1), MAX_RETRY_DELAY, task.id);
    let delay = pause.min(MAX_RETRY_DELAY).max(min);
    SignedDuration::try_from(delay).unwrap_or(SignedDuration::ZERO)
}

#[cfg(test)]
mod tests {
    use ground::task::sample::stored;
    use serde_json::json;

    use super::*;
    use crate::dispatcher::tests::definition;

    #[test]
    fn a_retry_delay_follows_the_server_up_to_the_limit() {
        let task = stored(None);
        let patient = definition(json!({"retries": {"times": 10, "backoff": "1000000h"}}));
        let quick = definition(json!({"retries": {"times": 10, "backoff": "1ms"}}));
        let longest = SignedDuration::try_from(MAX_RETRY_DELAY).expect("it fits");
        assert_eq!(retry_delay(&patient, &Task { attempt: 9, ..task.clone() }, Retry::Later), longest);
        let asked = retry_delay(&quick, &Task { attempt: 1, ..task.clone() }, Retry::After(Duration::from_secs(7)));
        assert_eq!(asked, SignedDuration::from_secs(7));
        let asked = retry_delay(&quick, &Task { attempt: 1, ..task.clone() }, Retry::After(Duration::from_hours(1)));
        assert_eq!(asked, SignedDuration::from_hours(1), "trying earlier than the server asked would fail again");
        let asked = retry_delay(&quick, &Task { attempt: 1, ..task }, Retry::After(Duration::MAX));
        assert_eq!(asked, SignedDuration::from_hours(24));
    }
}
