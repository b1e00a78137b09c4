//! Taking over: what an executor before us left open, and what must outlast it.

use jiff::Timestamp;
use protocol::task::{State, Step};

use super::{Daemon, DaemonError, MAX_PAUSE};
use crate::dispatcher::{CONFIRMATION_WINDOW, Effects, Event};
use crate::task::Task;

impl Daemon {
    pub(super) fn recover(&mut self, mut open: Vec<Task>) -> Result<(), DaemonError> {
        let (intake, store) = (&self.intake, self.store.as_ref());
        let now = self.clock.now();
        if let Some(window) = intake.longest_window() {
            // A limit must outlast the executor, which ends whenever it is idle.
            let ended = store.ended_since(now.checked_sub(window).unwrap_or(Timestamp::MIN))?;
            let open = open.iter().map(|task| (&task.caller, &task.tool, task.created_at));
            for (caller, tool, at) in open.chain(ended.iter().map(|task| (&task.caller, &task.tool, task.created_at))) {
                if let Some(limit) = intake.rate_limit(tool) {
                    // Not later than now, whatever the clock said then: it may have been set back.
                    self.dispatcher.restore_call(caller, tool, limit, at.min(now));
                }
            }
        }
        if let Some(telemetry) = &mut self.telemetry {
            let started = |id| {
                let steps = store.steps(id).ok()?;
                let last = steps.iter().rev().find(|step| matches!(step.step, Step::Start | Step::Verify))?;
                Some(last.at)
            };
            telemetry.recover(&open, started);
        }
        let latest = now.checked_add(MAX_PAUSE).unwrap_or(Timestamp::MAX);
        for task in &mut open {
            task.not_before = task.not_before.map(|at| at.min(latest));
        }
        self.dispatcher.restore_grants(store.grants()?);
        self.dispatcher.restore_confirmations(&store.confirmations_since(now - CONFIRMATION_WINDOW)?, now);
        let lately = store.ended_since(now.checked_sub(self.cool_down).unwrap_or(Timestamp::MIN))?;
        for denied in lately.iter().filter(|ended| ended.state == State::Denied) {
            if let Some(task) = store.task(denied.id)? {
                self.dispatcher.restore_denial(&task);
            }
        }
        // A schedule among them means what the clock shows.
        let ahead = Event::SetClock { ahead: self.clock.ahead() };
        self.dispatcher.handle(ahead, now, &mut Effects::default());
        let effects = self.dispatcher.recover(open, now, |task| intake.recovery_info(task, store));
        self.carry_out(effects)?;
        let left = self.mailbox.unanswered()?;
        self.answer_all(left, Vec::new())
    }
}
