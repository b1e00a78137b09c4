//! Progress of a call, for a client that asked for it.

use std::time::Duration;

use rmcp::RoleServer;
use rmcp::model::{ProgressNotificationParam, ProgressToken};
use rmcp::service::{Peer, RequestContext};
use tokio::time::{Instant, sleep_until};

/// The pauses between two notifications of a call about which nothing new is known: the first, and the longest. Each is
/// twice as long as the one before.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const MAX_PAUSE: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(super) struct Progress {
    peer: Peer<RoleServer>,
    token: Option<ProgressToken>,
    sent: u32,
    pause: Duration,
    next: Instant,
}

impl Progress {
    pub(super) fn of(context: &RequestContext<RoleServer>) -> Self {
        let (peer, token) = (context.peer.clone(), context.meta.get_progress_token());
        Self { peer, token, sent: 0, pause: FIRST_PAUSE, next: Instant::now() + FIRST_PAUSE }
    }

    /// Waits until there should be another notification, although nothing new is known; for ever, if the client does not
    /// want any. Cancel-safe.
    pub(super) async fn due(&self) {
        match self.token {
            Some(_) => sleep_until(self.next).await,
            None => std::future::pending().await,
        }
    }

    /// Sends something new.
    pub(super) async fn report(&mut self, message: &str) {
        self.pause = FIRST_PAUSE;
        self.send(message).await;
    }

    /// Says that it goes on, when that is due.
    pub(super) async fn remind(&mut self, message: &str) {
        self.pause = (self.pause * 2).min(MAX_PAUSE);
        self.send(message).await;
    }

    /// Sends `message` as the next step. How many steps there will be is not known.
    async fn send(&mut self, message: &str) {
        self.next = Instant::now() + self.pause;
        let Some(token) = self.token.clone() else { return };
        let mut step = ProgressNotificationParam::new(token, f64::from(self.sent));
        step.message = Some(message.to_owned());
        self.sent += 1;
        if let Err(error) = self.peer.notify_progress(step).await {
            tracing::debug!(%error, "a progress notification was not sent");
        }
    }
}
