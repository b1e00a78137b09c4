//! How a database is reached, and how much of it one statement may take.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use thiserror::Error;
use url::Url;

use crate::dialect::Dialect;

/// How a database is reached, and how much one statement may take of it and of us.
#[derive(Clone)]
pub struct DatabaseSettings {
    /// The address, without a password.
    pub url: Url,
    pub dialect: Dialect,
    pub password: Option<String>,
    /// How many connections are open at most. A caller waits for a free one as long as a connection may take.
    pub max_connections: usize,
    pub connect_timeout: Duration,
    /// The longest that any statement may run. A query may ask for less.
    pub statement_timeout: Duration,
    /// The most that one statement may return. A query may ask for less.
    pub caps: RowCaps,
    /// Whether changes are made at all.
    pub writable: bool,
    pub tls: TlsMode,
    /// PostgreSQL: the only schemas that are there; absent, all of the database. MySQL: the databases of the server that
    /// are there besides the one in the address.
    pub schemas: Option<Vec<String>>,
}

/// How much one statement may return. Reading stops when a cap is reached, and the rows say so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RowCaps {
    pub rows: usize,
    /// Of all cells together, as they are written in JSON.
    pub bytes: usize,
    /// Of one cell; a longer text is cut.
    pub cell_bytes: usize,
}

impl Default for RowCaps {
    /// Far more than a model reads, and less than memory is short of.
    fn default() -> Self {
        Self { rows: 10_000, bytes: 16 << 20, cell_bytes: 1 << 20 }
    }
}

impl RowCaps {
    /// Returns the smaller of both, for each cap.
    #[must_use]
    pub fn within(self, most: Self) -> Self {
        Self {
            rows: self.rows.min(most.rows),
            bytes: self.bytes.min(most.bytes),
            cell_bytes: self.cell_bytes.min(most.cell_bytes),
        }
    }
}

/// How a connection over a network is protected.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum TlsMode {
    /// Everything is sent in the clear, also what is read. Right for sockets and for this machine.
    #[default]
    Off,
    /// TLS with a certificate that is valid for the host; there is no falling back.
    Verified {
        /// Certificates (PEM) of authorities that are trusted besides the public ones.
        roots: Option<PathBuf>,
    },
}

/// Why settings cannot be used. Never contains a password.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SettingsError {
    #[error("the address of the database is not a URL: {reason}, write one like `postgres://user@host:5432/name`")]
    NotAUrl { reason: String },
    #[error("`{scheme}` is not a kind of database, use `sqlite`, `postgres`, `mysql` or `mariadb`")]
    UnknownScheme { scheme: String },
    #[error("the address of a SQLite database is its absolute path, like `sqlite:///home/me/shop.db`")]
    NoPath,
    #[error("the address names no database, end it with `/NAME`")]
    NoName,
    #[error("the address names no user, write it as `{scheme}://USER@HOST/NAME`")]
    NoUser { scheme: String },
    #[error("`{name}` in the address is not known, only {known} can stand there")]
    UnknownOption { name: String, known: &'static str },
}

impl DatabaseSettings {
    /// Reads an address like `postgres://user@host:5432/name`, `mysql://user@host/name` or `sqlite:///path`. A socket is
    /// named as `?host=/run/postgresql` for PostgreSQL and `?socket=/run/mysqld/mysqld.sock` for MySQL. A password in the
    /// address is taken out of it.
    pub fn new(address: &str) -> Result<Self, SettingsError> {
        let mut url = Url::parse(address).map_err(|error| SettingsError::NotAUrl { reason: error.to_string() })?;
        let scheme = url.scheme().to_owned();
        let dialect = Dialect::of_scheme(&scheme).ok_or(SettingsError::UnknownScheme { scheme: scheme.clone() })?;
        let known = match dialect {
            Dialect::Sqlite => "nothing",
            Dialect::Postgres => "`host`",
            Dialect::Mysql => "`socket`",
        };
        if let Some((name, _)) = url.query_pairs().find(|(name, _)| known.trim_matches('`') != name) {
            return Err(SettingsError::UnknownOption { name: name.into_owned(), known });
        }
        let password = url.password().map(decode);
        if dialect == Dialect::Sqlite {
            if !matches!(url.host_str(), None | Some("")) || url.path().len() < 2 || !url.path().starts_with('/') {
                return Err(SettingsError::NoPath);
            }
        } else {
            if url.path().trim_start_matches('/').is_empty() {
                return Err(SettingsError::NoName);
            }
            if url.username().is_empty() {
                return Err(SettingsError::NoUser { scheme });
            }
            url.set_password(None).map_err(|()| SettingsError::NotAUrl { reason: "it has no host".to_owned() })?;
        }
        Ok(Self {
            url,
            dialect,
            password,
            max_connections: 4,
            connect_timeout: Duration::from_secs(10),
            statement_timeout: Duration::from_secs(30),
            caps: RowCaps::default(),
            writable: false,
            tls: TlsMode::Off,
            schemas: None,
        })
    }

