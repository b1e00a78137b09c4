//! Changes: tried first, and made in one transaction that is rolled back if anything is not as it was shown.

use database::answer::Answer;
use database::{CascadedRows, Rows, SqlStatement, TouchedRows, WriteMode, WriteOutcome, WriteQuery, WrittenRows};
use definition::run::sql::{Operation, Sql};
use ground::task::confirmation::{Digest, TriedCascade, TriedChange};
use ground::task::failure::Failure;
use protocol::code::Code;
use serde_json::{Value, json};
use sql::guard::{GuardedStatement, OtherRows, StatementKind};
use tokio_util::sync::CancellationToken;

use super::databases::OpenDatabase;
use super::failure::{self, StatementEffect};
use super::table_access::{self, SetOff};
use super::{is_dry_run, query, text};
use crate::{Invocation, OutputData, RunnerContext, RunnerOutput};

/// Separates the digest of the rows from that of what a change sets off.
const SETS_OFF: &str = "+";
const NOT_SHOWN: &str = "a human cannot be shown what this will do";
const SAME_HINT: &str = "a change that a human approves must write exactly what was shown";

/// Makes the change, or only tries it if the input says so.
pub(super) async fn change(
    sql: &Sql,
    invocation: &Invocation,
    open: &OpenDatabase,
    context: &RunnerContext,
    cancel: &CancellationToken,
) -> Result<RunnerOutput, Failure> {
    let is_dry_run = is_dry_run(sql, invocation)?;
    let SetOff { words: sets_off, definitions } = table_access::sets_off(sql, invocation, open, cancel).await?;
    let expected = match invocation.approved_change.as_deref().filter(|_| !is_dry_run) {
        Some(approved) => Some(rows_of(approved, &sets_off, &definitions)?),
        None => None,
    };
    let mode = if is_dry_run { WriteMode::DryRun } else { WriteMode::Commit { expected } };
    let (outcome, _) = write(sql, invocation, open, mode, context, cancel).await?;
    let before = outcome.before.clone().filter(|_| is_dry_run);
    let cascades: Vec<_> = outcome.cascades.iter().filter(|_| is_dry_run).map(tried_cascade).collect();
    let affected = outcome.rows_affected;
    let mut output = query::output(Answer::of_write(outcome, is_dry_run));
    let OutputData::Json(data) = &mut output.data else { return Ok(output) };
    data["rows_affected"] = affected.into();
    if !sets_off.is_empty() {
        data["also_changes"] = json!(sets_off);
    }
    if !cascades.is_empty() {
        data["cascades"] = json!(cascades);
    }
    if let Some(before) = before {
        data["before"] = objects(&before).into();
    }
    Ok(output)
}

/// What the change would do: how many rows it changes, and these before and after it.
pub(super) async fn tried(
    sql: &Sql,
    invocation: &Invocation,
    context: &RunnerContext,
    cancel: &CancellationToken,
) -> Result<TriedChange, Failure> {
    let open = context.databases.open(&sql.database, sql.settings(&context.config)?, context).await?;
    let shown = Invocation { is_shown: true, ..invocation.clone() };
    Box::pin(table_access::check_access(sql, &shown, &open, context, cancel)).await?;
    let (outcome, set_by_database) = write(sql, &shown, &open, WriteMode::DryRun, context, cancel).await?;
    let SetOff { words: sets_off, definitions } = table_access::sets_off(sql, &shown, &open, cancel).await?;
    // Rows that the statement itself returns are not compared, so they are not shown.
    let written = outcome.after.as_ref();
    let is_shown = |name: &String| written.is_some_and(|rows| rows.columns.iter().any(|column| column.name == *name));
    Ok(TriedChange {
        rows_affected: outcome.rows_affected,
        replaced: outcome.replaced,
        before: outcome.before.as_ref().map(objects),
        after: outcome.after.as_ref().map(objects),
        cascades: outcome.cascades.iter().map(tried_cascade).collect(),
        set_by_database: set_by_database.into_iter().filter(is_shown).collect(),
        digest: digest_of(&outcome.digest, &sets_off, &definitions),
        sets_off,
    })
}

