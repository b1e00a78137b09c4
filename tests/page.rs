//! The page, as a human has it before them in a real browser, and as an attacker meets it.

mod ann;
mod crowd;
pub(crate) mod decide;
mod hostile;
mod human;
mod threats;
mod views;
