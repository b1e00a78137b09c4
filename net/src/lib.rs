//! HTTP clients, and which addresses they may connect to.

pub mod clients;
pub mod download;
pub mod guard;
pub mod text;
