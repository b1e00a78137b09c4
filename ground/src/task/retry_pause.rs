//! How long is waited before something of a task is tried again.

use std::time::Duration;

use protocol::task::TaskId;

/// Returns the pause after `failures` that came after the first one: `first` doubled for each of them, at most `max`,
/// and up to a quarter more. That differs by task, so what failed together is not tried again together.
pub fn retry_pause(first: Duration, failures: u32, max: Duration, task: TaskId) -> Duration {
    let doubled = first.saturating_mul(1 << failures.min(20)).min(max);
    // The last bits of an id are random.
    let id = task.to_string();
    let seed = id.bytes().rev().take(8).fold(failures, |sum, byte| sum.wrapping_mul(31).wrapping_add(u32::from(byte)));
    doubled + doubled.mul_f64(f64::from(seed % 256) / 1024.0)
}
