//! The tasks of all clients, also over a restart. The journal of the session keeps what was said beyond that.

use std::collections::VecDeque;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use protocol::clock;
use protocol::code::Code;
use protocol::error::ErrorBody;
use tokio_util::task::TaskTracker;

use super::record::{TaskOwner, TaskRecord, TurnPlace};
use super::store::TaskStore;
use super::wire::{A2aMessage, A2aUpdate};
use crate::service::SessionService;
use crate::service::turn::{Asker, TurnStream};

/// How many tasks are kept of each client.
const MAX_TASKS_OF_CLIENT: usize = 200;
/// How many tasks are kept of all clients.
const MAX_TASKS: usize = 2_000;
/// How many bytes the ended tasks of one client take on the disk. The one that ended last is kept, whatever it takes.
const MAX_BYTES_OF_CLIENT: u64 = 64 << 20;
/// How long a task is kept after it has ended.
const MAX_AGE: SignedDuration = SignedDuration::from_hours(7 * 24);
/// The pause before a turn that could not be joined is joined again, for example while another process has its session.
const REJOIN_RETRY: Duration = Duration::from_secs(5);
/// How long a cancelled turn may take to end before the client is told how it stands.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(10);

/// The tasks, the oldest first.
#[derive(Debug)]
pub struct TaskDesk {
    store: Arc<TaskStore>,
    records: Mutex<VecDeque<Arc<TaskRecord>>>,
    followers: TaskTracker,
    /// Held by the message that is looked up and made a task.
    pub(super) admission: tokio::sync::Mutex<()>,
}

/// How the events of a turn ended.
#[derive(Debug)]
pub(super) enum TurnEnd {
    /// The turn has ended, or goes on after a restart.
    Over,
    /// The turn has begun, and its client does not want it any more.
    Unwanted(TurnStream),
    /// The events ended before the turn did.
    CutOff,
}

impl TaskDesk {
    /// Opens the tasks that are stored in `folder`.
    pub(crate) fn open(folder: &Path) -> io::Result<Self> {
        let (store, tasks) = TaskStore::open(folder)?;
        let store = Arc::new(store);
        let records = tasks.map(|task| Arc::new(TaskRecord::of(task, Arc::clone(&store)))).collect();
        let (followers, admission) = (TaskTracker::new(), tokio::sync::Mutex::new(()));
        let desk = Self { store, records: Mutex::new(records), followers, admission };
        forget_aged(&mut desk.records(), clock::now());
        Ok(desk)
    }

    /// Follows the turns of the tasks that an earlier process left open, and of those whose answer no client has. From
    /// here on, the tasks of a session are forgotten when it is deleted.
    pub(crate) fn resume(self: &Arc<Self>, service: &Arc<SessionService>) {
        let desk = Arc::downgrade(self);
        service.on_delete(move |session| {
            if let Some(desk) = desk.upgrade() {
                forget(&mut desk.records(), |record| record.place().is_some_and(|place| place.session == session));
            }
        });
        for record in self.records().iter() {
            let is_final = record.state().is_final();
            match record.place() {
                Some(place) if !is_final || !record.is_delivered() => {
                    let (record, service) = (Arc::clone(record), Arc::clone(service));
                    let desk = Arc::clone(self);
                    self.followers.spawn(async move {
                        Box::pin(rejoin(Arc::clone(&record), place, service)).await;
                        desk.forget_surplus(record);
                    });
                }
                Some(_) => {}
                None => record.on_lost(&not_taken()),
            }
        }
    }

    /// A task of this message, which is kept with [`Self::add`].
    pub(super) fn task(&self, owner: TaskOwner, asker: Asker, context: String, message: A2aMessage) -> TaskRecord {
        TaskRecord::new(owner, asker, context, message, Arc::clone(&self.store))
    }

    fn records(&self) -> MutexGuard<'_, VecDeque<Arc<TaskRecord>>> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the client's task of this id.
    pub(super) fn find(&self, owner: &TaskOwner, id: &str) -> Option<Arc<TaskRecord>> {
        self.records().iter().find(|record| record.id == id && record.owner == *owner).cloned()
    }

    /// Returns the task that this very message made before.
    pub(super) fn find_repeated(&self, owner: &TaskOwner, message: &A2aMessage) -> Option<Arc<TaskRecord>> {
        self.records().iter().rev().find(|record| record.is_of(owner, message)).cloned()
    }

