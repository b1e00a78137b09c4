//! Gates: what a statement does with which table, as the rules of the configuration name it.

use std::collections::BTreeSet;

use globset::GlobSet;
use sql::guard::{NamedTable, named_tables};

use super::{Operation, Sql};
use crate::runner::Invocation;

/// The tables of one statement in one database.
#[derive(Debug)]
pub struct Gates {
    database: String,
    /// Whether it is the change of a caller.
    is_change: bool,
    /// `None` if a statement of the definition cannot be read: then it may do anything. One of the caller is not run then.
    tables: Option<Vec<NamedTable>>,
}

impl Gates {
    /// Whether `patterns` have any of them, or what they are is not known.
    pub fn any(&self, patterns: &GlobSet) -> bool {
        self.tables.as_ref().is_none_or(|tables| tables.iter().any(|table| self.matches(table, patterns)))
    }

    /// Whether `patterns` have all of them, and there is one; of a change, one that writes.
    pub fn all(&self, patterns: &GlobSet) -> bool {
        let is_enough =
            |tables: &&Vec<NamedTable>| tables.iter().any(|table| !self.is_change || table.access.is_write());
        let known = self.tables.as_ref().filter(is_enough);
        known.is_some_and(|tables| tables.iter().all(|table| self.matches(table, patterns)))
    }

    /// A change of a table is called by what it does, and `write`.
    fn matches(&self, table: &NamedTable, patterns: &GlobSet) -> bool {
        let gate = |access: &str| format!("db.{}.{}.{access}", self.database, table.name).to_lowercase();
        patterns.is_match(gate(table.access.as_str())) || (table.access.is_write() && patterns.is_match(gate("write")))
    }
}

impl Sql {
    /// The gates through which the statement of an invocation goes.
    pub fn gates(&self, invocation: &Invocation) -> Gates {
        let text = match self.operation() {
            Operation::Query(template) | Operation::Change(template) | Operation::Explain(template) => {
                Self::text(template, invocation).ok()
            }
            Operation::Statement(statement) => Some(statement.to_owned()),
            Operation::Describe(_) | Operation::ListTables(_) => Some("SELECT 1".to_owned()),
        };
        let is_guarded = !matches!(self.operation(), Operation::Statement(_));
        let named = text.and_then(|text| named_tables(&text)).or_else(|| is_guarded.then(BTreeSet::new));
        let tables = named.map(|tables| tables.into_iter().collect());
        Gates { database: self.database.clone(), is_change: self.changes(), tables }
    }
}
