//! The executor: everything that outlives one command.

pub mod catalog;
pub mod clock;
pub mod code;
pub mod config;
pub mod daemon;
pub mod desk;
pub mod detach;
pub mod digest;
pub mod dispatcher;
pub mod duration;
pub mod fault;
pub mod json;
pub mod log;
pub mod mailbox;
pub mod nearest;
pub mod perform;
pub mod places;
pub mod policy;
pub mod runner;
pub mod schema;
pub mod secret;
pub mod select;
pub mod store;
pub mod subtool;
pub mod task;
pub mod template;
