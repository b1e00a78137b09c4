//! What the models of a user cost, day by day: a file per day in the state folder, with one line per request.
//!
//! The agents of a user and the executor share it, so that `[agent] tokens_per_day` and `cost_per_day` hold over all
//! of them, and those of a profile over all sessions of a client. A line is durable before the answer is used. Days are those of UTC.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use ground::config::Config;
use jiff::Timestamp;
use protocol::caller::Caller;
use protocol::paths::create_private;
use protocol::tool_scope::ToolScope;
use serde::{Deserialize, Serialize};

use super::conversation::ModelTurn;
use super::provider::client::ModelClient;
use super::provider::embeddings::Embeddings;
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
    /// The client of a server that it was made for, if the user has several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    client: Option<String>,
    /// The profiles of that caller.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    profiles: Vec<String>,
    model: String,
    input: u64,
    output: u64,
    #[serde(default)]
    cached: u64,
    #[serde(default)]
    cost: f64,
}

/// Whom requests are made for, and what may be spent for them in a day.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SpendingAccount {
    uid: u32,
    client: Option<String>,
    /// Of all callers of the user together.
    budget: DailyBudget,
    /// Of this client alone, by the names of its profiles.
    profiles: BTreeMap<String, DailyBudget>,
    /// A profile that the client has and the configuration does not: nothing is spent for it.
    unknown: Option<String>,
}

/// The account that a session is charged to; another question may be at the expense of another one. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct ChargedAccount(Arc<Mutex<SpendingAccount>>);

impl ChargedAccount {
    pub fn new(account: SpendingAccount) -> Self {
        Self(Arc::new(Mutex::new(account)))
    }

    pub fn set(&self, account: SpendingAccount) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = account;
    }

    fn current(&self) -> SpendingAccount {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// What may be spent in a day, over all sessions and tasks; 0 means no limit.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct DailyBudget {
    pub tokens: u64,
    pub cost: f64,
}

/// Tokens and cost of a day.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct DaySpending {
    pub tokens: u64,
    pub cost: f64,
}

impl DailyBudget {
    /// Returns what is used up, if something is: the setting, and how much of it.
    fn used_up(self, spent: DaySpending) -> Option<(&'static str, String)> {
        if self.tokens > 0 && spent.tokens >= self.tokens {
            return Some(("tokens_per_day", format!("{} of {} tokens", spent.tokens, self.tokens)));
        }
        let cost = rounded_cost(spent.cost);
        (self.cost > 0.0 && cost >= self.cost).then(|| ("cost_per_day", format!("{cost} of {}", self.cost)))
    }
}

impl SpendingAccount {
    /// That of callers of this user with this scope, who work for `client` if several share a server.
    pub fn new(uid: u32, client: Option<&str>, scope: &ToolScope, config: &Config) -> Self {
        let of_profile = |name: &str| {
            let profile = config.profiles.get(name)?;
            let budget = DailyBudget { tokens: profile.tokens_per_day, cost: profile.cost_per_day };
            Some((name.to_owned(), budget))
        };
        Self {
            uid,
            client: client.map(str::to_owned),
            budget: DailyBudget { tokens: config.agent.tokens_per_day, cost: config.agent.cost_per_day },
            profiles: scope.profiles().filter_map(of_profile).collect(),
            unknown: scope.profiles().find(|name| !config.profiles.contains_key(*name)).map(str::to_owned),
        }
    }

    /// That of a caller.
    pub fn of(caller: &Caller, config: &Config) -> Self {
        Self::new(caller.uid, caller.client(), &caller.tool_scope, config)
    }

