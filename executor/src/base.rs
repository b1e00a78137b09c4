//! What everything else is built on: expressions, templates, schemas, and whom a file may be trusted to.

pub mod jq;
pub mod schema;
pub mod select;
pub mod template;
pub mod trust;
