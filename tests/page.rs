//! The page: as a human sees it in a real browser, and as an attacker meets it.

mod addresses;
mod api_door;
mod api_keys;
mod asked;
mod background;
mod card;
mod clocks;
mod crowd;
mod decide;
mod hidden;
mod hold;
mod hostile;
pub(crate) mod http;
pub(crate) mod human;
mod kills;
mod large;
mod limits;
mod live;
mod programs;
mod refusals;
mod scenario;
mod sessions;
mod squatter;
mod threats;
mod touch;
mod undo;
mod views;
