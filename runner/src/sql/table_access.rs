//! Table access: what a statement does with which table, as the setting `gates` of a rule names it.
//!
//! They are looked at twice: before a task is accepted, by what is known of the database then, and again where the
//! statement is run, by the tables that the database has. What a rule refuses is never run, however it is written.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;

use database::Freshness;
use definition::run::Run;
use definition::run::sql::{Operation, Sql, readable};
use globset::{Glob, GlobMatcher, GlobSet, GlobSetBuilder};
use ground::config::{DatabaseSettings, RuleAction};
use ground::task::failure::Failure;
use protocol::code::Code;
use sql::dialect::Dialect;
use sql::guard::{KnownNames, NamedTable, NamedTables, TableAccess, named_tables};
use sql::schema::{Schema, TableName};
use tokio_util::sync::CancellationToken;

use super::databases::OpenDatabase;
use super::{Databases, query, text};
use crate::{Invocation, RunnerContext};

const NOW_KNOWN: &str = "run it again: what the database contains is known now, and the human is asked";

/// The patterns of a rule: `db.DATABASE.TABLE.ACCESS`.
#[derive(Debug, Clone, Default)]
pub struct AccessPatterns {
    /// The whole of each.
    whole: GlobSet,
    /// The last part of each, which says what is done.
    accesses: Vec<GlobMatcher>,
}

impl AccessPatterns {
    /// A table is called in any case.
    pub fn new(patterns: &[String]) -> Result<Self, String> {
        let (mut globs, mut accesses) = (GlobSetBuilder::new(), Vec::new());
        for pattern in patterns.iter().map(|pattern| pattern.to_lowercase()) {
            let glob = |text: &str| Glob::new(text).map_err(|error| error.to_string());
            globs.add(glob(&pattern)?);
            accesses.push(glob(pattern.rsplit('.').next().unwrap_or_default())?.compile_matcher());
        }
        Ok(Self { whole: globs.build().map_err(|error| error.to_string())?, accesses })
    }

    pub fn is_empty(&self) -> bool {
        self.accesses.is_empty()
    }

    /// Whether they have something that is done in this way, to whatever table.
    fn have_access(&self, access: TableAccess) -> bool {
        let is_it = |pattern: &GlobMatcher| {
            pattern.is_match(access.as_str()) || (access.is_write() && pattern.is_match("write"))
        };
        self.accesses.iter().any(is_it)
    }
}

/// What the rules say where a statement is run.
pub trait TableRules: Debug + Send + Sync {
    /// Whether any of them is about tables.
    fn are_about_tables(&self) -> bool;

    /// The strictest rule that asks or refuses and is about one of these accesses, and why.
    fn judge(&self, invocation: &Invocation, tables: &AccessedTables) -> Option<(RuleAction, String)>;

    /// Whether no rule allowed it by the accesses that were `seen` before which does not allow it by these.
    fn still_allow(&self, invocation: &Invocation, seen: &AccessedTables, now: &AccessedTables) -> bool;
}

/// What is known of the databases without asking them.
#[derive(Debug, Clone, Default)]
pub struct KnownTables {
    databases: Arc<Databases>,
    settings: BTreeMap<String, DatabaseSettings>,
}

impl KnownTables {
    pub fn of(context: &RunnerContext) -> Self {
        Self { databases: Arc::clone(&context.databases), settings: context.config.databases.clone() }
    }

    /// The dialect of a database, where its tables most likely are, and its tables if they were read.
    fn of_database(&self, name: &str) -> (Option<Dialect>, Vec<String>, Option<Arc<Schema>>) {
        let Some(settings) = self.settings.get(name) else { return (None, Vec::new(), None) };
        let connection = settings.connection(None).ok();
        let schemas = connection.as_ref().map(sql::settings::DatabaseSettings::likely_schemas);
        let dialect = connection.as_ref().map(sql::settings::DatabaseSettings::dialect);
        (dialect, schemas.unwrap_or_default(), self.databases.known_schema(name, settings))
    }
}

