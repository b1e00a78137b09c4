//! API keys that were revoked or have expired: what they left behind ends.
//!
//! The door refuses every new request of such a key. What was asked before would go on without its client: a turn, the
//! questions that wait for theirs, and the tasks that wait for a human. All of these end soon after the key is gone.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use ground::config::api_keys::{ApiKeys, ClientKey};
use protocol::caller::Caller;
use protocol::clock;
use protocol::code::Code;
use protocol::error::{ErrorBody, chain};
use protocol::mailbox::watch::watch_folder;
use protocol::shell::Shell;
use protocol::task::State;
use tokio::sync::{Notify, watch};

use super::SessionService;
use super::log::EventLog;
use crate::service::turn::Asker;

/// How often revoked keys are looked for if the file of keys reports no change: changes may be missed.
const INTERVAL: Duration = Duration::from_secs(5);
/// How often, where the file system reports none.
const POLL_INTERVAL: Duration = Duration::from_millis(300);

/// Why the work of such a key ended.
const REASON: &str = "its API key was revoked or has expired";

/// Why a client no longer waits for its tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ClientEnd {
    Left,
    KeyRevoked,
}

impl ClientEnd {
    /// Whether it ends a task in this state. What a human has to decide would be done for a client that maybe asks again;
    /// of a revoked key, what was approved or needs no approval does not start either.
    fn ends(self, state: State) -> bool {
        match state {
            State::AwaitingConfirmation => true,
            State::Accepted | State::Queued => self == Self::KeyRevoked,
            _ => false,
        }
    }

    fn reason(self) -> Option<&'static str> {
        match self {
            Self::Left => None,
            Self::KeyRevoked => Some(REASON),
        }
    }
}

/// The keys that were revoked or have expired, and may still have work here. Clones share them.
#[derive(Debug, Clone)]
pub(crate) struct RevokedKeys(Arc<watch::Sender<BTreeSet<String>>>);

impl RevokedKeys {
    pub(super) fn none() -> Self {
        Self(Arc::new(watch::Sender::new(BTreeSet::new())))
    }

    /// Whether the client's key has ended so.
    pub(crate) fn have(&self, asker: &Asker) -> bool {
        asker.key.as_ref().is_some_and(|key| self.0.borrow().contains(key))
    }

    /// How the client ended, which does not wait any more.
    pub(super) fn end_of(&self, asker: &Asker) -> ClientEnd {
        if self.have(asker) { ClientEnd::KeyRevoked } else { ClientEnd::Left }
    }

    /// Waits until the client's key ends; without end if it has none.
    pub(super) async fn until_they_have(&self, asker: &Asker) {
        let mut keys = self.0.subscribe();
        if let Some(key) = &asker.key
            && keys.wait_for(|keys| keys.contains(key)).await.is_ok()
        {
            return;
        }
        std::future::pending::<()>().await;
    }
}

/// The error for a client whose key has ended.
pub(crate) fn revoked() -> ErrorBody {
    ErrorBody::new(Code::Cancelled, format!("cancelled: {REASON}"))
        .hint("ask the human who made the key for another one")
}

impl SessionService {
    /// Ends what revoked and expired keys left behind, as long as the service runs.
    pub(crate) async fn end_revoked(self: &Arc<Self>, keys: &ApiKeys) {
        let (mut known, mut done) = (BTreeSet::new(), BTreeSet::new());
        let changes = Arc::new(Notify::new());
        let waker = Arc::clone(&changes);
        let watch = watch_folder(keys.folder(), move |_| waker.notify_one())
            .inspect_err(|error| tracing::debug!(%error, "the API keys are not watched"));
        let pause = if watch.is_ok() { INTERVAL } else { POLL_INTERVAL };
        loop {
            // Before the keys: a session is made after its key, so the key of each of these was there.
            let sessions = self.index.sessions_of_keys();
            let now = clock::now();
            let mut pause = pause;
            match keys.list() {
                Ok(listed) => {
                    let valid = listed.iter().filter(|key| key.is_valid_at(now));
                    let valid: BTreeSet<_> = valid.map(ClientKey::client).collect();
                    let ends =
                        listed.iter().filter_map(|key| Duration::try_from(key.expires_at?.duration_since(now)).ok());
                    pause = ends.fold(pause, Duration::min);
                    let of_sessions = sessions.iter().map(|(_, key)| key.clone());
                    let gone: BTreeSet<_> = of_sessions.chain(known).filter(|key| !valid.contains(key)).collect();
                    self.revoked.0.send_replace(gone.clone());
                    for (number, key) in sessions.into_iter().filter(|(_, key)| gone.contains(key)) {
                        if let Err(error) = self.end_work(number, &key, !done.contains(&key)).await {
                            tracing::warn!(
                                error = error.message,
                                session = number,
                                "failed to end the work of an API key that was revoked or has expired"
                            );
                        }
                    }
                    known = &valid | &gone;
                    done = gone;
                }
                // The door lets none of them in either. What goes on is judged when the file can be read.
                Err(error) => tracing::warn!(
                    error = chain(&error),
                    "failed to look for API keys that were revoked or have expired"
                ),
            }
            tokio::select! {
                () = self.stopping.cancelled() => return,
                () = changes.notified() => {}
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    /// Ends what such a key left behind in a session; one that is not in memory is looked at only if the key `is_new`
    /// among them.
    async fn end_work(self: &Arc<Self>, number: u32, key: &str, is_new: bool) -> Result<(), ErrorBody> {
        let live = match self.loaded(number).await {
            Some(live) => live,
            None if is_new => self.load(number, None).await?,
            None => return Ok(()),
        };
        let is_of_key = |asker: &Asker| asker.key.as_deref() == Some(key);
        self.ledger.change(number, |owed| owed.queued.retain(|queued| !is_of_key(&queued.asker)))?;
        let asked_last = self.ledger.of(number).asked.last().map(|asked| asked.question.asker.clone());
        if asked_last.as_ref().is_none_or(is_of_key) {
            // Not only its turn: the end of one of its tasks would begin another one.
            live.close().await;
        }
        cancel_waiting(
            &live.log,
            &self.shell,
            Caller { session: Some(live.label.clone()), ..self.caller.clone() },
            ClientEnd::KeyRevoked,
        )
        .await;
        Ok(())
    }
}

/// Cancels the tasks that the client's end ends.
pub(super) async fn cancel_waiting(log: &EventLog, shell: &Arc<dyn Shell>, caller: Caller, end: ClientEnd) {
    let waiting: Vec<_> = log.open_tasks().into_iter().filter(|(_, state)| end.ends(*state)).collect();
    if waiting.is_empty() {
        return;
    }
    let shell = Arc::clone(shell);
    let cancelled = tokio::task::spawn_blocking(move || {
        for (task, _) in waiting {
            shell.call(&cancel_line(&task.id.to_string(), end.reason()), "", &caller);
        }
    });
    if cancelled.await.is_err() {
        tracing::warn!("failed to cancel the tasks of a client that has gone");
    }
}

/// The command that cancels a task because its client's key has ended.
pub(super) fn cancel_of_revoked(task: &str) -> Vec<String> {
    cancel_line(task, Some(REASON))
}

fn cancel_line(task: &str, reason: Option<&str>) -> Vec<String> {
    let reason = reason.map(|reason| format!("--reason={reason}"));
    ["cancel".to_owned(), task.to_owned()].into_iter().chain(reason).collect()
}
