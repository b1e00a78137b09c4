//! Import: turns descriptions that exist already (of APIs, programs and servers) into discovery JSON.
//!
//! Pure: a text in, definitions out. Reading files and URLs, and writing definitions, is up to the command `import`;
//! loading and judging them, up to the catalog. [`kinds::KINDS`] is the table of what can be imported.
//!
//! ```
//! use import::document::Document;
//! use import::{ImportOptions, kinds};
//!
//! let description = r#"
//! openapi: 3.1.0
//! info: {title: Weather, version: "1"}
//! servers: [{url: "https://api.example.com/v1"}]
//! paths:
//!   /now/{place}:
//!     get:
//!       summary: Tells the current weather of a place.
//!       parameters: [{name: place, in: path, required: true, schema: {type: string}}]
//! "#;
//! let document = Document::new("weather.yaml", description.to_owned())?;
//! let imported = kinds::of(&document)?.import(&document, &ImportOptions::default())?;
//! let subtool = &imported.subtools[0];
//! assert_eq!(subtool.definition["run"]["http"]["path"], "/now/{{ place }}");
//! # Ok::<(), import::ImportError>(())
//! ```

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

pub mod agents;
pub mod curl;
mod describe;
pub mod document;
pub mod file;
mod google;
pub mod graphql;
mod http;
mod identifiers;
pub mod kinds;
mod literal;
pub mod mcp;
pub mod names;
mod openapi;
pub mod phrases;
pub mod program;
mod schema;
pub mod sql;
mod text;

/// What was made of one description.
#[derive(Debug, Default)]
pub struct Imported {
    /// What identifies the described thing across its versions: the title of an API, the name of a program.
    pub id: String,
    /// A short word for it, from which the name of the pack is made when the user gives none.
    pub word: String,
    /// Its version, as the description says it.
    pub version: Option<String>,
    /// The keys that the definitions share: `$defaults` of the file.
    pub defaults: Map<String, Value>,
    pub subtools: Vec<ImportedSubtool>,
    /// How many operations the description has. Each is in `subtools` or in `left_out`.
    pub found: usize,
    /// What could not be imported, or was left out on purpose.
    pub left_out: Vec<LeftOut>,
    /// What was imported with something missing or allowed that the description does not have, or forbids.
    pub simplified: Vec<LeftOut>,
    /// What the human should know or do next, such as storing a key.
    pub notes: Vec<String>,
    /// The names of the secrets that the definitions refer to.
    pub secrets: BTreeSet<String>,
    /// What the source says of itself, kept in its record and used by nothing.
    pub about: Map<String, Value>,
}

/// One definition.
#[derive(Debug, Clone, PartialEq)]
pub struct ImportedSubtool {
    /// Its name, without a namespace: `[a-zA-Z0-9_-]{1,64}`.
    pub name: String,
    /// How the description calls it: `POST /users/{id}`.
    pub what: String,
    /// The part of the description that it belongs to: a tag, a resource. Large packs have a file for each.
    pub group: String,
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

/// What the user wants of a description.
#[derive(Debug, Clone, Default)]
pub struct ImportOptions {
    /// The name of the pack: the first part of each subtool's name, and of the secret. Absent: from the description.
    pub pack: Option<String>,
    /// The URL of the server, if the description names none or another one is meant.
    pub server: Option<String>,
    /// Whether deprecated operations, and parameters that models never set, are kept.
    pub full: bool,
    /// How many levels of objects an input may have. Absent: 4.
    pub depth: Option<usize>,
    /// The most characters of a name: fewer if a namespace is put before it.
    pub max_name_chars: Option<usize>,
    /// Settings that only one kind has, by name.
    pub others: BTreeMap<String, String>,
}

/// Why a description cannot be imported at all.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct ImportError {
    pub message: String,
    pub hint: Option<String>,
}

impl ImportError {
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), hint: None }
    }

    #[must_use]
    pub fn hint(self, hint: impl Into<String>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }
}

impl LeftOut {
    pub fn new(what: impl Into<String>, reason: impl Into<String>) -> Self {
        Self { what: what.into(), reason: reason.into() }
    }
}
