//! Tests of our own agent through the binary, against a server that speaks the providers' protocols.

pub(crate) mod aimock;
mod answers;
mod approval;
mod budgets;
mod chat;
mod cost;
mod delegation;
mod documents;
mod ends;
mod gates;
mod limits;
mod malformed;
mod requests;
mod sessions;
mod story;
pub(crate) mod stub;
mod terminal;
