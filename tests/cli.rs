//! End-to-end tests of the commands: standard output, standard error, exit status.

mod absent;
mod command_executor;
mod cost;
mod doctor;
mod executor;
mod forget;
mod help;
mod hints;
mod hook;
mod human;
pub(crate) mod import;
mod inspect;
mod lint;
mod list;
mod new;
mod own_agent;
mod pack;
mod read;
mod resolve;
mod run;
mod secret;
mod setup;
mod ten_tasks;
mod typescript;
mod unknown;
mod wait;
mod whole;
