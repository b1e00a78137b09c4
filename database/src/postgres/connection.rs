//! Connecting to PostgreSQL, over TCP with or without TLS and over sockets.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use sql::settings::{DatabaseSettings, TlsMode};
use tokio_postgres::config::{ChannelBinding, SslMode};
use tokio_postgres::{CancelToken, Client, Config, NoTls};
use tokio_postgres_rustls::MakeRustlsConnect;
use tokio_util::task::TaskTracker;

use super::failure;
use crate::error::{DatabaseError, Phase};
use crate::stop::Stop;

/// The first version that can look whether a client is still there while it works.
const MIN_WATCHING_VERSION: u32 = 14;

/// A connection.
#[derive(Debug)]
pub(super) struct PostgresConnection {
    pub(super) client: Client,
    /// Whether the server can notice during a statement that we are gone.
    pub(super) watches_clients: bool,
}

/// Makes connections.
pub(super) struct PostgresConnector {
    config: Config,
    tls: Option<MakeRustlsConnect>,
    address: String,
    timeout: Duration,
    /// A connection is driven by a task, which ends with it.
    tasks: TaskTracker,
}

impl fmt::Debug for PostgresConnector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresConnector").field("address", &self.address).finish_non_exhaustive()
    }
}

impl PostgresConnector {
    pub(super) fn new(settings: &DatabaseSettings, tasks: TaskTracker) -> Result<Self, DatabaseError> {
        let mut config = Config::new();
        config.user(settings.user()).dbname(settings.name()).port(settings.port());
        config.application_name("agent-magic-tool").connect_timeout(settings.connect_timeout);
        match settings.socket() {
            Some(folder) => config.host_path(folder),
            None => config.host(settings.host()),
        };
        if let Some(password) = &settings.password {
            config.password(password);
        }
        let tls = match &settings.tls {
            TlsMode::Off => {
                config.ssl_mode(SslMode::Disable).channel_binding(ChannelBinding::Disable);
                None
            }
            TlsMode::Verified { roots } => {
                config.ssl_mode(SslMode::Require);
                Some(MakeRustlsConnect::new(client_config(settings, roots.as_deref())?))
            }
        };
        Ok(Self { config, tls, address: settings.address(), timeout: settings.connect_timeout, tasks })
    }

    pub(super) fn connect_timeout(&self) -> Duration {
        self.timeout
    }

    pub(super) async fn connect(&self) -> Result<PostgresConnection, DatabaseError> {
        let connecting = async {
            let client;
            let version;
            match &self.tls {
                None => {
                    let (connected, connection) = self.config.connect(NoTls).await?;
                    version = connection.parameter("server_version").map(ToOwned::to_owned);
                    client = connected;
                    self.tasks.spawn(connection);
                }
                Some(tls) => {
                    let (connected, connection) = self.config.connect(tls.clone()).await?;
                    version = connection.parameter("server_version").map(ToOwned::to_owned);
                    client = connected;
                    self.tasks.spawn(connection);
                }
            }
            let major = version.and_then(|version| version.split(['.', ' ']).next()?.parse::<u32>().ok());
            let watches_clients = major.is_some_and(|major| major >= MIN_WATCHING_VERSION)
                // Some systems cannot.
                && client.batch_execute("SET client_connection_check_interval = 2000").await.is_ok();
            Ok(PostgresConnection { client, watches_clients })
        };
        match tokio::time::timeout(self.timeout, connecting).await {
            Ok(result) => result.map_err(|error: tokio_postgres::Error| failure::of_connecting(&error, &self.address)),
            Err(_) => Err(self.unreachable("it does not answer".to_owned())),
        }
    }

    /// Asks the server over a connection of its own to end what another one runs.
    pub(super) async fn cancel(&self, token: &CancelToken) {
        let asked = match &self.tls {
            None => token.cancel_query(NoTls).await,
            Some(tls) => token.cancel_query(tls.clone()).await,
        };
        if let Err(error) = asked {
            tracing::debug!("a server was not told that a statement is cancelled: {error}");
        }
    }

    pub(super) fn unreachable(&self, reason: String) -> DatabaseError {
        DatabaseError::Unreachable { address: self.address.clone(), reason }
    }

    pub(super) fn failure(&self, error: &tokio_postgres::Error, stop: &Stop, phase: Phase) -> DatabaseError {
        failure::of_statement(error, &self.address, stop, phase)
    }
}

fn client_config(
    settings: &DatabaseSettings,
    roots: Option<&std::path::Path>,
) -> Result<rustls::ClientConfig, DatabaseError> {
    let unusable =
        |reason: String| DatabaseError::Unreachable { address: settings.address(), reason: format!("TLS: {reason}") };
    let mut store = rustls::RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() };
    if let Some(path) = roots {
        let certificates = CertificateDer::pem_file_iter(path).map_err(|error| unusable(error.to_string()))?;
        for certificate in certificates {
            let certificate = certificate.map_err(|error| unusable(error.to_string()))?;
            store.add(certificate).map_err(|error| unusable(error.to_string()))?;
        }
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let versions = rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    Ok(versions.map_err(|error| unusable(error.to_string()))?.with_root_certificates(store).with_no_client_auth())
}
