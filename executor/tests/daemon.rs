//! The daemon as a process of its own: callers' files go in, result files come out, and it is
//! stopped, killed and robbed of its mailbox meanwhile.

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
