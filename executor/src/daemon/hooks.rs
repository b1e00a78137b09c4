//! Telling hooks: what is due is sent, a few at a time, and what became of it is recorded.
//!
//! Nothing here waits for a receiver: attempts run on the runtime and report like runners do, and end
//! with the executor. Of what waits only the next time is in memory, however much it is.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use protocol::fault;
use protocol::mailbox::Mailbox;
use protocol::task::TaskId;
use tokio_util::sync::CancellationToken;

use super::{Daemon, DaemonError, DaemonEvent, clock};
use crate::dispatcher::{Action, Effects};
use crate::notify::hook::send::send;
use crate::notify::hook::{self, Hooks};
use crate::store::outbox::{DeliveryState, HookDelivery};
use crate::store::{Change, Store, StoreError};

/// How many attempts of one hook are under way at once.
const AT_ONCE: usize = 4;
/// With its jitter.
const MAX_PAUSE: Duration = hook::MAX_PAUSE.saturating_add(Duration::from_mins(15));

/// An attempt has ended.
pub(super) struct DeliveryReport {
    delivery: HookDelivery,
    outcome: Result<(), String>,
}

pub(super) struct HookDispatcher {
    hooks: Arc<Hooks>,
    lines: Vec<HookQueue>,
}

/// What is to be told to one hook.
struct HookQueue {
    hook: String,
    under_way: HashSet<TaskId>,
    /// When the outbox is to be looked at; `None` until something changes.
    next: Option<Timestamp>,
}

impl HookDispatcher {
    pub(super) fn new(hooks: Hooks, store: &mut dyn Store) -> Result<Self, StoreError> {
        let now = clock::now();
        match store.cap_next_at(now.saturating_add(MAX_PAUSE).unwrap_or(Timestamp::MAX)) {
            Err(error) if error.is_disk_full() => {
                tracing::warn!(%error, "what hooks are owed was not looked through");
            }
            done => done?,
        }
        let line =
            |hook: &str| HookQueue { hook: hook.to_owned(), under_way: HashSet::new(), next: Some(Timestamp::MIN) };
        let lines = hooks.names().map(line).collect();
        Ok(Self { hooks: Arc::new(hooks), lines })
    }

    pub(super) fn hooks(&self) -> &Hooks {
        &self.hooks
    }

    /// Adds to the ends in `effects` what hooks are owed for them.
    pub(super) fn owe(&mut self, effects: &mut Effects, mailbox: &Mailbox, now: Timestamp) {
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
            | Change::SetPreview { .. } => None,
        };
        let ended: HashSet<_> = effects.changes.iter().filter_map(end).collect();
        for action in &effects.actions {
            let Action::Publish(task) = action else { continue };
            if !task.state.is_final() || !ended.contains(&task.id) {
                continue;
            }
            for delivery in self.hooks.deliveries(task, &mailbox.result_file(task.id), now) {
                self.look_at(&delivery.hook, now);
                effects.changes.push(Change::Delivery(Box::new(delivery), DeliveryState::Pending));
            }
        }
    }

    /// When the outbox is to be looked at.
    fn next(&self) -> Option<Timestamp> {
        self.lines.iter().filter_map(|line| line.next).min()
    }

    /// Whether the executor stays for it, though it has nothing else to do: something is under way, or
    /// is tried again before the executor would be idle for long.
    pub(super) fn is_busy(&self, now: Timestamp, idle: Duration) -> bool {
        let soon = now.saturating_add(idle).unwrap_or(Timestamp::MAX);
        self.next().is_some_and(|next| next <= soon) || self.lines.iter().any(|line| !line.under_way.is_empty())
    }

    fn look_at(&mut self, hook: &str, at: Timestamp) {
        if let Some(line) = self.lines.iter_mut().find(|line| line.hook == hook) {
            line.next = Some(line.next.map_or(at, |next| next.min(at)));
        }
    }
}

