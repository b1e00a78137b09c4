//! The commands as their callers see them: standard output, standard error, exit status.

mod cost;
mod doctor;
mod executor;
mod help;
mod hook;
mod inspect;
mod lint;
mod list;
mod read;
mod resolve;
mod run;
mod secret;
mod setup;
mod unknown;
mod wait;
