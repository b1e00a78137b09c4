//! `agent-magic-tool mcp`, driven by the clients that others wrote: the official SDKs, the Inspector, the conformance suite.

mod access;
mod callers;
mod confirmation;
mod conformance;
mod conformance_client;
mod exposed;
pub(crate) mod http;
mod inspector;
pub(crate) mod peers;
mod resources;
mod stdio;
mod story;
mod tasks;
