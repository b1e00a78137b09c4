//! What a human commands on the page, or a client with an API key that may decide.

use jiff::Timestamp;
use protocol::caller::Caller;
use protocol::error::ErrorBody;
use protocol::resolution::ResolvedBy;
use protocol::task::{State, TaskId};

use super::confirmations::DecideRequest;
use super::decide_scopes::ScopeChange;
use super::touch_verifier::TouchRequest;
use super::{Dispatcher, Effects};
use crate::base::webauthn::{Assertion, Base64Url, WebauthnError};
use crate::task::Task;
use crate::task::grant::GrantId;
use crate::task::resolution::ResolutionClaim;
use crate::task::touch::Statement;

/// Identifies a command, for its reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// What a human can have the dispatcher do.
#[derive(Debug)]
pub enum HumanCommand {
    /// Approves, denies, edits or answers pending tasks.
    Decide(DecideRequest),
    /// Revokes a grant.
    Revoke { grant: GrantId, touch: Option<Assertion> },
    /// Lets an API key decide, or no longer.
    ChangeScope(ScopeChange),
    /// Cancels a task as its caller would; `uid` is the caller's user.
    Cancel { id: TaskId, uid: u32 },
    /// Says whether a task that ended as `unknown` had its effect. `task` is the task as recorded.
    Resolve { task: Box<Task>, happened: bool, note: Option<String>, touch: Option<Assertion> },
}

/// The new states of the decided tasks.
pub type DecisionResult = Result<Vec<(TaskId, State)>, DecisionError>;

/// Why nothing was decided.
#[derive(Debug, Clone, PartialEq)]
pub enum DecisionError {
    /// The task does not wait for a decision: it was decided, has ended or does not exist.
    NotPending(TaskId),
    /// The task changed since the human was shown it.
    Stale(TaskId),
    /// It needs a touch of a key, and came without.
    NeedsTouch(Box<TouchRequest>),
    /// The key that signed is not enrolled.
    UnknownKey,
    /// What a key signed is not valid for this.
    BadTouch(WebauthnError),
    /// The API key that decides may not.
    NoScope,
    /// A command of the page other than a decision was refused.
    Refused(Box<ErrorBody>),
}

impl DecisionError {
    /// The same, but this key may not sign.
    #[must_use]
    pub fn without_key(mut self, credential: &Base64Url) -> Self {
        if let Self::NeedsTouch(request) = &mut self {
            request.credentials.retain(|other| other != credential);
        }
        self
    }
}

impl From<ErrorBody> for DecisionError {
    fn from(error: ErrorBody) -> Self {
        Self::Refused(Box::new(error))
    }
}

impl Dispatcher {
    pub(super) fn obey(&mut self, command: HumanCommand, now: Timestamp, effects: &mut Effects) -> DecisionResult {
        match command {
            HumanCommand::Decide(request) => self.decide(request, now, effects),
            HumanCommand::Revoke { grant, touch } => self.revoke(grant, touch.as_ref(), now, effects),
            HumanCommand::ChangeScope(change) => self.change_scope(change, now, effects).map(|()| Vec::new()),
            HumanCommand::Cancel { id, uid } => {
                let caller = Caller { uid, ..Caller::default() };
                Ok(vec![(id, self.cancel(id, (&caller, None), now, effects)?)])
            }
            HumanCommand::Resolve { task, happened, note, touch } => {
                let id = task.id;
                // A human who approved it with a touch resolves it with one.
                if task.was_approved_with_touch() && !self.approver_keys().is_empty() {
                    let statement = Statement::Resolve { task: id, happened, note: note.clone() };
                    self.check_touch(statement, touch.as_ref(), effects)?;
                }
                self.resolve(*task, ResolutionClaim { happened, by: ResolvedBy::Human, note }, now, effects)?;
                Ok(vec![(id, State::Unknown)])
            }
        }
    }
}
