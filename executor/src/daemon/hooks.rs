//! Hook deliveries: sends what is due, a few at a time, and turns the outcomes into changes of the record.
//!
//! Nothing waits for a receiver: deliveries run on the runtime, report to the event loop like attempts do, and end
//! with the executor. The outbox is in the store; only the next due time of each hook is in memory.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use dispatcher::{Action, Effects};
use jiff::Timestamp;
use protocol::mailbox::Mailbox;
use protocol::task::TaskId;
use protocol::{clock, fault};
use store::outbox::{DeliveryState, HookDelivery};
use store::{Change, Store, StoreError};

use super::background::{Background, DaemonEvent};
use crate::intake::settings::LiveSettings;
use crate::notify::hook::send::send;
use crate::notify::hook::{self, Hooks};

/// How many deliveries to one hook run at once.
const MAX_CONCURRENT: usize = 4;
/// The longest pause before a retry, including jitter.
const MAX_PAUSE: Duration = hook::MAX_PAUSE.saturating_add(Duration::from_mins(15));

/// The outcome of one attempt to deliver.
pub(super) struct DeliveryReport {
    delivery: HookDelivery,
    outcome: Result<(), String>,
}

pub(super) struct HookDeliveries {
    hooks: Arc<Hooks>,
    queues: Vec<HookQueue>,
    mailbox: Mailbox,
    background: Background,
    settings: LiveSettings,
}

/// The deliveries to one hook.
struct HookQueue {
    hook: String,
    in_flight: HashSet<TaskId>,
    /// When to read the outbox; `None` until something changes.
    next: Option<Timestamp>,
}

impl HookDeliveries {
    /// Takes over the outbox in `store`. Deliveries scheduled under a clock that was ahead become due earlier.
    pub(super) fn new(
        store: &mut dyn Store,
        mailbox: Mailbox,
        background: Background,
        settings: LiveSettings,
    ) -> Result<Self, StoreError> {
        match store.cap_next_at(clock::now().saturating_add(MAX_PAUSE).unwrap_or(Timestamp::MAX)) {
            Err(error) if error.is_disk_full() => {
                tracing::warn!(%error, "the disk is full: due times of hook deliveries were not checked");
            }
            done => done?,
        }
        let (hooks, queues) = (Arc::default(), Vec::new());
        let mut deliveries = Self { hooks, queues, mailbox, background, settings };
        deliveries.apply_settings();
        Ok(deliveries)
    }

    /// Takes over the hooks of the settings in force. A delivery in flight keeps the settings it was sent with, and
    /// deliveries to a removed hook stay in the record until they are too old.
    pub(super) fn apply_settings(&mut self) {
        self.hooks = Arc::new(Hooks::new(self.settings.current().config().hooks.clone()));
        self.queues.retain(|queue| self.hooks.get(&queue.hook).is_some() || !queue.in_flight.is_empty());
        for hook in self.hooks.names() {
            match self.queues.iter_mut().find(|queue| queue.hook == hook) {
                Some(queue) => queue.next = Some(Timestamp::MIN),
                None => self.queues.push(HookQueue {
                    hook: hook.to_owned(),
                    in_flight: HashSet::new(),
                    next: Some(Timestamp::MIN),
                }),
            }
        }
    }

    pub(super) fn names(&self) -> Vec<&str> {
        self.hooks.names().collect()
    }

    /// Adds a delivery to `effects` for each task that ends in them and each hook that wants to know.
    pub(super) fn add_to(&mut self, effects: &mut Effects, now: Timestamp) {
        if self.hooks.is_empty() {
            return;
        }
        let end = |change: &Change| match change {
            Change::Transition(step) if step.to.is_final() && !step.from.is_final() => Some(step.id),
            Change::Transition(_)
            | Change::Accept(_)
            | Change::Resolve(..)
            | Change::Delivery(..)
            | Change::Grant { .. }
            | Change::KeyCounter { .. }
            | Change::DecideScope(_)
            | Change::Note { .. }
            | Change::ReplaceQuestion { .. } => None,
        };
        let ended: HashSet<_> = effects.changes.iter().filter_map(end).collect();
        for action in &effects.actions {
            let Action::Publish(task) = action else { continue };
            if !task.state.is_final() || !ended.contains(&task.id) {
                continue;
            }
            for delivery in self.hooks.deliveries(task, &self.mailbox.result_file(task.id), now) {
                if let Some(queue) = self.queues.iter_mut().find(|queue| queue.hook == delivery.hook) {
                    queue.next = Some(queue.next.map_or(now, |next| next.min(now)));
                }
                effects.changes.push(Change::Delivery(Box::new(delivery), DeliveryState::Pending));
            }
        }
    }

