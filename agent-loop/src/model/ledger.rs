//! What the models of a user cost, day by day: a file per day in the state folder, with one line per request.
//!
//! The agents of a user and the executor share it, so that `[agent] tokens_per_day` and `cost_per_day` hold over all
//! of them. A line is durable before the answer is used. Days are those of UTC.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ground::config::AgentSettings;
use jiff::Timestamp;
use protocol::paths::create_private;
use serde::{Deserialize, Serialize};

use super::conversation::ModelTurn;
use super::provider::{FailureClass, ModelFailure, ModelRequest, Provider, TextListener, TurnFuture};
use super::registry::rounded_cost;

/// How many days are kept.
const MAX_DAYS: usize = 62;

/// The spending of all users of one state folder.
#[derive(Debug, Clone)]
pub struct Ledger {
    folder: PathBuf,
}

/// One request, as a line of the file.
#[derive(Debug, Serialize, Deserialize)]
struct LedgerLine {
    at: Timestamp,
    /// The Unix user that the request was made for.
    uid: u32,
    model: String,
    input: u64,
    output: u64,
    #[serde(default)]
    cached: u64,
    #[serde(default)]
    cost: f64,
}

/// What a user may spend in a day, over all sessions and tasks; 0 means no limit.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct DailyBudget {
    pub tokens: u64,
    pub cost: f64,
}

/// Tokens and cost of one day.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct DaySpending {
    pub tokens: u64,
    pub cost: f64,
}

impl DailyBudget {
    pub fn of(agent: &AgentSettings) -> Self {
        Self { tokens: agent.tokens_per_day, cost: agent.cost_per_day }
    }

    /// Returns why nothing more may be spent, if so.
    fn used_up(self, spent: DaySpending) -> Option<String> {
        if self.tokens > 0 && spent.tokens >= self.tokens {
            return Some(format!("{} of {} tokens (`tokens_per_day`)", spent.tokens, self.tokens));
        }
        let cost = rounded_cost(spent.cost);
        (self.cost > 0.0 && cost >= self.cost).then(|| format!("{cost} of {} (`cost_per_day`)", self.cost))
    }
}

impl Ledger {
    pub fn in_state(state: &Path) -> Self {
        Self { folder: state.join("spending") }
    }

    /// Returns what the user spent on the day of `now`.
    pub fn spent(&self, uid: u32, now: Timestamp) -> io::Result<DaySpending> {
        let text = match fs::read_to_string(self.path(now)) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(DaySpending::default()),
            Err(error) => return Err(error),
        };
        // A line that a crash cut short is skipped.
        let lines = text.lines().filter_map(|line| serde_json::from_str::<LedgerLine>(line).ok());
        Ok(lines.filter(|line| line.uid == uid).fold(DaySpending::default(), |day, line| DaySpending {
            tokens: day.tokens.saturating_add(line.input).saturating_add(line.output),
            cost: day.cost + line.cost,
        }))
    }

    fn record(&self, uid: u32, turn: &ModelTurn, now: Timestamp) -> io::Result<()> {
        create_private(&self.folder)?;
        let path = self.path(now);
        if !path.exists() {
            self.remove_old_days();
        }
        let line = LedgerLine {
            at: now,
            uid,
            model: turn.model.clone(),
            input: turn.usage.input,
            output: turn.usage.output,
            cached: turn.usage.cached,
            cost: turn.cost,
        };
        // The line break comes first, so that a line that a crash cut short does not spoil this one.
        let line = format!("\n{}", serde_json::to_string(&line).map_err(io::Error::other)?);
        let mut file = OpenOptions::new().append(true).create(true).mode(0o600).open(path)?;
        file.write_all(line.as_bytes())?;
        file.sync_data()
    }

    fn path(&self, now: Timestamp) -> PathBuf {
        self.folder.join(format!("{}.jsonl", now.strftime("%Y-%m-%d")))
    }

    fn remove_old_days(&self) {
        let Ok(entries) = fs::read_dir(&self.folder) else { return };
        let mut days: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
        days.sort();
        for day in days.iter().rev().skip(MAX_DAYS) {
            // What cannot be removed now is removed with the next day.
            drop(fs::remove_file(day));
        }
    }
}

