//! The tables of a database and their columns, as callers may see them.

use database::Freshness;
use ground::task::failure::Failure;
use protocol::code::Code;
use protocol::nearest::nearest;
use serde_json::{Map, Value, json};
use sql::guard::{Guard, VisibleTable};
use sql::schema::{Column, Key, Schema, Table, TableKind, TableName};
use tokio_util::sync::CancellationToken;

use super::databases::OpenDatabase;
use super::query;
use crate::RunnerOutput;

/// The most tables that one answer lists.
const MAX_LISTED: usize = 500;
/// How many names a hint suggests.
const MAX_SUGGESTED: usize = 3;

/// What callers may see of a database.
struct VisibleSchema<'a> {
    schema: &'a Schema,
    tables: Vec<VisibleTable<'a>>,
}

impl<'a> VisibleSchema<'a> {
    fn of(schema: &'a Schema, open: &'a OpenDatabase) -> Self {
        Self { schema, tables: Self::guard(schema, open).visible_tables() }
    }

    fn guard(schema: &'a Schema, open: &'a OpenDatabase) -> Guard<'a> {
        let (dialect, rules) = (open.database.dialect(), &*open.rules);
        Guard { dialect, schema, rules, max_rows: open.settings.max_rows, may_write: false }
    }

    /// The tables by the names by which they may be called.
    fn named(&self) -> impl Iterator<Item = (String, &VisibleTable<'a>)> {
        self.tables.iter().map(|table| (shown_name(table.name, self.schema), table))
    }

    fn has(&self, table: &TableName, column: &str) -> bool {
        let is_it =
            |seen: &VisibleTable<'_>| seen.name == table && seen.columns.iter().any(|visible| visible.name == column);
        self.tables.iter().any(is_it)
    }

    fn described(&self, shown: &str, seen: &VisibleTable<'_>) -> Value {
        let VisibleTable { table, columns, .. } = seen;
        let columns: Vec<_> = columns.iter().map(|column| self.described_column(column)).collect();
        let mut described = json!({"table": shown, "kind": kind(table)});
        if let Some(comment) = &table.comment {
            described["comment"] = comment.as_str().into();
        }
        if let Some(rows) = table.estimated_rows {
            described["about_rows"] = rows.into();
        }
        described["columns"] = columns.into();
        described
    }

    fn described_column(&self, column: &Column) -> Value {
        let mut described = Map::new();
        described.insert("name".to_owned(), column.name.as_str().into());
        described.insert("type".to_owned(), column.type_name.as_str().into());
        described.insert("null".to_owned(), column.nullable.into());
        match &column.key {
            Some(Key::Primary) => drop(described.insert("key".to_owned(), "primary".into())),
            Some(Key::Unique) => drop(described.insert("key".to_owned(), "unique".into())),
            Some(Key::Foreign { table, column }) if self.has(table, column) => {
                let to = format!("{}.{column}", shown_name(table, self.schema));
                described.insert("references".to_owned(), to.into());
            }
            Some(Key::Foreign { .. }) | None => {}
        }
        if let Some(default) = &column.default {
            described.insert("default".to_owned(), default.as_str().into());
        }
        if let Some(comment) = &column.comment {
            described.insert("comment".to_owned(), comment.as_str().into());
        }
        if !column.values.is_empty() {
            described.insert("values".to_owned(), json!(column.values));
        }
        Value::Object(described)
    }
}

/// The name without its schema, if it is found without it.
fn shown_name(name: &TableName, schema: &Schema) -> String {
    let first = schema
        .search_path
        .iter()
        .find(|path| schema.tables.contains_key(&TableName { schema: (*path).clone(), name: name.name.clone() }));
    if first == Some(&name.schema) { name.name.clone() } else { format!("{}.{}", name.schema, name.name) }
}