/// The rows of one table that a change changes by foreign keys.
fn tried_cascade(rows: &CascadedRows) -> TriedCascade {
    let CascadedRows { table, deleted, updated, is_part, before, after } = rows;
    TriedCascade {
        table: table.clone(),
        deleted: *deleted,
        updated: *updated,
        is_part: *is_part,
        before: objects(before),
        after: objects(after),
    }
}

async fn write(
    sql: &Sql,
    invocation: &Invocation,
    open: &OpenDatabase,
    mode: WriteMode,
    context: &RunnerContext,
    cancel: &CancellationToken,
) -> Result<(WriteOutcome, Vec<String>), Failure> {
    if !open.settings.writable {
        let message = format!("nothing may be changed in the database `{}`", open.name);
        return Err(Failure::new(Code::RefusedByPolicy, message)
            .hint(format!("a human can set `writable = true` under [databases.{}] in config.toml", open.name)));
    }
    let is_approved = invocation.is_shown || invocation.approved_change.is_some();
    let mut write = match sql.operation() {
        Operation::Statement(statement) => own_write(statement, sql, invocation, open, cancel).await?,
        Operation::Change(template) => callers_write(template, invocation, open, cancel).await?,
        _ => unreachable!("other operations change nothing"),
    };
    let effect = if mode == WriteMode::DryRun { StatementEffect::None } else { StatementEffect::Commit };
    (write.max_affected, write.is_approved) = (sql.max_affected, is_approved);
    for cascade in &mut write.cascades {
        // It is compared all the same.
        if !table_access::may_read(&cascade.child, sql, invocation, context) {
            cascade.hidden.splice(..0, std::mem::take(&mut cascade.shown));
        }
    }
    let set_by_database = write.set_by_database.clone();
    let outcome = open.database.write(write, mode, cancel).await;
    let outcome = outcome.map_err(|error| failure::of_database(&error, effect))?;
    Ok((outcome, set_by_database))
}

/// The change that a statement of the definition makes.
async fn own_write(
    statement: &str,
    sql: &Sql,
    invocation: &Invocation,
    open: &OpenDatabase,
    cancel: &CancellationToken,
) -> Result<WriteQuery, Failure> {
    let is_approved = invocation.is_shown || invocation.approved_change.is_some();
    query::check_names(statement, sql, open, cancel).await?;
    let checked = if is_approved { query::own(statement, &sql.parameters, open, cancel).await? } else { None };
    let dialect = open.database.dialect();
    let why_not_replaced = match &checked {
        Some(checked) => checked.why_not_replaced(),
        None if is_approved => query::why_not_read(statement, &sql.parameters, dialect),
        None => None,
    };
    if let Some(why) = why_not_replaced {
        return Err(Failure::new(Code::BadDefinition, format!("{NOT_SHOWN}: {why}")).hint(SAME_HINT));
    }
    // What a developer wrote with the time or a random number in it stands on the card as it is.
    let checked = checked.filter(|checked| checked.why_not_shown().is_none() || checked.is_found_before());
    let touched = match checked.as_ref().and_then(GuardedStatement::own_touched) {
        Some(touched) => Some(TouchedRows {
            select: query::bound_part(statement, &sql.parameters, &touched.sql, invocation, dialect)?,
            table: touched.table.clone(),
            key: touched.key.clone(),
        }),
        None => None,
    };
    let cascades = checked.as_ref().map(|checked| checked.cascades().to_vec()).unwrap_or_default();
    let from = checked.as_ref().and_then(GuardedStatement::rows_of_cascades).filter(|rows| !rows.is_volatile);
    let cascades_from = match from {
        Some(rows) => Some(query::bound_part(statement, &sql.parameters, &rows.sql, invocation, dialect)?),
        None => None,
    };
    let statement = query::sent(statement, sql, invocation, open, cancel).await?;
    let written = checked.as_ref().and_then(GuardedStatement::added_returning).map(|added| WrittenRows {
        statement: query::around("", &statement, &added.text),
        columns: added.columns.clone(),
        are_before: added.are_before,
        otherwise: OtherRows::Constant,
    });
    let replaced = checked.as_ref().and_then(|checked| checked.replaced().cloned());
    let settled = checked.as_ref().and_then(|checked| checked.settled().cloned());
    let hidden = checked.as_ref().map(|checked| checked.hidden().to_vec()).unwrap_or_default();
    let set_by_database = checked.map(|checked| checked.not_compared()).unwrap_or_default();
    Ok(WriteQuery {
        statement,
        touched,
        written,
        replaced,
        settled,
        hidden,
        cascades,
        cascades_from,
        set_by_database,
        ..WriteQuery::default()
    })
}

