//! End-to-end tests of the commands: standard output, standard error, exit status.

mod command_executor;
mod cost;
mod doctor;
mod executor;
mod forget;
mod help;
mod hook;
mod inspect;
mod lint;
mod list;
mod own_agent;
mod read;
mod resolve;
mod run;
mod secret;
mod setup;
mod unknown;
mod wait;
