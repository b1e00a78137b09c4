//! What a loop spends on models, and may spend.

use ground::config::AgentSettings;

use super::Machine;
use crate::model::conversation::{ModelTurn, TaskSpending, TokenUsage};

/// Requests, tokens and cost that were used.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Spending {
    pub requests: u32,
    pub usage: TokenUsage,
    pub cost: f64,
}

/// The most that one question may use; 0 means no limit.
#[derive(Debug, Clone, Copy, Default)]
pub struct Budget {
    pub tokens: u64,
    pub cost: f64,
    /// Of subtools, by the model and whatever it calls.
    pub calls: u32,
}

impl Budget {
    /// The budget of a question, as configured.
    pub fn of(agent: &AgentSettings) -> Self {
        Self { tokens: agent.tokens, cost: agent.cost, calls: agent.calls }
    }

    /// The same, or less where a limit is lower. A limit of nothing leaves the least, since 0 means no limit.
    #[must_use]
    pub fn lowered(self, tokens: Option<u64>, cost: Option<f64>, calls: Option<u32>) -> Self {
        let tokens = tokens.filter(|limit| self.tokens == 0 || *limit < self.tokens).map(|limit| limit.max(1));
        let cost = cost.filter(|limit| self.cost <= 0.0 || *limit < self.cost);
        let cost = cost.map(|limit| limit.max(f64::MIN_POSITIVE));
        let calls = calls.filter(|limit| self.calls == 0 || *limit < self.calls).map(|limit| limit.max(1));
        Self {
            tokens: tokens.unwrap_or(self.tokens),
            cost: cost.unwrap_or(self.cost),
            calls: calls.unwrap_or(self.calls),
        }
    }
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
