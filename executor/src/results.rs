//! What callers are told: result files as they are written, and waiting for the end of a task.

pub mod result_file;
pub mod trigger;
