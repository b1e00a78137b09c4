//! Databases that a stranger's model may be let loose on.
//!
//! [`guard`] decides from the text which statements may run and rewrites them; [`database`] runs them, and has the
//! database itself refuse what the guard should have refused. Knows nothing of subtools, tasks and configuration
//! files, and decides nothing about who may ask.

pub mod answer;
pub mod database;
pub mod dialect;
pub mod guard;
pub mod parameters;
pub mod rules;
pub mod schema;
pub mod value;
