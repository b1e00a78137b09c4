//! The one owner of the records: everything that must survive a restart goes through here, in order.
//!
//! It runs on a thread of its own, since it waits for the disk.

use std::io;

use protocol::task::TaskId;
use tokio::sync::{mpsc, oneshot};
use tokio_util::task::TaskTracker;

use super::envelope::{Inbound, SlackEnvelope};
use super::records::{SlackRecords, WaitingRecord};

/// A handle on the records.
#[derive(Debug, Clone)]
pub(crate) struct SlackRecorder {
    orders: mpsc::UnboundedSender<Order>,
}

#[derive(Debug)]
enum Order {
    /// Take in an envelope, and say when it is recorded.
    Take(SlackEnvelope, oneshot::Sender<()>),
    Note(RecordNote, oneshot::Sender<()>),
}

/// What is recorded about questions and tasks that wait.
#[derive(Debug)]
pub(crate) enum RecordNote {
    Posted { question: String, messages: Vec<String> },
    Answered { question: String },
    Waiting(WaitingRecord),
    Settled(TaskId),
}

impl SlackRecorder {
    /// Starts the owner of `records`. What is to be done for new events goes to `work`.
    ///
    /// Neither channel is bounded: an event is a few kilobytes, and Slack itself bounds how many come.
    pub(crate) fn start(records: SlackRecords, work: mpsc::UnboundedSender<Inbound>, tracker: &TaskTracker) -> Self {
        let (orders, received) = mpsc::unbounded_channel();
        tracker.spawn_blocking(move || keep(records, received, &work));
        Self { orders }
    }

    /// Takes in an envelope. The result is ready when it may be acknowledged: it is recorded, or needs no record.
    pub(crate) fn take(&self, envelope: SlackEnvelope) -> oneshot::Receiver<()> {
        let (done, recorded) = oneshot::channel();
        // Without an owner `recorded` fails, and the envelope is not acknowledged.
        drop(self.orders.send(Order::Take(envelope, done)));
        recorded
    }

    /// Returns when `note` is recorded, or cannot be: then the log says so.
    pub(crate) async fn note(&self, note: RecordNote) {
        let (done, recorded) = oneshot::channel();
        if self.orders.send(Order::Note(note, done)).is_ok() {
            // It also ends if the owner does.
            drop(recorded.await);
        }
    }
}

fn keep(mut records: SlackRecords, mut orders: mpsc::UnboundedReceiver<Order>, work: &mpsc::UnboundedSender<Inbound>) {
    while let Some(order) = orders.blocking_recv() {
        let (result, done) = match order {
            Order::Take(envelope, done) => (take(&mut records, envelope, work), done),
            Order::Note(note, done) => (record(&mut records, note), done),
        };
        match result {
            // The receiver may have stopped waiting.
            Ok(()) => drop(done.send(())),
            // Nothing is acknowledged that is not recorded: Slack sends it again.
            Err(error) => tracing::error!("failed to record what came from Slack: {error}; is the disk full?"),
        }
    }
}

fn record(records: &mut SlackRecords, note: RecordNote) -> io::Result<()> {
    match note {
        RecordNote::Posted { question, messages } => records.posted(question, messages),
        RecordNote::Answered { question } => records.answered(question),
        RecordNote::Waiting(record) => records.waits(record),
        RecordNote::Settled(task) => records.settled(task),
    }
}

fn take(records: &mut SlackRecords, envelope: SlackEnvelope, work: &mpsc::UnboundedSender<Inbound>) -> io::Result<()> {
    let SlackEnvelope { keys, inbound, .. } = envelope;
    if records.has_seen(&keys) {
        tracing::debug!("an event of Slack came again: {keys:?}");
        return Ok(());
    }
    let inbound = match inbound {
        Inbound::ThreadMessage(question) if records.takes_part_in(&question.thread) => Inbound::Question(question),
        other => other,
    };
    match &inbound {
        Inbound::Nothing | Inbound::ThreadMessage(_) => return Ok(()),
        Inbound::Question(question) => records.asked(keys, question.clone())?,
        // One line is enough for each of them.
        Inbound::Stranger { user, .. } => {
            let told = format!("stranger {user}");
            let was_told = records.has_seen(std::slice::from_ref(&told));
            records.seen([keys, vec![told]].concat())?;
            if was_told {
                return Ok(());
            }
        }
        Inbound::No(_) => records.seen(keys)?,
    }
    // Without a receiver we are stopping: a question is asked after the restart.
    drop(work.send(inbound));
    Ok(())
}
