//! Our own agent: the loop that asks a model, carries out its calls, and is woken when results are there.
//!
//! `machine.rs` decides, `driver.rs` carries out, `journal.rs` remembers. Nothing of it runs in the
//! executor's own tasks, and it reads nothing but what a caller may: a loop is a caller like any other,
//! with files between.

pub mod driver;
pub mod journal;
pub mod machine;
pub mod one_tool;
pub mod session;
