//! The databases that are kept between calls: each with its connections and with what callers may see of it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use database::Database;
use ground::config::DatabaseSettings;
use ground::config::secret::Secret;
use ground::task::failure::Failure;
use protocol::code::Code;
use sql::rules::AccessRules;
use sql::schema::Schema;

use crate::RunnerContext;

/// The databases of one executor.
#[derive(Debug, Default)]
pub struct Databases(Mutex<HashMap<String, OpenDatabase>>);

/// A database that can be asked.
#[derive(Debug, Clone)]
pub(super) struct OpenDatabase {
    pub(super) name: String,
    pub(super) database: Database,
    pub(super) rules: Arc<AccessRules>,
    pub(super) settings: DatabaseSettings,
    password: Option<Secret>,
}

impl Databases {
    fn kept(&self) -> MutexGuard<'_, HashMap<String, OpenDatabase>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the database with these settings, and the password as it is now. Connections with other settings are
    /// closed as soon as nothing uses them.
    pub(super) async fn open(
        &self,
        name: &str,
        settings: &DatabaseSettings,
        context: &RunnerContext,
    ) -> Result<OpenDatabase, Failure> {
        let password = match &settings.password {
            Some(secret) => Some(match settings.server_url() {
                Some(url) => context.secrets.get_for(secret, &url).await?,
                // A file, or a socket of this machine.
                None => context.secrets.get(secret).await?,
            }),
            None => None,
        };
        let mut kept = self.kept();
        if let Some(open) = kept.get(name).filter(|open| open.settings == *settings && open.password == password) {
            return Ok(open.clone());
        }
        let wrong = |reason: String| Failure::new(Code::BadConfig, format!("`databases.{name}`: {reason}"));
        let connection = settings.connection(password.as_ref()).map_err(wrong)?;
        let database = Database::new(connection).map_err(|error| wrong(error.to_string()))?;
        let rules = Arc::new(settings.rules().map_err(wrong)?);
        let open = OpenDatabase { name: name.to_owned(), database, rules, settings: settings.clone(), password };
        kept.insert(name.to_owned(), open.clone());
        Ok(open)
    }

    /// The tables of a database as they were read last, if its settings are still these.
    pub(super) fn known_schema(&self, name: &str, settings: &DatabaseSettings) -> Option<Arc<Schema>> {
        let kept = self.kept();
        kept.get(name).filter(|open| open.settings == *settings)?.database.known_schema()
    }

    /// Stops what runs and closes all connections.
    pub async fn close(&self) {
        let open: Vec<_> = self.kept().drain().map(|(_, open)| open.database).collect();
        for database in open {
            database.close().await;
        }
    }
}
