//! Retention: which ended tasks are forgotten, by their age and by how much they take.
//!
//! Decides only; whoever looks after the record and the results measures and removes.

use std::time::Duration;

use jiff::Timestamp;
use protocol::task::TaskId;

/// An ended task and what lies about it: its result file and its data, wherever that is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetainedTask {
    pub id: TaskId,
    pub ended_at: Timestamp,
    pub bytes: u64,
}

/// How long ended tasks are kept, and how much they may take.
#[derive(Debug, Clone, Copy)]
pub struct RetentionLimits {
    pub age: Duration,
    /// 0 is no limit.
    pub bytes: u64,
    /// Younger ones stay, whatever they take: somebody may be about to read them.
    pub at_least: Duration,
}

/// The tasks to forget, the oldest first.
///
/// All that are older than `keep.age`; then, while the rest takes more than `keep.bytes`, the oldest of
/// it. A task that is said to have ended in the future counts as the youngest: a clock that was set back
/// loses nobody's result.
pub fn to_forget(kept: &[RetainedTask], keep: RetentionLimits, now: Timestamp) -> Vec<TaskId> {
    let mut oldest_first = kept.to_vec();
    oldest_first.sort_by_key(|task| (task.ended_at, task.id));
    let age = |task: &RetainedTask| Duration::try_from(now.duration_since(task.ended_at)).unwrap_or(Duration::ZERO);
    let mut bytes: u64 = oldest_first.iter().map(|task| task.bytes).fold(0, u64::saturating_add);
    let mut forgotten = Vec::new();
    for task in oldest_first {
        let is_too_much = keep.bytes > 0 && bytes > keep.bytes && age(&task) >= keep.at_least;
        if age(&task) <= keep.age && !is_too_much {
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

    fn kept(tasks: &[(i64, u64)]) -> Vec<RetainedTask> {
        tasks
            .iter()
            .map(|(age, bytes)| RetainedTask {
                id: TaskId::new(),
                ended_at: Timestamp::from_second(NOW - age).expect("a time"),
                bytes: *bytes,
            })
            .collect()
    }

    fn forgotten(tasks: &[(i64, u64)], age: u64, bytes: u64) -> Vec<usize> {
        let kept = kept(tasks);
        let keep = RetentionLimits { age: Duration::from_secs(age), bytes, at_least: Duration::from_secs(10) };
        let place = |id: &TaskId| kept.iter().position(|task| task.id == *id).expect("one of them");
        to_forget(&kept, keep, now()).iter().map(place).collect()
    }

    #[test]
    fn the_oldest_go_first_by_age_and_then_by_size() {
        let tasks = [(50, 10), (500, 10), (100, 10), (20, 10)];
        assert_eq!(forgotten(&tasks, 1000, 0), [0; 0], "0 is no limit");
        assert_eq!(forgotten(&tasks, 200, 0), [1]);
        assert_eq!(forgotten(&tasks, 1000, 40), [0; 0]);
        assert_eq!(forgotten(&tasks, 1000, 39), [1]);
        assert_eq!(forgotten(&tasks, 1000, 15), [1, 2, 0]);
        assert_eq!(forgotten(&tasks, 70, 10), [1, 2, 0], "what is too old makes room");
    }

    #[test]
    fn what_just_ended_stays_whatever_it_takes_and_so_does_what_is_from_the_future() {
        assert_eq!(forgotten(&[(5, 1_000), (50, 10)], 1000, 100), [1]);
        assert_eq!(forgotten(&[(-5_000, 1_000), (-10, 1)], 1, 100), [0; 0]);
    }

    proptest! {
        #[test]
        fn no_younger_task_goes_before_an_older_one_and_no_more_go_than_must(
            tasks in prop::collection::vec((0..2_000_i64, 0..100_u64), 0..40), age in 1..2_000_u64, bytes in 0..2_000_u64,
        ) {
            let gone = forgotten(&tasks, age, bytes);
            let stay: Vec<_> = (0..tasks.len()).filter(|place| !gone.contains(place)).collect();
            let youngest_gone = gone.iter().map(|place| tasks[*place].0).min().unwrap_or(i64::MAX);
            prop_assert!(stay.iter().all(|place| tasks[*place].0 <= youngest_gone));
            let takes = |places: &[usize]| places.iter().map(|place| tasks[*place].1).sum::<u64>();
            prop_assert!(stay.iter().all(|place| u64::try_from(tasks[*place].0).is_ok_and(|old| old <= age)));
            prop_assert!(bytes == 0 || takes(&stay) <= bytes || stay.iter().all(|place| tasks[*place].0 < 10));
            if let Some(last) = gone.last() {
                let was_too_old = u64::try_from(tasks[*last].0).is_ok_and(|old| old > age);
                prop_assert!(was_too_old || takes(&stay) + tasks[*last].1 > bytes, "the last one had to go");
            }
        }
    }
}
