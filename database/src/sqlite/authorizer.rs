//! What SQLite may compile: asked for every table, column and function of a statement, also of views and triggers.

use std::sync::{Arc, Mutex, PoisonError};

use rusqlite::Connection;
use rusqlite::hooks::{AuthAction, AuthContext, Authorization};
use sql::schema::TableAccess;

use super::failure;
use crate::error::DatabaseError;

/// Functions that load code, reach files, or show addresses of memory.
const DENIED_FUNCTIONS: [&str; 9] = [
    "load_extension",
    "readfile",
    "writefile",
    "edit",
    "fts3_tokenizer",
    "sqlite_log",
    "sqlite_rename_table",
    "sqlite_rename_column",
    "sqlite_rename_quotefix",
];

/// Allows reading, and nothing else.
pub(super) fn allow_reads(connection: &mut Connection) -> Result<(), DatabaseError> {
    connection.authorizer(Some(|context: AuthContext<'_>| decide(&context, false))).map_err(|error| failure(&error))
}

/// Allows reading and changing rows.
pub(super) fn allow_changes(connection: &mut Connection) -> Result<(), DatabaseError> {
    connection.authorizer(Some(|context: AuthContext<'_>| decide(&context, true))).map_err(|error| failure(&error))
}

/// Takes the authorizer away, for statements of our own.
pub(super) fn allow_everything(connection: &mut Connection) -> Result<(), DatabaseError> {
    connection.authorizer(None::<fn(AuthContext<'_>) -> Authorization>).map_err(|error| failure(&error))
}

/// A change of a table that a statement or a trigger compiles to, and the trigger if it is one.
pub(super) type CompiledChange = (String, TableAccess, Option<String>);

/// Compiles statements without running them, and returns the changes of each; `None` for one that does not compile.
pub(super) fn compiled_changes(
    connection: &mut Connection,
    statements: &[String],
) -> Result<Vec<Option<Vec<CompiledChange>>>, DatabaseError> {
    let found: Arc<Mutex<Vec<CompiledChange>>> = Arc::default();
    let seen = Arc::clone(&found);
    let note = move |context: AuthContext<'_>| {
        let change = match context.action {
            AuthAction::Insert { table_name } => Some((table_name, TableAccess::Insert)),
            AuthAction::Delete { table_name } => Some((table_name, TableAccess::Delete)),
            AuthAction::Update { table_name, .. } => Some((table_name, TableAccess::Update)),
            _ => None,
        };
        if let Some((table, access)) = change {
            let by = context.accessor.map(str::to_owned);
            seen.lock().unwrap_or_else(PoisonError::into_inner).push((table.to_owned(), access, by));
        }
        Authorization::Allow
    };
    connection.authorizer(Some(note)).map_err(|error| failure(&error))?;
    let compile = |statement: &String| {
        found.lock().unwrap_or_else(PoisonError::into_inner).clear();
        let compiled = connection.prepare(statement).is_ok();
        compiled.then(|| found.lock().unwrap_or_else(PoisonError::into_inner).clone())
    };
    let changes = statements.iter().map(compile).collect();
    allow_everything(connection)?;
    Ok(changes)
}

fn decide(context: &AuthContext<'_>, changes: bool) -> Authorization {
    let is_allowed = match context.action {
        AuthAction::Select | AuthAction::Read { .. } | AuthAction::Recursive => true,
        AuthAction::Function { function_name } => {
            !DENIED_FUNCTIONS.iter().any(|denied| denied.eq_ignore_ascii_case(function_name))
        }
        AuthAction::Insert { table_name }
        | AuthAction::Delete { table_name }
        | AuthAction::Update { table_name, .. } => {
            // What SQLite keeps its schema in is changed by its own statements only.
            changes && !table_name.to_ascii_lowercase().starts_with("sqlite_")
        }
        _ => false,
    };
    if is_allowed { Authorization::Allow } else { Authorization::Deny }
}
