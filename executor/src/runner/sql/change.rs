//! Changes: tried first, and made in one transaction that is rolled back if anything is not as it was shown.

use protocol::code::Code;
use serde_json::Value;
use sql::answer::Answer;
use sql::database::{Rows, SqlStatement, TouchedRows, WriteMode, WriteOutcome, WriteQuery};
use tokio_util::sync::CancellationToken;

use super::databases::OpenDatabase;
use super::failure::{self, StatementEffect};
use super::{Operation, Sql, query};
use crate::runner::{Invocation, OutputData, RunnerContext, RunnerOutput};
use crate::task::confirmation::TriedChange;
use crate::task::failure::Failure;

impl Sql {
    /// Makes the change, or only tries it if the input says so.
    pub(super) async fn change(
        &self,
        invocation: &Invocation,
        open: &OpenDatabase,
        cancel: &CancellationToken,
    ) -> Result<RunnerOutput, Failure> {
        let is_dry_run = self.is_dry_run(invocation)?;
        let commit = || WriteMode::Commit { expected: invocation.approved_change.clone() };
        let mode = if is_dry_run { WriteMode::DryRun } else { commit() };
        let outcome = self.write(invocation, open, mode, cancel).await?;
        let before = outcome.before.clone().filter(|_| is_dry_run);
        let affected = outcome.rows_affected;
        let mut output = query::output(Answer::of_write(outcome, is_dry_run));
        let OutputData::Json(data) = &mut output.data else { return Ok(output) };
        data["rows_affected"] = affected.into();
        if let Some(before) = before {
            data["before"] = objects(&before).into();
        }
        Ok(output)
    }

    /// What the change would do: how many rows it changes, and these before and after it.
    pub(super) async fn tried(
        &self,
        invocation: &Invocation,
        context: &RunnerContext,
        cancel: &CancellationToken,
    ) -> Result<TriedChange, Failure> {
        let open = context.databases.open(&self.database, self.settings(&context.config)?, context).await?;
        let outcome = self.write(invocation, &open, WriteMode::DryRun, cancel).await?;
        Ok(TriedChange {
            rows_affected: outcome.rows_affected,
            before: outcome.before.as_ref().map(objects),
            after: outcome.after.as_ref().or(outcome.returned.as_ref()).map(objects),
            digest: outcome.digest,
        })
    }

    async fn write(
        &self,
        invocation: &Invocation,
        open: &OpenDatabase,
        mode: WriteMode,
        cancel: &CancellationToken,
    ) -> Result<WriteOutcome, Failure> {
        if !open.settings.writable {
            let message = format!("nothing may be changed in the database `{}`", open.name);
            return Err(Failure::new(Code::RefusedByPolicy, message)
                .hint(format!("a human can set `writable = true` under [databases.{}] in config.toml", open.name)));
        }
        let (statement, touched) = match self.operation() {
            Operation::Statement(statement) => {
                if !self.sees_hidden {
                    query::check_names(statement, &self.parameters, open, cancel).await?;
                }
                (query::bound(statement, &self.parameters, invocation, open.database.dialect())?, None)
            }
            Operation::Change(template) => {
                let statement = query::guarded(&Self::text(template, invocation)?, true, open, cancel).await?;
                if !statement.kind.is_write() {
                    return Err(Failure::new(Code::InvalidInput, "this statement changes nothing")
                        .hint("give an INSERT, UPDATE or DELETE; to read, use the subtool for queries"));
                }
                let touched = statement.touched().map(|touched| TouchedRows {
                    select: SqlStatement { sql: touched.sql.clone(), parameters: Vec::new() },
                    table: touched.table.clone(),
                    key: touched.key.clone(),
                });
                (SqlStatement { sql: statement.sql, parameters: Vec::new() }, touched)
            }
            _ => unreachable!("other operations change nothing"),
        };
        let effect = if mode == WriteMode::DryRun { StatementEffect::None } else { StatementEffect::Commit };
        let write = WriteQuery { statement, touched, max_affected: self.max_affected, ..WriteQuery::default() };
        let outcome = open.database.write(write, mode, cancel).await;
        outcome.map_err(|error| failure::of_database(&error, effect))
    }
}

/// The rows as objects.
fn objects(rows: &Rows) -> Vec<Value> {
    let names = || rows.columns.iter().map(|column| column.name.clone());
    rows.rows.iter().map(|row| Value::Object(names().zip(row.iter().cloned()).collect())).collect()
}
