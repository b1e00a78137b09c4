//! What a database contains, as it was when it was read: all of it, also what a caller may not see.

use std::collections::{BTreeMap, BTreeSet};

/// The tables and views of a database.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Schema {
    /// The schemas in which an unqualified name is looked up, the first one first. MySQL has one, the database; SQLite's
    /// is `main`.
    pub search_path: Vec<String>,
    pub tables: BTreeMap<TableName, Table>,
    /// The names of functions that people made there, where one may have the name of a built-in function (PostgreSQL).
    pub functions: BTreeSet<String>,
}

/// The full name of a table or view, in the spelling that the database keeps.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TableName {
    pub schema: String,
    pub name: String,
}

/// A table or a view.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    pub kind: TableKind,
    pub comment: Option<String>,
    /// In the database's order.
    pub columns: Vec<Column>,
    /// The number of rows that the database estimates, if it does.
    pub estimated_rows: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TableKind {
    Base,
    View {
        /// The query of the view; `None` if the user of the database may not read it.
        definition: Option<String>,
    },
    /// A materialized view, a foreign table, a virtual table: what it reads is not known from its columns.
    Other,
}

/// A column of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    pub name: String,
    /// The type as the database writes it, like `varchar(255)`.
    pub type_name: String,
    pub nullable: bool,
    pub default: Option<String>,
    pub key: Option<Key>,
    pub comment: Option<String>,
    /// What it may hold, of an enumeration.
    pub values: Vec<String>,
}

/// The part of a column in a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Key {
    Primary,
    Unique,
    /// It refers to a column of another table.
    Foreign {
        table: TableName,
        column: String,
    },
}
