//! What the executor promises, one file for each promise.

pub(crate) mod bounds;
pub(crate) mod faults;
mod github;
mod gmail;
mod handover;
mod hooks;
mod load;
mod notices;
mod recovery;
mod sandbox;
mod schedules;
mod telemetry;
mod trust;
