//! Which tables a statement names, from its text alone: what rules about tables are matched with.
//!
//! Nothing is checked here and no schema is known, so a statement that could mean two things names the tables of both.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use sqlparser::ast::{FromTable, ObjectName, SetExpr, Statement, TableFactor, TableObject, visit_relations};

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
    changed(statement, &mut found);
    found
}

/// Adds the tables that `statement` changes.
fn changed(statement: &Statement, found: &mut BTreeSet<NamedTable>) {
    let mut add = |name: &ObjectName, access| {
        found.insert(NamedTable { name: text(name), access });
    };
    match statement {
        // `WITH … UPDATE` is a query whose body changes rows.
        Statement::Query(query) => {
            if let SetExpr::Insert(inner) | SetExpr::Update(inner) | SetExpr::Delete(inner) = query.body.as_ref() {
                changed(inner, found);
            }
        }
        Statement::Insert(insert) => {
            let TableObject::TableName(name) = &insert.table else { return };
            add(name, TableAccess::Insert);
            // A row that is there already is changed, or makes room.
            if insert.on.is_some() || insert.or.is_some() || insert.replace_into || insert.overwrite {
                add(name, TableAccess::Update);
                add(name, TableAccess::Delete);
            }
        }
        Statement::Update(update) => {
            if let TableFactor::Table { name, .. } = &update.table.relation {
                add(name, TableAccess::Update);
            }
        }
        Statement::Delete(delete) => {
            let (FromTable::WithFromKeyword(from) | FromTable::WithoutKeyword(from)) = &delete.from;
            for table in from {
                if let TableFactor::Table { name, .. } = &table.relation {
                    add(name, TableAccess::Delete);
                }
            }
        }
        _ => {}
    }
}

/// The names alone, whatever quotes they have.
fn text(name: &ObjectName) -> String {
    let parts = name.0.iter().map(|part| part.as_ident().map_or_else(|| part.to_string(), |ident| ident.value.clone()));
    parts.collect::<Vec<_>>().join(".").to_lowercase()
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
        let changed = named("WITH notes AS (SELECT 1) UPDATE customers SET a = 1").expect("it is read");
        assert!(changed.contains(&"customers.update".to_owned()), "{changed:?}");
        assert!(named("UPDATE [customers] SET a = 1").expect("it is read").contains(&"customers.update".to_owned()));
        for replacing in
            ["REPLACE INTO a (x) VALUES (1)", "INSERT INTO a (x) VALUES (1) ON CONFLICT (x) DO UPDATE SET x = 2"]
        {
            assert!(named(replacing).expect("it is read").contains(&"a.update".to_owned()), "{replacing}");
        }
        assert_eq!(named("what is this"), None);
    }
}
