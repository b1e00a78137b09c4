//! Discovery JSON: the types of a subtool's definition, and the mistakes that the types do not rule out.
//!
//! Says what a subtool is, and performs nothing: no network, no database, no program. Reading files, merging and judging
//! definitions is up to the catalog, performing them to the runners; both are in the executor.

mod dry_run;
pub mod enabled_files;
pub mod run;
mod subtool;

pub use subtool::{
    Annotations, Confirm, Definition, DryRun, Example, Lookup, Preview, ResultShape, Retries, Undo, Verify,
};
