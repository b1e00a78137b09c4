//! Our own loop: through the binary, against servers that speak the providers' protocols.

mod aimock;
mod ends;
mod limits;
mod sessions;
mod story;
