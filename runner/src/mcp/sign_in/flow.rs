//! How a sign-in begins, how one that was begun is gone on with, and how it ends: discovery, registration, the link, and
//! the tokens.

use definition::run::mcp::McpServer;
use ground::task::failure::{Failure, Retry};
use protocol::code::Code;
use rmcp::transport::auth::{
    AuthError, AuthorizationManager, AuthorizationMetadata, AuthorizationRequest, AuthorizationSession,
    InMemoryStateStore, StateStore as _, WWWAuthenticateParams,
};
use serde_json::Value;
use url::Url;

use super::callback::{BrowserReturn, CallbackPort};
use super::record::{PendingSignIn, RegisteredClient, SignInParties, SignInRecord, TokenRole, TokenStore};
use super::{SignInAttempt, SignInSite, describe, failed, states};
use crate::RunnerContext;

/// What authorization servers show a human.
const CLIENT_NAME: &str = "agent-magic-tool";
/// A sign-in that was begun longer ago, in seconds, is begun anew: servers forget.
const MAX_AGE: u64 = 24 * 60 * 60;

/// Begins a sign-in with what is known from earlier ones, which `record` has.
pub(super) async fn begin(
    site: &SignInSite,
    record: &SignInRecord,
    server: &McpServer,
    context: &RunnerContext,
    challenge: Option<&str>,
) -> Result<SignInAttempt, Failure> {
    let mut manager = site.manager(&site.url).await?;
    let metadata = discover(&manager, site, server, challenge).await?;
    manager.set_metadata(metadata.clone());
    let known = record.tokens_for(site.url.as_str()).filter(|tokens| tokens.parties.metadata.issuer == metadata.issuer);
    let known_client = known.map(|tokens| &tokens.parties.client);
    let port = open_port(known_client, context).await?;
    let redirect_uri = port.redirect_uri().map_err(|error| io_failure(&error))?;
    let mut scopes = known.map(|tokens| tokens.credentials.granted_scopes.clone()).unwrap_or_default();
    let challenged = challenge.map(|challenge| WWWAuthenticateParams::parse(challenge, &site.url)).unwrap_or_default();
    let is_known = known.is_some() && challenged.is_insufficient_scope();
    if is_known && demanded(&challenged).all(|scope| scopes.iter().any(|it| it == scope)) {
        let reason = "it refuses the call although the token has every permission that it demands";
        let name = site.secret.as_str();
        return Err(failed(server, reason).hint(format!(
            "the account itself may lack the permission: a human must look; to sign in with another one, they first \
             forget this one with: agent-magic-tool secret rm {name}"
        )));
    }
    if let Some(scope) = &challenged.scope {
        scopes.extend(scope.split_whitespace().map(str::to_owned));
    } else {
        scopes.extend(manager.select_initial_scopes(&[]).await);
    }
    let mut unique = std::collections::HashSet::new();
    scopes.retain(|scope| unique.insert(scope.clone()));
    let registration = ClientRegistration { site, server, context, record, known_client, redirect_uri: &redirect_uri };
    let client = registration.client(&mut manager, &metadata, &scopes).await?;
    let states = InMemoryStateStore::new();
    manager.set_state_store(states.clone());
    let mut request = AuthorizationRequest::new(&redirect_uri)
        .with_initial_scope_selection()
        .with_scopes(scopes)
        .with_preregistered_client(&client.client_id);
    request.client_secret.clone_from(&client.client_secret);
    let session = AuthorizationSession::new(manager, request).await;
    let AuthorizationSession { auth_manager: manager, auth_url: link, .. } =
        session.map_err(|(_, error)| failed(server, &describe(&error)))?;
    let query = |name: &str| {
        let url = Url::parse(&link).ok()?;
        url.query_pairs().find(|(key, _)| key == name).map(|(_, value)| value.into_owned())
    };
    let state = match query("state") {
        Some(token) => states.load(&token).await.ok().flatten(),
        None => None,
    };
    let (Some(state), Some(resource)) = (state, query("resource")) else {
        return Err(Failure::new(Code::Internal, "the link of a sign-in has no state or no resource"));
    };
    let parties = SignInParties { server: site.url.to_string(), resource, metadata, client };
    let pending = PendingSignIn { id: uuid::Uuid::now_v7().simple().to_string(), parties, link, state };
    Ok(SignInAttempt { pending, manager, port })
}

/// Finishes a sign-in with what the browser brought: the tokens are stored when it returns.
pub(super) async fn finish(
    site: &SignInSite,
    server: &McpServer,
    manager: &mut AuthorizationManager,
    pending: &PendingSignIn,
    came_back: &BrowserReturn,
) -> Result<(), Failure> {
    let role = TokenRole::SignIn(Box::new(pending.clone()));
    manager.set_credential_store(TokenStore { file: site.file.clone(), role });
    match came_back {
        BrowserReturn::Refused(code) => Err(failed(server, &format!("the authorization server refused: {code}"))),
        BrowserReturn::Code { code, issuer } => manager
            .exchange_code_for_token_with_issuer(code, &pending.state.csrf_token, issuer.as_deref())
            .await
            .map(drop)
            .map_err(|error| failed(server, &describe(&error))),
    }
}

