//! What outlives an executor of all that was asked: it is brought back from the record when the next one
//! begins, so that no bound is lifted by a restart.

use std::collections::BTreeSet;

use jiff::Timestamp;

use super::after;
use crate::dispatcher::Dispatcher;
use crate::store::ConfirmationRecord;
use crate::task::Task;
use crate::task::confirmation::{DecidedBy, Verdict};
use crate::task::grant::{Grant, GrantId};

impl Dispatcher {
    /// The grants that an executor before us left.
    pub fn restore_grants(&mut self, grants: Vec<Grant>) {
        self.asks.grants = grants.into_iter().map(|grant| (grant.id, grant)).collect();
    }

    /// What was denied under an executor before us is not asked again either.
    pub fn restore_denial(&mut self, task: &Task) {
        let decision = task.confirmation.as_ref().and_then(|confirmation| confirmation.decision.as_ref());
        if let Some(decision) = decision.filter(|decision| decision.verdict == Verdict::Denied) {
            self.asks.denied.insert(super::call(task), after(decision.at, self.limits.asks.cool_down));
        }
    }

    /// The questions that an executor before us asked, oldest first: they count as its own did.
    pub fn restore_confirmations(&mut self, asked: &[ConfirmationRecord], now: Timestamp) {
        for ConfirmationRecord { uid, at } in asked {
            // Not later than now, whatever the clock said then: it may have been set back.
            self.asks.asked.entry(*uid).or_default().push_back((*at).min(now));
        }
    }

    /// The grants that have ended before this, and let nothing through that has not started: nobody needs
    /// them any more.
    pub fn ended_grants(&self, before: Timestamp) -> Vec<GrantId> {
        let of = |task: &Task| match task.confirmation.as_ref()?.decision.as_ref()?.by {
            DecidedBy::Grant(id) => Some(id),
            DecidedBy::Page(_) => None,
        };
        let in_use: BTreeSet<_> = self.asks.approved.iter().filter_map(|id| of(&self.open.get(id)?.task)).collect();
        let is_spent = |grant: &&Grant| grant.ended_at() < before && !in_use.contains(&grant.id);
        self.asks.grants.values().filter(is_spent).map(|grant| grant.id).collect()
    }

    pub fn forget_grants(&mut self, ids: &[GrantId]) {
        for id in ids {
            self.asks.grants.remove(id);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use jiff::SignedDuration;
    use protocol::task::TaskId;
    use serde_json::json;

    use super::super::super::tests::{Bench, asking, definition, limits};
    use super::*;
    use crate::store::{Change, Store as _};
    use crate::task::grant::GrantScope;

    #[test]
    fn a_grant_that_ended_is_spent_but_not_while_something_it_let_through_is_to_start() {
        let mut bench = Bench::new(limits(1));
        let scheduled = bench.now + SignedDuration::from_hours(20);
        let task = Task { run_at: Some(scheduled), not_before: Some(scheduled), ..asking(bench.now, json!({})) };
        let grant = Grant {
            id: TaskId::new(),
            tool: task.tool.clone(),
            definition_hash: task.definition_hash.clone(),
            scope: GrantScope { uid: task.caller.uid, session: None, folder: None },
            fields: BTreeMap::new(),
            made_at: bench.now,
            made_from: task.id,
            made_by: "page".to_owned(),
            expires_at: bench.now + SignedDuration::from_hours(1),
            most_uses: None,
            uses: 0,
            last_use: None,
            revoked_at: None,
        };
        let later = |hours| bench.now + SignedDuration::from_hours(hours);
        let (first, second) = (later(1), later(2));
        bench.store.commit(&[Change::Grant { grant: Box::new(grant.clone()), expected_uses: None }]).expect("kept");
        bench.dispatcher.restore_grants(vec![grant.clone()]);
        assert_eq!(
            (bench.dispatcher.ended_grants(first), bench.dispatcher.ended_grants(second)),
            (vec![], vec![grant.id])
        );
        bench.admit(&task, &definition(json!({})));
        assert_eq!(bench.dispatcher.confirmable().count(), 1, "the grant let it through");
        assert_eq!(bench.dispatcher.ended_grants(second), []);
        bench.cancel(task.id, 1);
        assert_eq!(bench.dispatcher.ended_grants(second), [grant.id]);
        bench.dispatcher.forget_grants(&[grant.id]);
        assert_eq!(bench.dispatcher.ended_grants(second), []);
    }

    #[test]
    fn a_grant_ends_by_its_time_its_last_use_or_when_it_is_taken_back() {
        let bench = Bench::new(limits(1));
        let at = |hours| bench.now + SignedDuration::from_hours(hours);
        let task = asking(bench.now, json!({}));
        let grant = Grant {
            id: TaskId::new(),
            tool: task.tool,
            definition_hash: task.definition_hash,
            scope: GrantScope { uid: 1, session: None, folder: None },
            fields: BTreeMap::new(),
            made_at: at(0),
            made_from: task.id,
            made_by: "page".to_owned(),
            expires_at: at(5),
            most_uses: Some(2),
            uses: 1,
            last_use: Some(at(1)),
            revoked_at: None,
        };
        assert_eq!(grant.ended_at(), at(5));
        assert_eq!(Grant { uses: 2, ..grant.clone() }.ended_at(), at(1));
        assert_eq!(Grant { revoked_at: Some(at(3)), ..grant }.ended_at(), at(3));
    }
}