    /// Returns the client's tasks, the one that changed last first.
    pub(super) fn list(&self, owner: &TaskOwner) -> Vec<Arc<TaskRecord>> {
        let mut own: Vec<_> = self.records().iter().filter(|record| record.owner == *owner).cloned().collect();
        own.sort_by_cached_key(|record| std::cmp::Reverse((record.changed_at(), record.id.clone())));
        own
    }

    /// Keeps and stores a new task; forgets an ended one if there are too many. False if all of them are open.
    pub(super) fn add(&self, record: &Arc<TaskRecord>) -> io::Result<bool> {
        if !self.make_room(record) {
            return Ok(false);
        }
        record.save()?;
        self.records().push_back(Arc::clone(record));
        Ok(true)
    }

    fn make_room(&self, record: &TaskRecord) -> bool {
        let mut records = self.records();
        forget_aged(&mut records, clock::now());
        forget_large(&mut records, &record.owner, MAX_BYTES_OF_CLIENT);
        let of_client = records.iter().filter(|other| other.owner == record.owner).count();
        let is_old = |other: &Arc<TaskRecord>| other.state().is_final();
        let forgotten = if of_client >= MAX_TASKS_OF_CLIENT {
            records.iter().position(|other| other.owner == record.owner && is_old(other))
        } else if records.len() >= MAX_TASKS {
            records.iter().position(is_old)
        } else {
            return true;
        };
        let Some(forgotten) = forgotten.and_then(|position| records.remove(position)) else { return false };
        forgotten.forget();
        true
    }

    /// Forgets a task that was never begun: the same message may be sent again.
    pub(super) fn remove(&self, record: &TaskRecord) {
        forget(&mut self.records(), |other| other.id == record.id);
    }

    /// Brings the events of the turn to the task, whether or not a client listens.
    pub(super) fn follow(self: &Arc<Self>, record: Arc<TaskRecord>, turn: TurnStream, service: Arc<SessionService>) {
        let desk = Arc::clone(self);
        self.followers.spawn(async move {
            follow(&record, turn, &service).await;
            desk.forget_surplus(record);
        });
    }

    /// Forgets what is too much after this task has ended.
    fn forget_surplus(&self, record: Arc<TaskRecord>) {
        let owner = record.owner.clone();
        drop(record);
        forget_large(&mut self.records(), &owner, MAX_BYTES_OF_CLIENT);
    }

    /// Stops the turn of a task, and returns when it has ended or takes too long.
    pub(super) async fn cancel(
        &self,
        record: &Arc<TaskRecord>,
        service: &Arc<SessionService>,
    ) -> Result<(), ErrorBody> {
        let mut feed = record.feed();
        // A turn that has not begun would be another one's: it is stopped when it begins.
        if !record.want_cancel() {
            return Ok(());
        }
        let followed = tokio::time::timeout(CANCEL_TIMEOUT, record.is_followed.wait()).await;
        if followed.is_err() {
            tracing::info!(task = record.id, "the turn is stopped when its session is open");
            return Ok(());
        }
        cancel(service, record).await?;
        let ended = async {
            while let Some(update) = feed.updates.recv().await {
                if is_end(&update) {
                    return;
                }
            }
        };
        if tokio::time::timeout(CANCEL_TIMEOUT, ended).await.is_err() {
            tracing::info!(task = record.id, "a cancelled turn has not ended yet");
        }
        Ok(())
    }
}

/// Forgets the tasks that ended long ago.
fn forget_aged(records: &mut VecDeque<Arc<TaskRecord>>, now: Timestamp) {
    forget(records, |record| record.state().is_final() && now.duration_since(record.changed_at()) > MAX_AGE);
}

/// Forgets the ended tasks of a client that take more than `max_bytes`, the oldest first. A task that a call is answering
/// with is kept until the next time.
pub(super) fn forget_large(records: &mut VecDeque<Arc<TaskRecord>>, owner: &TaskOwner, max_bytes: u64) {
    let mut ended: Vec<_> =
        records.iter().filter(|record| record.owner == *owner && record.state().is_final()).collect();
    ended.sort_by_key(|record| std::cmp::Reverse(record.changed_at()));
    let mut bytes = 0_u64;
    let surplus: Vec<String> = ended
        .into_iter()
        .skip_while(|record| {
            let is_first = bytes == 0;
            bytes = bytes.saturating_add(record.bytes());
            is_first || bytes <= max_bytes
        })
        .filter(|record| Arc::strong_count(record) == 1)
        .map(|record| record.id.clone())
        .collect();
    if !surplus.is_empty() {
        forget(records, |record| surplus.contains(&record.id));
    }
}

