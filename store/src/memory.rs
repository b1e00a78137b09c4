//! A store in memory, for tests of the code that uses a store.

use std::collections::BTreeMap;

use ground::base::webauthn::Base64Url;
use ground::task::Task;
use ground::task::decide_scope::DecideScope;
use ground::task::grant::{Grant, GrantId};
use jiff::Timestamp;
use protocol::resolution::{Resolution, ResolvedBy};
use protocol::task::{State, Step, TaskId};

use super::outbox::{DeliveryState, HookDelivery, Outbox, UndeliveredHook};
use super::{Change, ConfirmationRecord, EndedRecord, RecordedStep, Store, StoreError};
use crate::retention::RetainedTask;

#[derive(Debug, Default)]
pub struct MemoryStore {
    tasks: BTreeMap<TaskId, (Task, Vec<RecordedStep>)>,
    grants: BTreeMap<GrantId, Grant>,
    key_counters: BTreeMap<Base64Url, u32>,
    decide_scopes: BTreeMap<String, DecideScope>,
    /// By hook and task, with whether the delivery was given up.
    deliveries: BTreeMap<(String, TaskId), (HookDelivery, bool)>,
}

impl Store for MemoryStore {
    fn commit(&mut self, changes: &[Change]) -> Result<(), StoreError> {
        let (mut tasks, mut grants, mut deliveries) =
            (self.tasks.clone(), self.grants.clone(), self.deliveries.clone());
        let (mut key_counters, mut decide_scopes) = (self.key_counters.clone(), self.decide_scopes.clone());
        for change in changes {
            match change {
                Change::KeyCounter { credential, counter } => {
                    let stored = key_counters.entry(credential.clone()).or_default();
                    *stored = (*stored).max(*counter);
                }
                Change::DecideScope(scope) => {
                    decide_scopes.insert(scope.key.hash.clone(), (**scope).clone());
                }
                Change::Accept(task) if tasks.contains_key(&task.id) => return Err(StoreError::Duplicate(task.id)),
                Change::Accept(task) => {
                    tasks.insert(task.id, ((**task).clone(), Vec::new()));
                }
                Change::Transition(step) => {
                    let conflict = StoreError::Conflict { id: step.id, from: step.from, attempt: step.attempt };
                    let Some((task, steps)) = tasks.get_mut(&step.id) else { return Err(conflict) };
                    if (task.state, task.attempt) != (step.from, step.attempt) {
                        return Err(conflict);
                    }
                    task.state = step.to;
                    task.attempt = step.attempt_after;
                    task.not_before = step.not_before;
                    if let Some(update) = &step.confirmation {
                        if task.confirmation.as_ref().map(|stored| stored.digest) != update.expected {
                            return Err(conflict);
                        }
                        task.confirmation = Some(Box::new(update.confirmation.clone()));
                        if let Some(input) = &update.input {
                            task.input.clone_from(input);
                        }
                    }
                    task.end.clone_from(&step.end);
                    steps.push(RecordedStep { at: step.at, step: step.step, attempt: step.attempt_after });
                }
                Change::ReplaceQuestion { id, expected, confirmation } => {
                    let conflict = StoreError::Conflict { id: *id, from: State::AwaitingConfirmation, attempt: 0 };
                    let may_wait = |task: &Task| matches!(task.state, State::AwaitingConfirmation | State::Queued);
                    let Some((task, _)) = tasks.get_mut(id).filter(|(task, _)| may_wait(task)) else {
                        return Err(conflict);
                    };
                    if task.confirmation.as_ref().map(|stored| stored.digest) != Some(*expected) {
                        return Err(conflict);
                    }
                    task.confirmation = Some(confirmation.clone());
                }
                Change::Note { id, attempt, notes } => {
                    let conflict = StoreError::Conflict { id: *id, from: State::Running, attempt: *attempt };
                    let open = |task: &Task| task.end.is_none() && task.attempt == *attempt;
                    let Some((task, _)) = tasks.get_mut(id).filter(|(task, _)| open(task)) else {
                        return Err(conflict);
                    };
                    task.notes = (**notes).clone();
                }
                Change::Grant { grant, expected_uses } => {
                    if grants.get(&grant.id).map(|grant| grant.uses) != *expected_uses {
                        return Err(StoreError::GrantConflict(grant.id));
                    }
                    grants.insert(grant.id, (**grant).clone());
                }
                Change::Delivery(delivery, state) => {
                    let key = (delivery.hook.clone(), delivery.task);
                    match state {
                        DeliveryState::Pending => drop(deliveries.entry(key).or_insert(((**delivery).clone(), false))),
                        DeliveryState::Acknowledged => drop(deliveries.remove(&key)),
                        DeliveryState::Retrying | DeliveryState::GivenUp => {
                            if let Some(stored) = deliveries.get_mut(&key) {
                                *stored = ((**delivery).clone(), *state == DeliveryState::GivenUp);
                            }
                        }
                    }
                }
                Change::Resolve(id, resolution) => {
                    let Some((task, steps)) = tasks.get_mut(id) else { return Err(StoreError::NotResolvable(*id)) };
                    let stays =
                        |first: &Resolution| first.by == ResolvedBy::Human || resolution.by == ResolvedBy::Caller;
                    if task.state != State::Unknown || task.resolution.as_ref().is_some_and(stays) {
                        return Err(StoreError::NotResolvable(*id));
                    }
                    task.resolution = Some((**resolution).clone());
                    steps.push(RecordedStep { at: resolution.at, step: Step::Resolve, attempt: task.attempt });
                }
            }
        }
        (self.tasks, self.grants, self.deliveries) = (tasks, grants, deliveries);
        (self.key_counters, self.decide_scopes) = (key_counters, decide_scopes);
        Ok(())
    }

