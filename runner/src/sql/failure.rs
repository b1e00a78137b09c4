//! What went wrong in a database, as a failure of the attempt.

use database::DatabaseError;
use ground::task::failure::{Failure, Retry};
use protocol::code::Code;
use sql::guard::{Refusal, RefusalKind};

/// Whether the failed statement may have changed something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StatementEffect {
    None,
    /// It was to be committed.
    Commit,
}

pub(super) fn of_refusal(refusal: Refusal) -> Failure {
    let code = match refusal.kind {
        RefusalKind::NotAllowed | RefusalKind::ReadOnly => Code::RefusedByPolicy,
        RefusalKind::Syntax
        | RefusalKind::NotOneStatement
        | RefusalKind::NoSuchTable
        | RefusalKind::NoSuchColumn
        | RefusalKind::TooLong => Code::InvalidInput,
    };
    Failure::new(code, refusal.message).hint(refusal.hint).detail("reason", refusal.kind.as_str())
}

pub(super) fn of_database(error: &DatabaseError, effect: StatementEffect) -> Failure {
    let failure = |code| Failure::new(code, error.to_string());
    match error {
        DatabaseError::Unreachable { .. } => failure(Code::Unreachable).retry(Retry::Later),
        DatabaseError::TooManyConnections { .. } | DatabaseError::PoolTimeout { .. } => {
            failure(Code::Throttled).retry(Retry::Later)
        }
        DatabaseError::AuthenticationFailed { .. } => failure(Code::NeedsReauthorization),
        DatabaseError::UnknownColumn { .. }
        | DatabaseError::UnknownTable { .. }
        | DatabaseError::Syntax { .. }
        | DatabaseError::TypeMismatch { .. }
        | DatabaseError::ParameterCount { .. } => failure(Code::InvalidInput),
        DatabaseError::ReadOnly { .. }
        | DatabaseError::NotWritable
        | DatabaseError::Denied { .. }
        | DatabaseError::TooManyRows { .. } => failure(Code::RefusedByPolicy),
        DatabaseError::Changed => Failure::drifted("the rows that it would change are no longer those that were shown"),
        DatabaseError::Timeout { .. } => failure(Code::TimedOut),
        // A statement that was stopped was rolled back.
        DatabaseError::Cancelled => failure(Code::Cancelled),
        DatabaseError::OutcomeUnknown if effect == StatementEffect::Commit => {
            failure(Code::ConnectionLost).effect_possible()
        }
        DatabaseError::OutcomeUnknown => failure(Code::ConnectionLost).retry(Retry::Later),
        DatabaseError::Constraint { .. } | DatabaseError::DryRunImpossible { .. } | DatabaseError::Other { .. } => {
            failure(Code::ApiError)
        }
    }
}
