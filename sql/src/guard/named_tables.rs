//! Which tables a statement touches: what rules about tables are matched with.
//!
//! A table has every name by which a statement could call it, and a view is also what it reads. What a change sets off in
//! other tables is there too. As long as the schema is
//! not known, a statement that could mean two things names the tables of both. Nothing is checked here.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use sqlparser::ast::{
    Assignment, Expr, FromTable, ObjectName, ObjectNamePart, OnConflictAction, OnInsert, Query, Select, SetExpr,
    SqliteOnConflict, Statement, TableFactor, TableObject, TableWithJoins, UpdateTableFromKind,
};

use super::catalog::{Catalog, WrittenTable};
use super::dialects::folded;
use super::functions::may_call;
use super::one_walk::{Visitor, walk, walk_relations};
use super::set_off::{TableChange, set_off};
use super::text::{on_a_deep_stack, parse_one};
use super::touched::targets;
use super::view::read_tables;
use crate::dialect::Dialect;
use crate::rules::{AccessLists, AccessRules};
use crate::schema::TableAccess;
use crate::schema::{Schema, Table, TableKind, TableName};

/// What is known of the database of a statement.
#[derive(Debug, Clone, Copy, Default)]
pub struct KnownNames<'a> {
    /// `None`: it may be any.
    pub dialect: Option<Dialect>,
    /// The schemas in which a table without one may be, while `schema` is not known.
    pub likely_schemas: &'a [String],
    /// The functions that a human allowed by name, as in [`AccessLists`].
    pub functions: &'a [String],
    pub schema: Option<&'a Schema>,
}

/// A table that a statement touches, and how. All names are in lower case.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct NamedTable {
    /// Every name that it has: with its schema, and without.
    pub names: BTreeSet<String>,
    /// The names by which a rule that allows must call it: not without its schema, if it is not found without.
    pub exact: BTreeSet<String>,
    pub access: TableAccess,
    /// Whether a rule that allows must have it: the statement names it, or sets off a change of it. Otherwise it is what a
    /// view reads, or what has the same rows.
    pub must_be_allowed: bool,
}

/// The tables of a statement.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NamedTables {
    pub tables: BTreeSet<NamedTable>,
    /// What it does with tables that are not known, through a view that cannot be understood.
    pub unknown: BTreeSet<TableAccess>,
    /// It sets off a trigger that may write any table.
    pub may_write_any: bool,
    /// What it sets off by foreign keys and triggers, in words: `orders (delete)`.
    pub sets_off: BTreeSet<String>,
    /// The foreign keys and triggers that do so, as the database has them.
    pub definitions: BTreeSet<String>,
}

impl NamedTables {
    /// What a statement touches that reads this table alone.
    pub fn read(table: &TableName) -> Self {
        let names = names_of(table);
        let read = NamedTable { exact: names.clone(), names, access: TableAccess::Read, must_be_allowed: true };
        Self { tables: BTreeSet::from([read]), ..Self::default() }
    }
}

/// Returns the tables that `sql` touches; `None` if it cannot be read, or may do anything.
pub fn named_tables(sql: &str, known: KnownNames<'_>) -> Option<NamedTables> {
    on_a_deep_stack(|| {
        let dialects = known.dialect.map_or(vec![Dialect::Postgres, Dialect::Mysql, Dialect::Sqlite], |it| vec![it]);
        let functions = known.functions.to_vec();
        let lists = AccessLists { hidden_columns: Vec::new(), functions, ..AccessLists::default() };
        let rules = AccessRules::new(&lists).ok()?;
        let empty = Schema::default();
        let mut found = NamedTables::default();
        let mut is_read = false;
        for dialect in dialects {
            let Ok(statement) = parse_one(dialect, sql) else { continue };
            is_read = true;
            let schema = known.schema.unwrap_or(&empty);
            let catalog = Catalog { dialect, schema, rules: &rules, hides_anything: false };
            let written = written_tables(&catalog, &statement)?;
            let mut naming = Naming { catalog, known, found: &mut found, changes: Vec::new() };
            for (table, access) in &written.tables {
                naming.add(table, *access);
            }
            naming.add_set_off(&written);
        }
        is_read.then_some(found)
    })
}

struct Naming<'a> {
    catalog: Catalog<'a>,
    known: KnownNames<'a>,
    found: &'a mut NamedTables,
    /// What is changed, each with the full name of its table.
    changes: Vec<(TableName, TableAccess)>,
}

