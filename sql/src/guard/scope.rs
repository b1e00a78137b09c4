//! Which names are visible where: the relations of each `FROM`, the names of `WITH`, and what a column may mean.

use super::dialects::same;
use super::refusal::Refusal;
use crate::dialect::Dialect;
use crate::schema::TableName;

/// A relation in a `FROM` clause, as the expressions beside it see it.
#[derive(Debug, Clone)]
pub(super) struct Source {
    /// Its alias, or its name.
    pub(super) name: Option<String>,
    /// Its full name, if it is a table without an alias.
    pub(super) table: Option<TableName>,
    /// A table with hidden columns that was replaced by a query of its visible ones.
    pub(super) is_wrapped: bool,
    /// `None` if they are not known; then the database decides.
    pub(super) columns: Option<Vec<String>>,
}

/// The names that the expressions of one query see.
#[derive(Debug, Clone, Default)]
pub(super) struct Scope {
    pub(super) sources: Vec<Source>,
    /// Names given in the list after `SELECT`, and windows' names do not count.
    pub(super) aliases: Vec<String>,
}

/// A name defined by `WITH`.
#[derive(Debug, Clone)]
pub(super) struct CteName {
    pub(super) name: String,
    /// The name under which it is sent: another one if a table has that name.
    pub(super) sent: String,
    pub(super) columns: Option<Vec<String>>,
}

/// What a column reference means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Meaning {
    /// It is a column or alias, or may be one of a relation whose columns are not known.
    Found,
    Unknown,
}

/// The scopes around an expression, the innermost one last.
#[derive(Debug, Clone, Default)]
pub(super) struct Scopes {
    pub(super) stack: Vec<Scope>,
    /// Set while a table with hidden columns is written to: it cannot be wrapped, so every name must be certain.
    pub(super) strict: Option<StrictNames>,
}

/// What no expression may name while a table with hidden columns is written to.
///
/// A name is refused wherever it is used: which of two relations of one name an expression in `ON` sees depends on how
/// the joins are nested, and must not be guessed here.
#[derive(Debug, Clone)]
pub(super) struct StrictNames {
    /// The hidden columns, in lower case.
    pub(super) hidden: Vec<String>,
    /// The names of the table and of its rows, in lower case: no other relation may take one, and none stands alone.
    pub(super) rows: Vec<String>,
}

impl StrictNames {
    /// Names with other letters than ASCII are not certain: MySQL takes `ä` for `a`.
    fn forbids_column(&self, name: &str) -> bool {
        let name = name.trim().to_lowercase();
        !name.is_ascii() || self.hidden.contains(&name) || self.rows.contains(&name)
    }

    pub(super) fn names_row(&self, name: &str) -> bool {
        self.rows.contains(&name.trim().to_lowercase())
    }
}

impl Scopes {
    pub(super) fn innermost(&mut self) -> &mut Scope {
        if self.stack.is_empty() {
            self.stack.push(Scope::default());
        }
        self.stack.last_mut().expect("one was pushed if there was none")
    }

    /// Looks for a column without a table's name.
    pub(super) fn column(&self, dialect: Dialect, column: &str) -> Meaning {
        if self.forbids_column(column) {
            return Meaning::Unknown;
        }
        for scope in self.stack.iter().rev() {
            // Not every clause sees an alias, so where names must be certain it does not count.
            let is_alias = self.strict.is_none() && scope.aliases.iter().any(|alias| same(dialect, alias, column));
            if is_alias || scope.sources.iter().any(|source| self.may_have(source, dialect, column)) {
                return Meaning::Found;
            }
            // A whole row, which shows no more than the columns of the source.
            let is_row = |source: &Source| source.name.as_ref().is_some_and(|name| same(dialect, name, column));
            if dialect == Dialect::Postgres && self.strict.is_none() && scope.sources.iter().any(is_row) {
                return Meaning::Found;
            }
        }
        Meaning::Unknown
    }

    /// Tells whether no expression may name a column so, with or without a table's name before it.
    pub(super) fn forbids_column(&self, column: &str) -> bool {
        self.strict.as_ref().is_some_and(|strict| strict.forbids_column(column))
    }

    fn may_have(&self, source: &Source, dialect: Dialect, column: &str) -> bool {
        match &source.columns {
            Some(columns) => has(dialect, columns, column),
            None => self.strict.is_none(),
        }
    }

    /// Looks for the relation that `name.` before a column means.
    pub(super) fn source(&self, dialect: Dialect, name: &str) -> Option<&Source> {
        self.stack.iter().rev().find_map(|scope| {
            scope.sources.iter().find(|source| source.name.as_ref().is_some_and(|own| same(dialect, own, name)))
        })
    }

    /// Looks for the table that `schema.name.` before a column means.
    pub(super) fn table(&self, dialect: Dialect, schema: &str, name: &str) -> Option<&Source> {
        self.stack.iter().rev().find_map(|scope| {
            scope.sources.iter().find(|source| {
                source
                    .table
                    .as_ref()
                    .is_some_and(|table| same(dialect, &table.schema, schema) && same(dialect, &table.name, name))
            })
        })
    }

    /// All names that an unqualified column may have here, for a hint.
    pub(super) fn all_columns(&self) -> Vec<String> {
        let mut columns: Vec<String> = Vec::new();
        for source in self.stack.iter().rev().flat_map(|scope| &scope.sources) {
            for column in source.columns.iter().flatten() {
                if !columns.contains(column) {
                    columns.push(column.clone());
                }
            }
        }
        columns
    }

    /// The name of the only relation, for an error message.
    pub(super) fn only_source(&self) -> Option<&str> {
        let mut sources = self.stack.iter().flat_map(|scope| &scope.sources);
        let name = sources.next()?.name.as_deref();
        if sources.next().is_some() { None } else { name }
    }

    pub(super) fn no_such_source(&self, name: &str) -> Refusal {
        let names: Vec<String> = self
            .stack
            .iter()
            .rev()
            .flat_map(|scope| &scope.sources)
            .filter_map(|source| source.name.as_ref().map(|name| format!("`{name}`")))
            .collect();
        let hint = if names.is_empty() {
            "add the table to `FROM`".to_owned()
        } else {
            format!("the tables of this query are {}; a table with an alias has only that name", names.join(", "))
        };
        Refusal::new(
            super::refusal::RefusalKind::NoSuchTable,
            format!("no table or alias `{}` in this query", super::text::shortened(name)),
            hint,
        )
    }
}

pub(super) fn has(dialect: Dialect, columns: &[String], column: &str) -> bool {
    columns.iter().any(|own| same(dialect, own, column))
}