impl HookQueue {
    /// What is to be sent now, and when to look again.
    fn due(&mut self, store: &dyn Store, now: Timestamp) -> Result<Vec<HookDelivery>, StoreError> {
        if self.next.is_none_or(|next| next > now) {
            return Ok(Vec::new());
        }
        // What is under way is still due, as the record has it.
        let mut due = store.due(&self.hook, now, AT_ONCE + self.under_way.len())?;
        due.retain(|delivery| !self.under_way.contains(&delivery.task));
        due.truncate(AT_ONCE.saturating_sub(self.under_way.len()));
        self.under_way.extend(due.iter().map(|delivery| delivery.task));
        self.next = store.next_due(&self.hook, now)?;
        Ok(due)
    }
}

impl Daemon {
    /// Sends what is due, as far as there are places. Not while something is to be recorded first, nor
    /// before its result file is there.
    pub(super) fn deliver_hooks(&mut self) -> Result<(), DaemonError> {
        let now = self.clock.now();
        if self.next_delivery().is_none_or(|next| next > now) {
            return Ok(());
        }
        for line in &mut self.hook_dispatcher.lines {
            for delivery in line.due(self.store.as_ref(), now)? {
                let (hooks, runner_context) =
                    (Arc::clone(&self.hook_dispatcher.hooks), Arc::clone(&self.runner_context));
                let (wake, cancel): (_, CancellationToken) = (self.wake.clone(), self.ended.clone());
                self.tracker.spawn_on(
                    async move {
                        let Some(hook) = hooks.get(&delivery.hook) else { return };
                        let outcome = send(&delivery, hook, &runner_context, &cancel).await;
                        if wake.send(DaemonEvent::Told(Box::new(DeliveryReport { delivery, outcome }))).is_err() {
                            tracing::debug!("a hook was told after the executor had ended");
                        }
                    },
                    self.runtime.handle(),
                );
            }
        }
        Ok(())
    }

    /// When hooks are to be told something without anything happening before.
    pub(super) fn next_delivery(&self) -> Option<Timestamp> {
        let is_held_up = !self.backlog.is_empty() || self.publisher.is_behind();
        self.hook_dispatcher.next().filter(|_| !is_held_up)
    }

    /// Records what became of attempts.
    pub(super) fn hooks_delivered(&mut self, hooks_delivered: Vec<DeliveryReport>) -> Result<(), DaemonError> {
        let now = self.clock.now();
        let mut changes = Vec::new();
        for DeliveryReport { delivery, outcome } in hooks_delivered {
            if let Some(line) = self.hook_dispatcher.lines.iter_mut().find(|line| line.hook == delivery.hook) {
                line.under_way.remove(&delivery.task);
                // There is a place for the next one.
                line.next = Some(now);
            }
            let Some(hook) = self.hook_dispatcher.hooks.get(&delivery.hook) else { continue };
            let (name, task) = (delivery.hook.clone(), delivery.task);
            let change = match outcome {
                Ok(()) => {
                    fault::point("hook", "ack");
                    tracing::debug!(hook = name, %task, attempts = delivery.attempts + 1, "a hook was told");
                    (delivery, DeliveryState::Acknowledged)
                }
                Err(reason) => match hook::after_failure(delivery, reason.clone(), hook, now) {
                    Ok(later) => {
                        let pause_ms = pause(&later, now);
                        tracing::info!(hook = name, %task, reason, attempts = later.attempts, pause_ms, "a hook could not be told; it is tried again");
                        (later, DeliveryState::Retrying)
                    }
                    Err(last) => {
                        tracing::error!(hook = name, %task, reason, attempts = last.attempts, "a hook could not be told, and is given up");
                        (last, DeliveryState::GivenUp)
                    }
                },
            };
            changes.push(Change::Delivery(Box::new(change.0), change.1));
        }
        if changes.is_empty() {
            return Ok(());
        }
        self.carry_out(Effects { changes, actions: Vec::new() })
    }
}

fn pause(later: &HookDelivery, now: Timestamp) -> i64 {
    let pause: SignedDuration = later.next_at.duration_since(now);
    i64::try_from(pause.as_millis()).unwrap_or(i64::MAX)
}
