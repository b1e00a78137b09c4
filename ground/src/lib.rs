//! What the agent's loop and the executor both stand on.
//!
//! The modules form layers. A module may use only modules of lower layers; `tests/layers.rs` lists the layers
//! and checks this.

pub mod base;
pub mod config;
pub mod page_client;
pub mod results;
pub mod task;
