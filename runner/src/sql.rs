//! The `sql` runner: asks a database of the configuration, or changes it.
//!
//! A statement of the definition has bound parameters. A statement of the caller passes the guard of the `sql` crate, which
//! refuses whatever is not on its lists, and the database's own read-only transaction. What may be seen, and whether
//! anything may be changed at all, stands in the configuration. Decides nothing about confirmation.

use definition::run::sql::{Operation, Sql, settings_of};
use futures_util::future::BoxFuture;
use ground::config::secret::SecretName;
use ground::task::confirmation::ReplacedValues;
use sql::guard::RefusalKind;
use url::Url;

use super::{
    CancellationToken, Code, Config, Failure, Invocation, Retry, Runner, RunnerContext, RunnerOutput, Value, fields,
};
use databases::OpenDatabase;

mod change;
mod databases;
mod failure;
mod query;
mod structure;
mod table_access;

pub use databases::Databases;
pub use table_access::{AccessPatterns, AccessedTables, KnownTables, TableRules, accessed_tables};

/// Returns what callers may see of the database `name`: its dialect, whether it may be changed, and its tables.
pub async fn snapshot(name: &str, context: &RunnerContext, cancel: &CancellationToken) -> Result<Value, Failure> {
    let settings = settings_of(name, &context.config)?;
    let open = context.databases.open(name, settings, context).await?;
    structure::snapshot(&open, cancel).await
}

/// Says how rows are changed to a caller who tried it with a query.
fn only_reads(failure: Failure, invocation: &Invocation, open: &OpenDatabase, context: &RunnerContext) -> Failure {
    if failure.error.details.get("reason") != Some(&RefusalKind::ReadOnly.as_str().into()) {
        return failure;
    }
    let hint = if !open.settings.writable {
        "write a `SELECT`; subtools may change nothing in this database".to_owned()
    } else if let Some(name) = change_beside(invocation, context) {
        format!("write a `SELECT`; `{name}` changes rows")
    } else {
        "write a `SELECT`; rows are changed by another subtool of this database".to_owned()
    };
    failure.hint(hint)
}

/// The subtool for changes that was imported with the one for queries, if the caller may use it.
fn change_beside(invocation: &Invocation, context: &RunnerContext) -> Option<String> {
    let own = &invocation.subtool.as_ref()?.name;
    let name = format!("{}_change", own.strip_suffix("_query")?);
    context.delegation.as_ref()?.subtool(&name, invocation).ok().map(|_| name)
}

impl Runner for Sql {
    fn plan(&self, invocation: &Invocation, config: &Config) -> Result<Value, Failure> {
        let settings = self.settings(config)?;
        if let Operation::Query(template) | Operation::Explain(template) = self.operation()
            && let Ok(connection) = settings.connection(None)
        {
            let text = text(template, invocation)?;
            let refused = sql::guard::refused_query(connection.dialect(), &text);
            refused.map_or(Ok(()), |refusal| Err(failure::of_refusal(refusal)))?;
        }
        let mut plan = Value::Object(fields::FieldValues::of(invocation).all(self)?);
        if matches!(self.operation(), Operation::Statement(_)) {
            let values = query::values(&self.parameters, invocation)?;
            plan["parameters"] = Value::Object(values);
        }
        Ok(plan)
    }

    /// The password of its database, and where that is; not of a file or a socket of this machine.
    fn sent_secrets(&self, _: &Invocation, config: &Config) -> Result<Vec<(SecretName, Url)>, Failure> {
        let settings = self.settings(config)?;
        Ok(settings.password.clone().zip(settings.server_url()).into_iter().collect())
    }

    fn perform<'a>(
        &'a self,
        invocation: &'a Invocation,
        context: &'a RunnerContext,
        cancel: &'a CancellationToken,
    ) -> BoxFuture<'a, Result<RunnerOutput, Failure>> {
        Box::pin(perform(self, invocation, context, cancel))
    }
}

async fn perform(
    sql: &Sql,
    invocation: &Invocation,
    context: &RunnerContext,
    cancel: &CancellationToken,
) -> Result<RunnerOutput, Failure> {
    let database = context.databases.open(&sql.database, sql.settings(&context.config)?, context).await?;
    Box::pin(table_access::check_access(sql, invocation, &database, context, cancel)).await?;
    match sql.operation() {
        Operation::Describe(template) => {
            let table = fields::FieldValues::of(invocation).text(Some(template))?.unwrap_or_default();
            structure::describe(&table, &database, cancel).await
        }
        Operation::ListTables(template) => {
            let part = fields::FieldValues::of(invocation).text(Some(template))?.unwrap_or_default();
            structure::list_tables(&part, &database, cancel).await
        }
        Operation::Explain(template) => query::explain(&text(template, invocation)?, &database, cancel).await,
        Operation::Query(_) | Operation::Statement(_) if !sql.changes() => {
            let read = Box::pin(query::read_page(sql, invocation, &database, cancel)).await;
            read.map_err(|failure| only_reads(failure, invocation, &database, context))
        }
        Operation::Query(_) | Operation::Statement(_) | Operation::Change(_) => {
            Box::pin(change::change(sql, invocation, &database, context, cancel)).await
        }
    }
}

/// What a change would do, by trying it; `None` if it changes nothing.
pub async fn preview(
    sql: &Sql,
    invocation: &Invocation,
    context: &RunnerContext,
    cancel: &CancellationToken,
) -> Option<ReplacedValues> {
    if !sql.changes() || is_dry_run(sql, invocation).unwrap_or_default() {
        return None;
    }
    Some(match Box::pin(change::tried(sql, invocation, context, cancel)).await {
        Ok(change) => ReplacedValues::Change(change),
        Err(failure) if failure.retry == Retry::Never => ReplacedValues::Impossible(failure.error),
        Err(failure) => ReplacedValues::Unknown(failure.error.message),
    })
}

/// Whether a change is only tried.
pub fn is_dry_run(sql: &Sql, invocation: &Invocation) -> Result<bool, Failure> {
    let value = fields::FieldValues::of(invocation).value(sql.dry_run.as_ref())?;
    match value {
        None => Ok(false),
        Some(Value::Bool(dry_run)) => Ok(dry_run),
        Some(_) => Err(fields::wrong_type("dry_run", "boolean")),
    }
}

/// The text of the caller in `template`.
fn text(template: &str, invocation: &Invocation) -> Result<String, Failure> {
    let text = fields::FieldValues::of(invocation).text(Some(template))?.unwrap_or_default();
    if text.trim().is_empty() {
        return Err(Failure::new(Code::InvalidInput, "there is no statement").hint("give one SQL statement"));
    }
    Ok(text)
}
