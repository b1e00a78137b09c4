//! The link to Slack: always one connection, and for a while two when Slack asks for another one.

use std::sync::Arc;

use ground::base::backoff::RandomPauses;
use ground::config::slack::SlackSettings;
use tokio::sync::oneshot;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::contract::SlackError;
use super::envelope::SlackIdentity;
use super::recorder::SlackRecorder;
use super::socket::{SlackSocket, SocketContext, SocketEnd};
use super::web::{CallError, SlackWeb};

/// What keeps connections to Slack open.
pub(crate) struct SlackLink {
    pub(crate) web: Arc<SlackWeb>,
    pub(crate) settings: Arc<SlackSettings>,
    pub(crate) identity: SlackIdentity,
    pub(crate) recorder: SlackRecorder,
    pub(crate) tracker: TaskTracker,
    pub(crate) ended: CancellationToken,
}

impl SlackLink {
    /// Keeps a connection open until `ended`; fails if Slack does not accept the token.
    pub(crate) async fn keep(self) -> Result<(), SlackError> {
        let mut pauses = RandomPauses::new(self.web.timing().backoff);
        loop {
            let opened = tokio::select! {
                () = self.ended.cancelled() => return Ok(()),
                opened = SlackSocket::open(&self.web) => opened,
            };
            let pause = match opened {
                Ok(socket) => {
                    let began = Instant::now();
                    let end = self.serve(socket).await;
                    if began.elapsed() > self.web.timing().settled {
                        pauses.reset();
                    }
                    match end {
                        // Only what Slack asks for again and again has to wait.
                        Some(SocketEnd::Asked(reason)) => {
                            tracing::info!("Slack wants another connection: {}", in_words(&reason));
                            let is_routine = matches!(reason.as_str(), "warning" | "refresh_requested");
                            if is_routine && began.elapsed() > self.web.timing().settled {
                                continue;
                            }
                            pauses.next_pause()
                        }
                        Some(SocketEnd::Lost(reason)) => {
                            let pause = pauses.next_pause();
                            tracing::warn!("no connection to Slack: {reason}; the next attempt is in {pause:?}");
                            pause
                        }
                        None => return Ok(()),
                    }
                }
                Err(CallError::Token(error)) => return Err(error),
                Err(CallError::RateLimited(pause)) => pause,
                Err(CallError::Temporary(reason) | CallError::Refused(reason)) => {
                    let pause = pauses.next_pause();
                    tracing::warn!(
                        "failed to connect to Slack: {}; the next attempt is in {pause:?}",
                        in_words(&reason)
                    );
                    pause
                }
            };
            tokio::select! {
                () = self.ended.cancelled() => return Ok(()),
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    /// Serves a connection; returns when another one is needed, while this one may go on.
    async fn serve(&self, socket: SlackSocket) -> Option<SocketEnd> {
        let (another, needed) = oneshot::channel();
        let (settings, identity) = (Arc::clone(&self.settings), self.identity.clone());
        let (recorder, ended) = (self.recorder.clone(), self.ended.clone());
        self.tracker.spawn(async move {
            let context =
                SocketContext { identity: &identity, settings: &settings, recorder: &recorder, ended: &ended };
            socket.serve(context, another).await;
        });
        tokio::select! {
            () = self.ended.cancelled() => None,
            end = needed => Some(end.unwrap_or_else(|_| SocketEnd::Lost("it ended".to_owned()))),
        }
    }
}

/// Slack's word, and what it means if that is not plain.
fn in_words(reason: &str) -> String {
    let meaning = match reason {
        "link_disabled" => "Socket Mode was switched off for the app; switch it on at https://api.slack.com/apps",
        "too_many_websockets" => "the app has ten connections already; does another copy of this server run?",
        "refresh_requested" | "warning" => "a routine change",
        _ => return reason.to_owned(),
    };
    format!("{reason}: {meaning}")
}
