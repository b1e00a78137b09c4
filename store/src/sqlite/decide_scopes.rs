//! Which API keys may decide.

use ground::task::decide_scope::DecideScope;
use rusqlite::{Connection, Transaction, params};

use super::{from_json, to_json};
use crate::StoreError;

/// Adds the scope of a key, or replaces it.
pub(super) fn save(transaction: &Transaction<'_>, scope: &DecideScope) -> Result<(), StoreError> {
    transaction
        .prepare_cached(
            "INSERT INTO decide_scopes (hash, body) VALUES (?1, ?2) ON CONFLICT DO UPDATE SET body = excluded.body",
        )?
        .execute(params![scope.key.hash, to_json(scope)?])?;
    Ok(())
}

pub(super) fn read(connection: &Connection) -> Result<Vec<DecideScope>, StoreError> {
    let mut statement = connection.prepare_cached("SELECT body FROM decide_scopes ORDER BY hash")?;
    let rows = statement.query_map([], |row| row.get::<_, String>(0))?;
    rows.map(|row| from_json(&row?)).collect()
}
