//! How often Slack is asked: one message per channel and interval, and nothing while Slack wants us to wait.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

/// So many channels may be remembered; those that are free again are forgotten then.
const MAX_CHANNELS: usize = 1000;

/// The next free times of channels and methods.
#[derive(Debug)]
pub(crate) struct SlackPace {
    interval: Duration,
    times: Mutex<PaceTimes>,
}

#[derive(Debug, Default)]
struct PaceTimes {
    channels: HashMap<String, Instant>,
    methods: HashMap<&'static str, Instant>,
}

impl SlackPace {
    pub(crate) fn new(interval: Duration) -> Self {
        Self { interval, times: Mutex::default() }
    }

    /// Waits until `method` may be called for `channel`. Each call takes one turn, in the order of the calls.
    pub(crate) async fn turn(&self, channel: &str, method: &'static str) {
        let mut at = self.reserve(channel);
        loop {
            sleep_until(at).await;
            at = match self.times.lock().unwrap_or_else(PoisonError::into_inner).methods.get(method) {
                Some(pause) if *pause > Instant::now() => *pause,
                _ => return,
            };
        }
    }

    fn reserve(&self, channel: &str) -> Instant {
        let now = Instant::now();
        let mut times = self.times.lock().unwrap_or_else(PoisonError::into_inner);
        if times.channels.len() > MAX_CHANNELS {
            times.channels.retain(|_, free| *free > now);
        }
        let free = times.channels.entry(channel.to_owned()).or_insert(now);
        let at = now.max(*free);
        *free = at + self.interval;
        at
    }

    /// Slack wants no call of `method` for this long.
    pub(crate) fn pause(&self, method: &'static str, length: Duration) {
        let until = Instant::now() + length;
        let mut times = self.times.lock().unwrap_or_else(PoisonError::into_inner);
        let pause = times.methods.entry(method).or_insert(until);
        *pause = until.max(*pause);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_channel_has_one_turn_per_interval_and_pauses_count() {
        let pace = SlackPace::new(Duration::from_secs(1));
        let began = Instant::now();
        pace.turn("C1", "chat.update").await;
        pace.turn("C2", "chat.update").await;
        assert_eq!(began.elapsed(), Duration::ZERO, "other channels are free");
        pace.turn("C1", "chat.update").await;
        assert_eq!(began.elapsed().as_secs(), 1);
        pace.pause("chat.update", Duration::from_secs(30));
        pace.turn("C2", "chat.postMessage").await;
        assert_eq!(began.elapsed().as_secs(), 1, "another method");
        pace.turn("C2", "chat.update").await;
        assert_eq!(began.elapsed().as_secs(), 31);
    }
}
