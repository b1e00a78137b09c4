//! Tests of our own agent through the binary, against a server that speaks the providers' protocols.

pub(crate) mod aimock;
mod approval;
mod chat;
mod cost;
mod delegation;
mod ends;
mod limits;
mod sessions;
mod story;
mod terminal;
