//! The http runner and the packs that use it, against two kinds of servers: a scripted one for edge cases, and a
//! simulation of Gmail and GitHub.

#[path = "http/addresses.rs"]
mod addresses;
#[path = "http/cancellation.rs"]
mod cancellation;
#[path = "http/fixture.rs"]
mod fixture;
#[path = "http/jobs.rs"]
mod jobs;
#[path = "../../tests/myworld.rs"]
mod myworld;
#[path = "http/packs.rs"]
mod packs;
#[path = "http/pages.rs"]
mod pages;
#[path = "http/redirects.rs"]
mod redirects;
#[path = "http/requests.rs"]
mod requests;
#[path = "http/responses.rs"]
mod responses;
#[path = "http/server.rs"]
mod server;
#[path = "../../tests/skip.rs"]
mod skip;
#[path = "http/tokens.rs"]
mod tokens;
