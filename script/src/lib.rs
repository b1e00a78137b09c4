//! Scripts: small JavaScript programs of a language model that call subtools.
//!
//! A script runs in a process of its own ([`worker`]) and reaches nothing but its host: it has no files, no network, no
//! clock and no source of chance. Its host performs the calls and records them. After a crash the host starts the same
//! script again and settles the calls as before; the script then makes the same calls, byte for byte.
//!
//! This crate decides nothing about a call: whether it is allowed, what it costs and what it returns is the host's.

mod check;
mod constants;
mod engine;
mod limits;
mod messages;
mod names;
mod notes;
mod reason;
mod run;
pub mod worker;

pub use check::mistake_in;
pub use constants::{ScriptConstant, constants, declares, with_inputs};
pub use limits::Limits;
pub use messages::{
    Call, CallError, CallKind, Completion, ErrorClass, Failure, FailureKind, HostMessage, Idle, Json, Outcome,
    Settlement, Start, WorkerMessage,
};
pub use names::{called_names, is_global};
