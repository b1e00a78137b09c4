//! What one run of a script may use.

use serde::{Deserialize, Serialize};

/// The limits of a run. A field that is left out has its default.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Memory of the JavaScript engine. Calls that wait for their turn may hold as much again.
    pub memory_bytes: usize,
    /// Processor time between two messages of the host, in milliseconds.
    pub compute_ms: u64,
    /// Calls of a run, with questions, timers and searches.
    pub max_calls: u64,
    /// Calls that are open at once. More wait inside the worker for their turn.
    pub max_open: usize,
    /// JSON text of an input or of the result.
    pub max_value_bytes: usize,
    /// Values inside an input or the result: each number, text, array and object counts.
    pub max_value_nodes: usize,
    /// Text of one note. A longer one is cut.
    pub max_note_bytes: usize,
    /// Text of all notes. Later ones are dropped.
    pub max_notes_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            memory_bytes: 64 << 20,
            compute_ms: 5_000,
            max_calls: 1_000,
            max_open: 64,
            max_value_bytes: 4 << 20,
            max_value_nodes: 200_000,
            max_note_bytes: 2 << 10,
            max_notes_bytes: 16 << 10,
        }
    }
}
