//! `[databases]`: the databases that subtools may ask, and what may be seen of them.

use std::collections::BTreeMap;
use std::path::PathBuf;

use protocol::duration::PositiveDuration;
use serde::Deserialize;
use sql::dialect::Dialect;
use sql::rules::{AccessLists, AccessRules};
use sql::schema::{Schema, Table, TableName};
use sql::settings::{self, RowCaps, TlsMode};
use url::Url;

use crate::config::secret::{Secret, SecretName};

/// One database.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DatabaseSettings {
    /// The address, without a password.
    pub url: String,
    #[serde(default)]
    pub password: Option<SecretName>,
    /// Whether subtools may change something there, after a confirmation.
    #[serde(default)]
    pub writable: bool,
    /// The most connections at once.
    #[serde(default = "default_connections")]
    connections: usize,
    /// The longest that one statement may run.
    #[serde(default = "default_timeout")]
    timeout: PositiveDuration,
    /// The most rows of one answer.
    #[serde(default = "default_max_rows")]
    pub max_rows: u64,
    /// The most bytes of one answer, and of one value in it.
    #[serde(default = "default_max_bytes")]
    max_bytes: usize,
    #[serde(default = "default_max_cell_bytes")]
    max_cell_bytes: usize,
    /// Whether the connection is encrypted and the server's certificate checked.
    #[serde(default)]
    tls: bool,
    /// Certificates of authorities that are trusted besides the public ones.
    #[serde(default)]
    tls_roots: Option<PathBuf>,
    /// MySQL: databases of the server that are there besides the one in `url`. PostgreSQL: the only schemas that are there.
    #[serde(default)]
    pub schemas: Option<Vec<String>>,
    #[serde(default = "everything")]
    tables: Vec<String>,
    #[serde(default)]
    deny_tables: Vec<String>,
    /// Columns that do not exist for callers, besides those that look like credentials.
    #[serde(default)]
    hidden_columns: Vec<String>,
    /// Whether columns that look like credentials are hidden.
    #[serde(default = "enabled")]
    hide_credentials: bool,
    #[serde(default)]
    pub functions: Vec<String>,
    #[serde(default)]
    views: Vec<String>,
}

fn default_connections() -> usize {
    8
}

fn default_timeout() -> PositiveDuration {
    PositiveDuration::from_millis(30_000)
}

fn default_max_rows() -> u64 {
    sql::guard::DEFAULT_MAX_ROWS
}

fn default_max_bytes() -> usize {
    4 << 20
}

fn default_max_cell_bytes() -> usize {
    64 << 10
}

fn everything() -> Vec<String> {
    vec!["*".to_owned()]
}

fn enabled() -> bool {
    true
}

impl DatabaseSettings {
    /// The URL of its server; none of a file, or of a socket of this machine.
    pub fn server_url(&self) -> Option<Url> {
        Url::parse(&self.url).ok().filter(Url::has_host)
    }

    /// The settings of its connections.
    pub fn connection(&self, password: Option<&Secret>) -> Result<settings::DatabaseSettings, String> {
        let mut settings = settings::DatabaseSettings::new(&self.url).map_err(|error| error.to_string())?;
        if settings.password.is_some() {
            return Err("`url` contains a password; store it with `agent-magic-tool secret set NAME` and write `password = \"secret:NAME\"`".to_owned());
        }
        if self.connections == 0 || self.max_rows == 0 {
            return Err("`connections` and `max_rows` must be at least 1".to_owned());
        }
        if self.schemas.is_some() && settings.dialect() == Dialect::Sqlite {
            return Err("`schemas` is for PostgreSQL and MySQL; a SQLite database has one".to_owned());
        }
        settings.schemas.clone_from(&self.schemas);
        settings.password = password.map(|password| password.expose().to_owned());
        settings.max_connections = self.connections;
        settings.statement_timeout = self.timeout.get();
        settings.writable = self.writable;
        let rows = usize::try_from(self.max_rows).unwrap_or(usize::MAX);
        // One row more shows whether there is a next page.
        let rows = rows.saturating_add(1);
        settings.caps = RowCaps { rows, bytes: self.max_bytes, cell_bytes: self.max_cell_bytes };
        settings.tls = if self.tls { TlsMode::Verified { roots: self.tls_roots.clone() } } else { TlsMode::Off };
        Ok(settings)
    }

    /// The patterns of `deny_tables` and `hidden_columns` that match nothing in `schema`: most likely mistakes.
    pub fn idle_patterns(&self, schema: &Schema) -> Vec<String> {
        let everything = || AccessLists { hidden_columns: Vec::new(), ..AccessLists::default() };
        let is_idle = |lists: AccessLists| {
            AccessRules::new(&lists).is_ok_and(|rules| {
                let seen = |(name, table): (&TableName, &Table)| {
                    rules.allows(name) && !table.columns.iter().any(|column| rules.hides(name, &column.name))
                };
                schema.tables.iter().all(seen)
            })
        };
        let denied = self
            .deny_tables
            .iter()
            .filter(|pattern| is_idle(AccessLists { deny: vec![(*pattern).clone()], ..everything() }));
        let hidden = self
            .hidden_columns
            .iter()
            .filter(|pattern| is_idle(AccessLists { hidden_columns: vec![(*pattern).clone()], ..everything() }));
        denied.chain(hidden).cloned().collect()
    }

    /// What callers may see of it.
    pub fn rules(&self) -> Result<AccessRules, String> {
        let of_credentials = if self.hide_credentials { AccessLists::default().hidden_columns } else { Vec::new() };
        let lists = AccessLists {
            allow: self.tables.clone(),
            deny: self.deny_tables.clone(),
            hidden_columns: of_credentials.into_iter().chain(self.hidden_columns.clone()).collect(),
            functions: self.functions.clone(),
            views: self.views.clone(),
        };
        AccessRules::new(&lists).map_err(|error| error.to_string())
    }
}

/// Finds the mistakes of `[databases]` that the types do not rule out.
pub(super) fn check(databases: &BTreeMap<String, DatabaseSettings>) -> Result<(), (String, String)> {
    for (name, settings) in databases {
        let is_name =
            !name.is_empty() && name.chars().all(|character| character.is_ascii_alphanumeric() || character == '_');
        if !is_name {
            let message = format!("`{name}` is not a valid name of a database; use letters, digits and `_`");
            return Err(("databases".to_owned(), message));
        }
        let found = settings.connection(None).map(drop).and_then(|()| settings.rules().map(drop));
        found.map_err(|reason| (format!("databases.{name}"), reason))?;
    }
    Ok(())
}