    pub fn dialect(&self) -> Dialect {
        self.dialect
    }

    /// Returns where the database is, as an error may say it: no password, and no user.
    pub fn address(&self) -> String {
        if self.dialect == Dialect::Sqlite {
            return self.path();
        }
        let host = self.socket().unwrap_or_else(|| self.host());
        match (self.socket(), self.url.port()) {
            (None, Some(port)) => format!("{host}:{port}/{}", self.name()),
            _ => format!("{host}/{}", self.name()),
        }
    }

    pub fn host(&self) -> String {
        self.url.host_str().filter(|host| !host.is_empty()).unwrap_or("localhost").trim_matches(['[', ']']).to_owned()
    }

    pub fn port(&self) -> u16 {
        self.url.port().unwrap_or(if self.dialect == Dialect::Postgres { 5432 } else { 3306 })
    }

    /// Returns the name of the database, without a slash.
    pub fn name(&self) -> String {
        decode(self.url.path().trim_start_matches('/'))
    }

    /// The schemas in which a table is most likely found that is named without one.
    pub fn likely_schemas(&self) -> Vec<String> {
        match self.dialect {
            Dialect::Sqlite => vec!["main".to_owned(), "temp".to_owned()],
            Dialect::Postgres => vec!["public".to_owned(), self.user()],
            Dialect::Mysql => vec![self.name()],
        }
    }

    pub fn user(&self) -> String {
        decode(self.url.username())
    }

    /// Returns the folder (PostgreSQL) or the file (MySQL) of a socket.
    pub fn socket(&self) -> Option<String> {
        self.url.query_pairs().next().map(|(_, value)| value.into_owned())
    }

    /// Returns the path of a SQLite database.
    pub fn path(&self) -> String {
        decode(self.url.path())
    }
}

impl fmt::Debug for DatabaseSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DatabaseSettings")
            .field("url", &self.url.as_str())
            .field("password", &self.password.as_ref().map(|_| "(hidden)"))
            .field("max_connections", &self.max_connections)
            .field("connect_timeout", &self.connect_timeout)
            .field("statement_timeout", &self.statement_timeout)
            .field("caps", &self.caps)
            .field("writable", &self.writable)
            .field("tls", &self.tls)
            .finish_non_exhaustive()
    }
}

/// Decodes the percent signs of a part of an address.
fn decode(part: &str) -> String {
    url::form_urlencoded::parse(format!("a={}", part.replace('+', "%2B").replace('&', "%26")).as_bytes())
        .next()
        .map(|(_, value)| value.into_owned())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_taken_out_of_the_address_and_never_shown() {
        let settings = DatabaseSettings::new("postgres://me:s%26cr+t%25@db.example.org:5433/shop").unwrap();
        assert_eq!(settings.password.as_deref(), Some("s&cr+t%"));
        let shown = format!("{settings:?} {}", settings.address());
        assert!(!shown.contains("s%26cr") && !shown.contains("s&cr"), "{shown}");
        assert_eq!(settings.address(), "db.example.org:5433/shop");
        assert_eq!((settings.user().as_str(), settings.name().as_str(), settings.port()), ("me", "shop", 5433));
    }

    #[test]
    fn an_address_says_what_is_wrong_with_it() {
        let message = |address: &str| DatabaseSettings::new(address).unwrap_err().to_string();
        assert_eq!(
            [
                message("shop"),
                message("oracle://me@host/shop"),
                message("sqlite://shop.db"),
                message("mysql://me@host"),
                message("mysql://host/shop"),
                message("postgres://me@host/shop?sslmode=require"),
            ],
            [
                "the address of the database is not a URL: relative URL without a base, write one like \
                 `postgres://user@host:5432/name`",
                "`oracle` is not a kind of database, use `sqlite`, `postgres`, `mysql` or `mariadb`",
                "the address of a SQLite database is its absolute path, like `sqlite:///home/me/shop.db`",
                "the address names no database, end it with `/NAME`",
                "the address names no user, write it as `mysql://USER@HOST/NAME`",
                "`sslmode` in the address is not known, only `host` can stand there",
            ]
        );
    }

    #[test]
    fn sockets_and_files_are_found_in_the_address() {
        let postgres = DatabaseSettings::new("postgres://me@localhost/shop?host=/run/postgresql").unwrap();
        assert_eq!(postgres.address(), "/run/postgresql/shop");
        let file = DatabaseSettings::new("sqlite:///srv/my%20shop.db").unwrap();
        assert_eq!(file.address(), "/srv/my shop.db");
    }
}
