//! Our own loop: through the binary, against servers that speak the providers' protocols.

pub(crate) mod aimock;
mod approval;
mod cost;
mod delegation;
mod ends;
mod limits;
mod sessions;
mod story;
mod talk;
mod terminal;
