//! The format of a manifest as JSON Schema, for editors: `subtools/pack.schema.json`. A test keeps it up to date.

use schemars::generate::SchemaSettings;
use serde_json::Value;

use super::manifest::PackManifest;
use crate::format;

/// Returns the schema of a manifest, in draft 2020-12.
pub fn manifest_schema() -> Value {
    let schema = SchemaSettings::draft2020_12().into_generator().into_root_schema_for::<PackManifest>();
    let mut schema = schema.to_value();
    format::simplify(&mut schema);
    schema
}

/// Returns [`manifest_schema`] as the text of `subtools/pack.schema.json`.
pub fn manifest_schema_text() -> String {
    format!("{:#}\n", manifest_schema())
}
