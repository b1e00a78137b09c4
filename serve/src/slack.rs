//! Slack: questions from its threads, over Socket Mode, and answers in them, over the Web API.
//!
//! One thread is one session. Nothing has to be reachable from outside: we connect to Slack. No one can approve a task
//! from Slack; a button there can only cancel it.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ground::config::secret::{Secret, SecretName, Secrets};
use protocol::error::chain;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use contract::{SlackError, SlackSessions, SlackTiming};
use dispatch::{SlackContext, SlackDispatch};
use envelope::Inbound;

use ground::config::slack::SlackSettings;
use link::SlackLink;
use recorder::SlackRecorder;
use records::SlackRecords;
use waiting::WaitingMessages;
use web::SlackWeb;

mod answer;
mod contract;
mod dispatch;
mod envelope;
mod inline;
mod link;
mod markup;
mod pace;
mod plain;
mod recorder;
mod records;
mod reply;
mod socket;
mod split;
mod waiting;
mod web;

#[cfg(test)]
mod tests;

/// How long what is under way may take when the server stops.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);

/// The connection between a Slack app and the sessions.
#[derive(Debug)]
pub struct SlackConnector<S> {
    pub sessions: Arc<S>,
    pub settings: SlackSettings,
    pub secrets: Secrets,
    /// Where it keeps which questions are not answered yet.
    pub folder: PathBuf,
    pub timing: SlackTiming,
}

impl<S: SlackSessions> SlackConnector<S> {
    /// Answers questions until `ended`; fails if Slack does not accept the app.
    pub async fn run(self, ended: CancellationToken) -> Result<(), SlackError> {
        let result = Box::pin(self.serve(ended)).await;
        if let Err(error) = &result {
            tracing::error!("no connection to Slack from here on: {}", chain(error));
        }
        result
    }

    async fn serve(self, ended: CancellationToken) -> Result<(), SlackError> {
        self.settings.check().map_err(SlackError::Settings)?;
        let app = self.token(&self.settings.app_token).await?;
        let bot = self.token(&self.settings.bot_token).await?;
        let settings = Arc::new(self.settings);
        let web = Arc::new(SlackWeb::new(&settings.api_url, app, bot, settings.interval.get(), self.timing)?);
        let records = SlackRecords::open(&self.folder)
            .map_err(|source| SlackError::Records { folder: self.folder.clone(), source })?;
        let identity = tokio::select! {
            () = ended.cancelled() => return Ok(()),
            identity = web.identity(&ended) => identity?,
        };
        if settings.users.is_empty() {
            tracing::warn!("`users` under `[serve.slack]` is empty: no one may ask");
        }
        let (tracker, stop) = (TaskTracker::new(), ended.child_token());
        let (open, waiting) = (records.open_questions().to_vec(), records.waiting().cloned().collect());
        let (work, inbound) = mpsc::unbounded_channel();
        let (failures, failed) = mpsc::unbounded_channel();
        let recorder = SlackRecorder::start(records, work, &tracker);
        let context = Arc::new(SlackContext {
            sessions: self.sessions,
            web: Arc::clone(&web),
            settings: Arc::clone(&settings),
            recorder: recorder.clone(),
            waiting: WaitingMessages::default(),
            tracker: tracker.clone(),
            ended: stop.clone(),
            failures,
        });
        let link = SlackLink { web, settings, identity, recorder, tracker: tracker.clone(), ended: stop.clone() };
        let dispatch = SlackDispatch::start(context, open, waiting);
        let result = Box::pin(run(link, dispatch, inbound, failed)).await;
        stop.cancel();
        tracker.close();
        if tokio::time::timeout(STOP_TIMEOUT, tracker.wait()).await.is_err() {
            tracing::warn!("what is sent to Slack is cut off; it is sent again after the next start");
        }
        result
    }

    async fn token(&self, name: &SecretName) -> Result<(SecretName, Secret), SlackError> {
        Ok((name.clone(), self.secrets.get_for(name, &self.settings.api_url).await?))
    }
}

/// Handles what comes until the connection is no longer kept, or work fails for good.
async fn run<S: SlackSessions>(
    link: SlackLink,
    mut dispatch: SlackDispatch<S>,
    mut inbound: mpsc::UnboundedReceiver<Inbound>,
    mut failed: mpsc::UnboundedReceiver<SlackError>,
) -> Result<(), SlackError> {
    let mut link = Box::pin(link.keep());
    loop {
        tokio::select! {
            result = &mut link => return result,
            Some(error) = failed.recv() => return Err(error),
            Some(inbound) = inbound.recv() => dispatch.handle(inbound),
        }
    }
}
