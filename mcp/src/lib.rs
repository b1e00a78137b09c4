//! The Model Context Protocol, both sides: [`client`] calls the tools of servers, [`server`] serves the one tool.
//! [`event_stream`] reads server-sent events, and [`http_listener`] has the connections of every HTTP server that programs of others may reach.
//!
//! Knows messages and transports. What a call may do, where processes and secrets come from, and who answers a
//! question is up to its users.

pub mod client;
pub mod event_stream;
pub mod http_listener;
pub mod server;
