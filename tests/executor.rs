//! What the executor promises, one file for each promise.

mod faults;
mod github;
mod gmail;
mod handover;
mod load;
mod recovery;
mod sandbox;
mod telemetry;
