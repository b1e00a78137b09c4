//! A store that forgets everything when it is dropped: for tests of what stands on a store.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::{Change, Ended, Recorded, Store, StoreError};
use crate::retention::Kept;
use crate::task::{State, Step, Task, TaskId};

#[derive(Debug, Default)]
pub struct MemoryStore {
    tasks: BTreeMap<TaskId, (Task, Vec<Recorded>)>,
}

impl Store for MemoryStore {
    fn commit(&mut self, changes: &[Change]) -> Result<(), StoreError> {
        let mut tasks = self.tasks.clone();
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
                    task.end.clone_from(&step.end);
                    story.push(Recorded { at: step.at, step: step.step, attempt: step.attempt_after });
                }
                Change::Settle(id, settlement) => {
                    let Some((task, story)) = tasks.get_mut(id) else { return Err(StoreError::Settled(*id)) };
                    if task.state != State::Unknown || task.settlement.is_some() {
                        return Err(StoreError::Settled(*id));
                    }
                    task.settlement = Some((**settlement).clone());
                    story.push(Recorded { at: settlement.at, step: Step::Settle, attempt: task.attempt });
                }
            }
        }
        self.tasks = tasks;
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

    fn ended_since(&self, since: Timestamp) -> Result<Vec<Ended>, StoreError> {
        let ended = self.tasks.values().filter_map(|(task, _)| Some((task.end.as_ref()?.at, task)));
        let is_settled = |task: &Task| task.settlement.as_ref().is_some_and(|settlement| settlement.at >= since);
        let mut ended: Vec<_> = ended.filter(|(at, task)| *at >= since || is_settled(task)).collect();
        ended.sort_by_key(|(at, _)| *at);
        let few = |(_, task): (_, &Task)| Ended {
            id: task.id,
            tool: task.tool.clone(),
            caller: task.caller.clone(),
            created_at: task.created_at,
            is_settled: task.settlement.is_some(),
        };
        Ok(ended.into_iter().map(few).collect())
    }

    fn kept(&self) -> Result<Vec<Kept>, StoreError> {
        let kept = |task: &Task| {
            let end = task.end.as_ref()?;
            let text = serde_json::json!([task.input, end]).to_string();
            Some(Kept { id: task.id, ended_at: end.at, bytes: text.len() as u64 })
        };
        Ok(self.tasks.values().filter_map(|(task, _)| kept(task)).collect())
    }

    fn story(&self, id: TaskId) -> Result<Vec<Recorded>, StoreError> {
        Ok(self.tasks.get(&id).map_or_else(Vec::new, |(_, story)| story.clone()))
    }

    fn forget(&mut self, ids: &[TaskId]) -> Result<(), StoreError> {
        self.tasks.retain(|id, (task, _)| !(ids.contains(id) && task.state.is_final()));
        Ok(())
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