impl Naming<'_> {
    /// Adds what the changes so far set off in other tables.
    fn add_set_off(&mut self, written: &WrittenTables) {
        let schema = self.catalog.schema;
        let replaces =
            |name: &TableName| schema.unique_keys.get(name).is_some_and(|keys| keys.iter().any(|it| it.replaces));
        // A row makes room for another one because the table says so.
        let making_room: Vec<_> =
            self.changes.iter().filter(|(name, access)| access.is_write() && replaces(name)).cloned().collect();
        for (name, _) in &making_room {
            self.add_found(name, TableAccess::Delete);
        }
        let is_real = |access: TableAccess| access != TableAccess::Delete || written.deletes || !making_room.is_empty();
        // A view may call a column by another name.
        let is_view = |name: &TableName| {
            schema.tables.get(name).is_some_and(|table| matches!(table.kind, TableKind::View { .. }))
        };
        let has_view = self.changes.iter().any(|(name, access)| access.is_write() && is_view(name));
        let columns =
            |access| if access == TableAccess::Update && !has_view { written.set_columns.clone() } else { None };
        let changes = std::mem::take(&mut self.changes).into_iter().filter(|(_, access)| is_real(*access));
        let changes = changes.map(|(table, access)| TableChange { table, access, columns: columns(access) }).collect();
        let set_off = set_off(&self.catalog, changes);
        self.found.definitions.extend(set_off.definitions.iter().cloned());
        for (name, access) in &set_off.changes {
            self.found.sets_off.insert(format!("{} ({})", name.name, access.as_str()));
            self.add_found(name, *access);
        }
        for (written, access) in &set_off.unknown_tables {
            self.found.sets_off.insert(format!("{} ({})", written.name, access.as_str()));
            self.add_unknown(written, *access);
        }
        if set_off.may_write_any {
            self.found.may_write_any = true;
            self.found.sets_off.insert("whatever its triggers change".to_owned());
        }
        if set_off.may_be_more {
            let unseen = "what triggers change that the database's user may not see, since it lacks the right TRIGGER";
            self.found.sets_off.insert(unseen.to_owned());
        }
    }

    fn add(&mut self, written: &WrittenTable, access: TableAccess) {
        match self.catalog.lookup(written) {
            Some((name, _)) => self.add_found(name, access),
            None => self.add_unknown(written, access),
        }
    }

    /// Adds a table by its full name.
    fn add_found(&mut self, name: &TableName, access: TableAccess) {
        let alone = WrittenTable { schema: None, name: name.name.clone() };
        let is_found_without = self.catalog.lookup(&alone).is_some_and(|(found, _)| found == name);
        let names = names_of(name);
        let exact = if is_found_without { names.clone() } else { BTreeSet::from([full(name)]) };
        self.found.tables.insert(NamedTable { names, exact, access, must_be_allowed: true });
        self.changes.push((name.clone(), access));
        if let Some(table) = self.catalog.schema.tables.get(name) {
            self.add_rest(name, table, access);
        }
    }

    /// Adds a table that is not in the schema, or whose schema is not known.
    fn add_unknown(&mut self, written: &WrittenTable, access: TableAccess) {
        let plain = written.name.to_lowercase();
        let mut names = BTreeSet::from([plain.clone()]);
        let exact = if let Some(schema) = &written.schema {
            format!("{schema}.{plain}").to_lowercase()
        } else {
            let schemas = self.known.likely_schemas.iter();
            names.extend(schemas.map(|schema| format!("{}.{plain}", schema.to_lowercase())));
            plain
        };
        names.insert(exact.clone());
        let exact = BTreeSet::from([exact]);
        self.found.tables.insert(NamedTable { names, exact, access, must_be_allowed: true });
        // A partition is no table of its own in the schema.
        let is_it = |name: &TableName| {
            name.name.eq_ignore_ascii_case(&written.name)
                && written.schema.as_ref().is_none_or(|schema| name.schema.eq_ignore_ascii_case(schema))
        };
        let heirs = self.catalog.schema.heirs.iter().map(|(child, _)| child);
        let alike: Vec<_> = heirs.filter(|child| is_it(child)).cloned().collect();
        for name in alike {
            self.changes.push((name.clone(), access));
            self.add_heirs(&name, access);
        }
    }

    /// Adds what else a statement touches that names `name`.
    fn add_rest(&mut self, name: &TableName, table: &Table, access: TableAccess) {
        self.add_heirs(name, access);
        match &table.kind {
            TableKind::Base | TableKind::Other => {}
            TableKind::Foreign { remote } => self.add_unnamed(remote, access),
            TableKind::View { definition } => {
                let mut read = BTreeSet::new();
                let is_known =
                    definition.as_deref().is_some_and(|text| read_tables(&self.catalog, text, &mut read).is_ok());
                // A change of a view changes what it shows.
                for access in BTreeSet::from([TableAccess::Read, access]) {
                    if !is_known {
                        self.found.unknown.insert(access);
                    }
                    for name in &read {
                        self.add_unnamed(name, access);
                        self.add_heirs(name, access);
                    }
                }
            }
        }
    }

    fn add_heirs(&mut self, name: &TableName, access: TableAccess) {
        let schema = self.catalog.schema;
        for (child, parent) in &schema.heirs {
            if child == name {
                self.add_unnamed(parent, access);
            } else if parent == name {
                self.add_unnamed(child, access);
            }
        }
    }

    fn add_unnamed(&mut self, name: &TableName, access: TableAccess) {
        self.changes.push((name.clone(), access));
        let names = names_of(name);
        self.found.tables.insert(NamedTable { exact: names.clone(), names, access, must_be_allowed: false });
    }
}

