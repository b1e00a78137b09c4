//! Work beside the event loop: futures on the runtime, which report to the loop through one channel.

use std::pin::Pin;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::task::{Context, Poll};

use dispatcher::report::AttemptReport;
use ground::task::Task;
use ground::task::confirmation::LookedUp;
use ground::task::feedback::AttemptNews;
use protocol::task::TaskId;
use tokio::runtime::{EnterGuard, Handle};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::dry_runs::FinishedDryRun;
use super::hooks::DeliveryReport;
use crate::page::PageMessage;

/// What the event loop receives.
pub(super) enum DaemonEvent {
    /// Requests may have arrived in the inbox.
    InboxChanged,
    /// The configuration file may have changed.
    ConfigChanged,
    AttemptFinished(Box<AttemptReport>),
    /// A running attempt tells how it gets on.
    AttemptTold {
        id: TaskId,
        attempt: u32,
        news: AttemptNews,
    },
    PageMessage(Box<PageMessage>),
    /// What was looked up for a human before they decide about a task.
    Previewed(Box<(Task, LookedUp)>),
    /// A dry run of a caller ended.
    DryRunFinished(Box<FinishedDryRun>),
    HookDelivered(Box<DeliveryReport>),
    /// A signal asks the executor to stop.
    StopRequested,
}

/// Spawns futures on the runtime and sends events to the loop. Clones share both.
#[derive(Clone)]
pub(super) struct Background {
    runtime: Handle,
    tracker: TaskTracker,
    executor_ended: CancellationToken,
    // Unbounded, but short: attempts and deliveries report once or twice each, the inbox watch sends one event per look, and a
    // page request waits for its reply.
    events: Sender<DaemonEvent>,
}

impl Background {
    pub(super) fn new(runtime: Handle) -> (Self, Receiver<DaemonEvent>) {
        let (events, receiver) = channel();
        let (tracker, executor_ended) = (TaskTracker::new(), CancellationToken::new());
        (Self { runtime, tracker, executor_ended, events }, receiver)
    }

    pub(super) fn spawn(&self, future: impl Future<Output = ()> + Send + 'static) {
        self.tracker.spawn_on(future, &self.runtime);
    }

    /// Sends `event` to the loop. Returns whether the loop still exists to receive it.
    pub(super) fn send(&self, event: DaemonEvent) -> bool {
        self.events.send(event).is_ok()
    }

    /// Enters the runtime, for calls that register with it.
    pub(super) fn enter(&self) -> EnterGuard<'_> {
        self.runtime.enter()
    }

    pub(super) fn tracker(&self) -> &TaskTracker {
        &self.tracker
    }

    /// Canceled when the executor ends.
    pub(super) fn executor_ended(&self) -> &CancellationToken {
        &self.executor_ended
    }

    /// Cancels every future that watches [`Self::executor_ended`].
    pub(super) fn close(&self) {
        self.executor_ended.cancel();
        self.tracker.close();
    }
}

/// A future of which every step runs outside the runtime's threads: long computations in it hold up nothing else.
pub(super) struct OffRuntime<F>(pub(super) Pin<Box<F>>);

impl<F: Future> Future for OffRuntime<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        tokio::task::block_in_place(|| self.0.as_mut().poll(context))
    }
}
