//! What MySQL and MariaDB report, without the values that their messages quote.

use mysql_async::{Error, ServerError};

use crate::error::{ConstraintKind, DatabaseError, Phase, shortened, without_quoted};
use crate::stop::Stop;

pub(super) fn of_connecting(error: &Error, address: &str) -> DatabaseError {
    let address = address.to_owned();
    match error {
        Error::Server(reported) => match reported.code {
            1040 | 1203 | 1226 => DatabaseError::TooManyConnections { address },
            1044 | 1045 | 1698 => DatabaseError::AuthenticationFailed { address },
            _ => DatabaseError::Unreachable { address, reason: shortened(&reported.message) },
        },
        other => DatabaseError::Unreachable { address, reason: cause(other) },
    }
}

pub(super) fn of_statement(error: &Error, address: &str, stop: &Stop, phase: Phase) -> DatabaseError {
    match error {
        Error::Server(reported) => of_server(reported, address, stop, phase),
        other => DatabaseError::Unreachable { address: address.to_owned(), reason: cause(other) },
    }
}

/// Returns what is below an error of the driver, which shows whole packets and rows in its own text.
fn cause(error: &Error) -> String {
    match error {
        Error::Io(error) => match error {
            mysql_async::IoError::Io(error) => error.to_string(),
            mysql_async::IoError::Tls(error) => format!("TLS: {error}"),
        },
        Error::Driver(mysql_async::DriverError::ConnectionClosed) => "the connection broke".to_owned(),
        Error::Driver(mysql_async::DriverError::NoClientSslFlagFromServer) => "the server has no TLS".to_owned(),
        _ => "the connection cannot be used".to_owned(),
    }
}

fn of_server(error: &ServerError, address: &str, stop: &Stop, phase: Phase) -> DatabaseError {
    let message = match phase {
        Phase::Compiling => shortened(&error.message),
        Phase::Running => without_quoted(&error.message, &['\'', '"']),
    };
    match error.code {
        // Ended by its time, or by a `KILL` of ours or of others.
        3024 | 1969 | 1205 => stop.timeout(),
        1317 => DatabaseError::Cancelled,
        1927 | 1053 | 1080 => DatabaseError::Unreachable { address: address.to_owned(), reason: message },
        1054 => DatabaseError::UnknownColumn { column: named(&message).unwrap_or(message) },
        1146 | 1051 | 1109 => DatabaseError::UnknownTable { table: named(&message).unwrap_or(message) },
        1792 | 1290 | 1836 => DatabaseError::ReadOnly { message },
        1044 | 1142 | 1143 | 1227 | 1370 | 1045 | 1095 => DatabaseError::Denied { message },
        1062 | 1586 | 1022 => constraint(ConstraintKind::Unique, &error.message),
        1216 | 1217 | 1451 | 1452 => constraint(ConstraintKind::ForeignKey, &error.message),
        1048 | 1364 => constraint(ConstraintKind::NotNull, &error.message),
        3819 | 4025 => constraint(ConstraintKind::Check, &error.message),
        // `SIGNAL`: the words of a procedure, of which nothing is known.
        _ if error.code == 1644 || error.state.starts_with("45") => DatabaseError::Other {
            sqlstate: error.state.clone(),
            message: "a function of the database raised an error of its own".to_owned(),
        },
        1264 | 1265 | 1292 | 1366 | 1367 | 1406 | 1411 | 1525 => {
            DatabaseError::TypeMismatch { message: without_quoted(&error.message, &['\'', '"']) }
        }
        1064 | 1149 | 1065 | 1295 => DatabaseError::Syntax { message },
        _ if error.state.starts_with("42") && phase == Phase::Compiling => DatabaseError::Syntax { message },
        _ => DatabaseError::Other {
            sqlstate: error.state.clone(),
            message: without_quoted(&error.message, &['\'', '"']),
        },
    }
}

/// Returns the first name that a message quotes.
fn named(message: &str) -> Option<String> {
    message.split('\'').nth(1).map(ToOwned::to_owned)
}

/// Returns the name of the rule, which stands where the value cannot: at the end, or in backticks after `CONSTRAINT`.
fn constraint(kind: ConstraintKind, message: &str) -> DatabaseError {
    let name = match kind {
        ConstraintKind::Unique => message.rsplit_once("for key '").map(|(_, name)| name.trim_end_matches('\'')),
        ConstraintKind::ForeignKey => message.split_once("CONSTRAINT `").and_then(|(_, rest)| rest.split('`').next()),
        ConstraintKind::NotNull => message.split('\'').nth(1),
        ConstraintKind::Check | ConstraintKind::Other => message
            .split_once("CONSTRAINT `")
            .and_then(|(_, rest)| rest.split('`').next())
            .or(message.split('\'').nth(1)),
    };
    DatabaseError::Constraint { kind, constraint: name.map(ToOwned::to_owned) }
}
