//! What the executor promises, one file for each promise.

mod gmail;
mod handover;
