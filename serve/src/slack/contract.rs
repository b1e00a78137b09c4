//! What the connector needs of the sessions, how long things may take, and why it ends.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ground::base::backoff::Backoff;
use ground::config::secret::SecretError;
use protocol::code::Code;
use protocol::error::{ErrorBody, chain};

use crate::service::SessionService;
use crate::service::turn::{Asker, EventId, Question, TurnStream};

/// What Slack needs of the sessions.
pub trait SlackSessions: Send + Sync + 'static {
    /// Asks a question, as [`SessionService::ask`] does.
    fn ask(self: &Arc<Self>, question: Question) -> impl Future<Output = Result<TurnStream, ErrorBody>> + Send;

    /// The events of a session after `after`, as [`SessionService::follow`] gives them.
    fn follow(
        self: &Arc<Self>,
        asker: &Asker,
        after: EventId,
    ) -> impl Future<Output = Result<TurnStream, ErrorBody>> + Send;
}

impl SlackSessions for SessionService {
    async fn ask(self: &Arc<Self>, question: Question) -> Result<TurnStream, ErrorBody> {
        Box::pin(Self::ask(self, question)).await
    }

    async fn follow(self: &Arc<Self>, asker: &Asker, after: EventId) -> Result<TurnStream, ErrorBody> {
        Box::pin(Self::follow(self, &asker.session, asker, Some(after))).await
    }
}

/// How long things may take.
#[derive(Debug, Clone, Copy)]
pub struct SlackTiming {
    /// The pauses between attempts.
    pub backoff: Backoff,
    /// How often Slack is asked whether it is there.
    pub ping: Duration,
    /// A connection that is silent for this long is lost.
    pub silence: Duration,
    /// The latest acknowledgement of an event; Slack waits for three seconds.
    pub acknowledge: Duration,
    /// How long a connection goes on after Slack asked for another one.
    pub overlap: Duration,
    /// A connection that lasted this long was a good one.
    pub settled: Duration,
}

impl Default for SlackTiming {
    fn default() -> Self {
        Self {
            backoff: Backoff { first: Duration::from_secs(1), max: Duration::from_mins(1) },
            ping: Duration::from_secs(10),
            silence: Duration::from_secs(35),
            acknowledge: Duration::from_secs(2),
            overlap: Duration::from_secs(15),
            settled: Duration::from_secs(5),
        }
    }
}

/// Why the connector ended.
#[derive(Debug, thiserror::Error)]
pub enum SlackError {
    #[error("`[serve.slack]`: {0}")]
    Settings(String),
    #[error(transparent)]
    Secret(#[from] SecretError),
    #[error("Slack does not accept the token of `{setting}`: {error}")]
    Token { setting: &'static str, secret: String, error: String, kind: &'static str },
    #[error("Slack's {method} failed: {error}")]
    Api { method: &'static str, error: String },
    #[error("failed to set up TLS: {0}")]
    Tls(String),
    #[error("failed to open the records of Slack in `{folder}`")]
    Records { folder: PathBuf, source: io::Error },
}

impl From<SlackError> for ErrorBody {
    fn from(error: SlackError) -> Self {
        let message = chain(&error);
        match error {
            SlackError::Settings(_) => Self::new(Code::BadConfig, message).hint("correct it and start again"),
            SlackError::Secret(_) => Self::new(Code::SecretMissing, message)
                .hint("docs/serve-slack.md says which tokens the app has and how to store them"),
            SlackError::Token { secret, kind, .. } => Self::new(Code::SecretMissing, message)
                .hint(format!("it must be {kind}; store it with: agent-magic-tool secret set {secret}")),
            SlackError::Api { .. } | SlackError::Tls(_) => {
                Self::new(Code::Unreachable, message).hint("check the network and start again")
            }
            SlackError::Records { .. } => {
                Self::new(Code::BadConfig, message).hint("check the owner, the mode and the space of the folder")
            }
        }
    }
}
