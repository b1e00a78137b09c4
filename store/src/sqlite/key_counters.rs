//! The last signature counter of each key of the approver.

use ground::base::webauthn::Base64Url;
use rusqlite::{Connection, Transaction, params};

use super::from_json;
use crate::StoreError;

/// Keeps the greater of the stored counter and this one.
pub(super) fn save(transaction: &Transaction<'_>, credential: &Base64Url, counter: u32) -> Result<(), StoreError> {
    transaction
        .prepare_cached(
            "INSERT INTO key_counters (credential, counter) VALUES (?1, ?2)
             ON CONFLICT DO UPDATE SET counter = max(counter, excluded.counter)",
        )?
        .execute(params![credential.to_string(), counter])?;
    Ok(())
}

pub(super) fn read(connection: &Connection) -> Result<Vec<(Base64Url, u32)>, StoreError> {
    let mut statement =
        connection.prepare_cached("SELECT json_quote(credential), counter FROM key_counters ORDER BY credential")?;
    let rows = statement.query_map([], |row| Ok((row.get::<_, String>(0)?, row.get::<_, u32>(1)?)))?;
    rows.map(|row| {
        let (credential, counter) = row?;
        Ok((from_json(&credential)?, counter))
    })
    .collect()
}
