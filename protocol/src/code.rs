//! Every error code, listed once. A code is part of the contract: it is never renamed.

use std::fmt;

use serde::{Deserialize, Serialize};

macro_rules! codes {
    ($($(#[$doc:meta])* $variant:ident = $text:literal, $exit:expr;)+) => {
        /// What went wrong, for programs and models to branch on.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
        pub enum Code { $($(#[$doc])* #[serde(rename = $text)] $variant,)+ }

        impl Code {
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text,)+ }
            }

            /// The exit status of a command that ends with this code.
            pub const fn exit(self) -> Exit {
                match self { $(Self::$variant => $exit,)+ }
            }
        }
    };
}

/// The exit statuses of the command line; also part of the contract.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// Done or accepted.
    Ok = 0,
    /// The subtool ran and failed.
    Failed = 1,
    /// Wrong usage or invalid input.
    Usage = 2,
    /// No such subtool, task or file.
    NotFound = 3,
    /// Waiting for confirmation, and only when it was waited for.
    AwaitingConfirmation = 4,
    /// Refused by policy or by a human.
    Refused = 5,
    /// Still pending; we stopped waiting.
    Pending = 6,
    /// No executor can be reached or started.
    NoExecutor = 7,
    /// Our bug.
    Bug = 70,
}

codes! {
    /// The command line cannot be understood.
    Usage = "usage", Exit::Usage;
    /// A text that should be JSON is none, or is more than we take.
    InvalidJson = "invalid-json", Exit::Usage;
    /// The input does not fit the subtool's schema.
    InvalidInput = "invalid-input", Exit::Usage;
    /// The same idempotency key came with another input.
    IdempotencyMismatch = "idempotency-mismatch", Exit::Usage;
    /// A request larger than the mailbox takes.
    RequestTooLarge = "request-too-large", Exit::Usage;
    /// A request file that we cannot trust or understand.
    BadRequest = "bad-request", Exit::Usage;
    /// A configuration that cannot be read.
    BadConfig = "bad-config", Exit::Usage;
    /// No language model of that name, or none at all.
    NoModel = "no-model", Exit::Usage;
    /// Another process has the session.
    SessionInUse = "session-in-use", Exit::Refused;
    /// A definition that cannot be loaded.
    BadDefinition = "bad-definition", Exit::Usage;
    /// No subtool of that name, or none that the caller may use.
    UnknownSubtool = "unknown-subtool", Exit::NotFound;
    /// No task of that id.
    UnknownTask = "unknown-task", Exit::NotFound;
    /// No file or folder there, or none that may be read.
    NotFound = "not-found", Exit::NotFound;
    /// A rule of the human's, or of the subtool, says no.
    RefusedByPolicy = "refused-by-policy", Exit::Refused;
    /// It needs a surer yes than can be given here.
    NeedsAssurance = "needs-assurance", Exit::Refused;
    /// It needs a human's yes, nobody is there, and the caller did not want to wait.
    NoApprover = "no-approver", Exit::Refused;
    /// A model's command line has something in it that is not carried out for it.
    NotCarriedOut = "not-carried-out", Exit::Refused;
    /// A command for the human alone, where an agent seems to run it.
    HumansOnly = "humans-only", Exit::Refused;
    /// Its definition changed between a human's yes and its start.
    Drifted = "drifted", Exit::Refused;
    /// A human said no.
    Denied = "denied", Exit::Refused;
    /// Nobody answered in time.
    Expired = "expired", Exit::Refused;
    /// It cannot be resolved: what happened is known, or it has not ended.
    NotUnknown = "not-unknown", Exit::Refused;
    /// Somebody said something else of it before.
    AlreadyResolved = "already-resolved", Exit::Refused;
    /// More calls than the subtool's rate limit allows.
    RateLimited = "rate-limited", Exit::Refused;
    /// The subtool is off for a session that called it too often.
    SwitchedOff = "switched-off", Exit::Refused;
    /// An agent that was called by an agent wants to call one itself.
    TooDeep = "too-deep", Exit::Refused;
    /// More open tasks than we take.
    Throttled = "throttled", Exit::Refused;
    /// No executor can be reached or started.
    NoExecutor = "no-executor", Exit::NoExecutor;
    /// The mailbox folder cannot be used, or cannot be trusted.
    BadMailbox = "bad-mailbox", Exit::NoExecutor;
    /// A task that ended because somebody cancelled it.
    Cancelled = "cancelled", Exit::Failed;
    /// It took longer than its timeout.
    TimedOut = "timed-out", Exit::Failed;
    /// It had started, and nobody can know whether it took effect.
    UnknownOutcome = "unknown-outcome", Exit::Failed;
    /// The far side answered with an error.
    ApiError = "api-error", Exit::Failed;
    /// The far side refused our credentials for good: a human must authorize again.
    NeedsReauthorization = "needs-reauthorization", Exit::Failed;
    /// The far side could not be reached: nothing was sent.
    Unreachable = "unreachable", Exit::Failed;
    /// The connection broke after something was sent.
    ConnectionLost = "connection-lost", Exit::Failed;
    /// The far side's answer cannot be understood.
    BadResponse = "bad-response", Exit::Failed;
    /// More data than the limit.
    ResponseTooLarge = "response-too-large", Exit::Failed;
    /// An address that a subtool may not reach.
    ForbiddenAddress = "forbidden-address", Exit::Failed;
    /// A secret that is not set, or that cannot be read.
    SecretMissing = "secret-missing", Exit::Failed;
    /// A path outside the configured roots.
    OutsideRoots = "outside-roots", Exit::Failed;
    /// A program that could not be started.
    CannotStart = "cannot-start", Exit::Failed;
    /// A program that ended with a status other than 0, or by a signal.
    ProcessFailed = "process-failed", Exit::Failed;
    /// A language model gave no answer.
    ModelFailed = "model-failed", Exit::Failed;
    /// A first argument that the subtool's `allow` list does not name.
    NotAllowed = "not-allowed", Exit::Failed;
    /// A template of the definition that could not be filled.
    TemplateFailed = "template-failed", Exit::Failed;
    /// A `result.select` that failed on the data.
    SelectFailed = "select-failed", Exit::Failed;
    /// The runner refused the values it was given.
    Rejected = "rejected", Exit::Failed;
    /// Reading or writing a file failed.
    Io = "io", Exit::Failed;
    /// Our bug.
    Internal = "internal", Exit::Bug;
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_kebab_case_and_distinct() {
        let mut seen = std::collections::HashSet::new();
        for code in Code::ALL {
            assert!(code.as_str().bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-'), "{code}");
            assert!(seen.insert(code.as_str()), "{code} stands twice");
        }
    }
}
