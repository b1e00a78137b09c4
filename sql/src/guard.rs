//! Which statements of a stranger's model may run, and what is sent in their place.
//!
//! A statement is parsed, walked and printed again; what is sent is never the text that came in. The walk knows each
//! kind of node by name and refuses the others. Tables with hidden columns are replaced by queries of their visible
//! columns, so no expression around them can reach the rest.
//!
//! It judges the text alone. These things are left to the connection: the user's own rights, a read-only transaction
//! where nothing is to be written, a time limit (recursive queries, joins without conditions), and bounds on rows and
//! bytes. Three things it cannot know are left to the rules: a column that is computed from a hidden one, the rows that a
//! parent table shows of a denied child, and what a function does that the rules allow. Triggers, rules and cascades of
//! the database run as it was set up; which tables they change is told with the tables of a statement. In MySQL the session must not have the mode `ANSI_QUOTES`, or strings that were
//! written in double quotes mean something else to the person who wrote them; the text stays safe.
//!
//! The order of reading is `text` and `dialects` (from text to tree), `print` (and back), `catalog`, `functions`,
//! `view`, `visibility` and `scope` (what names mean), `walk` and the kinds of node that it lists, `limit`,
//! `statement`, `touched`, `replaced`. `named_tables` needs `text`, and
//! `set_off` with `trigger`.

mod cascades;
mod catalog;
mod column;
mod data_type;
mod dialects;
mod expansion;
mod expression;
mod function;
mod functions;
mod limit;
mod literal;
mod named_tables;
mod one_walk;
mod print;
mod query;
mod refusal;
mod relation;
mod replaced;
mod scope;
mod set_off;
mod statement;
mod table_use;
mod text;
mod touched;
mod trigger;
mod view;
mod visibility;
mod volatile;
mod walk;
mod write;

use std::fmt;

use catalog::Catalog;
use limit::UnlimitedQuery;
use touched::ShownChange;

pub use crate::schema::TableAccess;
pub use cascades::Cascade;
pub(crate) use dialects::parser_dialect;
pub use named_tables::{KnownNames, NamedTable, NamedTables, named_tables};
pub(crate) use one_walk::{Visitor, walk};
pub use refusal::{Refusal, RefusalKind};
pub use replaced::{ReplacedBecause, ReplacedRows, may_replace};
pub use table_use::TableUse;
pub use text::MAX_STATEMENT_BYTES;
pub(crate) use text::{on_a_deep_stack, parse_one};
pub use touched::{AddedReturning, MAX_COMPARED_ROWS, OtherRows, TouchedQuery, WrittenQuery};
pub use visibility::VisibleTable;

use crate::dialect::Dialect;
use crate::rules::AccessRules;
use crate::schema::{Schema, TableName};

/// How many rows a query returns unless a configuration says otherwise.
pub const DEFAULT_MAX_ROWS: u64 = 100;

/// Checks and rewrites statements for one database and one caller.
#[derive(Debug, Clone, Copy)]
pub struct Guard<'a> {
    pub dialect: Dialect,
    /// All of the database, also what the caller may not see.
    pub schema: &'a Schema,
    pub rules: &'a AccessRules,
    /// Most rows that a query returns at once.
    pub max_rows: u64,
    /// Whether `INSERT`, `UPDATE` and `DELETE` are allowed.
    pub may_write: bool,
}

/// A statement that may run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GuardedStatement {
    /// The text to be sent.
    pub sql: String,
    pub kind: StatementKind,
    /// The tables and views that it uses, in the order in which it names them, each access once.
    pub tables: Vec<TableUse>,
    /// The most rows that `sql` returns; `None` if it has no limit of rows.
    pub limit: Option<u64>,
    /// How many rows `sql` leaves out before the first one.
    pub offset: u64,
    /// The limit is not the statement's own: more rows may exist.
    pub limit_added: bool,
    pub order: RowOrder,
    unlimited: Option<UnlimitedQuery>,
    shown: ShownChange,
}

/// What a statement does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StatementKind {
    Select,
    Show,
    Describe,
    Explain,
    Insert,
    Update,
    Delete,
}

/// Why a text is not a statement that the parser of the dialect understands; `None` if it is one.
pub fn syntax_error(dialect: Dialect, sql: &str) -> Option<String> {
    on_a_deep_stack(|| parse_one(dialect, sql).err().map(|refusal| refusal.message))
}

/// Why a text is refused as a query, whatever the tables are; `None` if that depends on them.
pub fn refused_query(dialect: Dialect, sql: &str) -> Option<Refusal> {
    on_a_deep_stack(|| match parse_one(dialect, sql) {
        Ok(statement) => statement::why_no_query(&statement),
        Err(refusal) => Some(refusal),
    })
}

impl StatementKind {
    pub fn is_write(self) -> bool {
        match self {
            Self::Select | Self::Show | Self::Describe | Self::Explain => false,
            Self::Insert | Self::Update | Self::Delete => true,
        }
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Select => "select",
            Self::Show => "show",
            Self::Describe => "describe",
            Self::Explain => "explain",
            Self::Insert => "insert",
            Self::Update => "update",
            Self::Delete => "delete",
        }
    }
}

impl fmt::Display for StatementKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Whether the rows come in an order that the statement names. Pages of unordered rows may overlap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RowOrder {
    Ordered,
    Unordered,
}