pub(super) async fn list_tables(
    part: &str,
    open: &OpenDatabase,
    cancel: &CancellationToken,
) -> Result<RunnerOutput, Failure> {
    let schema = query::schema(open, Freshness::Recent, cancel).await?;
    let visible = VisibleSchema::of(&schema, open);
    let part = part.trim().to_lowercase();
    let matching: Vec<_> = visible.named().filter(|(name, _)| name.to_lowercase().contains(&part)).collect();
    let tables: Vec<_> = matching
        .iter()
        .take(MAX_LISTED)
        .map(|(shown, seen)| {
            let mut listed = json!({"name": shown, "kind": kind(seen.table), "columns": seen.columns.len()});
            if let Some(rows) = seen.table.estimated_rows {
                listed["about_rows"] = rows.into();
            }
            if let Some(comment) = &seen.table.comment {
                listed["comment"] = comment.as_str().into();
            }
            listed
        })
        .collect();
    let output = RunnerOutput::json(json!({"dialect": open.database.dialect().to_string(), "tables": tables}));
    Ok(output.with_meta("total", matching.len()).with_meta("truncated", matching.len() > MAX_LISTED))
}

/// Returns what callers may see of a database: its tables, each as it is described, and how much they do not see.
pub(super) async fn snapshot(open: &OpenDatabase, cancel: &CancellationToken) -> Result<Value, Failure> {
    let schema = query::schema(open, Freshness::New, cancel).await?;
    let visible = VisibleSchema::of(&schema, open);
    let tables: Vec<_> = visible
        .named()
        .map(|(shown, seen)| {
            let mut described = visible.described(&shown, seen);
            described["name"] = shown.into();
            described
        })
        .collect();
    let guard = VisibleSchema::guard(&schema, open);
    let left_out: Vec<_> = guard
        .left_out()
        .into_iter()
        .map(|(name, why)| json!({"name": shown_name(name, &schema), "why": why}))
        .collect();
    let dialect = open.database.dialect().to_string();
    let columns = |table: &VisibleTable<'_>| table.table.columns.len() - table.columns.len();
    Ok(json!({
        "dialect": dialect,
        "writable": open.settings.writable,
        "max_rows": open.settings.max_rows,
        "tables": tables,
        "unseen_tables": schema.tables.len() - visible.tables.len(),
        "hidden_columns": visible.tables.iter().map(columns).sum::<usize>(),
        "left_out": left_out,
        "idle_patterns": open.settings.idle_patterns(&schema),
    }))
}

fn kind(table: &Table) -> &'static str {
    match table.kind {
        TableKind::Base => "table",
        TableKind::Foreign { .. } => "foreign table",
        TableKind::View { .. } => "view",
        TableKind::Other => "other",
    }
}

pub(super) async fn describe(
    wanted: &str,
    open: &OpenDatabase,
    cancel: &CancellationToken,
) -> Result<RunnerOutput, Failure> {
    let wanted = wanted.trim().trim_matches(['`', '"']);
    let recent = query::schema(open, Freshness::Recent, cancel).await?;
    if let Some(described) = find(wanted, &VisibleSchema::of(&recent, open)) {
        return Ok(RunnerOutput::json(described));
    }
    let new = query::schema(open, Freshness::New, cancel).await?;
    let visible = VisibleSchema::of(&new, open);
    find(wanted, &visible).map(RunnerOutput::json).ok_or_else(|| unknown(wanted, &visible))
}

fn find(wanted: &str, visible: &VisibleSchema<'_>) -> Option<Value> {
    let is_wanted = |(shown, seen): &(String, &VisibleTable<'_>)| {
        let full = format!("{}.{}", seen.name.schema, seen.name.name);
        shown.eq_ignore_ascii_case(wanted) || full.eq_ignore_ascii_case(wanted)
    };
    visible.named().find(is_wanted).map(|(shown, seen)| visible.described(&shown, seen))
}

/// The error has the same words for a table that is not there and for one that is denied.
fn unknown(wanted: &str, visible: &VisibleSchema<'_>) -> Failure {
    let names: Vec<_> = visible.named().map(|(shown, _)| shown).collect();
    let near = nearest(wanted, names.iter().map(String::as_str), MAX_SUGGESTED);
    let near: Vec<_> = near.iter().map(|name| format!("`{name}`")).collect();
    let hint = if near.is_empty() {
        "list the tables to see what is there".to_owned()
    } else {
        format!("there is {}", near.join(", "))
    };
    Failure::new(Code::InvalidInput, format!("no table `{wanted}`")).hint(hint)
}