fn full(name: &TableName) -> String {
    format!("{}.{}", name.schema, name.name).to_lowercase()
}

fn names_of(name: &TableName) -> BTreeSet<String> {
    BTreeSet::from([name.name.to_lowercase(), full(name)])
}

/// The tables as a statement writes them.
struct WrittenTables {
    tables: Vec<(WrittenTable, TableAccess)>,
    /// Rows may go. It is no access of its own: an update of a row that is there has the accesses of a replacement too.
    deletes: bool,
    /// The columns that it updates; `None` if it may be any.
    set_columns: Option<BTreeSet<String>>,
}

/// The tables of a statement; `None` if it is one that may change other things than rows, or calls a function that may do
/// anything, such as run a text as a statement.
fn written_tables(catalog: &Catalog<'_>, statement: &Statement) -> Option<WrittenTables> {
    let mut search = TableSearch {
        catalog,
        found: Vec::new(),
        deletes: false,
        set_columns: Some(BTreeSet::new()),
        may_do_anything: false,
    };
    let reading = walk_relations(statement, |name: &ObjectName| {
        search.add(name, TableAccess::Read);
        ControlFlow::<()>::Continue(())
    });
    debug_assert!(reading.is_continue());
    let walked = walk(statement, &mut search);
    debug_assert!(walked.is_continue());
    let TableSearch { found: tables, deletes, set_columns, may_do_anything, .. } = search;
    (!may_do_anything).then_some(WrittenTables { tables, deletes, set_columns })
}

/// Whether the function only gives a new key, or the last one. Such are on no list, since callers do not need them.
fn is_of_sequences(function: &ObjectName) -> bool {
    const NAMES: [&str; 5] = ["nextval", "currval", "lastval", "last_insert_id", "last_insert_rowid"];
    let [ObjectNamePart::Identifier(name)] = function.0.as_slice() else { return false };
    NAMES.contains(&name.value.to_ascii_lowercase().as_str())
}

struct TableSearch<'a> {
    catalog: &'a Catalog<'a>,
    found: Vec<(WrittenTable, TableAccess)>,
    deletes: bool,
    set_columns: Option<BTreeSet<String>>,
    may_do_anything: bool,
}

