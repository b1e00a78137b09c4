//! Restores grants, denials and limits from the store when an executor starts, so that a restart lifts no limit.

use std::collections::BTreeSet;

use ground::task::Task;
use ground::task::confirmation::{DecidedBy, Verdict};
use ground::task::grant::{Grant, GrantId};
use jiff::Timestamp;
use store::ConfirmationRecord;

use super::after;
use crate::Dispatcher;

impl Dispatcher {
    /// Restores the stored grants.
    pub fn restore_grants(&mut self, grants: Vec<Grant>) {
        self.confirmations.grants = grants.into_iter().map(|grant| (grant.id, grant)).collect();
    }

    /// Restores the cool-down of a task that was denied under an earlier executor.
    pub fn restore_denial(&mut self, task: &Task) {
        let decision = task.confirmation.as_ref().and_then(|confirmation| confirmation.decision.as_ref());
        if let Some(decision) = decision.filter(|decision| decision.verdict == Verdict::Denied) {
            self.confirmations
                .denied
                .insert(super::call_digest(task), after(decision.at, self.limits.confirmations.cool_down));
        }
    }

    /// Counts the confirmations of earlier executors, oldest first, towards the hourly limit.
    pub fn restore_confirmations(&mut self, records: &[ConfirmationRecord], now: Timestamp) {
        for ConfirmationRecord { uid, at } in records {
            // The clock may have been set back since: none of them may lie in the future.
            self.confirmations.asked.restore(*uid, (*at).min(now));
        }
    }

    /// Returns the grants that ended before `before` and are not in use by an open task.
    pub fn ended_grants(&self, before: Timestamp) -> Vec<GrantId> {
        let grant_of = |task: &Task| match task.confirmation.as_ref()?.decision.as_ref()?.by {
            DecidedBy::Grant(id) => Some(id),
            DecidedBy::Page(_) | DecidedBy::ApiKey(_) => None,
        };
        // Also by one that waits for its next attempt.
        let in_use: BTreeSet<_> = self.open.values().filter_map(|open| grant_of(&open.task)).collect();
        let has_ended = |grant: &&Grant| grant.ended_at() < before && !in_use.contains(&grant.id);
        self.confirmations.grants.values().filter(has_ended).map(|grant| grant.id).collect()
    }

    /// Forgets these grants.
    pub fn forget_grants(&mut self, ids: &[GrantId]) {
        for id in ids {
            self.confirmations.grants.remove(id);
        }
    }
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;
    use protocol::task::State;
    use serde_json::json;

    use super::super::super::tests::{Bench, definition, limits, unapproved};
    use super::*;
    use store::{Change, Store as _};

    #[test]
    fn an_ended_grant_is_kept_while_a_task_that_it_approved_has_not_started() {
        let mut bench = Bench::new(limits(1));
        let scheduled = bench.now + SignedDuration::from_mins(20);
        let task = Task { run_at: Some(scheduled), not_before: Some(scheduled), ..unapproved(bench.now, json!({})) };
        let grant = Grant::sample(&task, bench.now);
        let later = |hours| bench.now + SignedDuration::from_hours(hours);
        let (first, second) = (later(1), later(2));
        bench.store.commit(&[Change::Grant { grant: Box::new(grant.clone()), expected_uses: None }]).expect("kept");
        bench.dispatcher.restore_grants(vec![grant.clone()]);
        assert_eq!(
            (bench.dispatcher.ended_grants(first), bench.dispatcher.ended_grants(second)),
            (vec![], vec![grant.id])
        );
        bench.admit(&task, &definition(json!({})));
        assert_eq!(bench.state(task.id), State::Queued, "the grant approved it");
        assert_eq!(bench.dispatcher.ended_grants(second), []);
        bench.cancel(task.id, 1);
        assert_eq!(bench.dispatcher.ended_grants(second), [grant.id]);
        bench.dispatcher.forget_grants(&[grant.id]);
        assert_eq!(bench.dispatcher.ended_grants(second), []);
    }

    #[test]
    fn a_grant_ends_at_its_expiry_its_last_use_or_its_revocation() {
        let bench = Bench::new(limits(1));
        let at = |hours| bench.now + SignedDuration::from_hours(hours);
        let task = unapproved(bench.now, json!({}));
        let (most_uses, last_use) = (Some(2), Some(at(1)));
        let grant = Grant { expires_at: at(5), most_uses, uses: 1, last_use, ..Grant::sample(&task, at(0)) };
        assert_eq!(grant.ended_at(), at(5));
        assert_eq!(Grant { uses: 2, ..grant.clone() }.ended_at(), at(1));
        assert_eq!(Grant { revoked_at: Some(at(3)), ..grant }.ended_at(), at(3));
    }
}
