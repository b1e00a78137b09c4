//! The daemon as a separate process: requests go in, result files come out, and the daemon is stopped, killed, or
//! loses its mailbox.

#[path = "daemon/crash.rs"]
mod crash;
#[path = "daemon/eviction.rs"]
mod eviction;
#[path = "daemon/housekeeping.rs"]
mod housekeeping;
#[path = "daemon/requests.rs"]
mod requests;
#[path = "daemon/stop.rs"]
mod stop;
#[path = "daemon/world.rs"]
mod world;