    fn open_tasks(&self) -> Result<Vec<Task>, StoreError> {
        Ok(self.tasks.values().map(|(task, _)| task).filter(|task| !task.state.is_final()).cloned().collect())
    }

    fn task(&self, id: TaskId) -> Result<Option<Task>, StoreError> {
        Ok(self.tasks.get(&id).map(|(task, _)| task.clone()))
    }

    fn task_by_key(&self, uid: u32, key: &str) -> Result<Option<Task>, StoreError> {
        let matches = |task: &&Task| task.caller.uid == uid && task.idempotency_key.as_deref() == Some(key);
        Ok(self.tasks.values().map(|(task, _)| task).find(matches).cloned())
    }

    fn ended_since(&self, since: Timestamp) -> Result<Vec<EndedRecord>, StoreError> {
        let ended = self.tasks.values().filter_map(|(task, _)| Some((task.end.as_ref()?.at, task)));
        let is_resolved = |task: &Task| task.resolution.as_ref().is_some_and(|resolution| resolution.at >= since);
        let mut ended: Vec<_> = ended.filter(|(at, task)| *at >= since || is_resolved(task)).collect();
        ended.sort_by_key(|(at, _)| *at);
        let record = |(_, task): (_, &Task)| EndedRecord {
            id: task.id,
            tool: task.tool.clone(),
            caller: task.caller.clone(),
            created_at: task.created_at,
            state: task.state,
            is_resolved: task.resolution.is_some(),
        };
        Ok(ended.into_iter().map(record).collect())
    }

    fn confirmations_since(&self, since: Timestamp) -> Result<Vec<ConfirmationRecord>, StoreError> {
        let records = self
            .tasks
            .values()
            .filter_map(|(task, _)| ConfirmationRecord::of(task.caller.uid, task.confirmation.as_ref()?));
        let mut records: Vec<_> = records.filter(|record| record.at >= since).collect();
        records.sort_by_key(|record| record.at);
        Ok(records)
    }

    fn retained(&self) -> Result<Vec<RetainedTask>, StoreError> {
        let retained = |task: &Task| {
            let end = task.end.as_ref()?;
            let text = serde_json::json!([task.input, end]).to_string();
            Some(RetainedTask { id: task.id, ended_at: end.at, bytes: text.len() as u64 })
        };
        Ok(self.tasks.values().filter_map(|(task, _)| retained(task)).collect())
    }

