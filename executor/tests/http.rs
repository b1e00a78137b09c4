//! The http runner and its packs, against servers: a scripted one for every edge, and a real
//! Gmail- and GitHub-shaped one.

#[path = "http/addresses.rs"]
mod addresses;
#[path = "http/answers.rs"]
mod answers;
#[path = "http/bench.rs"]
mod bench;
#[path = "http/cancellation.rs"]
mod cancellation;
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
#[path = "http/server.rs"]
mod server;
#[path = "http/tokens.rs"]
mod tokens;
