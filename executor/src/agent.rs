//! Our own agent: the loop that is woken, and the one tool that it gives a model.
//!
//! `machine.rs` decides, `driver.rs` carries out, `provider.rs` speaks with models, `journal.rs` remembers.
//! Nothing of it runs in the executor's own tasks: a loop is a caller like any other, with files between.

pub mod conversation;
pub mod driver;
pub mod fallback;
pub mod journal;
pub mod machine;
pub mod model;
pub mod prompt;
pub mod provider;
pub mod view;
