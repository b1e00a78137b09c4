//! HTTP clients, and the addresses that they may reach.

pub mod clients;
pub mod guard;
pub(crate) mod text;
