//! The lowest layer: jq expressions, templates, JSON Schemas and file trust checks.

pub mod jq;
pub mod schema;
pub mod select;
pub mod template;
pub mod trust;
