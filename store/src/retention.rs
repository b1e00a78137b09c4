//! Retention: which ended tasks are forgotten, by age and total size.
//!
//! Only decides; the daemon's sweep measures and removes.

use std::time::Duration;

use jiff::Timestamp;
use protocol::task::TaskId;

/// An ended task that has not been forgotten.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetainedTask {
    pub id: TaskId,
    pub ended_at: Timestamp,
    /// The size of its stored record, and of its result and data files if they are counted in.
    pub bytes: u64,
}

/// How long ended tasks are kept, and how many bytes they may use.
#[derive(Debug, Clone, Copy)]
pub struct RetentionLimits {
    pub max_age: Duration,
    /// The total size of all retained tasks; 0 means no limit.
    pub max_bytes: u64,
    /// Younger tasks stay regardless of `max_bytes`: their caller may be about to read the result.
    pub min_age: Duration,
}

/// Returns the tasks to forget, oldest first.
///
/// These are all tasks older than `max_age`, and then the oldest ones until the rest fits into `max_bytes`. A task
/// whose end lies in the future counts as the youngest, so that setting back the clock does not lose results.
pub fn to_forget(retained: &[RetainedTask], limits: RetentionLimits, now: Timestamp) -> Vec<TaskId> {
    let mut oldest_first = retained.to_vec();
    oldest_first.sort_by_key(|task| (task.ended_at, task.id));
    let age = |task: &RetainedTask| Duration::try_from(now.duration_since(task.ended_at)).unwrap_or(Duration::ZERO);
    let mut bytes: u64 = oldest_first.iter().map(|task| task.bytes).fold(0, u64::saturating_add);
    let mut forgotten = Vec::new();
    for task in oldest_first {
        let is_over_limit = limits.max_bytes > 0 && bytes > limits.max_bytes && age(&task) >= limits.min_age;
        if age(&task) <= limits.max_age && !is_over_limit {
            break;
        }
        bytes = bytes.saturating_sub(task.bytes);
        forgotten.push(task.id);
    }
    forgotten
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NOW: i64 = 1_700_000_000;

    fn now() -> Timestamp {
        Timestamp::from_second(NOW).expect("a time")
    }

    fn retained(tasks: &[(i64, u64)]) -> Vec<RetainedTask> {
        tasks
            .iter()
            .map(|(age, bytes)| RetainedTask {
                id: TaskId::new(),
                ended_at: Timestamp::from_second(NOW - age).expect("a time"),
                bytes: *bytes,
            })
            .collect()
    }

    fn forgotten(tasks: &[(i64, u64)], max_age: u64, max_bytes: u64) -> Vec<usize> {
        let retained = retained(tasks);
        let (max_age, min_age) = (Duration::from_secs(max_age), Duration::from_secs(10));
        let limits = RetentionLimits { max_age, max_bytes, min_age };
        let index = |id: &TaskId| retained.iter().position(|task| task.id == *id).expect("one of the tasks");
        to_forget(&retained, limits, now()).iter().map(index).collect()
    }

    #[test]
    fn the_oldest_are_forgotten_first_by_age_and_then_by_size() {
        let tasks = [(50, 10), (500, 10), (100, 10), (20, 10)];
        assert_eq!(forgotten(&tasks, 1000, 0), [0; 0], "0 means no limit");
        assert_eq!(forgotten(&tasks, 200, 0), [1]);
        assert_eq!(forgotten(&tasks, 1000, 40), [0; 0]);
        assert_eq!(forgotten(&tasks, 1000, 39), [1]);
        assert_eq!(forgotten(&tasks, 1000, 15), [1, 2, 0]);
        assert_eq!(forgotten(&tasks, 70, 10), [1, 2, 0], "tasks that are too old free space as well");
    }

    #[test]
    fn recent_tasks_and_tasks_from_the_future_stay_regardless_of_size() {
        assert_eq!(forgotten(&[(5, 1_000), (50, 10)], 1000, 100), [1]);
        assert_eq!(forgotten(&[(-5_000, 1_000), (-10, 1)], 1, 100), [0; 0]);
    }

    proptest! {
        #[test]
        fn the_oldest_are_forgotten_first_and_no_more_than_necessary(
            tasks in prop::collection::vec((0..2_000_i64, 0..100_u64), 0..40), age in 1..2_000_u64, bytes in 0..2_000_u64,
        ) {
            let gone = forgotten(&tasks, age, bytes);
            let stay: Vec<_> = (0..tasks.len()).filter(|index| !gone.contains(index)).collect();
            let youngest_gone = gone.iter().map(|index| tasks[*index].0).min().unwrap_or(i64::MAX);
            prop_assert!(stay.iter().all(|index| tasks[*index].0 <= youngest_gone));
            let size = |indexes: &[usize]| indexes.iter().map(|index| tasks[*index].1).sum::<u64>();
            prop_assert!(stay.iter().all(|index| u64::try_from(tasks[*index].0).is_ok_and(|old| old <= age)));
            prop_assert!(bytes == 0 || size(&stay) <= bytes || stay.iter().all(|index| tasks[*index].0 < 10));
            if let Some(last) = gone.last() {
                let was_too_old = u64::try_from(tasks[*last].0).is_ok_and(|old| old > age);
                prop_assert!(was_too_old || size(&stay) + tasks[*last].1 > bytes, "the last one was forgotten needlessly");
            }
        }
    }
}
