//! Progress of a call, for a client that asked for it.

use std::time::Duration;

use rmcp::RoleServer;
use rmcp::model::{ProgressNotificationParam, ProgressToken};
use rmcp::service::{Peer, RequestContext};

/// The pause between two notifications of a call about which nothing new is known.
pub(super) const PROGRESS_INTERVAL: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(super) struct Progress {
    peer: Peer<RoleServer>,
    token: Option<ProgressToken>,
    sent: u32,
}

impl Progress {
    pub(super) fn of(context: &RequestContext<RoleServer>) -> Self {
        Self { peer: context.peer.clone(), token: context.meta.get_progress_token(), sent: 0 }
    }

    /// Whether the client wants to know.
    pub(super) fn is_wanted(&self) -> bool {
        self.token.is_some()
    }

    /// Sends `message` as the next step. How many steps there will be is not known.
    pub(super) async fn report(&mut self, message: &str) {
        let Some(token) = self.token.clone() else { return };
        let mut step = ProgressNotificationParam::new(token, f64::from(self.sent));
        step.message = Some(message.to_owned());
        self.sent += 1;
        if let Err(error) = self.peer.notify_progress(step).await {
            tracing::debug!(%error, "a progress notification was not sent");
        }
    }
}
