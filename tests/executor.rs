//! The guarantees of the executor, one file for each.

pub(crate) mod bounds;
mod closed;
mod definitions;
pub(crate) mod faults;
mod github;
mod gmail;
mod handover;
mod hooks;
pub(crate) mod http;
pub(crate) mod leaks;
mod live;
mod load;
pub(crate) mod mcp;
mod mcp_sign_in;
mod notices;
mod recovery;
mod result_space;
mod rule_targets;
mod sandbox;
mod schedules;
mod secret_hosts;
mod soak;
mod sql;
mod steps;
mod telemetry;
mod trust;
mod unknown_ends;
