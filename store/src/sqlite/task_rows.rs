//! Writes the rows of tasks: their acceptance and their steps. Every step is a compare-and-set on state and attempt.

use ground::task::Task;
use ground::task::confirmation::Digest;
use ground::task::notes::TaskNotes;
use jiff::Timestamp;
use rusqlite::{Transaction, params};

use super::to_json;
use crate::{Change, ConfirmationUpdate, StoreError, Transition};

/// The steps that follow the acceptance of `task` at once. Its row is written as it is after them.
pub(super) fn first_steps<'a>(task: &Task, changes: &'a [Change]) -> Vec<&'a Transition> {
    let (mut state, mut attempt) = (task.state, 0);
    let next = |change: &'a Change| match change {
        Change::Transition(step)
            if step.id == task.id && (step.from, step.attempt) == (state, attempt) && step.confirmation.is_none() =>
        {
            (state, attempt) = (step.to, step.attempt_after);
            Some(&**step)
        }
        _ => None,
    };
    changes.iter().map_while(next).collect()
}

pub(super) fn accept(transaction: &Transaction<'_>, task: &Task, steps: &[&Transition]) -> Result<(), StoreError> {
    let last = steps.last();
    let end = last.and_then(|step| step.end.as_ref());
    let inserted = transaction
        .prepare_cached(
            "INSERT INTO tasks (id, tool, input, definition_hash, effect, uid, caller, idempotency_key, created_at,
                                state, confirmation, run_at, notes, attempt, not_before, finished_at, end)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17)
             ON CONFLICT DO NOTHING",
        )?
        .execute(params![
            task.id.to_string(),
            task.tool.as_str(),
            to_json(&task.input)?,
            task.definition_hash,
            to_json(&task.effect)?,
            task.caller.uid,
            to_json(&task.caller)?,
            task.idempotency_key,
            task.created_at.as_microsecond(),
            last.map_or(task.state, |step| step.to).as_str(),
            task.confirmation.as_ref().map(to_json).transpose()?,
            task.run_at.map(Timestamp::as_microsecond),
            (task.notes != TaskNotes::default()).then(|| to_json(&task.notes)).transpose()?,
            last.map_or(0, |step| step.attempt_after),
            last.and_then(|step| step.not_before).map(Timestamp::as_microsecond),
            end.map(|end| end.at.as_microsecond()),
            end.map(to_json).transpose()?,
        ])?;
    if inserted != 1 {
        return Err(StoreError::Duplicate(task.id));
    }
    steps.iter().try_for_each(|step| record_step(transaction, step))
}

/// Adds a step to the history of its task.
fn record_step(transaction: &Transaction<'_>, step: &Transition) -> Result<(), StoreError> {
    transaction
        .prepare_cached("INSERT INTO steps (task, at, step, attempt) VALUES (?1, ?2, ?3, ?4)")?
        .execute(params![step.id.to_string(), step.at.as_microsecond(), to_json(&step.step)?, step.attempt_after])?;
    Ok(())
}

pub(super) fn record_transition(transaction: &Transaction<'_>, step: &Transition) -> Result<(), StoreError> {
    let id = step.id.to_string();
    let updated = transaction
        .prepare_cached(
            "UPDATE tasks SET state = ?4, attempt = ?5, not_before = ?6, finished_at = ?7, end = ?8
             WHERE id = ?1 AND state = ?2 AND attempt = ?3",
        )?
        .execute(params![
            id,
            step.from.as_str(),
            step.attempt,
            step.to.as_str(),
            step.attempt_after,
            step.not_before.map(Timestamp::as_microsecond),
            step.end.as_ref().map(|end| end.at.as_microsecond()),
            step.end.as_ref().map(to_json).transpose()?,
        ])?;
    if updated != 1 {
        return Err(StoreError::Conflict { id: step.id, from: step.from, attempt: step.attempt });
    }
    if let Some(update) = &step.confirmation {
        update_confirmation(transaction, step, update)?;
    }
    record_step(transaction, step)
}

fn update_confirmation(
    transaction: &Transaction<'_>,
    step: &Transition,
    update: &ConfirmationUpdate,
) -> Result<(), StoreError> {
    let changed = transaction
        .prepare_cached(
            "UPDATE tasks SET confirmation = ?3, input = coalesce(?4, input)
             WHERE id = ?1 AND confirmation ->> 'digest' IS ?2",
        )?
        .execute(params![
            step.id.to_string(),
            update.expected.as_ref().map(Digest::to_string),
            to_json(&update.confirmation)?,
            update.input.as_ref().map(to_json).transpose()?,
        ])?;
    if changed == 1 {
        Ok(())
    } else {
        Err(StoreError::Conflict { id: step.id, from: step.from, attempt: step.attempt })
    }
}