impl<'a> Guard<'a> {
    /// Checks one statement.
    ///
    /// Uses a thread with a large stack while it works, and takes time in proportion to the text.
    pub fn check(&self, sql: &str) -> Result<GuardedStatement, Refusal> {
        on_a_deep_stack(|| {
            let parsed = parse_one(self.dialect, sql)?;
            expansion::check(&parsed)?;
            let mut checked = self.checked(parsed.clone())?;
            if checked.kind.is_write() {
                checked.shown = self.shown(&parsed, &checked);
            }
            Ok(checked)
        })
    }

    /// Returns what the caller may know of the schema: the tables and views that statements may read, and their visible
    /// columns. A foreign key of such a column may still refer to a table or column that is not among them.
    pub fn visible_tables(&self) -> Vec<VisibleTable<'a>> {
        on_a_deep_stack(|| self.catalog().visible_tables())
    }

    /// Returns the views and other relations that callers may not read although no rule denies them, each with the reason.
    pub fn left_out(&self) -> Vec<(&'a TableName, String)> {
        on_a_deep_stack(|| self.catalog().left_out())
    }

    fn catalog(&self) -> Catalog<'a> {
        let hides_anything = self.rules.hides_anything(self.schema);
        Catalog { dialect: self.dialect, schema: self.schema, rules: self.rules, hides_anything }
    }
}

impl GuardedStatement {
    /// Returns the text for rows `offset..offset + limit` of what the statement returns, at most `max_rows` of them;
    /// `None` if it is not a query. A limit and offset of the statement itself bound all pages together.
    pub fn paged(&self, limit: u64, offset: u64) -> Option<String> {
        let query = self.unlimited.as_ref().filter(|query| !query.is_values)?;
        Some(query.page(limit, offset))
    }

    /// Returns the limit that the query itself has; `None` if it has none, or is not a query.
    pub fn own_limit(&self) -> Option<u64> {
        self.unlimited.as_ref()?.own_limit()
    }

    /// Returns the query for the rows that an `UPDATE` or `DELETE` touches, if it can be told.
    pub fn touched(&self) -> Option<&TouchedQuery> {
        self.shown.touched.as_ref()
    }

    /// Returns the statement that also gives the rows that a change writes, where [`Self::touched`] does not tell all.
    pub fn written(&self) -> Option<&WrittenQuery> {
        self.shown.written.as_ref()
    }

    /// Returns what a statement of one's own, of which this one is a copy, ends with to give the rows that it writes.
    pub fn added_returning(&self) -> Option<&AddedReturning> {
        self.shown.added.as_ref()
    }

    /// The columns of a changed table to which the change gives no value, and the database may give another one each time.
    pub fn set_by_database(&self) -> &[String] {
        &self.shown.set_by_database
    }

    /// Returns how the rows are found that a change overwrites or removes to make room for its own; `None` if it does so
    /// with none, or they cannot be found.
    pub fn replaced(&self) -> Option<&ReplacedRows> {
        self.shown.replaced.as_ref()?.as_ref().ok()
    }

    /// Why the rows cannot be found that a change overwrites, removes or writes, and what to write instead.
    pub fn why_not_replaced(&self) -> Option<String> {
        self.shown.replaced.as_ref()?.as_ref().err().cloned()
    }

    /// Returns how the rows that a change wrote are read again, if its triggers may change them.
    pub fn settled(&self) -> Option<&ReplacedRows> {
        self.shown.settled.as_ref()
    }

    /// The columns of the rows as they were that are compared and never shown.
    pub fn hidden(&self) -> &[String] {
        &self.shown.hidden
    }

    /// Whether a statement of one's own finds the rows that it changes before it is run.
    pub fn is_found_before(&self) -> bool {
        self.replaced().is_some() || self.own_touched().is_some()
    }

    /// Returns the query for the rows that an `UPDATE` of one's own touches, if they are the same at another time.
    pub fn own_touched(&self) -> Option<&TouchedQuery> {
        self.shown.touched.as_ref().filter(|touched| self.kind == StatementKind::Update && !touched.is_volatile)
    }

    /// The columns of a statement of one's own that are shown and not compared: with the time or a random number in it, all
    /// but those by which the rows are found that it replaces.
    pub fn not_compared(&self) -> Vec<String> {
        let keys: Vec<&String> = match (self.replaced(), self.own_touched()) {
            (Some(replaced), _) => replaced.keys.iter().flatten().map(|column| &column.name).collect(),
            (None, Some(touched)) => touched.key.iter().collect(),
            (None, None) => return self.shown.set_by_database.clone(),
        };
        let is_left = |name: &&String| {
            self.shown.set_by_database.contains(name)
                || (self.shown.why_not.is_some() && !keys.iter().any(|key| key.eq_ignore_ascii_case(name)))
        };
        self.shown.columns.iter().filter(is_left).cloned().collect()
    }

    /// The foreign keys that carry a change on to other tables.
    pub fn cascades(&self) -> &[Cascade] {
        &self.shown.cascades
    }

    /// Returns the query for the rows that a `DELETE` or `UPDATE` of one's own touches, whether or not they are the same at
    /// another time.
    pub fn rows_of_cascades(&self) -> Option<&TouchedQuery> {
        self.shown.touched.as_ref().filter(|_| !self.shown.cascades.is_empty())
    }

    /// Why a human cannot be shown what a change will do; `None` if it can be shown.
    pub fn why_not_shown(&self) -> Option<&str> {
        self.shown.why_not.as_deref()
    }

    /// Returns the text that counts all rows of the statement, in a column `row_count`; `None` if it is not a query.
    pub fn counted(&self) -> Option<String> {
        self.unlimited.as_ref().map(UnlimitedQuery::counted)
    }
}