    /// Returns why nothing more may be spent, if so.
    fn used_up(&self, ledger: &Ledger, now: Timestamp) -> io::Result<Option<String>> {
        let lines = ledger.lines(now)?;
        let of_user = || lines.iter().filter(|line| line.uid == self.uid);
        if let Some((setting, how_much)) = self.budget.used_up(DaySpending::of(of_user())) {
            return Ok(Some(format!("{how_much} (`{setting}`)")));
        }
        for (name, budget) in &self.profiles {
            let own = of_user().filter(|line| line.client == self.client && line.profiles.contains(name));
            if let Some((setting, how_much)) = budget.used_up(DaySpending::of(own)) {
                return Ok(Some(format!("{how_much} (`{setting}` of the profile `{name}`)")));
            }
        }
        Ok(None)
    }
}

impl DaySpending {
    fn of<'a>(lines: impl Iterator<Item = &'a LedgerLine>) -> Self {
        lines.fold(Self::default(), |day, line| Self {
            tokens: day.tokens.saturating_add(line.input).saturating_add(line.output),
            cost: day.cost + line.cost,
        })
    }
}

impl Ledger {
    pub fn in_state(state: &Path) -> Self {
        Self { folder: state.join("spending") }
    }

    /// The requests of the day of `now`. A line that a crash cut short is skipped.
    fn lines(&self, now: Timestamp) -> io::Result<Vec<LedgerLine>> {
        match fs::read_to_string(self.path(now)) {
            Ok(text) => Ok(text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }

    fn record(&self, account: &SpendingAccount, turn: &ModelTurn, now: Timestamp) -> io::Result<()> {
        create_private(&self.folder)?;
        let path = self.path(now);
        if !path.exists() {
            self.remove_old_days();
        }
        let line = LedgerLine {
            at: now,
            uid: account.uid,
            client: account.client.clone(),
            profiles: account.profiles.keys().cloned().collect(),
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
    account: ChargedAccount,
}

impl<P> std::fmt::Debug for Budgeted<P> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Budgeted").field("ledger", &self.ledger).field("account", &self.account).finish_non_exhaustive()
    }
}

impl<P: Provider> Budgeted<P> {
    pub fn new(model: P, ledger: Option<Arc<Ledger>>, account: ChargedAccount) -> Self {
        Self { model, ledger, account }
    }

    async fn answer(&self, request: ModelRequest, on_text: TextListener<'_>) -> Result<ModelTurn, ModelFailure> {
        let account = self.open_account()?;
        let turn = self.model.ask(request, on_text).await?;
        self.record(&account, &turn);
        Ok(turn)
    }
}

impl Budgeted<ModelClient> {
    /// Returns a vector for each text, of `dimensions` numbers if the model can shorten them.
    pub async fn embed(&self, texts: Vec<String>, dimensions: Option<usize>) -> Result<Embeddings, ModelFailure> {
        let account = self.open_account()?;
        let embeddings = self.model.embed(texts, dimensions).await?;
        self.record(&account, &embeddings.spent);
        Ok(embeddings)
    }
}

impl<P> Budgeted<P> {
    /// The account that the next request is charged to, if it may spend anything.
    fn open_account(&self) -> Result<SpendingAccount, ModelFailure> {
        let account = self.account.current();
        let Some(ledger) = &self.ledger else { return Ok(account) };
        if let Some(name) = &account.unknown {
            let message = format!("there is no profile `{name}`, so who has it may use no model");
            return Err(ModelFailure { class: FailureClass::Budget, message, retry_after: None });
        }
        let used_up = account.used_up(ledger, protocol::clock::now()).map_err(|error| unusable(&error))?;
        if let Some(used_up) = used_up {
            let message = format!("the models' budget of this day is used up: {used_up}; the day ends at 00:00 UTC");
            return Err(ModelFailure { class: FailureClass::Budget, message, retry_after: None });
        }
        Ok(account)
    }

    /// The answer is paid for, so a failure here must not lose it.
    fn record(&self, account: &SpendingAccount, turn: &ModelTurn) {
        let Some(ledger) = &self.ledger else { return };
        if let Err(error) = ledger.record(account, turn, protocol::clock::now()) {
            tracing::error!(%error, "failed to record what a request cost");
        }
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

    fn account(uid: u32, client: Option<&str>, tokens: u64, cost: f64) -> SpendingAccount {
        let budget = DailyBudget { tokens, cost };
        let profiles = BTreeMap::from([("support".to_owned(), DailyBudget { tokens: 40, cost: 0.0 })]);
        let profiles = if client.is_some() { profiles } else { BTreeMap::new() };
        SpendingAccount { uid, client: client.map(str::to_owned), budget, profiles, unknown: None }
    }

    #[test]
    fn each_client_with_a_profile_has_a_budget_of_its_own_below_that_of_all() {
        let state = tempfile::tempdir().expect("a folder");
        let ledger = Ledger::in_state(state.path());
        let now: Timestamp = "2026-11-22T12:00:00Z".parse().expect("a time");
        let turn = ModelTurn { usage: TokenUsage { input: 30, output: 10, cached: 0 }, ..ModelTurn::default() };
        let [phone, desk] = ["phone.1", "desk.2"].map(|client| account(1000, Some(client), 100, 0.0));
        let used_up = |account: &SpendingAccount| account.used_up(&ledger, now).expect("read");
        ledger.record(&phone, &turn, now).expect("recorded");
        let of_phone = used_up(&phone).expect("its budget is used up");
        assert_eq!(of_phone, "40 of 40 tokens (`tokens_per_day` of the profile `support`)");
        assert_eq!(used_up(&desk), None);
        for _ in 0..2 {
            ledger.record(&account(1000, None, 0, 0.0), &turn, now).expect("recorded");
        }
        assert_eq!(used_up(&desk).as_deref(), Some("120 of 100 tokens (`tokens_per_day`)"), "that of all");
    }

    #[test]
    fn a_day_of_a_user_is_summed_and_a_torn_line_is_skipped() {
        let state = tempfile::tempdir().expect("a folder");
        let ledger = Ledger::in_state(state.path());
        let now: Timestamp = "2026-11-22T23:59:00Z".parse().expect("a time");
        let turn =
            ModelTurn { usage: TokenUsage { input: 10, output: 5, cached: 2 }, cost: 0.001, ..ModelTurn::default() };
        let own = account(1000, None, 0, 0.0);
        for _ in 0..3 {
            ledger.record(&own, &turn, now).expect("recorded");
        }
        ledger.record(&account(1001, None, 0, 0.0), &turn, now).expect("recorded");
        let path = ledger.path(now);
        let text = fs::read_to_string(&path).expect("read");
        fs::write(&path, format!("{text}\n{{\"at\":\"2026-")).expect("torn");
        ledger.record(&own, &turn, now).expect("recorded");
        let used_up = |tokens, cost, at| account(1000, None, tokens, cost).used_up(&ledger, at).expect("read");
        assert_eq!(used_up(60, 0.0, now).as_deref(), Some("60 of 60 tokens (`tokens_per_day`)"));
        assert_eq!(used_up(61, 0.0, now), None);
        assert_eq!(used_up(0, 0.004, now).as_deref(), Some("0.004 of 0.004 (`cost_per_day`)"));
        let tomorrow: Timestamp = "2026-11-23T00:00:00Z".parse().expect("a time");
        assert_eq!(used_up(1, 0.001, tomorrow), None);
    }

    #[test]
    fn old_days_are_removed_when_a_new_one_begins() {
        let state = tempfile::tempdir().expect("a folder");
        let ledger = Ledger::in_state(state.path());
        create_private(&ledger.folder).expect("made");
        for day in 0..100 {
            fs::write(ledger.folder.join(format!("2025-{day:03}.jsonl")), "").expect("written");
        }
        ledger.record(&account(0, None, 0, 0.0), &ModelTurn::default(), protocol::clock::now()).expect("recorded");
        let left = fs::read_dir(&ledger.folder).expect("read").count();
        assert_eq!(left, MAX_DAYS + 1);
    }
}
