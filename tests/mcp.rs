//! `agent-magic-tool mcp`, driven by the clients that others wrote: the official SDKs, the Inspector, the conformance suite.

mod access;
mod callers;
mod confirmation;
mod conformance;
mod conformance_client;
mod exposed;
mod http;
mod inspector;
mod peers;
mod resources;
mod stdio;
mod story;
mod tasks;
