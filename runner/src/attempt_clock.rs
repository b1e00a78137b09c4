//! The time that an attempt may take: it stands still while a human or another machine is waited for.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

/// Measures an attempt. Clones are the same clock.
#[derive(Debug, Clone)]
pub struct AttemptClock(watch::Sender<u32>);

impl Default for AttemptClock {
    fn default() -> Self {
        Self(watch::Sender::new(0))
    }
}

impl AttemptClock {
    /// Stops the clock until the guard is dropped.
    pub fn pause(&self) -> ClockPause {
        self.0.send_modify(|pauses| *pauses += 1);
        ClockPause(self.clone())
    }

    /// Returns when the clock has run for `timeout`, counted from this call.
    pub async fn expired(&self, timeout: Duration) {
        let (mut pauses, mut left) = (self.0.subscribe(), timeout);
        loop {
            if *pauses.borrow_and_update() > 0 {
                // The clock itself keeps the channel open.
                pauses.changed().await.ok();
                continue;
            }
            let started = Instant::now();
            tokio::select! {
                () = tokio::time::sleep(left) => return,
                _ = pauses.changed() => left = left.saturating_sub(started.elapsed()),
            }
        }
    }
}

/// While it lives, the clock stands still.
#[derive(Debug)]
#[must_use = "the clock goes on as soon as this is dropped"]
pub struct ClockPause(AttemptClock);

impl Drop for ClockPause {
    fn drop(&mut self) {
        self.0.0.send_modify(|pauses| *pauses -= 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn time_that_is_paused_does_not_count() {
        let (clock, started) = (AttemptClock::default(), Instant::now());
        let (outer, inner) = (clock.pause(), clock.pause());
        let expired = clock.expired(Duration::from_millis(20));
        let waits = async {
            for pause in [outer, inner] {
                tokio::time::sleep(Duration::from_millis(40)).await;
                drop(pause);
            }
        };
        tokio::join!(expired, waits);
        assert!(started.elapsed() >= Duration::from_millis(100), "{:?}", started.elapsed());
    }
}
