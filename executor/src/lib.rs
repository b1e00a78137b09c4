//! The executor: everything that outlives one command.
//!
//! In layers, lowest first: a module uses those before it, never those after it (`tests/layers.rs`).

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
