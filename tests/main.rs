//! The end-to-end tests: everything goes through the binary, as its users would.
//!
//! `cli/` has a file for each command, `executor/` one for each promise, `tidy.rs` keeps the house.

mod agent;
mod browser;
mod cli;
mod executor;
mod fuzz;
mod layers;
mod myworld;
mod page;
mod tidy;
mod world;
