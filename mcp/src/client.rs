//! The client: one connection to a server of any protocol version, and what its answers mean.
