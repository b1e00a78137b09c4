//! The executor: the process that performs tasks, and everything that outlives one command.
//!
//! The modules form layers. A module may use only modules of lower layers; `tests/layers.rs` lists the layers
//! and checks this.

pub mod attempt;
pub mod daemon;
pub mod intake;
pub mod lint;
pub mod notify;
pub mod page;
mod telemetry;

#[cfg(test)]
#[expect(dead_code, reason = "the tests of `ground` use the rest")]
#[path = "../../ground/src/base/webauthn/soft_key.rs"]
mod soft_key;
