//! The page, as a human has it before them in a real browser, and as an attacker meets it.

mod addresses;
mod ann;
mod clocks;
mod crowd;
pub(crate) mod decide;
mod hostile;
mod human;
mod limits;
mod threats;
mod views;
