//! The commands, one file each: the arguments and the code that runs.

pub mod cancel;
pub mod command_executor;
pub mod hook;
pub mod jq;
pub mod jq_worker;
pub mod list;
pub mod read;
pub mod resolve;
pub mod run;
pub mod script;
pub mod tasks;
pub mod wait;