/// The change that a statement of the caller makes.
async fn callers_write(
    template: &str,
    invocation: &Invocation,
    open: &OpenDatabase,
    cancel: &CancellationToken,
) -> Result<WriteQuery, Failure> {
    let is_approved = invocation.is_shown || invocation.approved_change.is_some();
    let statement = query::guarded(&text(template, invocation)?, true, open, cancel).await?;
    if !statement.kind.is_write() {
        return Err(Failure::new(Code::InvalidInput, "this statement changes nothing")
            .hint("give an INSERT, UPDATE or DELETE; to read, use the subtool for queries"));
    }
    let why_not = statement.why_not_shown().map(str::to_owned).or_else(|| statement.why_not_replaced());
    if let Some(why) = why_not.filter(|_| is_approved) {
        return Err(Failure::new(Code::InvalidInput, format!("{NOT_SHOWN}: {why}")).hint(SAME_HINT));
    }
    let plain = |sql: &str| SqlStatement { sql: sql.to_owned(), parameters: Vec::new() };
    Ok(WriteQuery {
        touched: statement.touched().map(|touched| TouchedRows {
            select: plain(&touched.sql),
            table: touched.table.clone(),
            key: touched.key.clone(),
        }),
        written: statement.written().map(|written| WrittenRows {
            statement: plain(&written.sql),
            columns: written.columns.clone(),
            are_before: written.are_before,
            otherwise: written.otherwise.clone(),
        }),
        replaced: statement.replaced().cloned(),
        settled: statement.settled().cloned(),
        hidden: statement.hidden().to_vec(),
        cascades: statement.cascades().to_vec(),
        // A deletion writes nothing.
        set_by_database: match statement.kind {
            StatementKind::Delete => Vec::new(),
            _ => statement.set_by_database().to_vec(),
        },
        statement: plain(&statement.sql),
        ..WriteQuery::default()
    })
}

/// What an approval is bound to: the digest of the rows, and what the change sets off, if that is something.
fn digest_of(rows: &str, sets_off: &[String], definitions: &[String]) -> String {
    if sets_off.is_empty() && definitions.is_empty() {
        return rows.to_owned();
    }
    let definitions = Digest::of(&definitions.iter().map(String::as_bytes).collect::<Vec<_>>());
    format!("{rows}{SETS_OFF}{}{SETS_OFF}{definitions}", sets_off.join(", "))
}

/// The digest of the rows in one that was approved. Fails if the change sets off something else by now.
fn rows_of(approved: &str, sets_off: &[String], definitions: &[String]) -> Result<String, Failure> {
    let rows = approved.split(SETS_OFF).next().unwrap_or_default();
    if digest_of(rows, sets_off, definitions) != approved {
        return Err(Failure::drifted("what the change sets off is not what it was when the human was shown it"));
    }
    Ok(rows.to_owned())
}

/// The rows as objects.
fn objects(rows: &Rows) -> Vec<Value> {
    let names = || rows.columns.iter().map(|column| column.name.clone());
    rows.rows.iter().map(|row| Value::Object(names().zip(row.iter().cloned()).collect())).collect()
}
