//! The start of an approved task: whether its approval still holds when its turn comes.

use ground::task::Task;
use ground::task::confirmation::{Confirmation, DecidedBy, Decision, expired, no_longer_approved};
use jiff::Timestamp;
use protocol::code::Code;
use protocol::error::ErrorBody;
use protocol::task::{State, Step, TaskId};

use crate::{Dispatcher, Effects};

impl Dispatcher {
    /// Whether a queued task may start. If its approval has expired or was revoked, ends the task and returns false.
    pub(crate) fn may_start(&mut self, id: TaskId, now: Timestamp, effects: &mut Effects) -> bool {
        if !self.may_start_by_rules(id, now, effects) {
            return false;
        }
        // Its time came while no executor ran.
        if self.ask_scheduled(id, now, effects) {
            return false;
        }
        let Some(task) = self.open.get(&id).map(|open| &open.task) else { return false };
        if self.is_of_ended_key(task) {
            let error = ErrorBody::new(Code::Cancelled, "its API key was revoked or has expired before it started");
            self.end_unstarted(id, Step::Cancel, error.hint("nothing was done"), now, effects);
            return false;
        }
        let Some(confirmation) = &task.confirmation else { return true };
        let is_approved = self.confirmations.approved.contains(&id);
        if !is_approved && !needs_approval_again(task) {
            return true;
        }
        let is_revoked = |decision: &Decision| match &decision.by {
            DecidedBy::Grant(id) => self.confirmations.grants.get(id).is_none_or(|grant| {
                grant.has_ended(now)
                    || !self.is_believed(grant, self.needs_touch(task, &self.open[&task.id].definition))
            }),
            DecidedBy::ApiKey(key) => !self.still_decides(key, decision.at, now),
            DecidedBy::Page(_) => false,
        };
        if confirmation.decision.as_ref().is_none_or(is_revoked) {
            let why = match confirmation.decision.as_ref().map(|decision| &decision.by) {
                Some(DecidedBy::ApiKey(_)) => "the API key that approved it may no longer decide",
                _ => "the grant that approved it has ended or was revoked",
            };
            let error = no_longer_approved(why, task);
            self.end_before_start(id, Step::Deny, now, |_| error, effects);
            false
        } else if is_approved && expires_at(confirmation) <= now {
            self.end_before_start(id, Step::Expire, now, expired, effects);
            false
        } else {
            self.confirmations.approved.remove(&id);
            true
        }
    }
}

/// Whether a later attempt of `task` needs that what approved it still counts. A human's own approval was for the task, with
/// all its attempts; and a job that was begun is only asked for its end.
fn needs_approval_again(task: &Task) -> bool {
    let decision = task.confirmation.as_ref().and_then(|confirmation| confirmation.decision.as_ref());
    let is_by_human = decision.is_none_or(|decision| matches!(decision.by, DecidedBy::Page(_)));
    !is_by_human && task.state == State::Queued && task.notes.job.is_none()
}

/// When an approved task that has not started expires. The time for which it is held does not count.
fn expires_at(confirmation: &Confirmation) -> Timestamp {
    let held =
        confirmation.decision.as_ref().and_then(|decision| Some(decision.held_until?.duration_since(decision.at)));
    confirmation.expires_at.saturating_add(held.unwrap_or_default()).unwrap_or(Timestamp::MAX)
}
