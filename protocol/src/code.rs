//! The error codes and exit statuses. Both are part of the contract with callers and are never renamed.

use std::fmt;

use serde::{Deserialize, Serialize};

macro_rules! codes {
    ($($(#[$doc:meta])* $variant:ident = $text:literal, $exit:expr;)+) => {
        /// The kind of an error, for programs and models to branch on.
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

/// The exit statuses of the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// Done or accepted.
    Ok = 0,
    /// The subtool ran and failed.
    Failed = 1,
    /// Invalid usage or input.
    Usage = 2,
    /// No such subtool, task or file.
    NotFound = 3,
    /// The task is waiting for a human. Only for commands that print its result.
    AwaitingConfirmation = 4,
    /// Refused, by a rule, a limit or a human.
    Refused = 5,
    /// The task was still pending when the command stopped waiting.
    Pending = 6,
    /// No executor is running and none could be started.
    NoExecutor = 7,
    /// A bug in this program.
    Bug = 70,
}

impl Exit {
    /// The meaning of an exit status; any that is unknown is a bug.
    pub fn of(status: u8) -> Self {
        let known = [
            Self::Ok,
            Self::Failed,
            Self::Usage,
            Self::NotFound,
            Self::AwaitingConfirmation,
            Self::Refused,
            Self::Pending,
            Self::NoExecutor,
        ];
        known.into_iter().find(|exit| *exit as u8 == status).unwrap_or(Self::Bug)
    }
}

codes! {
    /// Invalid command line.
    Usage = "usage", Exit::Usage;
    /// Invalid JSON, or JSON that exceeds a limit.
    InvalidJson = "invalid-json", Exit::Usage;
    /// The input does not fit the subtool's schema.
    InvalidInput = "invalid-input", Exit::Usage;
    /// The idempotency key was used before with another input.
    IdempotencyMismatch = "idempotency-mismatch", Exit::Usage;
    /// The request is larger than the mailbox accepts.
    RequestTooLarge = "request-too-large", Exit::Usage;
    /// The request file is malformed or not trusted.
    BadRequest = "bad-request", Exit::Usage;
    /// The configuration is invalid or not readable.
    BadConfig = "bad-config", Exit::Usage;
    /// There is no model of that name, or no model is configured.
    NoModel = "no-model", Exit::Usage;
    /// Another process is using the session.
    SessionInUse = "session-in-use", Exit::Refused;
    /// The definition is invalid.
    BadDefinition = "bad-definition", Exit::Usage;
    /// There is no subtool of that name in the caller's tool scope.
    UnknownSubtool = "unknown-subtool", Exit::NotFound;
    /// There is no task of that id.
    UnknownTask = "unknown-task", Exit::NotFound;
    /// There is no such file or folder, or it is not readable.
    NotFound = "not-found", Exit::NotFound;
    /// A rule of the configuration or of the subtool forbids the task.
    RefusedByPolicy = "refused-by-policy", Exit::Refused;
    /// What the call would change must be shown first, by a dry run.
    DryRunFirst = "dry-run-first", Exit::Refused;
    /// The caller's model may not get data of the subtool's class.
    TrustZone = "trust-zone", Exit::Refused;
    /// The task needs a stronger form of confirmation than is available.
    NeedsAssurance = "needs-assurance", Exit::Refused;
    /// The task needs confirmation, no human has the page open, and the caller did not want to wait.
    NoApprover = "no-approver", Exit::Refused;
    /// A model's command line contains something that is not run for models.
    NotCarriedOut = "not-carried-out", Exit::Refused;
    /// The command is for humans only, and an agent seems to have called it.
    HumansOnly = "humans-only", Exit::Refused;
    /// The definition changed after a human approved the task and before it started.
    Drifted = "drifted", Exit::Refused;
    /// A human denied the task.
    Denied = "denied", Exit::Refused;
    /// No human decided in time.
    Expired = "expired", Exit::Refused;
    /// The page received a request that its own script did not send.
    ForeignRequest = "foreign-request", Exit::Refused;
    /// The page received a request from a browser that is not signed in.
    NotSignedIn = "not-signed-in", Exit::Refused;
    /// The link to the page was used before, or is too old.
    UsedLink = "used-link", Exit::Refused;
    /// A request to the page came without a valid proof of its session.
    ProofRequired = "proof-required", Exit::Refused;
    /// The decision needs a touch of an enrolled key.
    NeedsTouch = "needs-touch", Exit::Refused;
    /// What a key signed is not valid for the decision.
    BadTouch = "bad-touch", Exit::Refused;
    /// The API key is unknown, revoked or expired.
    BadApiKey = "bad-api-key", Exit::Refused;
    /// The API key has not the scope that this needs.
    NeedsScope = "needs-scope", Exit::Refused;
    /// The key cannot be enrolled or revoked.
    BadKey = "bad-key", Exit::Refused;
    /// The task changed since the human saw it on the page.
    Stale = "stale", Exit::Refused;
    /// The task was decided before, or has ended.
    AlreadyDecided = "already-decided", Exit::Refused;
    /// The human must type the subtool's name first.
    WantsWord = "wants-word", Exit::Refused;
    /// The task is a question: it is answered, not approved.
    WantsAnswer = "wants-answer", Exit::Refused;
    /// The task is not a question, so it cannot be answered.
    NoQuestion = "no-question", Exit::Refused;
    /// The approval cannot be remembered in this way.
    BadGrant = "bad-grant", Exit::Refused;
    /// The task cannot be resolved, because its outcome is known or it has not ended.
    NotUnknown = "not-unknown", Exit::Refused;
    /// The task cannot be cancelled, because it has ended.
    AlreadyEnded = "already-ended", Exit::Refused;
    /// The task was resolved differently before.
    AlreadyResolved = "already-resolved", Exit::Refused;
    /// More calls than the subtool's rate limit allows.
    RateLimited = "rate-limited", Exit::Refused;
    /// The subtool is switched off for the session, which called it too often.
    SwitchedOff = "switched-off", Exit::Refused;
    /// The caller's nesting depth does not allow it to call another agent.
    TooDeep = "too-deep", Exit::Refused;
    /// What the user may spend on language models in a day is used up.
    BudgetExhausted = "budget-exhausted", Exit::Refused;
    /// Too many open tasks, or too many requests at once.
    Throttled = "throttled", Exit::Refused;
    /// The API key has as many sessions as it may have.
    TooManySessions = "too-many-sessions", Exit::Refused;
    /// No executor is running and none could be started.
    NoExecutor = "no-executor", Exit::NoExecutor;
    /// The mailbox folder is not usable or not trusted.
    BadMailbox = "bad-mailbox", Exit::NoExecutor;
    /// The task was cancelled.
    Cancelled = "cancelled", Exit::Failed;
    /// The task took longer than its timeout.
    TimedOut = "timed-out", Exit::Failed;
    /// The task started, and it is not known whether it took effect.
    UnknownOutcome = "unknown-outcome", Exit::Failed;
    /// The executor ended each time that the task was running.
    ExecutorCrashed = "executor-crashed", Exit::Failed;
    /// The server answered with an error.
    ApiError = "api-error", Exit::Failed;
    /// The server permanently rejected our credentials; a human must authorize again.
    NeedsReauthorization = "needs-reauthorization", Exit::Failed;
    /// The connection to the server failed before anything was sent.
    Unreachable = "unreachable", Exit::Failed;
    /// The connection to the server broke after something was sent.
    ConnectionLost = "connection-lost", Exit::Failed;
    /// The server's response is malformed.
    BadResponse = "bad-response", Exit::Failed;
    /// The response is larger than the limit.
    ResponseTooLarge = "response-too-large", Exit::Failed;
    /// The results of the caller, or of all callers, take as much of the disk as they may.
    QuotaExceeded = "quota-exceeded", Exit::Failed;
    /// Subtools may not connect to this address.
    ForbiddenAddress = "forbidden-address", Exit::Failed;
    /// The secret is not set or not readable.
    SecretMissing = "secret-missing", Exit::Failed;
    /// The path is outside the configured roots.
    OutsideRoots = "outside-roots", Exit::Failed;
    /// The program could not be started.
    CannotStart = "cannot-start", Exit::Failed;
    /// The program ended with a nonzero exit status or by a signal.
    ProcessFailed = "process-failed", Exit::Failed;
    /// The language model gave no answer.
    ModelFailed = "model-failed", Exit::Failed;
    /// The provider of the language model rejected the request, and would reject it again.
    ModelRejected = "model-rejected", Exit::Failed;
    /// The first argument is not on the subtool's `allow` list.
    NotAllowed = "not-allowed", Exit::Failed;
    /// A script threw an error, or exceeded one of its limits.
    ScriptFailed = "script-failed", Exit::Failed;
    /// A script that was run again did not make the calls that its record has.
    ScriptDiverged = "script-diverged", Exit::Failed;
    /// A template of the definition could not be filled.
    TemplateFailed = "template-failed", Exit::Failed;
    /// The definition's `result.select` failed on the data.
    SelectFailed = "select-failed", Exit::Failed;
    /// The runner rejected its values.
    Rejected = "rejected", Exit::Failed;
    /// Reading or writing a file failed.
    Io = "io", Exit::Failed;
    /// A bug in this program.
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
            assert!(seen.insert(code.as_str()), "duplicate code {code}");
        }
    }
}
