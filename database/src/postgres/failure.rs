//! What PostgreSQL reports, without what it quotes of rows: its detail, hint and context are never looked at.

use std::error::Error as _;

use tokio_postgres::error::{DbError, SqlState};

use crate::error::{ConstraintKind, DatabaseError, Phase, shortened, without_quoted};
use crate::stop::Stop;

pub(super) fn of_connecting(error: &tokio_postgres::Error, address: &str) -> DatabaseError {
    let address = address.to_owned();
    let Some(reported) = error.as_db_error() else {
        if error.source().is_some_and(|source| source.to_string().contains("password")) {
            return DatabaseError::AuthenticationFailed { address };
        }
        // The driver's text names the step, its source what went wrong there.
        let reason = error.source().map_or_else(|| error.to_string(), |source| format!("{error}: {source}"));
        return DatabaseError::Unreachable { address, reason };
    };
    match reported.code().code() {
        "53300" => DatabaseError::TooManyConnections { address },
        code if code.starts_with("28") => DatabaseError::AuthenticationFailed { address },
        _ => DatabaseError::Unreachable { address, reason: shortened(reported.message()) },
    }
}

pub(super) fn of_statement(error: &tokio_postgres::Error, address: &str, stop: &Stop, phase: Phase) -> DatabaseError {
    match error.as_db_error() {
        // The server ends connections: it stops, or a human ended this one.
        Some(reported) if reported.code().code().starts_with("57P") => {
            DatabaseError::Unreachable { address: address.to_owned(), reason: shortened(reported.message()) }
        }
        Some(reported) => of_server(reported, stop, phase),
        None if error.is_closed() => {
            DatabaseError::Unreachable { address: address.to_owned(), reason: "the connection broke".to_owned() }
        }
        None => {
            let source = error.source().map(ToString::to_string);
            match source {
                Some(source) if error.to_string().contains("serializing parameter") => {
                    DatabaseError::TypeMismatch { message: source }
                }
                _ => DatabaseError::Unreachable { address: address.to_owned(), reason: error.to_string() },
            }
        }
    }
}

pub(super) fn of_server(error: &DbError, stop: &Stop, phase: Phase) -> DatabaseError {
    let state = error.code();
    let code = state.code();
    if *state == SqlState::QUERY_CANCELED {
        return if error.message().contains("timeout") { stop.timeout() } else { DatabaseError::Cancelled };
    }
    if *state == SqlState::LOCK_NOT_AVAILABLE {
        return stop.timeout();
    }
    if code.starts_with("23") {
        let kind = match code {
            "23505" => ConstraintKind::Unique,
            "23503" => ConstraintKind::ForeignKey,
            "23502" => ConstraintKind::NotNull,
            "23514" => ConstraintKind::Check,
            _ => ConstraintKind::Other,
        };
        let constraint = error.constraint().or_else(|| error.column()).map(ToOwned::to_owned);
        return DatabaseError::Constraint { kind, constraint };
    }
    if code.starts_with("P0") {
        let message = "a function of the database raised an error of its own".to_owned();
        return DatabaseError::Other { sqlstate: code.to_owned(), message };
    }
    let message = match phase {
        Phase::Compiling => shortened(error.message()),
        Phase::Running => without_quoted(error.message(), &['"', '\'']),
    };
    match (code, phase) {
        ("25006", _) => DatabaseError::ReadOnly { message },
        ("42501", _) => DatabaseError::Denied { message },
        ("42703", Phase::Compiling) => DatabaseError::UnknownColumn { column: named(&message).unwrap_or(message) },
        ("42P01", Phase::Compiling) => DatabaseError::UnknownTable { table: named(&message).unwrap_or(message) },
        ("42804" | "42883" | "42P18" | "42846", Phase::Compiling) => DatabaseError::TypeMismatch { message },
        ("22P02" | "22P03" | "22007" | "22008" | "22003" | "22021", _) => DatabaseError::TypeMismatch { message },
        (code, Phase::Compiling) if code.starts_with("42") => DatabaseError::Syntax { message },
        (code, _) => DatabaseError::Other { sqlstate: code.to_owned(), message },
    }
}

/// Returns the name in `column "x" does not exist` and `column t.x does not exist`.
fn named(message: &str) -> Option<String> {
    let (_, rest) = message.split_once(' ')?;
    let name =
        rest.strip_suffix(" does not exist").or_else(|| rest.split_once(" of relation").map(|(name, _)| name))?;
    Some(name.trim_matches('"').to_owned())
}
