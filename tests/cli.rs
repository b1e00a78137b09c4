//! The commands as their callers see them: standard output, standard error, exit status.

mod cost;
mod executor;
mod help;
mod inspect;
mod lint;
mod list;
mod run;
mod secret;
mod wait;
