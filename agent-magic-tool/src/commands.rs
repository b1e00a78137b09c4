//! The commands, one file each: the arguments and the code that runs.

pub(crate) mod agent;
pub(crate) mod approver;
pub(crate) mod cancel;
pub(crate) mod command_executor;
pub(crate) mod completions;
pub(crate) mod demo;
pub(crate) mod doctor;
pub(crate) mod executor;
pub(crate) mod hook;
pub(crate) mod inspect;
pub(crate) mod jq;
pub(crate) mod jq_worker;
pub(crate) mod lint;
pub(crate) mod list;
pub(crate) mod logs;
pub(crate) mod man;
pub(crate) mod new;
pub(crate) mod read;
pub(crate) mod resolve;
pub(crate) mod run;
pub(crate) mod secret;
pub(crate) mod setup;
pub(crate) mod tasks;
pub(crate) mod test;
pub(crate) mod verify;
pub(crate) mod wait;