/// The tables of one statement in one database.
#[derive(Debug)]
pub struct AccessedTables {
    database: String,
    /// Whether it is the change of a caller.
    is_change: bool,
    /// `None` if a statement of the definition cannot be read, or calls a function that is not known: then it may do
    /// anything. One of the caller is not run then.
    tables: Option<NamedTables>,
}

impl AccessedTables {
    /// Whether `patterns` have any of them, by any of its names, or what they are is not known.
    pub fn any(&self, patterns: &AccessPatterns) -> bool {
        self.tables.as_ref().is_none_or(|found| {
            let has = |table: &NamedTable| table.names.iter().any(|name| self.matches(name, table.access, patterns));
            let may_do =
                |access: TableAccess| found.unknown.contains(&access) || (found.may_write_any && access.is_write());
            let accesses = [TableAccess::Read, TableAccess::Insert, TableAccess::Update, TableAccess::Delete];
            found.tables.iter().any(has)
                || accesses.into_iter().any(|access| may_do(access) && patterns.have_access(access))
        })
    }

    /// Whether `patterns` have all that the statement names and sets off, and there is one; of a change, one that writes.
    pub fn all(&self, patterns: &AccessPatterns) -> bool {
        let Some(found) = &self.tables else { return false };
        let named = || found.tables.iter().filter(|table| table.must_be_allowed);
        // No table has this name, so a pattern that has it has all.
        let any = |access| self.matches("\u{0}", access, patterns);
        if found.may_write_any && ![TableAccess::Insert, TableAccess::Update, TableAccess::Delete].into_iter().all(any)
        {
            return false;
        }
        let has = |table: &NamedTable| table.exact.iter().any(|name| self.matches(name, table.access, patterns));
        named().any(|table| !self.is_change || table.access.is_write()) && named().all(has)
    }

    /// A change of a table is called by what it does, and `write`.
    fn matches(&self, table: &str, access: TableAccess, patterns: &AccessPatterns) -> bool {
        let name = |access: &str| format!("db.{}.{table}.{access}", self.database).to_lowercase();
        patterns.whole.is_match(name(access.as_str())) || (access.is_write() && patterns.whole.is_match(name("write")))
    }
}

/// What a change sets off.
#[derive(Debug, Default)]
pub(super) struct SetOff {
    /// What is done in other tables.
    pub(super) words: Vec<String>,
    /// The foreign keys and triggers that do it, as the database has them.
    pub(super) definitions: Vec<String>,
}

/// What the statement of an invocation does with which tables, by what is known before it is run; `None` if it asks no database.
pub fn accessed_tables(run: &Run, invocation: &Invocation, known: &KnownTables) -> Option<AccessedTables> {
    let Run::Sql(sql) = run else { return None };
    let (dialect, likely_schemas, schema) = known.of_database(&sql.database);
    let functions = known.settings.get(&sql.database).map_or(&[][..], |settings| &settings.functions);
    let names = KnownNames { dialect, likely_schemas: &likely_schemas, functions, schema: schema.as_deref() };
    Some(accessed_by(sql, invocation, names))
}

/// What a change sets off, by the tables of now.
pub(super) async fn sets_off(
    sql: &Sql,
    invocation: &Invocation,
    open: &OpenDatabase,
    cancel: &CancellationToken,
) -> Result<SetOff, Failure> {
    let schema = query::schema(open, Freshness::Recent, cancel).await?;
    let dialect = Some(open.database.dialect());
    let functions = &open.settings.functions;
    let names = KnownNames { dialect, likely_schemas: &[], functions, schema: Some(&schema) };
    let found = accessed_by(sql, invocation, names).tables.unwrap_or_default();
    Ok(SetOff { words: found.sets_off.into_iter().collect(), definitions: found.definitions.into_iter().collect() })
}

/// Whether no rule asks about reading a table or refuses it.
pub(super) fn may_read(table: &TableName, sql: &Sql, invocation: &Invocation, context: &RunnerContext) -> bool {
    let Some(rules) = context.table_rules.as_ref().filter(|rules| rules.are_about_tables()) else { return true };
    let tables = Some(NamedTables::read(table));
    let read = AccessedTables { database: sql.database.clone(), is_change: false, tables };
    rules.judge(invocation, &read).is_none()
}