impl TableSearch<'_> {
    fn add(&mut self, name: &ObjectName, access: TableAccess) {
        let part = |part: &ObjectNamePart| match part.as_ident() {
            Some(ident) => folded(self.catalog.dialect, ident),
            None => part.to_string(),
        };
        let mut parts: Vec<String> = name.0.iter().map(part).collect();
        let Some(name) = parts.pop() else { return };
        self.found.push((WrittenTable { schema: parts.pop(), name }, access));
    }

    fn calls(&mut self, function: &ObjectName) {
        self.may_do_anything |= !is_of_sequences(function) && may_call(self.catalog, function).is_err();
    }

    fn sets(&mut self, assignments: &[Assignment]) {
        for assignment in assignments {
            for target in targets(assignment) {
                match (target.0.last().and_then(ObjectNamePart::as_ident), &mut self.set_columns) {
                    (Some(column), Some(columns)) => drop(columns.insert(folded(self.catalog.dialect, column))),
                    _ => self.set_columns = None,
                }
            }
        }
    }

    /// Adds the tables of a relation and of what is joined to it.
    fn add_joined(&mut self, table: &TableWithJoins, access: TableAccess) {
        let joined = table.joins.iter().map(|join| &join.relation);
        for factor in std::iter::once(&table.relation).chain(joined) {
            match factor {
                TableFactor::Table { name, .. } => self.add(name, access),
                TableFactor::NestedJoin { table_with_joins, .. } => self.add_joined(table_with_joins, access),
                _ => {}
            }
        }
    }

    fn changes(&mut self, statement: &Statement) {
        match statement {
            Statement::Query(_)
            | Statement::Explain { .. }
            | Statement::ExplainTable { .. }
            | Statement::ShowTables { .. }
            | Statement::ShowColumns { .. }
            | Statement::ShowVariable { .. } => {}
            Statement::Insert(insert) => {
                let TableObject::TableName(name) = &insert.table else {
                    self.may_do_anything = true;
                    return;
                };
                self.add(name, TableAccess::Insert);
                // A row that is there already is changed, or makes room.
                if insert.on.is_some() || insert.or.is_some() || insert.replace_into || insert.overwrite {
                    self.add(name, TableAccess::Update);
                    self.add(name, TableAccess::Delete);
                }
                self.deletes |=
                    insert.replace_into || insert.overwrite || matches!(insert.or, Some(SqliteOnConflict::Replace));
                match &insert.on {
                    Some(OnInsert::DuplicateKeyUpdate(assignments)) => self.sets(assignments),
                    Some(OnInsert::OnConflict(on)) => {
                        if let OnConflictAction::DoUpdate(update) = &on.action {
                            self.sets(&update.assignments);
                        }
                    }
                    _ => {}
                }
            }
            Statement::Update(update) => {
                self.add_joined(&update.table, TableAccess::Update);
                self.sets(&update.assignments);
                self.deletes |= matches!(update.or, Some(SqliteOnConflict::Replace));
                if update.or.is_some() {
                    self.add_joined(&update.table, TableAccess::Delete);
                }
                if let Some(UpdateTableFromKind::BeforeSet(tables)) = &update.from {
                    for table in tables {
                        self.add_joined(table, TableAccess::Update);
                    }
                }
            }
            Statement::Delete(delete) => {
                self.deletes = true;
                let (FromTable::WithFromKeyword(from) | FromTable::WithoutKeyword(from)) = &delete.from;
                for table in from {
                    self.add_joined(table, TableAccess::Delete);
                }
                for name in &delete.tables {
                    self.add(name, TableAccess::Delete);
                }
                if self.catalog.dialect == Dialect::Mysql {
                    for table in delete.using.iter().flatten() {
                        self.add_joined(table, TableAccess::Delete);
                    }
                }
            }
            Statement::Merge(merge) => {
                (self.deletes, self.set_columns) = (true, None);
                if let TableFactor::Table { name, .. } = &merge.table {
                    for access in [TableAccess::Insert, TableAccess::Update, TableAccess::Delete] {
                        self.add(name, access);
                    }
                }
            }
            _ => self.may_do_anything = true,
        }
    }
}

impl Visitor<()> for TableSearch<'_> {
    /// Also a statement inside of another one: `WITH gone AS (DELETE …)`, `EXPLAIN UPDATE …`.
    fn visit_statement(&mut self, statement: &Statement) -> ControlFlow<()> {
        self.changes(statement);
        ControlFlow::Continue(())
    }

    fn visit_query(&mut self, query: &Query) -> ControlFlow<()> {
        self.body(&query.body);
        ControlFlow::Continue(())
    }

    fn visit_select(&mut self, select: &Select) -> ControlFlow<()> {
        self.may_do_anything |= select.into.is_some();
        ControlFlow::Continue(())
    }

    fn visit_expr(&mut self, expression: &Expr) -> ControlFlow<()> {
        if let Expr::Function(function) = expression {
            self.calls(&function.name);
        }
        ControlFlow::Continue(())
    }

    fn visit_table_factor(&mut self, factor: &TableFactor) -> ControlFlow<()> {
        if let TableFactor::Table { name, args: Some(_), .. } | TableFactor::Function { name, .. } = factor {
            self.calls(name);
        }
        ControlFlow::Continue(())
    }
}

