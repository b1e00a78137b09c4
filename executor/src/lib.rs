//! The executor: the process that performs tasks, and everything that outlives one command.
//!
//! The modules form layers. A module may use only modules of lower layers; `tests/layers.rs` lists the layers
//! and checks this.

pub mod agent;
pub mod attempt;
pub mod base;
pub mod catalog;
pub mod config;
pub mod daemon;
pub mod dispatcher;
pub mod intake;
pub mod model;
pub mod net;
pub mod notify;
pub mod page;
pub mod results;
pub mod runner;
pub mod store;
pub mod task;
mod telemetry;
