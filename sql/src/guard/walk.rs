//! The walk over a statement: every node is named here or refused, tables are resolved, and those with hidden columns
//! are replaced by queries of their visible ones.
//!
//! Every structure of the parser is taken apart completely, so that a field or variant that a new version of the parser
//! brings does not compile until it is decided on.
//!
//! Here is what a walk knows. How it walks is beside it, in a file for each kind of node; read them from the leaves up:
//! [`super::literal`], [`super::data_type`], [`super::column`], [`super::expression`], [`super::function`],
//! [`super::relation`], [`super::query`], [`super::write`]. Expressions, calls, relations and queries call each other,
//! because SQL nests them in each other.

use sqlparser::ast::Ident;

use super::catalog::Catalog;
use super::dialects::folded;
use super::scope::{CteName, Scopes};
use super::table_use::TableUse;
use crate::dialect::Dialect;
use crate::schema::TableAccess;
use crate::schema::TableName;

/// The names of a query's columns; `None` if one of them is not known.
pub(super) type OutputColumns = Option<Vec<String>>;

/// The state of one walk.
#[derive(Debug)]
pub(super) struct Walk<'a> {
    pub(super) catalog: Catalog<'a>,
    pub(super) scopes: Scopes,
    pub(super) ctes: Vec<CteName>,
    pub(super) uses: Vec<TableUse>,
    /// `DEFAULT` and `VALUES(column)` may stand in the values of a write.
    pub(super) in_write: bool,
    /// How many relations were walked.
    pub(super) relations: usize,
    /// A function that makes long values is around; another one inside of it would multiply.
    pub(super) in_growing: bool,
}

impl<'a> Walk<'a> {
    pub(super) fn new(catalog: Catalog<'a>) -> Self {
        Self {
            catalog,
            scopes: Scopes::default(),
            ctes: Vec::new(),
            uses: Vec::new(),
            in_write: false,
            relations: 0,
            in_growing: false,
        }
    }

    pub(super) fn dialect(&self) -> Dialect {
        self.catalog.dialect
    }

    pub(super) fn name(&self, ident: &Ident) -> String {
        folded(self.catalog.dialect, ident)
    }

    pub(super) fn note_use(&mut self, name: &TableName, access: TableAccess) {
        let table_use = TableUse { name: name.clone(), access };
        if !self.uses.contains(&table_use) {
            self.uses.push(table_use);
        }
    }
}
