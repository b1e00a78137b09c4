//! What the executor promises, one file for each promise.

mod github;
mod gmail;
mod handover;
mod load;
mod recovery;
mod sandbox;