/// A model whose requests are recorded in the ledger, and refused when the day's budget is used up.
pub struct Budgeted<P> {
    model: P,
    /// `None` without an executor, in tests of a runner.
    ledger: Option<Arc<Ledger>>,
    budget: DailyBudget,
    uid: u32,
}

impl<P> std::fmt::Debug for Budgeted<P> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Budgeted").field("ledger", &self.ledger).field("budget", &self.budget).finish_non_exhaustive()
    }
}

impl<P: Provider> Budgeted<P> {
    pub fn new(model: P, ledger: Option<Arc<Ledger>>, budget: DailyBudget, uid: u32) -> Self {
        Self { model, ledger, budget, uid }
    }

    async fn answer(&self, request: ModelRequest, on_text: TextListener<'_>) -> Result<ModelTurn, ModelFailure> {
        let Some(ledger) = &self.ledger else { return self.model.ask(request, on_text).await };
        let spent = ledger.spent(self.uid, protocol::clock::now()).map_err(|error| unusable(&error))?;
        if let Some(used_up) = self.budget.used_up(spent) {
            let message = format!("the models' budget of this day is used up: {used_up}; the day ends at 00:00 UTC");
            return Err(ModelFailure { class: FailureClass::Budget, message, retry_after: None });
        }
        let turn = self.model.ask(request, on_text).await?;
        // The answer is paid for, so a failure here must not lose it.
        if let Err(error) = ledger.record(self.uid, &turn, protocol::clock::now()) {
            tracing::error!(%error, "failed to record what a request cost");
        }
        Ok(turn)
    }
}

impl<P: Provider> Provider for Budgeted<P> {
    fn ask<'a>(&'a self, request: ModelRequest, on_text: TextListener<'a>) -> TurnFuture<'a> {
        Box::pin(self.answer(request, on_text))
    }
}

fn unusable(error: &io::Error) -> ModelFailure {
    let message = format!("failed to read what was spent today: {error}");
    ModelFailure { class: FailureClass::Configuration, message, retry_after: None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::conversation::TokenUsage;

    #[test]
    fn a_day_of_a_user_is_summed_and_a_torn_line_is_skipped() {
        let state = tempfile::tempdir().expect("a folder");
        let ledger = Ledger::in_state(state.path());
        let now: Timestamp = "2026-11-22T23:59:00Z".parse().expect("a time");
        let turn =
            ModelTurn { usage: TokenUsage { input: 10, output: 5, cached: 2 }, cost: 0.001, ..ModelTurn::default() };
        for _ in 0..3 {
            ledger.record(1000, &turn, now).expect("recorded");
        }
        ledger.record(1001, &turn, now).expect("recorded");
        let path = ledger.path(now);
        let text = fs::read_to_string(&path).expect("read");
        fs::write(&path, format!("{text}\n{{\"at\":\"2026-")).expect("torn");
        ledger.record(1000, &turn, now).expect("recorded");
        let spent = ledger.spent(1000, now).expect("read");
        assert_eq!((spent.tokens, rounded_cost(spent.cost)), (60, 0.004));
        let tomorrow: Timestamp = "2026-11-23T00:00:00Z".parse().expect("a time");
        assert_eq!(ledger.spent(1000, tomorrow).expect("read"), DaySpending::default());
        assert!(DailyBudget { tokens: 60, cost: 0.0 }.used_up(spent).is_some());
        assert!(DailyBudget { tokens: 61, cost: 0.0 }.used_up(spent).is_none());
        assert!(DailyBudget { tokens: 0, cost: 0.004 }.used_up(spent).is_some());
    }

    #[test]
    fn old_days_are_removed_when_a_new_one_begins() {
        let state = tempfile::tempdir().expect("a folder");
        let ledger = Ledger::in_state(state.path());
        create_private(&ledger.folder).expect("made");
        for day in 0..100 {
            fs::write(ledger.folder.join(format!("2025-{day:03}.jsonl")), "").expect("written");
        }
        ledger.record(0, &ModelTurn::default(), protocol::clock::now()).expect("recorded");
        let left = fs::read_dir(&ledger.folder).expect("read").count();
        assert_eq!(left, MAX_DAYS + 1);
    }
}
