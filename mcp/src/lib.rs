//! The Model Context Protocol, both sides: [`client`] calls the tools of servers, [`server`] serves the one tool.
//!
//! Knows messages and transports. What a call may do, where processes and secrets come from, and who answers a
//! question is up to its users.

pub mod client;
pub mod server;
