//! What is known of a statement without a database: a declared one, or a text.

use serde_json::{Map, Value};
use sql::dialect::Dialect;
use sql::parameters::{DeclaredKind, DeclaredStatement, ParameterError};

use crate::run::DefinitionMistake;

const DIALECTS: [Dialect; 3] = [Dialect::Postgres, Dialect::Mysql, Dialect::Sqlite];

/// Whether a statement of a definition changes rows, as far as its text tells.
pub(super) fn is_change(statement: &str, parameters: &Map<String, Value>) -> bool {
    let read = |dialect| declared(dialect, statement, parameters).is_ok_and(|it| it.kind == DeclaredKind::Read);
    !DIALECTS.into_iter().any(read)
}

/// A statement of a definition as a parser reads it, with NULL for each parameter.
pub fn readable(statement: &str, parameters: &Map<String, Value>, dialect: Option<Dialect>) -> Option<String> {
    let dialects = dialect.map_or(DIALECTS.to_vec(), |dialect| vec![dialect]);
    dialects.into_iter().find_map(|dialect| Some(declared(dialect, statement, parameters).ok()?.with_nulls()))
}

/// Why no parser that it may be for understands a statement.
pub(super) fn syntax_error(text: &str, dialect: Option<Dialect>) -> Option<String> {
    let dialects = dialect.map_or(DIALECTS.to_vec(), |dialect| vec![dialect]);
    let mut errors = dialects.into_iter().map(|dialect| sql::guard::syntax_error(dialect, text));
    let first = errors.next()??;
    errors.all(|error| error.is_some()).then_some(first)
}

/// Finds what is wrong with a statement of a definition in whatever dialect it is.
pub(super) fn check_statement(statement: &str, parameters: &Map<String, Value>) -> Result<(), DefinitionMistake> {
    let [first, rest @ ..] = DIALECTS.map(|dialect| declared(dialect, statement, parameters));
    match first {
        Err(error) if rest.iter().all(Result::is_err) => Err(DefinitionMistake::new("statement", &error)),
        _ => Ok(()),
    }
}

/// Reads a statement of a definition, whose parameters have these names.
pub fn declared(
    dialect: Dialect,
    statement: &str,
    parameters: &Map<String, Value>,
) -> Result<DeclaredStatement, ParameterError> {
    DeclaredStatement::new(dialect, statement, parameters.keys().map(String::as_str))
}