fn forget(records: &mut VecDeque<Arc<TaskRecord>>, is_old: impl Fn(&TaskRecord) -> bool) {
    records.retain(|record| {
        let is_kept = !is_old(record);
        if !is_kept {
            record.forget();
        }
        is_kept
    });
}

/// Goes on with the turn of a task that an earlier process left.
async fn rejoin(record: Arc<TaskRecord>, place: TurnPlace, service: Arc<SessionService>) {
    let rejoined = loop {
        match service.rejoin(place.session, place.question).await {
            Err(error) if service.is_stopping() => {
                tracing::debug!(error = error.message, task = record.id, "a turn is not joined: the server stops");
                return;
            }
            Err(error) if error.code != Code::NotFound => {
                tracing::warn!(error = error.message, task = record.id, "failed to join the turn of a task");
                tokio::time::sleep(REJOIN_RETRY).await;
            }
            rejoined => break rejoined,
        }
    };
    // Only the first task that joins the turn sets it.
    record.is_followed.set(()).ok();
    match rejoined {
        Ok(Some(turn)) if record.state().is_final() => keep_answer(&record, turn).await,
        Ok(Some(turn)) => {
            if record.awaits_cancel() {
                stop(&record, &service).await;
            }
            follow(&record, turn, &service).await;
        }
        Ok(None) => record.on_lost(&lost()),
        Err(error) => record.on_lost(&error),
    }
}

/// Reads the answer that the task has, so that the session learns when its client has it too.
async fn keep_answer(record: &TaskRecord, mut turn: TurnStream) {
    while let Some(logged) = turn.next().await {
        if logged.event.is_last() {
            record.keep(turn.receipt());
            return;
        }
    }
}

async fn follow(record: &TaskRecord, turn: TurnStream, service: &Arc<SessionService>) {
    let mut next = turn;
    loop {
        match bring(record, next).await {
            TurnEnd::Over => return,
            TurnEnd::Unwanted(turn) => {
                next = turn;
                stop(record, service).await;
            }
            TurnEnd::CutOff if service.is_stopping() => return record.on_stopping(),
            TurnEnd::CutOff => return record.on_lost(&lost()),
        }
    }
}

/// Brings the events of the turn to the task until they end, or the turn is to be stopped.
pub(super) async fn bring(record: &TaskRecord, mut turn: TurnStream) -> TurnEnd {
    while let Some(logged) = turn.next().await {
        if logged.event.is_stopping() {
            record.on_stopping();
            return TurnEnd::Over;
        }
        if logged.event.is_last() {
            // Before it is told: a client that hears of the end has the whole answer.
            record.keep(turn.receipt());
            record.on_event(&logged.event);
            return TurnEnd::Over;
        }
        if record.on_event(&logged.event) {
            return TurnEnd::Unwanted(turn);
        }
    }
    TurnEnd::CutOff
}

/// The error of a task whose question no session has.
fn not_taken() -> ErrorBody {
    ErrorBody::new(Code::NotFound, "the server stopped before it took the message").hint("send the message again")
}

/// The error of a task whose turn is not known any more.
pub(super) fn lost() -> ErrorBody {
    ErrorBody::new(Code::NotFound, "the turn of this task was lost: its session was started over, or has gone on")
        .hint("send the message again, with the same contextId")
}

async fn stop(record: &TaskRecord, service: &Arc<SessionService>) {
    if let Err(error) = cancel(service, record).await {
        let message = error.message;
        tracing::warn!(task = record.id, error = message, "failed to stop a turn that its client cancelled");
    }
}

async fn cancel(service: &Arc<SessionService>, record: &TaskRecord) -> Result<(), ErrorBody> {
    let (_, was_busy) = service.cancel(&record.asker.session, &record.asker, true).await?;
    if !was_busy {
        tracing::debug!(task = record.id, "there was nothing to stop anymore");
    }
    Ok(())
}

fn is_end(update: &A2aUpdate) -> bool {
    update.state().is_some_and(super::wire::A2aState::is_final)
}
