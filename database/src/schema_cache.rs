//! The schema as it was read last, shared by all who ask.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use sql::schema::Schema;
use tokio::sync::Mutex;

use super::error::DatabaseError;

/// How long a schema is taken for the present one.
const MAX_AGE: Duration = Duration::from_secs(5);

/// How new a schema must be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Freshness {
    /// At most five seconds old.
    Recent,
    /// Read after the call, since something was not found in an older one.
    New,
}

#[derive(Debug, Default)]
pub(crate) struct SchemaCache {
    /// Held while the schema is read, so that one reading serves all who wait.
    reading: Mutex<Option<SchemaReading>>,
    /// The one that was read last, also while a newer one is read.
    last: RwLock<Option<Arc<Schema>>>,
}

#[derive(Debug)]
struct SchemaReading {
    began: Instant,
    result: Result<Arc<Schema>, DatabaseError>,
}

impl SchemaCache {
    /// The schema that was read last, however old it is, without waiting for one that is being read.
    pub(crate) fn last(&self) -> Option<Arc<Schema>> {
        self.last.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether no schema was read lately, and none is being read.
    pub(crate) fn is_old(&self) -> bool {
        let Ok(reading) = self.reading.try_lock() else { return false };
        reading.as_ref().is_none_or(|reading| reading.began.elapsed() >= MAX_AGE)
    }

    /// Returns the schema, reading it if none is as fresh as that. A failure is shared by those who waited for it.
    pub(crate) async fn get<F>(
        &self,
        freshness: Freshness,
        read: impl FnOnce() -> F,
    ) -> Result<Arc<Schema>, DatabaseError>
    where
        F: Future<Output = Result<Schema, DatabaseError>>,
    {
        let asked = Instant::now();
        let mut last_reading = self.reading.lock().await;
        if let Some(reading) = &*last_reading {
            let is_recent = reading.result.is_ok() && reading.began.elapsed() < MAX_AGE;
            if reading.began >= asked || (freshness == Freshness::Recent && is_recent) {
                return reading.result.clone();
            }
        }
        let began = Instant::now();
        let result = read().await.map(Arc::new);
        if let Ok(schema) = &result {
            *self.last.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(schema));
        }
        *last_reading = Some(SchemaReading { began, result: result.clone() });
        result
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[tokio::test]
    async fn concurrent_callers_share_one_reading_and_a_new_one_is_read_on_demand() {
        let cache = SchemaCache::default();
        let readings = AtomicUsize::new(0);
        let read = || async {
            readings.fetch_add(1, Ordering::SeqCst);
            tokio::task::yield_now().await;
            Ok(Schema::default())
        };
        let all = futures_util::future::join_all((0..64).map(|_| cache.get(Freshness::New, read))).await;
        assert!(all.iter().all(Result::is_ok));
        // The first reading began before most callers could ask; one more serves all the others.
        assert!(readings.load(Ordering::SeqCst) <= 2, "{readings:?}");
        let before = readings.load(Ordering::SeqCst);
        cache.get(Freshness::Recent, read).await.unwrap();
        assert_eq!(readings.load(Ordering::SeqCst), before);
        cache.get(Freshness::New, read).await.unwrap();
        assert_eq!(readings.load(Ordering::SeqCst), before + 1);
    }

    #[tokio::test]
    async fn the_last_schema_is_known_while_a_newer_one_is_read_and_when_that_fails() {
        let cache = SchemaCache::default();
        let is_part = |cache: &SchemaCache| cache.last().map(|schema| schema.is_part);
        assert_eq!(is_part(&cache), None);
        cache.get(Freshness::New, || async { Ok(Schema { is_part: true, ..Schema::default() }) }).await.unwrap();
        let (began, ends) = (tokio::sync::Notify::new(), tokio::sync::Notify::new());
        let reading = cache.get(Freshness::New, || async {
            began.notify_one();
            ends.notified().await;
            Err(DatabaseError::Cancelled)
        });
        let while_it_is_read = async {
            began.notified().await;
            assert_eq!(is_part(&cache), Some(true));
            ends.notify_one();
        };
        assert!(tokio::join!(reading, while_it_is_read).0.is_err());
        assert_eq!(is_part(&cache), Some(true));
    }
}
