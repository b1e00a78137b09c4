//! Recovery: what a new executor takes over from the record and publishes in the mailbox.

use dispatcher::{CONFIRMATION_WINDOW, Effects, Event, MAX_RETRY_DELAY, RecoveryInfo};
use ground::task::Task;
use jiff::Timestamp;
use protocol::mailbox::Mailbox;
use protocol::task::{State, Step};
use store::{Store, StoreError};

use super::DaemonError;
use super::publisher::Publisher;
use super::task_driver::TaskDriver;
use crate::intake::Intake;

/// Hands the `open` tasks, and the calls, grants and decisions that limits depend on, to the dispatcher.
pub(super) fn recover(
    tasks: &mut TaskDriver,
    intake: &Intake,
    mailbox: &Mailbox,
    mut open: Vec<Task>,
) -> Result<(), StoreError> {
    let now = tasks.clock.now();
    let store = tasks.record.store();
    if let Some(window) = intake.longest_window() {
        // Rate limits must survive the executor, which ends whenever it is idle.
        let ended = store.ended_since(now.checked_sub(window).unwrap_or(Timestamp::MIN))?;
        let open = open.iter().map(|task| (&task.caller, &task.tool, task.created_at));
        for (caller, tool, at) in open.chain(ended.iter().map(|task| (&task.caller, &task.tool, task.created_at))) {
            for limit in intake.rate_limits(tool, caller) {
                // The clock may have been set back since.
                tasks.dispatcher.restore_call(caller, &limit, at.min(now));
            }
        }
    }
    if let Some(telemetry) = &mut tasks.telemetry {
        let started = |id| {
            let steps = store.steps(id).ok()?;
            let last = steps.iter().rev().find(|step| matches!(step.step, Step::Start | Step::Verify))?;
            Some(last.at)
        };
        telemetry.recover(&open, started);
    }
    // A record with a longer delay was written while the clock was ahead, unless a server asked for it.
    let latest = now.checked_add(MAX_RETRY_DELAY).unwrap_or(Timestamp::MAX);
    let was_asked_for = |task: &Task| {
        let failure = task.notes.last_failure.as_ref();
        failure.is_some_and(|failure| failure.server_asked && failure.at <= now)
    };
    for task in open.iter_mut().filter(|task| !was_asked_for(task)) {
        task.not_before = task.not_before.map(|at| at.min(latest));
    }
    tasks.dispatcher.restore_grants(store.grants()?);
    tasks.dispatcher.restore_confirmations(&store.confirmations_since(now - CONFIRMATION_WINDOW)?, now);
    let cool_down = intake.settings().config().confirm.cool_down.get();
    let lately = store.ended_since(now.checked_sub(cool_down).unwrap_or(Timestamp::MIN))?;
    for denied in lately.iter().filter(|ended| ended.state == State::Denied) {
        if let Some(task) = store.task(denied.id)? {
            tasks.dispatcher.restore_denial(&task);
        }
    }
    // Schedules refer to the system clock, so its difference must be known before the tasks are restored.
    let set_clock = Event::SetClock { ahead: tasks.clock.ahead() };
    tasks.dispatcher.handle(set_clock, now, &mut Effects::default());
    let effects = tasks.dispatcher.recover(open, now, |task| {
        // What is repeatable is repeated in any case.
        let had_ended = !task.effect.repeatable() && mailbox.is_final(task.id);
        RecoveryInfo { had_ended, ..intake.recovery_info(task, store, now) }
    });
    tasks.carry_out(effects)
}

/// Publishes results that the mailbox lacks, of tasks that ended after `since`: an earlier executor recorded them and
/// did not publish them, or they were removed with an earlier mailbox.
pub(super) fn publish_missing(
    publisher: &mut Publisher,
    store: &dyn Store,
    mailbox: &Mailbox,
    since: Timestamp,
) -> Result<(), DaemonError> {
    for ended in store.ended_since(since)? {
        // A final result file does not show whether it was written before its task was resolved.
        if (ended.is_resolved || !mailbox.is_final(ended.id))
            && let Some(task) = store.task(ended.id)?
        {
            publisher.publish(&task, None);
        }
    }
    for id in mailbox.tasks_with_results()? {
        if !mailbox.is_final(id)
            && let Some(task) = store.task(id)?.filter(|task| task.state.is_final())
        {
            publisher.publish(&task, None);
        }
    }
    Ok(())
}