/// The statement, with its parameters as they are declared.
fn text_of(sql: &Sql, invocation: &Invocation) -> String {
    match sql.operation() {
        Operation::Query(template) | Operation::Change(template) | Operation::Explain(template) => {
            text(template, invocation).unwrap_or_default()
        }
        Operation::Statement(statement) => statement.to_owned(),
        Operation::Describe(_) | Operation::ListTables(_) => String::new(),
    }
}

fn accessed_by(sql: &Sql, invocation: &Invocation, known: KnownNames<'_>) -> AccessedTables {
    let tables = match sql.operation() {
        // What cannot be read is not run.
        Operation::Query(template) | Operation::Change(template) | Operation::Explain(template) => {
            let text = text(template, invocation).ok();
            Some(text.and_then(|text| named_tables(&text, known)).unwrap_or_default())
        }
        Operation::Statement(statement) => {
            let text = readable(statement, &sql.parameters, known.dialect);
            named_tables(text.as_deref().unwrap_or(statement), known)
        }
        Operation::Describe(_) | Operation::ListTables(_) => Some(NamedTables::default()),
    };
    AccessedTables { database: sql.database.clone(), is_change: sql.changes(), tables }
}

/// Fails if a rule refuses what the statement does with the tables that the database has, or asks about it although no
/// human was asked. Before a change, the tables are read anew.
pub(super) async fn check_access(
    sql: &Sql,
    invocation: &Invocation,
    open: &OpenDatabase,
    context: &RunnerContext,
    cancel: &CancellationToken,
) -> Result<(), Failure> {
    // What was read a while ago may lack a key by which a change removes rows, or what it sets off.
    let freshness = if sql.changes() { Freshness::New } else { Freshness::Recent };
    let Some(rules) = context.table_rules.as_ref().filter(|rules| rules.are_about_tables()) else {
        return if sql.changes() { query::schema(open, freshness, cancel).await.map(drop) } else { Ok(()) };
    };
    if matches!(sql.operation(), Operation::Describe(_) | Operation::ListTables(_)) {
        return Ok(());
    }
    let (dialect, functions) = (Some(open.database.dialect()), &open.settings.functions);
    // What was seen of it when it was accepted, if nothing was known of the database.
    let seen = open.database.known_schema().is_none().then(|| {
        let likely_schemas = open.database.settings().likely_schemas();
        accessed_by(sql, invocation, KnownNames { dialect, likely_schemas: &likely_schemas, functions, schema: None })
    });
    let mut schema = query::schema(open, freshness, cancel).await?;
    if freshness == Freshness::Recent && query::may_name_view(&text_of(sql, invocation), &schema) {
        schema = query::schema(open, Freshness::New, cancel).await?;
    }
    let known = KnownNames { dialect, likely_schemas: &[], functions, schema: Some(&schema) };
    let tables = accessed_by(sql, invocation, known);
    let is_unasked = !invocation.is_shown && invocation.approved.is_none();
    if is_unasked && sql.changes() && seen.is_some_and(|seen| !rules.still_allow(invocation, &seen, &tables)) {
        let message = "a human must be asked first: it changes more tables than the rule that allows it names";
        return Err(Failure::new(Code::RefusedByPolicy, message).hint(NOW_KNOWN));
    }
    match rules.judge(invocation, &tables) {
        Some((RuleAction::Refuse, why)) => {
            Err(Failure::new(Code::RefusedByPolicy, format!("the statement is refused: {why}"))
                .hint("do not work around it: a human decided this; tell the user, who can change the rule"))
        }
        Some((RuleAction::Ask, why)) if is_unasked => {
            Err(Failure::new(Code::RefusedByPolicy, format!("a human must be asked first: {why}")).hint(NOW_KNOWN))
        }
        _ => Ok(()),
    }
}
