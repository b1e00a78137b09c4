//! The table of what can be imported. A kind has a file of its own and one line here.

use serde_json::{Map, Value, json};

use crate::document::Document;
use crate::{
    ImportError, ImportOptions, Imported, ImportedSubtool, curl, google, graphql, literal, mcp, openapi, phrases,
    program, schema, sql,
};

/// How the words that the user gave become a [`Document`]. Reading is up to the command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reading {
    /// They are a file or a URL.
    FileOrUrl,
    /// They are a file, or the URL of a server that is asked with this GraphQL query.
    FileOrGraphql(&'static str),
    /// They are a program and the words of one of its commands, whose helps are read with [`program::transcript`].
    Program,
    /// They are one command line, read with [`curl::document`].
    CurlLine,
    /// They are a name and an MCP server, which is asked what it offers; see [`mcp::document`].
    McpServer,
    /// They are the name of a database of the configuration, which is asked what it contains; see [`sql::document`].
    Database,
}

/// A kind of description.
#[derive(Debug)]
pub struct Kind {
    /// The word for it on the command line and in `$source`.
    pub word: &'static str,
    /// What it is, for messages.
    pub about: &'static str,
    pub reading: Reading,
    /// Whether a description is of this kind. The first kind of the table that says so is taken.
    pub recognizes: fn(&Document) -> bool,
    make: fn(&Document, &ImportOptions) -> Result<Imported, ImportError>,
    /// Simplifies a definition that the catalog refuses; returns what was simplified, in words.
    pub loosen: fn(&mut Map<String, Value>) -> &'static str,
}

/// How often a read is repeated that failed in a way that passes, such as 429 or 503.
const READ_RETRIES: u32 = 2;

/// Every kind.
pub const KINDS: &[Kind] = &[
    Kind {
        word: "openapi",
        about: "an OpenAPI or Swagger description (2.0, 3.0, 3.1; JSON or YAML)",
        reading: Reading::FileOrUrl,
        recognizes: openapi::recognizes,
        make: openapi::import,
        loosen: schema::loosen,
    },
    Kind {
        word: "google",
        about: "a Google API discovery document",
        reading: Reading::FileOrUrl,
        recognizes: google::recognizes,
        make: google::import,
        loosen: schema::loosen,
    },
    Kind {
        word: "graphql",
        about: "a GraphQL schema, or the answer to an introspection query",
        reading: Reading::FileOrGraphql(graphql::INTROSPECTION_QUERY),
        recognizes: graphql::recognizes,
        make: graphql::import,
        loosen: schema::loosen,
    },
    Kind {
        word: "cli",
        about: "a program that prints its help",
        reading: Reading::Program,
        recognizes: program::recognizes,
        make: program::import,
        loosen: schema::loosen,
    },
    Kind {
        word: "curl",
        about: "a `curl` line",
        reading: Reading::CurlLine,
        recognizes: curl::recognizes,
        make: curl::import,
        loosen: schema::loosen,
    },
    Kind {
        word: "mcp",
        about: "an MCP server",
        reading: Reading::McpServer,
        recognizes: mcp::recognizes,
        make: mcp::import,
        loosen: mcp::loosen,
    },
    Kind {
        word: "sql",
        about: "a database of the configuration",
        reading: Reading::Database,
        recognizes: sql::recognizes,
        make: sql::import,
        loosen: sql::loosen,
    },
];

impl Kind {
    /// Makes definitions of `document`: what each kind makes of it, and what holds for the definitions of all kinds.
    /// What the source brought is data in them.
    pub fn import(&self, document: &Document, options: &ImportOptions) -> Result<Imported, ImportError> {
        let mut imported = (self.make)(document, options)?;
        for ImportedSubtool { definition, .. } in &mut imported.subtools {
            let reads = definition.get("annotations").is_some_and(|hints| hints["readOnlyHint"] == true);
            let asks_a_server = ["http", "mcp"].iter().any(|kind| definition["run"].get(*kind).is_some());
            if reads && asks_a_server && !definition.contains_key("retries") {
                definition.insert("retries".to_owned(), json!({"times": READ_RETRIES}));
            }
        }
        literal::check(&mut imported)?;
        phrases::add(&mut imported);
        Ok(imported)
    }

    /// Whether a file or an answer may be a description of this kind. What a program, a server or a database said is
    /// written down by ourselves: a file that looks like that would choose the program and what it may do.
    fn is_brought(&self, document: &Document) -> bool {
        match self.reading {
            Reading::FileOrUrl | Reading::FileOrGraphql(_) => true,
            Reading::CurlLine => document.from.starts_with("curl "),
            Reading::Program | Reading::McpServer | Reading::Database => false,
        }
    }
}

/// The kind that `word` names.
pub fn named(word: &str) -> Option<&'static Kind> {
    KINDS.iter().find(|kind| kind.word == word)
}

/// The kind of `document`.
pub fn of(document: &Document) -> Result<&'static Kind, ImportError> {
    KINDS.iter().find(|kind| kind.is_brought(document) && (kind.recognizes)(document)).ok_or_else(|| {
        let known: Vec<_> = KINDS.iter().map(|kind| format!("{} (`{}`)", kind.about, kind.word)).collect();
        ImportError::new("it is no description of a known kind").hint(format!("known are {}", known.join(", ")))
    })
}
