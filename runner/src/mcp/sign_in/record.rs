//! What is kept of a sign-in: a secret that the executor writes itself, in the secret store.
//!
//! Tokens belong to one MCP server and to the authorization server that issued them: for any other they are as good as
//! absent. What a later executor needs in order to go on with a sign-in is kept beside them until it ends.
//!
//! A command and an executor may use the same tokens. Each reads them again before it renews or changes them, under a
//! lock that the other one respects.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use ground::config::secret::{SecretError, SecretName, Secrets};
use ground::task::failure::Failure;
use protocol::code::Code;
use rmcp::transport::auth::{
    AuthError, AuthorizationMetadata, CredentialRefreshGuard, CredentialStore, OAuthClientConfig,
    StoredAuthorizationState, StoredCredentials,
};
use serde::{Deserialize, Serialize};
use serde_with_macros::skip_serializing_none;

use super::places::SignInPlace;

/// How often to look whether a human has signed in elsewhere, while one is asked.
const LOOK_INTERVAL: Duration = Duration::from_secs(2);

/// The secret, as JSON. A human may have set it with the first three fields.
#[skip_serializing_none]
#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SignInRecord {
    /// A client that a human registered with the authorization server.
    pub(super) client_id: Option<String>,
    pub(super) client_secret: Option<String>,
    /// The authorization server with which that client is registered.
    pub(super) issuer: Option<String>,
    pub(super) tokens: Option<IssuedTokens>,
    pub(super) pending: Option<PendingSignIn>,
}

/// Who issued tokens to whom, and for what.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct SignInParties {
    /// The URL of the MCP server.
    pub(super) server: String,
    /// What the authorization server calls the MCP server.
    pub(super) resource: String,
    pub(super) metadata: AuthorizationMetadata,
    pub(super) client: RegisteredClient,
}

/// What the authorization server knows us by.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct RegisteredClient {
    pub(super) client_id: String,
    pub(super) client_secret: Option<String>,
    pub(super) redirect_uri: String,
    /// The permissions for which it was registered; servers refuse others.
    #[serde(default)]
    pub(super) scopes: Vec<String>,
}

#[derive(Clone, Serialize, Deserialize)]
pub(super) struct IssuedTokens {
    pub(super) parties: SignInParties,
    pub(super) credentials: StoredCredentials,
    /// The id of the sign-in that issued them. Renewals keep it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) sign_in: Option<String>,
}

/// A sign-in that a human has not finished.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct PendingSignIn {
    pub(super) id: String,
    pub(super) parties: SignInParties,
    /// The address that the human opens.
    pub(super) link: String,
    pub(super) state: StoredAuthorizationState,
}

impl RegisteredClient {
    pub(super) fn config(&self) -> OAuthClientConfig {
        let config = OAuthClientConfig::new(&self.client_id, &self.redirect_uri);
        match &self.client_secret {
            Some(secret) => config.with_client_secret(secret),
            None => config,
        }
    }
}

impl SignInRecord {
    /// The tokens for the MCP server at `url`.
    pub(super) fn tokens_for(&self, url: &str) -> Option<&IssuedTokens> {
        self.tokens.as_ref().filter(|tokens| tokens.parties.server == url)
    }

    /// The unfinished sign-in to the MCP server at `url`.
    pub(super) fn pending_for(&self, url: &str) -> Option<&PendingSignIn> {
        self.pending.as_ref().filter(|pending| pending.parties.server == url)
    }

    /// Forgets the unfinished sign-in. The next one registers us anew: the authorization server may have forgotten us,
    /// which it tells only the human.
    pub(super) fn give_up(&mut self) {
        self.pending = None;
        if let Some(tokens) = &mut self.tokens {
            // An address without a port is never opened again.
            "http://127.0.0.1/".clone_into(&mut tokens.parties.client.redirect_uri);
        }
    }

    /// Has everything in it redacted that must not be seen.
    fn watch(&self, name: &SecretName, secrets: &Secrets) {
        let tokens = self.tokens.as_ref();
        let parties = tokens.map(|tokens| &tokens.parties).into_iter();
        let clients = parties.chain(self.pending.as_ref().map(|pending| &pending.parties));
        let clients = clients.filter_map(|parties| parties.client.client_secret.as_deref());
        let verifier = self.pending.as_ref().map(|pending| pending.state.pkce_verifier.as_str());
        for value in self.client_secret.as_deref().into_iter().chain(clients) {
            secrets.watch(name.as_str(), value);
        }
        if let Some(verifier) = verifier {
            secrets.watch_renewed(name.as_str(), verifier);
        }
        let issued = tokens.and_then(|tokens| serde_json::to_value(&tokens.credentials.token_response).ok());
        for field in ["access_token", "refresh_token", "id_token"] {
            if let Some(value) = issued.as_ref().and_then(|issued| issued[field].as_str()) {
                secrets.watch_renewed(name.as_str(), value);
            }
        }
    }
}

/// Reads and writes one record.
#[derive(Clone)]
pub(super) struct RecordFile {
    name: SecretName,
    secrets: Secrets,
    place: Arc<SignInPlace>,
}

impl RecordFile {
    pub(super) fn new(name: SecretName, secrets: Secrets, place: Arc<SignInPlace>) -> Self {
        Self { name, secrets, place }
    }

