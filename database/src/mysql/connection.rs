//! Connecting to MySQL and MariaDB, over TCP with or without TLS and over sockets.

use std::fmt;
use std::time::Duration;

use mysql_async::prelude::Queryable as _;
use mysql_async::{Conn, DriverError, Error, IoError, Opts, OptsBuilder, SslOpts};
use sql::settings::{DatabaseSettings, TlsMode};

use super::failure;
use crate::error::{DatabaseError, Phase};
use crate::stop::Stop;

/// The largest row that is taken, whatever the caps are: a message is held in memory as a whole.
const MAX_ROW_BYTES: usize = 64 << 20;

/// Two servers with one language, which differ in how they are told a timeout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Flavor {
    Mysql,
    MariaDb,
}

/// A connection.
pub(super) struct MysqlConnection {
    pub(super) conn: Conn,
    pub(super) flavor: Flavor,
}

impl fmt::Debug for MysqlConnection {
    /// The driver would show the password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MysqlConnection")
            .field("id", &self.conn.id())
            .field("flavor", &self.flavor)
            .finish_non_exhaustive()
    }
}

/// Makes connections.
pub(super) struct MysqlConnector {
    options: Opts,
    address: String,
    timeout: Duration,
}

impl fmt::Debug for MysqlConnector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MysqlConnector").field("address", &self.address).finish_non_exhaustive()
    }
}

impl MysqlConnector {
    pub(super) fn new(settings: &DatabaseSettings) -> Self {
        let options = OptsBuilder::default()
            .ip_or_hostname(settings.host())
            .tcp_port(settings.port())
            .user(Some(settings.user()))
            .pass(settings.password.clone())
            .db_name(Some(settings.name()))
            .socket(settings.socket())
            // Never from TCP to a socket that the server names.
            .prefer_socket(false)
            // Rows that an `UPDATE` finds, as in the other databases, not only those that are different after it.
            .client_found_rows(true)
            .stmt_cache_size(0)
            .tcp_keepalive(Some(Duration::from_mins(1)))
            .max_allowed_packet(Some(settings.caps.bytes.saturating_add(1 << 20).min(MAX_ROW_BYTES)))
            .wait_timeout(Some(28_800))
            .ssl_opts(match &settings.tls {
                TlsMode::Off => None,
                TlsMode::Verified { roots } => {
                    let roots = roots.iter().map(|path| path.clone().into()).collect();
                    Some(SslOpts::default().with_root_certs(roots))
                }
            });
        Self { options: options.into(), address: settings.address(), timeout: settings.connect_timeout }
    }

    pub(super) fn connect_timeout(&self) -> Duration {
        self.timeout
    }

    pub(super) async fn connect(&self) -> Result<MysqlConnection, DatabaseError> {
        let connecting = async {
            let mut conn = Conn::new(self.options.clone()).await?;
            let version: Option<String> = conn.query_first("SELECT VERSION()").await?;
            let is_mariadb = version.is_some_and(|version| version.contains("MariaDB"));
            Ok(MysqlConnection { conn, flavor: if is_mariadb { Flavor::MariaDb } else { Flavor::Mysql } })
        };
        match tokio::time::timeout(self.timeout, connecting).await {
            Ok(result) => result.map_err(|error: Error| failure::of_connecting(&error, &self.address)),
            Err(_) => Err(self.unreachable("it does not answer".to_owned())),
        }
    }

    pub(super) fn unreachable(&self, reason: String) -> DatabaseError {
        DatabaseError::Unreachable { address: self.address.clone(), reason }
    }

    pub(super) fn failure(&self, error: &Error, stop: &Stop, phase: Phase) -> DatabaseError {
        failure::of_statement(error, &self.address, stop, phase)
    }
}

/// Returns whether a row was larger than what is taken.
pub(super) fn is_too_large(error: &Error) -> bool {
    match error {
        Error::Driver(DriverError::PacketTooLarge) => true,
        Error::Io(IoError::Io(error)) => error.to_string().contains("max_allowed_packet"),
        _ => false,
    }
}
