//! SQL of strangers: which statements may run, and what is sent in their place.
//!
//! [`guard`] decides from the text and rewrites it: what is hidden is left out, and no query is without a limit. It needs
//! no connection; `database` runs what it lets pass. Knows nothing of subtools, tasks and configuration files.
//!
//! ```
//! use sql::dialect::Dialect;
//! use sql::guard::{KnownNames, named_tables, refused_query};
//! use sql::schema::TableAccess;
//!
//! assert!(refused_query(Dialect::Sqlite, "SELECT name FROM customer").is_none());
//! let refusal = refused_query(Dialect::Sqlite, "DELETE FROM customer").expect("it is no query");
//! assert!(refusal.message.contains("DELETE"), "{}", refusal.message);
//!
//! let found = named_tables("UPDATE customer SET name = 'Ann'", KnownNames::default()).expect("it can be read");
//! assert!(found.tables.iter().any(|table| table.exact.contains("customer") && table.access == TableAccess::Update));
//! ```

pub mod dialect;
pub mod guard;
pub mod parameters;
pub mod rules;
pub mod schema;
pub mod settings;
pub mod value;
