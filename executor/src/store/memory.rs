//! A store that forgets everything when it is dropped: for tests of what stands on a store.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::{Change, Recorded, Store, StoreError};
use crate::confirmation::grant::{Grant, GrantId};
use crate::task::{Task, TaskId};

#[derive(Debug, Default)]
pub struct MemoryStore {
    tasks: BTreeMap<TaskId, (Task, Vec<Recorded>)>,
    grants: BTreeMap<GrantId, Grant>,
}

impl Store for MemoryStore {
    fn commit(&mut self, changes: &[Change]) -> Result<(), StoreError> {
        let (mut tasks, mut grants) = (self.tasks.clone(), self.grants.clone());
        for change in changes {
            match change {
                Change::Accept(task) if tasks.contains_key(&task.id) => return Err(StoreError::Known(task.id)),
                Change::Accept(task) => {
                    tasks.insert(task.id, ((**task).clone(), Vec::new()));
                }
                Change::Move(step) => {
                    let fenced = StoreError::Fenced { id: step.id, from: step.from, attempt: step.attempt };
                    let Some((task, story)) = tasks.get_mut(&step.id) else { return Err(fenced) };
                    if (task.state, task.attempt) != (step.from, step.attempt) {
                        return Err(fenced);
                    }
                    task.state = step.to;
                    task.attempt = step.attempt_after;
                    task.not_before = step.not_before;
                    if let Some(answered) = &step.answered {
                        if task.confirmation.as_ref().map(|asked| asked.digest) != Some(answered.digest) {
                            return Err(fenced);
                        }
                        task.confirmation = Some(Box::new(answered.confirmation.clone()));
                        if let Some(input) = &answered.input {
                            task.input.clone_from(input);
                        }
                    }
                    task.end.clone_from(&step.end);
                    story.push(Recorded { at: step.at, step: step.step, attempt: step.attempt_after });
                }
                Change::Grant { grant, uses } => {
                    if grants.get(&grant.id).map(|grant| grant.uses) != *uses {
                        return Err(StoreError::GrantChanged(grant.id));
                    }
                    grants.insert(grant.id, (**grant).clone());
                }
            }
        }
        (self.tasks, self.grants) = (tasks, grants);
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

    fn ended_since(&self, since: Timestamp) -> Result<Vec<Task>, StoreError> {
        let ended = |task: &&Task| task.end.as_ref().is_some_and(|end| end.at >= since);
        Ok(self.tasks.values().map(|(task, _)| task).filter(ended).cloned().collect())
    }

    fn grants(&self) -> Result<Vec<Grant>, StoreError> {
        Ok(self.grants.values().cloned().collect())
    }

    fn story(&self, id: TaskId) -> Result<Vec<Recorded>, StoreError> {
        Ok(self.tasks.get(&id).map_or_else(Vec::new, |(_, story)| story.clone()))
    }

    fn forget(&mut self, before: Timestamp) -> Result<Vec<TaskId>, StoreError> {
        let old: Vec<_> = self
            .tasks
            .values()
            .filter(|(task, _)| task.end.as_ref().is_some_and(|end| end.at < before))
            .map(|(task, _)| task.id)
            .collect();
        self.tasks.retain(|id, _| !old.contains(id));
        Ok(old)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_keeps_the_stores_contract() {
        super::super::contract::holds(&mut MemoryStore::default());
    }
}
