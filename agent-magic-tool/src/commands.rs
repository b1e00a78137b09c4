//! The commands, one file each: the arguments and the code that runs.

pub(crate) mod agent;
pub(crate) mod approver;
pub(crate) mod completions;
pub(crate) mod demo;
pub(crate) mod doctor;
pub(crate) mod executor;
pub(crate) mod import;
pub(crate) mod inspect;
pub(crate) mod lint;
pub(crate) mod logs;
pub(crate) mod man;
pub(crate) mod mcp;
pub(crate) mod new;
pub(crate) mod pack;
pub(crate) mod script_worker;
pub(crate) mod secret;
pub(crate) mod serve;
pub(crate) mod setup;
pub(crate) mod test;
pub(crate) mod verify;
