//! The agent's side: the commands that an agent calls, its hooks and its one tool. Both programs have it: the small one has
//! nothing else, and the full one all other commands and the executor.
//!
//! A command parses its arguments, posts one request or reads what the executor published, and prints one answer. The
//! executor makes all decisions about tasks.

pub mod answer;
pub mod backoff;
pub mod cli;
pub mod client;
pub mod commands;
pub mod context;
pub mod error;
pub mod full_program;
pub mod handover;
pub mod in_process;
pub mod launch;
pub mod listing_source;
pub mod option_value;
pub mod other_configuration;
pub mod output;
mod progress;
pub mod result;
mod result_data;
pub mod sandbox;
pub mod sanitized;
pub mod usage;
pub mod waiting;
pub mod wake_promise;
