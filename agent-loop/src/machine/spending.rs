//! What a loop spends on models.

use super::Machine;
use crate::model::conversation::{ModelTurn, TaskSpending, TokenUsage};

/// Requests, tokens and cost that were used.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Spending {
    pub requests: u32,
    pub usage: TokenUsage,
    pub cost: f64,
}

impl Machine {
    /// Counts what a task spent on models, once.
    pub(super) fn add_task_spending(&mut self, spent: Option<&TaskSpending>) {
        let Some(spent) = spent.filter(|spent| self.counted.insert(spent.task)) else { return };
        for spending in [&mut self.progress.spending, &mut self.session_spending] {
            spending.usage += spent.usage;
            spending.cost += spent.cost;
        }
    }

    pub(super) fn add_spending(&mut self, turn: &ModelTurn) {
        self.progress.requests += 1;
        for spending in [&mut self.progress.spending, &mut self.session_spending] {
            spending.requests += 1;
            spending.usage += turn.usage;
            spending.cost += turn.cost;
        }
    }
}