impl TableSearch<'_> {
    /// `TABLE name` is a query whose table no visitor sees.
    fn body(&mut self, body: &SetExpr) {
        match body {
            SetExpr::Table(table) => {
                if let Some(name) = &table.table_name {
                    let name = WrittenTable { schema: table.schema_name.clone(), name: name.clone() };
                    self.found.push((name, TableAccess::Read));
                }
            }
            SetExpr::SetOperation { left, right, .. } => {
                self.body(left);
                self.body(right);
            }
            SetExpr::Insert(inner) | SetExpr::Update(inner) | SetExpr::Delete(inner) | SetExpr::Merge(inner) => {
                self.changes(inner);
            }
            SetExpr::Select(_) | SetExpr::Query(_) | SetExpr::Values(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(sql: &str) -> Option<Vec<String>> {
        let shown =
            |table: NamedTable| format!("{}.{}", table.exact.iter().next().expect("a name"), table.access.as_str());
        Some(named_tables(sql, KnownNames::default())?.tables.into_iter().map(shown).collect())
    }

    #[test]
    fn every_form_of_a_change_is_found() {
        for (sql, accesses) in [
            ("INSERT OR REPLACE INTO a (x) VALUES (1)", &["a.insert", "a.update", "a.delete"][..]),
            ("REPLACE INTO a (x) VALUES (1)", &["a.insert", "a.update", "a.delete"]),
            ("INSERT OR IGNORE INTO a (x) VALUES (1)", &["a.insert"]),
            ("INSERT INTO a (x) VALUES (1) ON CONFLICT (x) DO UPDATE SET x = 2", &["a.insert", "a.update"]),
            ("INSERT INTO a (x) VALUES (1) ON DUPLICATE KEY UPDATE x = 2", &["a.insert", "a.update"]),
            ("UPDATE OR REPLACE a SET x = 1", &["a.update", "a.delete"]),
            ("UPDATE b JOIN a ON a.id = b.id SET a.x = 1", &["a.update", "b.update"]),
            ("DELETE a FROM a JOIN b ON a.id = b.id", &["a.delete"]),
            ("WITH gone AS (DELETE FROM a RETURNING x) SELECT * FROM gone", &["a.delete"]),
            ("MERGE INTO a USING b ON a.id = b.id WHEN MATCHED THEN DELETE", &["a.delete", "b.read"]),
            ("EXPLAIN SELECT * FROM a", &["a.read"]),
            ("EXPLAIN QUERY PLAN SELECT * FROM a", &["a.read"]),
        ] {
            let found = named(sql).unwrap_or_else(|| panic!("`{sql}` is not read"));
            for access in accesses {
                assert!(found.contains(&(*access).to_owned()), "`{sql}` has no `{access}`: {found:?}");
            }
        }
        for sql in ["TRUNCATE a", "DROP TABLE a", "CREATE TABLE b AS SELECT * FROM a"] {
            assert_eq!(named(sql), None, "{sql}");
        }
    }

    #[test]
    fn a_function_that_may_do_anything_leaves_nothing_known() {
        for sql in [
            "SELECT query_to_xml('SELECT * FROM a', true, false, '')",
            "SELECT x FROM a WHERE dblink_exec('DELETE FROM a') <> ''",
            "SELECT * FROM ts_stat('SELECT v FROM a')",
            "SELECT * FROM a, LATERAL ours(a.x) AS b",
            "INSERT INTO a (x) VALUES (ours(1))",
            "SELECT pg_catalog.lo_export(1, '/tmp/x')",
            "SELECT load_extension('x')",
        ] {
            assert_eq!(named(sql), None, "{sql}");
        }
        for sql in ["SELECT lower(x), now() FROM a", "INSERT INTO a (x) VALUES (nextval('s'))"] {
            let known = KnownNames { dialect: Some(Dialect::Postgres), ..KnownNames::default() };
            assert!(named_tables(sql, known).is_some(), "{sql}");
        }
        let ours = ["ours".to_owned()];
        let known = KnownNames { functions: &ours, ..KnownNames::default() };
        assert!(named_tables("INSERT INTO a (x) VALUES (ours(1))", known).is_some());
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
