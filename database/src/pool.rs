//! The connections of one database: how many there are, and which wait for use.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use sql::settings::DatabaseSettings;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::error::DatabaseError;
use super::stop::Stop;

/// How long a connection may wait for use. Firewalls forget connections without a word, and servers have few.
const MAX_IDLE: Duration = Duration::from_mins(1);

/// Connections, at most a number of them. A connection that is not put back is gone.
#[derive(Debug)]
pub(crate) struct Pool<C> {
    idle: Mutex<Vec<(C, Instant)>>,
    slots: Arc<Semaphore>,
    max: usize,
    wait: Duration,
    address: String,
}

/// The right to have one connection.
#[derive(Debug)]
pub(crate) struct ConnectionSlot(#[expect(dead_code, reason = "held, not read")] OwnedSemaphorePermit);

impl<C> Pool<C> {
    pub(crate) fn new(settings: &DatabaseSettings) -> Self {
        let max = settings.max_connections.max(1);
        Self {
            idle: Mutex::new(Vec::new()),
            slots: Arc::new(Semaphore::new(max)),
            max,
            wait: settings.connect_timeout,
            address: settings.address(),
        }
    }

    /// Waits for the right to have a connection.
    pub(crate) async fn slot(&self, stop: &Stop) -> Result<ConnectionSlot, DatabaseError> {
        stop.unless_cancelled(async {
            match tokio::time::timeout(self.wait, Arc::clone(&self.slots).acquire_owned()).await {
                Ok(permit) => Ok(ConnectionSlot(permit.expect("the semaphore is never closed"))),
                Err(_) => {
                    Err(DatabaseError::PoolTimeout { address: self.address.clone(), max: self.max, waited: self.wait })
                }
            }
        })
        .await
    }

    /// Takes the connection that was used last.
    pub(crate) fn take(&self) -> Option<C> {
        let (connection, since) = self.lock().pop()?;
        if since.elapsed() > MAX_IDLE {
            // The others have waited even longer.
            self.clear();
            return None;
        }
        Some(connection)
    }

    pub(crate) fn put(&self, connection: C) {
        self.lock().push((connection, Instant::now()));
    }

    /// Drops every connection that waits: one was found broken, so the others are too.
    pub(crate) fn clear(&self) {
        drop(std::mem::take(&mut *self.lock()));
    }

    /// Takes every connection that waits.
    pub(crate) fn drain(&self) -> Vec<C> {
        std::mem::take(&mut *self.lock()).into_iter().map(|(connection, _)| connection).collect()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<(C, Instant)>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
