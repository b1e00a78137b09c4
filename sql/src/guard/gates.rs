//! Which tables a statement names, from its text alone: what rules about tables are matched with.
//!
//! Nothing is checked here and no schema is known, so a statement that could mean two things names the tables of both.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use sqlparser::ast::{FromTable, ObjectName, Statement, TableFactor, TableObject, visit_relations};

use super::table_use::TableAccess;
use super::text::{on_a_deep_stack, parse_one};
use crate::dialect::Dialect;

/// A table as a statement names it, in lower case, and what the statement does with it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct NamedTable {
    /// `table`, or `schema.table` if the statement says so.
    pub name: String,
    pub access: TableAccess,
}

/// Returns the tables that `sql` names, however it is read; `None` if it cannot be read at all.
pub fn named_tables(sql: &str) -> Option<BTreeSet<NamedTable>> {
    on_a_deep_stack(|| {
        let dialects = [Dialect::Postgres, Dialect::Mysql, Dialect::Sqlite];
        let parsed: Vec<_> = dialects.into_iter().filter_map(|dialect| parse_one(dialect, sql).ok()).collect();
        (!parsed.is_empty()).then(|| parsed.iter().flat_map(tables_of).collect())
    })
}

fn tables_of(statement: &Statement) -> BTreeSet<NamedTable> {
    let mut found = BTreeSet::new();
    let reading = visit_relations(statement, |name: &ObjectName| {
        found.insert(NamedTable { name: text(name), access: TableAccess::Read });
        ControlFlow::<()>::Continue(())
    });
    debug_assert!(reading.is_continue());
    let mut changed = |name: &ObjectName, access| {
        found.insert(NamedTable { name: text(name), access });
    };
    match statement {
        Statement::Insert(insert) => {
            if let TableObject::TableName(name) = &insert.table {
                changed(name, TableAccess::Insert);
            }
        }
        Statement::Update(update) => {
            if let TableFactor::Table { name, .. } = &update.table.relation {
                changed(name, TableAccess::Update);
            }
        }
        Statement::Delete(delete) => {
            let (FromTable::WithFromKeyword(from) | FromTable::WithoutKeyword(from)) = &delete.from;
            for table in from {
                if let TableFactor::Table { name, .. } = &table.relation {
                    changed(name, TableAccess::Delete);
                }
            }
        }
        _ => {}
    }
    found
}

fn text(name: &ObjectName) -> String {
    let part = |part: &sqlparser::ast::ObjectNamePart| part.to_string().trim_matches(['"', '`', '\'']).to_lowercase();
    name.0.iter().map(part).collect::<Vec<_>>().join(".")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(sql: &str) -> Option<Vec<String>> {
        let shown = |table: NamedTable| format!("{}.{}", table.name, table.access.as_str());
        Some(named_tables(sql)?.into_iter().map(shown).collect())
    }

    #[test]
    fn the_tables_of_a_statement_are_named_with_what_is_done_to_them() {
        let of = |tables: &[&str]| Some(tables.iter().map(|table| (*table).to_owned()).collect::<Vec<_>>());
        assert_eq!(named("SELECT * FROM a JOIN s.B ON true"), of(&["a.read", "s.b.read"]));
        assert_eq!(
            named("DELETE FROM \"Orders\" WHERE id IN (SELECT id FROM old)"),
            of(&["old.read", "orders.read", "orders.delete"])
        );
        assert_eq!(named("UPDATE `orders` SET a = 1"), of(&["orders.read", "orders.update"]));
        assert_eq!(named("INSERT INTO a (x) VALUES (1)"), of(&["a.read", "a.insert"]));
        assert_eq!(named("what is this"), None);
    }
}
