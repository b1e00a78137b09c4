//! What a caller of a database can act on.
//!
//! Errors reach a model, so none contains what stands in a row: details, hints and contexts of PostgreSQL are dropped,
//! and values that a message quotes are cut out of it.

use std::time::Duration;

use thiserror::Error;

/// Why a statement gave no rows.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum DatabaseError {
    #[error("the database at `{address}` cannot be reached: {reason}; try again when it runs")]
    Unreachable { address: String, reason: String },
    #[error("the database at `{address}` refused the user or the password, correct them in the configuration")]
    AuthenticationFailed { address: String },
    #[error("the database at `{address}` has no free connection, try again later")]
    TooManyConnections { address: String },
    #[error("all {max} connections to `{address}` were in use for {}, try again later", seconds(*waited))]
    PoolTimeout { address: String, max: usize, waited: Duration },
    #[error("there is no column `{column}`, look at the schema")]
    UnknownColumn { column: String },
    #[error("there is no table `{table}`, look at the schema")]
    UnknownTable { table: String },
    #[error("the database does not understand the statement: {message}")]
    Syntax { message: String },
    #[error("the statement would change something, and this is a read: {message}")]
    ReadOnly { message: String },
    #[error("the database is not marked as writable, mark it in the configuration if statements may change it")]
    NotWritable,
    #[error("the statement did not end within {} and was stopped, ask for less", seconds(*limit))]
    Timeout { limit: Duration },
    #[error("the statement was cancelled")]
    Cancelled,
    #[error("the statement breaks {kind}{}", constraint.as_ref().map(|name| format!(" `{name}`")).unwrap_or_default())]
    Constraint { kind: ConstraintKind, constraint: Option<String> },
    #[error("a value has the wrong type: {message}")]
    TypeMismatch { message: String },
    #[error("the statement needs {expected} parameters and was given {given}")]
    ParameterCount { expected: usize, given: usize },
    #[error("the user of the database may not do this: {message}")]
    Denied { message: String },
    #[error("the statement changes {affected} rows, and at most {max} may be changed; nothing was changed")]
    TooManyRows { affected: u64, max: u64 },
    #[error("the rows are no longer those that were shown; nothing was changed, make a dry run again")]
    Changed,
    #[error("a dry run is not possible: {reason}")]
    DryRunImpossible { reason: String },
    #[error(
        "the outcome is unknown: the connection broke while the change was being committed; look whether it is there"
    )]
    OutcomeUnknown,
    /// `sqlstate` is the code of the standard, or the database's own if it has none.
    #[error("the database reports `{sqlstate}`: {message}")]
    Other { sqlstate: String, message: String },
}

/// What kind of rule a change breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConstraintKind {
    Unique,
    ForeignKey,
    NotNull,
    Check,
    Other,
}

impl std::fmt::Display for ConstraintKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Unique => "the uniqueness of",
            Self::ForeignKey => "the foreign key",
            Self::NotNull => "the rule against NULL of",
            Self::Check => "the check",
            Self::Other => "the constraint",
        })
    }
}

/// When a statement failed. What is reported while it is compiled quotes the statement; later, it may quote rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    Compiling,
    Running,
}

fn seconds(duration: Duration) -> String {
    format!("{}s", duration.as_secs_f64())
}

/// The longest message of a database that is passed on.
const MAX_MESSAGE_CHARS: usize = 500;

/// Replaces everything that a message quotes, since a quoted value may come from a row.
pub(crate) fn without_quoted(message: &str, quotes: &[char]) -> String {
    let mut cut = String::new();
    let mut rest = message;
    while let Some(start) = rest.find(quotes) {
        let quote = rest[start..].chars().next().expect("a quote was found there");
        cut.push_str(&rest[..start]);
        cut.push('…');
        // The last one, not the next: a value may contain quotes itself.
        rest = rest[start + 1..].rfind(quote).map_or("", |end| &rest[start + end + 2..]);
    }
    cut.push_str(rest);
    shortened(&cut)
}

/// Cuts a message that is too long to be read.
pub(crate) fn shortened(message: &str) -> String {
    let mut characters = message.chars();
    let mut short: String = characters.by_ref().take(MAX_MESSAGE_CHARS).collect();
    if characters.next().is_some() {
        short.push('…');
    }
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quoted_values_are_cut_out_whatever_they_contain() {
        let cut = |message| without_quoted(message, &['"', '\'']);
        assert_eq!(
            cut("invalid input syntax for type integer: \"s3cret\""),
            "invalid input syntax for type integer: …"
        );
        assert_eq!(cut("bad \"one \" two\" end"), "bad … end");
        assert_eq!(cut("bad 'open"), "bad …");
        assert_eq!(cut("plain"), "plain");
        assert_eq!(shortened(&"ä".repeat(600)).chars().count(), 501);
    }
}
