//! Sends one notice: to the desktop and to a command.
//!
//! A failure is logged and not retried: the next confirmation causes the next notice.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use ground::base::children;
use ground::config::programs;
use protocol::duration::PositiveDuration;
use runner::RunnerContext;
use tokio::process::Command;
use tokio_util::sync::CancellationToken;

use super::Notice;
use crate::notify::hook;

/// Shorter than the pause between two notices, so that they never overlap.
const TIMEOUT: Duration = Duration::from_secs(10);

/// How notices are sent.
#[derive(Debug, Clone, Default)]
pub struct NoticeChannels {
    /// A program and its arguments; it gets the notice as JSON. Empty: no command.
    pub command: Vec<String>,
    /// The environment variables of the desktop; `None` if the desktop is not notified.
    pub desktop: Option<Vec<(&'static str, OsString)>>,
}

impl NoticeChannels {
    pub fn is_empty(&self) -> bool {
        self.command.is_empty() && self.desktop.is_none()
    }
}

/// Sends a notice through all channels. Ends soon after the timeout, and immediately when `cancel` fires.
pub async fn send(
    notice: &Notice,
    channels: &NoticeChannels,
    runner_context: &Arc<RunnerContext>,
    cancel: &CancellationToken,
) {
    let command = async {
        if !channels.command.is_empty() {
            let timeout = PositiveDuration::from_secs(TIMEOUT.as_secs());
            let sent = hook::send::run(&channels.command, &notice.event(), timeout, runner_context, cancel).await;
            if let Err(reason) = sent {
                let reason = runner_context.secrets.redact_reason(&reason);
                tracing::warn!(reason, "the `on_confirmation` command failed");
            }
        }
    };
    let folders = &runner_context.config.programs.path;
    let desktop = async {
        if let Some(environment) = &channels.desktop {
            let shown = tokio::select! {
                biased;
                () = cancel.cancelled() => return,
                shown = tokio::time::timeout(TIMEOUT, show(notice, environment, folders)) => shown,
            };
            match shown.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())) {
                Ok(()) => tracing::debug!("sent a desktop notification"),
                Err(error) => tracing::info!(%error, "failed to send a desktop notification"),
            }
        }
    };
    tokio::join!(command, desktop);
}

/// Shows a desktop notification with the `notify-send` in `folders`, which is available for every desktop.
async fn show(notice: &Notice, environment: &[(&'static str, OsString)], folders: &[PathBuf]) -> io::Result<()> {
    let (title, body) = notice.text();
    let program = programs::find(Path::new("notify-send"), folders.iter().cloned());
    let program = program.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "no `notify-send` is installed"))?;
    let mut command = Command::new(program);
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
    let (mut child, _registered) = children::spawn(&mut command)?;
    let status = child.wait().await?;
    if status.success() { Ok(()) } else { Err(io::Error::other(format!("`notify-send` ended with {status}"))) }
}