/// Goes on with `pending`. Returns `None` if it cannot be finished anymore.
pub(super) async fn resume(
    site: &SignInSite,
    pending: &PendingSignIn,
    challenge: Option<&str>,
) -> Result<Option<SignInAttempt>, Failure> {
    let SignInParties { metadata, client, .. } = &pending.parties;
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default().as_secs();
    if now.saturating_sub(pending.state.created_at) > MAX_AGE || !covers(pending, challenge, site) {
        return Ok(None);
    }
    let Ok(port) = CallbackPort::reopen(&client.redirect_uri).await else { return Ok(None) };
    let mut manager = site.manager(&site.url).await?;
    // Also tells the SDK what the server calls itself.
    let found = manager.resolve_metadata_from_challenge(challenge).await.map_err(|error| unreachable(&error))?.metadata;
    if found.issuer != metadata.issuer || found.token_endpoint != metadata.token_endpoint {
        return Ok(None);
    }
    manager.set_metadata(metadata.clone());
    if manager.configure_client(client.config()).is_err() {
        return Ok(None);
    }
    manager.set_state_store(states(pending).await?);
    Ok(Some(SignInAttempt { pending: pending.clone(), manager, port }))
}

/// Whether `pending` asks for the scopes that the server demands now.
fn covers(pending: &PendingSignIn, challenge: Option<&str>, site: &SignInSite) -> bool {
    let challenged = challenge.map(|challenge| WWWAuthenticateParams::parse(challenge, &site.url)).unwrap_or_default();
    demanded(&challenged).all(|scope| pending.state.requested_scopes.iter().any(|other| other == scope))
}

/// The scopes that a challenge names.
fn demanded(challenged: &WWWAuthenticateParams) -> impl Iterator<Item = &str> {
    challenged.scope.as_deref().unwrap_or_default().split_whitespace()
}

/// Finds the authorization server of the MCP server, and checks what it says of itself.
async fn discover(
    manager: &AuthorizationManager,
    site: &SignInSite,
    server: &McpServer,
    challenge: Option<&str>,
) -> Result<AuthorizationMetadata, Failure> {
    let resolution = manager.resolve_metadata_from_challenge(challenge).await.map_err(|error| match error {
        AuthError::DiscoveryRequestFailed { .. } => unreachable(&error),
        other => failed(server, &describe(&other)),
    })?;
    let metadata = resolution.metadata;
    if resolution.source.is_discovered() && metadata.code_challenge_methods_supported.is_none() {
        return Err(failed(server, "its authorization server does not support PKCE"));
    }
    for endpoint in [&metadata.authorization_endpoint, &metadata.token_endpoint] {
        let url = Url::parse(endpoint).map_err(|_| failed(server, &format!("`{endpoint}` is not a URL")))?;
        site.web.check_scheme(&url)?;
    }
    Ok(metadata)
}

/// Opens the port of `known`, so that it need not be registered again; else the configured one.
async fn open_port(known: Option<&RegisteredClient>, context: &RunnerContext) -> Result<CallbackPort, Failure> {
    let configured = context.config.mcp.sign_in_port;
    if configured == 0
        && let Some(client) = known
        && let Ok(port) = CallbackPort::reopen(&client.redirect_uri).await
    {
        return Ok(port);
    }
    CallbackPort::open(configured).await.map_err(|error| {
        let failure = io_failure(&error);
        if configured == 0 { failure } else { failure.hint("a human checks `sign_in_port` under [mcp] in config.toml") }
    })
}

/// How the authorization server comes to know us.
struct ClientRegistration<'a> {
    site: &'a SignInSite,
    server: &'a McpServer,
    context: &'a RunnerContext,
    record: &'a SignInRecord,
    known_client: Option<&'a RegisteredClient>,
    redirect_uri: &'a str,
}

impl ClientRegistration<'_> {
    /// Returns the client that a human registered, else our metadata document, else a client that we register.
    async fn client(
        &self,
        manager: &mut AuthorizationManager,
        metadata: &AuthorizationMetadata,
        scopes: &[String],
    ) -> Result<RegisteredClient, Failure> {
        let client = |client_id: &str, client_secret: Option<String>| RegisteredClient {
            client_id: client_id.to_owned(),
            client_secret,
            redirect_uri: self.redirect_uri.to_owned(),
            scopes: scopes.to_vec(),
        };
        if let Some(client_id) = &self.record.client_id {
            if self.record.issuer.is_some() && self.record.issuer != metadata.issuer {
                let message = format!("`{client_id}` is registered with another authorization server");
                let name = self.site.secret.as_str();
                return Err(failed(self.server, &message)
                    .hint(format!("a human sets the client of the new one: agent-magic-tool secret set {name}")));
            }
            return Ok(client(client_id, self.record.client_secret.clone()));
        }
        let document = self.context.config.mcp.client_metadata_url.as_ref().filter(|_| {
            metadata.additional_fields.get("client_id_metadata_document_supported") == Some(&Value::Bool(true))
        });
        if let Some(document) = document {
            return Ok(client(document.as_str(), None));
        }
        let fits = |known: &RegisteredClient| {
            known.redirect_uri == self.redirect_uri && scopes.iter().all(|scope| known.scopes.contains(scope))
        };
        if let Some(known) = self.known_client.filter(|known| fits(known)) {
            return Ok(known.clone());
        }
        let registered: Vec<_> = scopes.iter().map(String::as_str).collect();
        match manager.register_client(CLIENT_NAME, self.redirect_uri, &registered).await {
            Ok(config) => Ok(client(&config.client_id, config.client_secret)),
            Err(error) => {
                let name = self.site.secret.as_str();
                Err(failed(self.server, &describe(&error)).hint(format!(
                    "a human registers a client with the authorization server, with the redirect URI {}, and stores it: \
                     echo '{{\"client_id\": \"...\"}}' | agent-magic-tool secret set {name}",
                    self.redirect_uri
                )))
            }
        }
    }
}

fn unreachable(error: &AuthError) -> Failure {
    Failure::new(Code::Unreachable, describe(error)).retry(Retry::Later)
}

fn io_failure(error: &std::io::Error) -> Failure {
    Failure::new(Code::Io, format!("failed to open a port for the end of the sign-in: {error}")).retry(Retry::Later)
}