    fn ended_in_session(&self, uid: u32, session: &str) -> Result<Vec<TaskId>, StoreError> {
        let is_in_session = |task: &Task| task.caller.uid == uid && task.caller.session.as_deref() == Some(session);
        let ended = self.tasks.values().filter(|(task, _)| task.state.is_final() && is_in_session(task));
        let mut ids: Vec<_> = ended.map(|(task, _)| task.id).collect();
        ids.sort_unstable();
        Ok(ids)
    }

    fn key_counters(&self) -> Result<Vec<(Base64Url, u32)>, StoreError> {
        Ok(self.key_counters.clone().into_iter().collect())
    }

    fn decide_scopes(&self) -> Result<Vec<DecideScope>, StoreError> {
        Ok(self.decide_scopes.values().cloned().collect())
    }

    fn grants(&self) -> Result<Vec<Grant>, StoreError> {
        Ok(self.grants.values().cloned().collect())
    }

    fn steps(&self, id: TaskId) -> Result<Vec<RecordedStep>, StoreError> {
        Ok(self.tasks.get(&id).map_or_else(Vec::new, |(_, steps)| steps.clone()))
    }

    fn forget(&mut self, ids: &[TaskId]) -> Result<(), StoreError> {
        self.tasks.retain(|id, (task, _)| !(ids.contains(id) && task.state.is_final()));
        Ok(())
    }

    fn forget_grants(&mut self, ids: &[GrantId]) -> Result<(), StoreError> {
        self.grants.retain(|id, _| !ids.contains(id));
        Ok(())
    }
}

impl Outbox for MemoryStore {
    fn due(&self, hook: &str, now: Timestamp, limit: usize) -> Result<Vec<HookDelivery>, StoreError> {
        let mut due: Vec<_> = self.waiting(hook).filter(|delivery| delivery.next_at <= now).cloned().collect();
        due.sort_by_key(|delivery| delivery.next_at);
        due.truncate(limit);
        Ok(due)
    }

    fn next_due(&self, hook: &str, now: Timestamp) -> Result<Option<Timestamp>, StoreError> {
        Ok(self.waiting(hook).map(|delivery| delivery.next_at).filter(|at| *at > now).min())
    }

    fn undelivered(&self) -> Result<Vec<UndeliveredHook>, StoreError> {
        let mut hooks: BTreeMap<&str, UndeliveredHook> = BTreeMap::new();
        for (delivery, is_given_up) in self.deliveries.values() {
            let hook = hooks.entry(&delivery.hook).or_insert_with(|| UndeliveredHook {
                hook: delivery.hook.clone(),
                waiting: 0,
                failing: 0,
                given_up: 0,
                oldest: delivery.created_at,
                reason: None,
            });
            hook.waiting += u64::from(!is_given_up);
            hook.failing += u64::from(!is_given_up && delivery.attempts > 0);
            hook.given_up += u64::from(*is_given_up);
            hook.oldest = hook.oldest.min(delivery.created_at);
            hook.reason = hook.reason.take().max(delivery.reason.clone());
        }
        Ok(hooks.into_values().collect())
    }

    fn cap_next_at(&mut self, latest: Timestamp) -> Result<(), StoreError> {
        self.deliveries.values_mut().for_each(|(delivery, _)| delivery.next_at = delivery.next_at.min(latest));
        Ok(())
    }

    fn forget_deliveries(&mut self, before: Timestamp, hooks: &[&str]) -> Result<(), StoreError> {
        self.deliveries.retain(|(hook, _), (delivery, is_given_up)| {
            delivery.created_at >= before || !*is_given_up && hooks.contains(&hook.as_str())
        });
        Ok(())
    }
}

impl MemoryStore {
    fn waiting(&self, hook: &str) -> impl Iterator<Item = &HookDelivery> {
        let is_waiting = move |(delivery, is_given_up): &&(HookDelivery, bool)| delivery.hook == hook && !is_given_up;
        self.deliveries.values().filter(is_waiting).map(|(delivery, _)| delivery)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_fulfills_the_store_contract() {
        super::super::contract::check(&mut MemoryStore::default());
    }
}
