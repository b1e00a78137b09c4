//! The outbox in the same SQLite file, so that a delivery is committed together with the end of its task.

use std::path::Path;

use jiff::Timestamp;
use rusqlite::{Connection, OpenFlags, Row, Transaction, params};

use super::super::StoreError;
use super::super::outbox::{DeliveryState, HookDelivery, Outbox, UndeliveredHook};
use super::damage::DamageGuard;
use super::{SqliteStore, parse, time};

/// A summary for each hook, with one of its failure reasons.
const UNDELIVERED: &str = "SELECT hook, sum(given_up = 0), sum(given_up = 0 AND attempts > 0), sum(given_up),
                                  min(created_at), max(reason)
                           FROM deliveries GROUP BY hook ORDER BY hook";

pub(super) fn record_delivery(
    transaction: &Transaction<'_>,
    delivery: &HookDelivery,
    state: DeliveryState,
) -> Result<(), StoreError> {
    let HookDelivery { hook, task, event, created_at, attempts, next_at, reason } = delivery;
    let (task, next_at) = (task.to_string(), next_at.as_microsecond());
    match state {
        DeliveryState::Pending => transaction
            .prepare_cached(
                "INSERT INTO deliveries (hook, task, event, created_at, attempts, next_at, reason, given_up)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, 0) ON CONFLICT DO NOTHING",
            )?
            .execute(params![hook, task, event, created_at.as_microsecond(), attempts, next_at, reason])?,
        DeliveryState::Acknowledged => transaction
            .prepare_cached("DELETE FROM deliveries WHERE hook = ?1 AND task = ?2")?
            .execute([hook, &task])?,
        DeliveryState::Retrying | DeliveryState::GivenUp => transaction
            .prepare_cached(
                "UPDATE deliveries SET attempts = ?3, next_at = ?4, reason = ?5, given_up = ?6
                 WHERE hook = ?1 AND task = ?2",
            )?
            .execute(params![hook, task, attempts, next_at, reason, state == DeliveryState::GivenUp])?,
    };
    Ok(())
}

impl Outbox for SqliteStore {
    fn due(&self, hook: &str, now: Timestamp, limit: usize) -> Result<Vec<HookDelivery>, StoreError> {
        let sql = "SELECT task, event, created_at, attempts, next_at, reason FROM deliveries
                   WHERE hook = ?1 AND given_up = 0 AND next_at <= ?2 ORDER BY next_at LIMIT ?3";
        self.read(sql, params![hook, now.as_microsecond(), i64::try_from(limit).unwrap_or(i64::MAX)], |row| {
            Ok(HookDelivery {
                hook: hook.to_owned(),
                task: parse(row.get(0)?)?,
                event: row.get(1)?,
                created_at: time(row.get(2)?)?,
                attempts: row.get(3)?,
                next_at: time(row.get(4)?)?,
                reason: row.get(5)?,
            })
        })
    }

    fn next_due(&self, hook: &str, now: Timestamp) -> Result<Option<Timestamp>, StoreError> {
        let sql = "SELECT next_at FROM deliveries WHERE hook = ?1 AND given_up = 0 AND next_at > ?2
                   ORDER BY next_at LIMIT 1";
        Ok(self.read(sql, params![hook, now.as_microsecond()], |row| time(row.get(0)?))?.pop())
    }

    fn undelivered(&self) -> Result<Vec<UndeliveredHook>, StoreError> {
        self.read(UNDELIVERED, [], undelivered_hook)
    }

    fn cap_next_at(&mut self, latest: Timestamp) -> Result<(), StoreError> {
        let sql = "UPDATE deliveries SET next_at = ?1 WHERE next_at > ?1";
        let changed = self.connection.execute(sql, [latest.as_microsecond()]);
        DamageGuard::new(&self.path).check(changed.map(drop).map_err(Into::into))
    }

    fn forget_deliveries(&mut self, before: Timestamp, hooks: &[&str]) -> Result<(), StoreError> {
        let hooks = serde_json::to_string(hooks).map_err(|error| StoreError::Malformed(error.to_string()))?;
        let sql = "DELETE FROM deliveries
                   WHERE created_at < ?1 AND (given_up OR hook NOT IN (SELECT value FROM json_each(?2)))";
        let removed = self.connection.execute(sql, params![before.as_microsecond(), hooks]);
        DamageGuard::new(&self.path).check(removed.map(drop).map_err(Into::into))
    }
}

fn undelivered_hook(row: &Row<'_>) -> Result<UndeliveredHook, StoreError> {
    let count = |column| row.get::<_, i64>(column).map(i64::unsigned_abs);
    Ok(UndeliveredHook {
        hook: row.get(0)?,
        waiting: count(1)?,
        failing: count(2)?,
        given_up: count(3)?,
        oldest: time(row.get(4)?)?,
        reason: row.get(5)?,
    })
}

/// Returns a summary for each hook with undelivered events in the store at `path`; for `doctor`. Opens the store
/// read-only, so it is safe while an executor uses it.
pub fn undelivered(path: &Path) -> Result<Vec<UndeliveredHook>, StoreError> {
    if !path.exists() {
        return Ok(Vec::new());
    }
    let connection = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
    connection.busy_timeout(super::BUSY_TIMEOUT)?;
    let has_table = "SELECT count(*) FROM sqlite_master WHERE name = 'deliveries'";
    if connection.query_row(has_table, [], |row| row.get::<_, i64>(0))? == 0 {
        return Ok(Vec::new());
    }
    let mut statement = connection.prepare(UNDELIVERED)?;
    let mut rows = statement.query([])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        found.push(undelivered_hook(row)?);
    }
    Ok(found)
}
