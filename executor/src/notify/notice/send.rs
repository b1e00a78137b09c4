//! One notice on its way: to the human's desktop, and to a command of theirs.
//!
//! What fails is logged and not tried again: the next question brings the next notice.

use std::ffi::OsString;
use std::io;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use protocol::duration::PositiveDuration;
use tokio::process::Command;
use tokio_util::sync::CancellationToken;

use super::Notice;
use crate::notify::hook;
use crate::runner::RunnerContext;

/// Shorter than the pause between two: they never overtake each other.
const TIMEOUT: Duration = Duration::from_secs(10);

/// How a human is told.
#[derive(Debug, Clone, Default)]
pub struct NoticeChannels {
    /// A program and its arguments, which gets the event as JSON; none if empty.
    pub command: Vec<String>,
    /// The environment in which the desktop is found; absent where none is to be told.
    pub desktop: Option<Vec<(&'static str, OsString)>>,
}

impl NoticeChannels {
    pub fn are_none(&self) -> bool {
        self.command.is_empty() && self.desktop.is_none()
    }
}

/// Tells it in every way. Ends soon after the timeout, and at once when `cancel` fires.
pub async fn send(
    notice: &Notice,
    ways: &NoticeChannels,
    runner_context: &Arc<RunnerContext>,
    cancel: &CancellationToken,
) {
    let command = async {
        if !ways.command.is_empty() {
            let timeout = PositiveDuration::from_secs(TIMEOUT.as_secs());
            let told = hook::send::run(&ways.command, &notice.event(), timeout, runner_context, cancel).await;
            if let Err(reason) = told {
                let reason = runner_context.secrets.redact(&reason).into_owned();
                tracing::warn!(reason, "`on_confirmation` was not told that something waits");
            }
        }
    };
    let desktop = async {
        if let Some(environment) = &ways.desktop {
            let shown = tokio::select! {
                biased;
                () = cancel.cancelled() => return,
                shown = tokio::time::timeout(TIMEOUT, show(notice, environment)) => shown,
            };
            match shown.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())) {
                Ok(()) => tracing::debug!("the desktop was told that something waits"),
                Err(error) => tracing::info!(%error, "the desktop was not told that something waits"),
            }
        }
    };
    tokio::join!(command, desktop);
}

/// By `notify-send`, which every desktop has or can have.
async fn show(notice: &Notice, environment: &[(&'static str, OsString)]) -> io::Result<()> {
    let (title, body) = notice.words();
    let mut command = Command::new("notify-send");
    command
        .args(["--app-name=agent-magic-tool", "--", &title, &body])
        .env_clear()
        .envs(environment.iter().map(|(name, value)| (name, value)))
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0)
        .kill_on_drop(true);
    let status = command.status().await?;
    if status.success() { Ok(()) } else { Err(io::Error::other(format!("`notify-send` ended with {status}"))) }
}