    /// Returns the record; an empty one before the first sign-in.
    pub(super) fn read(&self) -> Result<SignInRecord, Failure> {
        let text = match self.secrets.stored_record(&self.name) {
            Ok(secret) => secret,
            Err(SecretError::NotSet { .. }) => return Ok(SignInRecord::default()),
            Err(error) => return Err(error.into()),
        };
        // The parser's message would quote the secret.
        let record: SignInRecord = serde_json::from_str(text.expose().trim()).map_err(|_| {
            let name = self.name.as_str();
            Failure::new(Code::SecretMissing, format!("`{}` is not the record of a sign-in", self.name)).hint(format!(
                "a human removes it, and signs in again: agent-magic-tool secret rm {name}; a client that is \
                 registered already is set as {{\"client_id\": \"...\", \"client_secret\": \"...\"}}"
            ))
        })?;
        record.watch(&self.name, &self.secrets);
        Ok(record)
    }

    /// Has what is in `pending` redacted that must not be seen.
    pub(super) fn watch(&self, pending: &PendingSignIn) {
        let record = SignInRecord { pending: Some(pending.clone()), ..SignInRecord::default() };
        record.watch(&self.name, &self.secrets);
    }

    /// Returns when a human has signed in to the MCP server at `url` in another process, from now on.
    pub(super) async fn signed_in_elsewhere(&self, url: &str) {
        let sign_in = || self.read().ok()?.tokens_for(url)?.sign_in.clone();
        let before = sign_in();
        loop {
            tokio::time::sleep(LOOK_INTERVAL).await;
            if sign_in().is_some_and(|now| before.as_ref() != Some(&now)) {
                return;
            }
        }
    }

    /// Changes the record. Durable when it returns.
    pub(super) async fn update(&self, change: impl FnOnce(&mut SignInRecord) + Send) -> Result<(), Failure> {
        let _writing = self.place.writing.lock().await;
        let _other_processes = self.secrets.lock(&self.name, "change").await?;
        let mut record = self.read()?;
        change(&mut record);
        record.watch(&self.name, &self.secrets);
        let text = serde_json::to_string(&record)
            .map_err(|error| Failure::new(Code::Internal, format!("failed to write a sign-in: {error}")))?;
        Ok(self.secrets.set(&self.name, &text)?)
    }
}

/// The record as the SDK's store of tokens.
pub(super) struct TokenStore {
    pub(super) file: RecordFile,
    pub(super) role: TokenRole,
}

/// Whose tokens a store holds.
pub(super) enum TokenRole {
    /// A connection to this server uses and renews the tokens of this issuer.
    Connection { server: String, issuer: Option<String> },
    /// A sign-in obtains them.
    SignIn(Box<PendingSignIn>),
}

impl TokenStore {
    fn loaded(&self) -> Result<Option<StoredCredentials>, AuthError> {
        let record = self.file.read().map_err(store_error)?;
        let (server, issuer) = match &self.role {
            TokenRole::Connection { server, issuer } => (server, issuer),
            TokenRole::SignIn(pending) => (&pending.parties.server, &pending.parties.metadata.issuer),
        };
        let tokens = record.tokens_for(server).filter(|tokens| tokens.parties.metadata.issuer == *issuer);
        Ok(tokens.map(|tokens| tokens.credentials.clone()))
    }

    async fn saved(&self, credentials: StoredCredentials) -> Result<(), AuthError> {
        let change = |record: &mut SignInRecord| match &self.role {
            TokenRole::Connection { server, issuer } => {
                // Another sign-in may have taken the place of these.
                let ours = record.tokens.as_mut().filter(|tokens| {
                    tokens.parties.server == *server
                        && tokens.parties.metadata.issuer == *issuer
                        && tokens.credentials.client_id == credentials.client_id
                });
                if let Some(tokens) = ours {
                    tokens.credentials = credentials;
                }
            }
            TokenRole::SignIn(pending) => {
                let parties = &pending.parties;
                if record.client_id.as_ref() == Some(&parties.client.client_id) {
                    record.issuer.clone_from(&parties.metadata.issuer);
                }
                record.tokens =
                    Some(IssuedTokens { parties: parties.clone(), credentials, sign_in: Some(pending.id.clone()) });
                // Another process may have asked a human as well.
                record.pending = record.pending.take().filter(|other| other.id != pending.id);
            }
        };
        self.file.update(change).await.map_err(store_error)
    }
}

// Written as the SDK's macro expands its trait.
impl CredentialStore for TokenStore {
    fn load<'life0, 'async_trait>(&'life0 self) -> BoxFuture<'async_trait, Result<Option<StoredCredentials>, AuthError>>
    where
        'life0: 'async_trait,
        Self: 'async_trait,
    {
        std::future::ready(self.loaded()).boxed()
    }

    fn save<'life0, 'async_trait>(
        &'life0 self,
        credentials: StoredCredentials,
    ) -> BoxFuture<'async_trait, Result<(), AuthError>>
    where
        'life0: 'async_trait,
        Self: 'async_trait,
    {
        self.saved(credentials).boxed()
    }

    fn clear<'life0, 'async_trait>(&'life0 self) -> BoxFuture<'async_trait, Result<(), AuthError>>
    where
        'life0: 'async_trait,
        Self: 'async_trait,
    {
        async { self.file.update(|record| record.tokens = None).await.map_err(store_error) }.boxed()
    }

    fn acquire_refresh_guard<'life0, 'async_trait>(
        &'life0 self,
    ) -> BoxFuture<'async_trait, Result<Option<CredentialRefreshGuard>, AuthError>>
    where
        'life0: 'async_trait,
        Self: 'async_trait,
    {
        async {
            let turn = Arc::clone(&self.file.place.renewal).lock_owned().await;
            let other_processes = self.file.secrets.lock(&self.file.name, "renewal").await;
            let other_processes = other_processes.map_err(|error| store_error(error.into()))?;
            Ok(Some(CredentialRefreshGuard::new((turn, other_processes))))
        }
        .boxed()
    }
}

fn store_error(failure: Failure) -> AuthError {
    AuthError::CredentialStoreError(failure.error.message)
}
