//! Language models: which there are, what was said to them, and how one is asked.

pub mod conversation;
pub mod fallback;
pub mod prompt;
pub mod provider;
pub mod registry;
pub mod view;
