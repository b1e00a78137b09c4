//! What the journal of a session says about its questions.

use std::collections::BTreeMap;

use agent_loop::model::conversation::{JournalEntry, StopReason};
use protocol::task::TaskId;

use super::log::EarlierTurn;

/// How many questions the model knows: those that were not taken back.
pub(super) fn known_questions(entries: &[JournalEntry]) -> usize {
    entries.iter().fold(0, |known: usize, entry| match entry {
        JournalEntry::Asked { .. } => known + 1,
        JournalEntry::Undone => known.saturating_sub(1),
        JournalEntry::Cleared => 0,
        _ => known,
    })
}

/// The turns of a session, from its journal.
#[derive(Debug, Default)]
pub(super) struct TurnHistory {
    /// How the turns ended, by their numbers; the last one, if it has not, as if it were over.
    pub(super) ends: BTreeMap<u64, EarlierTurn>,
    /// The open tasks that the last question started.
    pub(super) started: Vec<TaskId>,
}

impl TurnHistory {
    pub(super) fn of(entries: &[JournalEntry]) -> Self {
        let (mut ends, mut turn, mut answer) = (BTreeMap::new(), 0, String::new());
        let mut started: Vec<TaskId> = Vec::new();
        for entry in entries {
            match entry {
                JournalEntry::Asked { .. } => {
                    // Another question ends a turn whose tasks are open.
                    end_turn(&mut ends, turn, &answer, &started);
                    turn += 1;
                    answer.clear();
                    started.clear();
                }
                JournalEntry::Answered { turn } if !turn.in_text && !turn.text.trim().is_empty() => {
                    answer.clone_from(&turn.text);
                }
                JournalEntry::Called { results } => {
                    for result in results {
                        started.extend(result.opened.iter().map(|task| task.id));
                        started.retain(|id| !result.collected.contains(id));
                    }
                }
                JournalEntry::Woken { tasks } => started.retain(|id| tasks.iter().all(|task| task.id != *id)),
                JournalEntry::Stopped { reason } => {
                    ends.insert(turn, EarlierTurn { answer: answer.clone(), reason: *reason });
                }
                _ => {}
            }
        }
        end_turn(&mut ends, turn, &answer, &started);
        Self { ends, started }
    }
}

fn end_turn(ends: &mut BTreeMap<u64, EarlierTurn>, turn: u64, answer: &str, started: &[TaskId]) {
    if turn == 0 {
        return;
    }
    let reason = if started.is_empty() { StopReason::Completed } else { StopReason::Cancelled };
    ends.entry(turn).or_insert_with(|| EarlierTurn { answer: answer.to_owned(), reason });
}
