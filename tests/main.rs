//! The end-to-end tests: everything goes through the binary, as its users would.
//!
//! `cli/` has a file for each command, `executor/` one for each promise, `mcp/` one for each side of that protocol, `tidy.rs`, `layers.rs`, `levels.rs`,
//! `licenses.rs`, `vocabulary.rs` and `docs.rs` keep the rules that no compiler checks.

mod agent;
mod browser;
mod cli;
mod database_server;
mod docs;
mod examples;
mod executor;
mod free_port;
mod fuzz;
mod layers;
mod levels;
mod licenses;
mod mcp;
mod myworld;
mod packs;
mod page;
mod profiles;
mod serve;
mod skip;
// A passkey in software, the same as in the executor's own tests.
#[path = "../ground/src/base/webauthn/soft_key.rs"]
mod soft_key;
mod tidy;
mod vocabulary;
mod world;
