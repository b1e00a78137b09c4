//! Import: turns descriptions that exist already (of APIs, programs and servers) into discovery JSON.
//!
//! Pure: a text in, definitions out. Reading files and URLs, and writing definitions, is up to the command `import`;
//! loading and judging them, up to the catalog.

use serde_json::{Map, Value};

/// What was made of one description.
#[derive(Debug, Default)]
pub struct Imported {
    /// The keys that the definitions share: `$defaults` of the file.
    pub defaults: Map<String, Value>,
    pub subtools: Vec<ImportedSubtool>,
    /// What could not be imported, or was left out on purpose.
    pub left_out: Vec<LeftOut>,
    /// What the human should know or do next, such as storing a key.
    pub notes: Vec<String>,
}

/// One definition.
#[derive(Debug, Clone, PartialEq)]
pub struct ImportedSubtool {
    /// Its name, without a namespace: `[a-zA-Z0-9_-]{1,64}`.
    pub name: String,
    /// Its keys of discovery JSON, without what `$defaults` say already.
    pub definition: Map<String, Value>,
}

/// Something that the description has and the import does not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftOut {
    /// How the description calls it: `POST /users/{id}`, a type, a program's subcommand.
    pub what: String,
    pub reason: String,
}
