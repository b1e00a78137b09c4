//! What callers get to see: the content of result files, and waiting until tasks are final.

pub mod handover;
pub mod result_file;
pub mod shown;
pub mod trigger;
