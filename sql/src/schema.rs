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
    /// Each table that inherits from another one or is a part of it, with that one: a statement about one of them reaches
    /// rows of the other (PostgreSQL).
    pub heirs: BTreeSet<(TableName, TableName)>,
    /// The columns whose type holds whole rows of tables, also inside of other types, with those tables (PostgreSQL).
    pub rows_in_columns: BTreeMap<(TableName, String), BTreeSet<TableName>>,
    /// The keys of each table whose values no two rows share, the primary one among them.
    pub unique_keys: BTreeMap<TableName, Vec<UniqueKey>>,
    /// Those that carry a change on to another table, also to one that is not in `tables`.
    pub foreign_keys: Vec<ForeignKey>,
    /// What is run when rows of a table or a view change, also of one that is not in `tables`.
    pub triggers: Vec<Trigger>,
    /// Tables whose triggers the user may not see, if they have any.
    pub unseen_triggers: BTreeSet<TableName>,
    /// There is more than this, which callers must not reach, also not through a view.
    pub is_part: bool,
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

impl Table {
    pub(crate) fn primary_key(&self) -> impl Iterator<Item = &Column> {
        self.columns.iter().filter(|column| column.key == Some(Key::Primary))
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TableKind {
    Base,
    View {
        /// The query of the view; `None` if the user of the database may not read it.
        definition: Option<String>,
    },
    /// A table of another server, with columns of its own.
    Foreign {
        /// What it is called there, as far as it says so.
        remote: TableName,
    },
    /// A virtual table, a sequence: what it reads is not known from its columns.
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
    /// Whether the database gives it a new value each time, if a statement gives none: a number, the time, something random.
    pub is_filled: bool,
}

impl Column {
    /// Whether the database may set it by itself to something else each time: a filled column, and a time, which triggers
    /// keep up to date.
    pub fn is_set_by_database(&self) -> bool {
        let type_name = self.type_name.to_lowercase();
        self.is_filled || ["date", "time"].iter().any(|word| type_name.contains(word))
    }
}

/// Tells whether the text of a default computes a value, and is not one.
pub fn is_computed(default: &str) -> bool {
    const WORDS: [&str; 7] =
        ["current_timestamp", "current_date", "current_time", "localtime", "localtimestamp", "now", "sysdate"];
    let outside: String = default.split('\'').step_by(2).collect::<Vec<_>>().join(" ").to_lowercase();
    let mut words = outside.split(|character: char| !character.is_ascii_alphanumeric() && character != '_');
    outside.contains('(') || words.any(|word| WORDS.contains(&word))
}

/// A reference of a table to another one, and what becomes of its rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForeignKey {
    pub child: TableName,
    pub child_columns: Vec<String>,
    pub parent: TableName,
    /// Empty if they are not known.
    pub parent_columns: Vec<String>,
    pub on_delete: ReferenceAction,
    pub on_update: ReferenceAction,
}

/// What becomes of a row that refers to one that changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReferenceAction {
    /// It stays as it is.
    Nothing,
    /// It goes too, or gets the new value.
    Cascade,
    /// Its columns are set to NULL.
    SetNull,
    /// Its columns are set to their defaults.
    SetDefault,
}

impl ReferenceAction {
    pub fn of(words: &str) -> Self {
        match words.to_ascii_uppercase().as_str() {
            "CASCADE" => Self::Cascade,
            "SET NULL" => Self::SetNull,
            "SET DEFAULT" => Self::SetDefault,
            _ => Self::Nothing,
        }
    }
}

/// How a statement uses a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TableAccess {
    Read,
    Insert,
    Update,
    Delete,
}

impl TableAccess {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Insert => "insert",
            Self::Update => "update",
            Self::Delete => "delete",
        }
    }

    pub fn is_write(self) -> bool {
        self != Self::Read
    }
}

/// What is run when rows of a table change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trigger {
    pub table: TableName,
    pub events: BTreeSet<TableAccess>,
    /// An update of one of these columns fires it; of any, if this is empty.
    pub columns: Vec<String>,
    pub body: TriggerBody,
    /// All that the database says of it: when it runs, and what it runs.
    pub definition: String,
}

/// What a trigger does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TriggerBody {
    /// The database says what it writes.
    Writes(BTreeSet<(TableName, TableAccess)>),
    Text {
        text: String,
        /// Names without a schema are looked up elsewhere than in a statement.
        has_own_path: bool,
    },
    Unknown,
}

/// A key whose values no two rows share: a primary key, a constraint, or an index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UniqueKey {
    pub columns: Vec<KeyColumn>,
    /// Rows with the same values in `columns` are all that it keeps apart. Otherwise it is about an expression, a part of a
    /// value, or some rows only.
    pub is_plain: bool,
    /// The database counts a column of it up, so that no row has the number that it gives next.
    pub is_counted: bool,
    /// A row that is written takes the place of one with the same key, whatever the statement says (SQLite).
    pub replaces: bool,
}

/// A column of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyColumn {
    pub name: String,
    /// How its texts are compared, if the column's own way does not count.
    pub collation: Option<String>,
}

impl KeyColumn {
    pub fn new(name: String) -> Self {
        Self { name, collation: None }
    }
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