    /// When to call [`Self::send_due`].
    pub(super) fn next_deadline(&self) -> Option<Timestamp> {
        self.queues.iter().filter_map(|queue| queue.next).min()
    }

    /// Whether the executor must not become idle: a delivery is in flight, or is due within `idle`.
    pub(super) fn is_busy(&self, now: Timestamp, idle: Duration) -> bool {
        let soon = now.saturating_add(idle).unwrap_or(Timestamp::MAX);
        self.next_deadline().is_some_and(|next| next <= soon)
            || self.queues.iter().any(|queue| !queue.in_flight.is_empty())
    }

    /// Sends what is due, up to [`MAX_CONCURRENT`] deliveries per hook, each of which reports
    /// [`DaemonEvent::HookDelivered`].
    pub(super) fn send_due(&mut self, store: &dyn Store, now: Timestamp) -> Result<(), StoreError> {
        for queue in &mut self.queues {
            if self.hooks.get(&queue.hook).is_none() {
                queue.next = None;
                continue;
            }
            for delivery in queue.take_due(store, now)? {
                let (hooks, runner_context) = (Arc::clone(&self.hooks), self.settings.runner_context());
                let background = self.background.clone();
                self.background.spawn(async move {
                    let Some(hook) = hooks.get(&delivery.hook) else { return };
                    let outcome = send(&delivery, hook, &runner_context, background.executor_ended()).await;
                    let report = Box::new(DeliveryReport { delivery, outcome });
                    if !background.send(DaemonEvent::HookDelivered(report)) {
                        tracing::debug!("a hook delivery finished after the executor had ended");
                    }
                });
            }
        }
        Ok(())
    }

    /// Returns the changes to the outbox that follow from `reports`.
    pub(super) fn on_reports(&mut self, reports: Vec<DeliveryReport>, now: Timestamp) -> Vec<Change> {
        reports.into_iter().filter_map(|report| self.on_report(report, now)).collect()
    }

    fn on_report(&mut self, DeliveryReport { delivery, outcome }: DeliveryReport, now: Timestamp) -> Option<Change> {
        if let Some(queue) = self.queues.iter_mut().find(|queue| queue.hook == delivery.hook) {
            queue.in_flight.remove(&delivery.task);
            // There is room for the next delivery.
            queue.next = Some(now);
        }
        let hook = self.hooks.get(&delivery.hook)?;
        let (name, task) = (delivery.hook.clone(), delivery.task);
        let (delivery, state) = match outcome {
            Ok(()) => {
                fault::point("hook", "ack");
                tracing::debug!(hook = name, %task, attempts = delivery.attempts + 1, "hook delivery acknowledged");
                (delivery, DeliveryState::Acknowledged)
            }
            Err(reason) => match hook::after_failure(delivery, reason.clone(), hook, now) {
                Ok(later) => {
                    let pause_ms = i64::try_from(later.next_at.duration_since(now).as_millis()).unwrap_or(i64::MAX);
                    tracing::info!(hook = name, %task, reason, attempts = later.attempts, pause_ms, "hook delivery failed; it is retried");
                    (later, DeliveryState::Retrying)
                }
                Err(last) => {
                    tracing::error!(hook = name, %task, reason, attempts = last.attempts, "hook delivery failed and is given up");
                    (last, DeliveryState::GivenUp)
                }
            },
        };
        Some(Change::Delivery(Box::new(delivery), state))
    }
}

impl HookQueue {
    /// Returns the deliveries to send now, and marks them as in flight.
    fn take_due(&mut self, store: &dyn Store, now: Timestamp) -> Result<Vec<HookDelivery>, StoreError> {
        if self.next.is_none_or(|next| next > now) {
            return Ok(Vec::new());
        }
        // The record still lists deliveries in flight as due.
        let mut due = store.due(&self.hook, now, MAX_CONCURRENT + self.in_flight.len())?;
        due.retain(|delivery| !self.in_flight.contains(&delivery.task));
        due.truncate(MAX_CONCURRENT.saturating_sub(self.in_flight.len()));
        self.in_flight.extend(due.iter().map(|delivery| delivery.task));
        self.next = store.next_due(&self.hook, now)?;
        Ok(due)
    }
}
