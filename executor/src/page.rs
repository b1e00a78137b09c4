//! The page: where a human sees what would happen, and decides.
//!
//! Served on loopback to whoever has a session; nothing on the agent's side reaches it. It reads the
//! record of tasks and the catalog itself; whatever it wants done it says to the daemon, which owns the
//! truth.

mod audience;
mod session;
mod show;
mod site;
mod word;

pub use audience::Audience;
pub use session::{LINK_WORKS, make_link};
pub use site::Site;
pub use word::{Live, Spoken, Word};
