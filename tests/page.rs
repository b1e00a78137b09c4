//! The page: as a human sees it in a real browser, and as an attacker meets it.

mod addresses;
mod card;
mod clocks;
mod crowd;
mod decide;
mod hostile;
mod http;
mod human;
mod limits;
mod scenario;
mod threats;
mod views;
