//! What a human commands on the page, or a client with an API key that may decide.

use ground::base::webauthn::Assertion;
use ground::task::Task;
use ground::task::grant::GrantId;
use ground::task::resolution::ResolutionClaim;
use ground::task::touch::Statement;
use jiff::Timestamp;
use protocol::caller::Caller;
use protocol::resolution::ResolvedBy;
use protocol::task::{State, TaskId};

use super::confirmations::DecideRequest;
use super::decide_scopes::ScopeChange;
use super::decision_error::DecisionResult;
use super::{Dispatcher, Effects};

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
