//! Signing in to a server: OAuth 2.1, as the protocol's text on authorization says.
//!
//! The SDK speaks OAuth. Here a human is asked: the question on the page has the link, the browser comes back to a port
//! of ours ([`callback`]), and the call goes on by itself. What must survive a restart is in the record of the sign-in
//! ([`record`]), from before the human is asked until the tokens are there. Tokens that expire are renewed without a
//! question.
//!
//! For a command, the human is asked at the terminal instead ([`terminal`]).

use std::sync::Arc;

use definition::run::mcp::McpServer;
use ground::config::secret::SecretName;
use ground::task::failure::Failure;
use ground::task::notes::AttemptProgress;
use ground::task::question_key::QuestionKey;
use mcp::client::Authorization;
use protocol::code::Code;
use protocol::fault;
use protocol::task::State;
use rmcp::transport::auth::{AuthError, AuthorizationManager, InMemoryStateStore};
use serde_json::{Map, Value, json};
use tokio::sync::MutexGuard;
use tokio_util::sync::CancellationToken;
use url::Url;

use crate::delegation::{CalledTask, Delegation};
use crate::{Invocation, RunnerContext};
use callback::{CallbackPort, ExpectedReturn};
use places::SignInPlace;
use record::{PendingSignIn, RecordFile, SignInRecord, TokenRole, TokenStore};
use web::SignInWeb;

mod callback;
mod flow;
mod places;
mod record;
mod terminal;
mod web;

pub use places::SignIns;
pub use terminal::SignInLink;
pub(super) use terminal::sign_in as sign_in_at_terminal;

/// How often one call has a human sign in at most: the first time, and for further scopes.
pub(super) const MAX_SIGN_INS: u32 = 3;
const NO: &str = "No, do not sign in";

/// The sign-ins of one call.
pub(super) struct SignInDesk<'a> {
    server: &'a McpServer,
    invocation: &'a Invocation,
    context: &'a RunnerContext,
    cancel: &'a CancellationToken,
    asked: u32,
    /// How many sign-ins had ended when the server was last asked.
    seen: u64,
    /// Whether the record says that this call has sent nothing yet.
    is_unsent: bool,
}

/// What all sign-ins to a server need.
struct SignInSite {
    url: Url,
    secret: SecretName,
    file: RecordFile,
    web: Arc<SignInWeb>,
}

impl SignInSite {
    /// Returns `None` if the definition of `server` knows of no sign-in.
    fn of(server: &McpServer, context: &RunnerContext) -> Result<Option<Self>, Failure> {
        let (Some(secret), Some(url)) = (&server.oauth, &server.url) else { return Ok(None) };
        if context.secrets.has_source(secret.as_str()) {
            let message = format!("`[secrets]` takes `{secret}` from elsewhere, and tokens must be stored in it");
            return Err(Failure::new(Code::BadConfig, message)
                .hint("a human gives `oauth` in the definition the name of another secret"));
        }
        let url = Url::parse(url).map_err(|error| Failure::new(Code::BadDefinition, error.to_string()))?;
        let place = context.mcp.sign_ins.place(secret);
        let file = RecordFile::new(secret.clone(), context.secrets.clone(), place);
        let web = Arc::new(SignInWeb::new(Arc::clone(&context.http), url.clone()));
        Ok(Some(Self { url, secret: secret.clone(), file, web }))
    }

    async fn manager(&self, resource: &Url) -> Result<AuthorizationManager, Failure> {
        let web: Arc<SignInWeb> = Arc::clone(&self.web);
        let manager = AuthorizationManager::new_with_oauth_http_client(resource.clone(), web).await;
        manager.map_err(|error| Failure::new(Code::Internal, error.to_string()))
    }

    /// What gives requests to the server their tokens.
    async fn connection_manager(&self) -> Result<AuthorizationManager, Failure> {
        let record = self.file.read()?;
        let Some(tokens) = record.tokens_for(self.url.as_str()) else {
            let mut manager = self.manager(&self.url).await?;
            let role = TokenRole::Connection { server: self.url.to_string(), issuer: None };
            manager.set_credential_store(TokenStore { file: self.file.clone(), role });
            return Ok(manager);
        };
        let parties = &tokens.parties;
        let resource = Url::parse(&parties.resource).ok().filter(|url| url.as_str() == parties.resource);
        let mut manager = self.manager(resource.as_ref().unwrap_or(&self.url)).await?;
        if resource.is_none() {
            // A URL cannot be written that way: the SDK must read it where it stands. Only renewals need it.
            drop(manager.resolve_metadata().await);
        }
        let issuer = parties.metadata.issuer.clone();
        let role = TokenRole::Connection { server: self.url.to_string(), issuer };
        manager.set_credential_store(TokenStore { file: self.file.clone(), role });
        manager.set_metadata(parties.metadata.clone());
        let configured = manager.configure_client(parties.client.config());
        configured.map_err(|error| Failure::new(Code::BadResponse, error.to_string()))?;
        Ok(manager)
    }
}

/// Returns what gives requests to `server` their tokens, if a human signs in to it.
pub(super) async fn authorization(
    server: &McpServer,
    client: &reqwest::Client,
    context: &RunnerContext,
) -> Result<Option<Authorization>, Failure> {
    match SignInSite::of(server, context)? {
        Some(site) => Ok(Some(Authorization::new(client.clone(), site.connection_manager().await?))),
        None => Ok(None),
    }
}

/// Has `authorization`, which is in use, take the tokens of a new sign-in to `server`.
pub(super) async fn renew(
    authorization: &Authorization,
    server: &McpServer,
    context: &RunnerContext,
) -> Result<(), Failure> {
    if let Some(site) = SignInSite::of(server, context)? {
        *authorization.auth_manager.lock().await = site.connection_manager().await?;
    }
    Ok(())
}

/// Has `authorization`, which the server no longer accepts, take the tokens of a sign-in that another process finished.
/// Returns whether there were such.
pub(super) async fn take_over(
    authorization: &Authorization,
    server: &McpServer,
    context: &RunnerContext,
) -> Result<bool, Failure> {
    let Some(site) = SignInSite::of(server, context)? else { return Ok(false) };
    let record = site.file.read()?;
    let Some(tokens) = record.tokens_for(site.url.as_str()) else { return Ok(false) };
    let mut manager = authorization.auth_manager.lock().await;
    let used = manager.get_credentials().await.ok();
    if used.is_some_and(|(client_id, used)| client_id == tokens.credentials.client_id && used.is_some()) {
        return Ok(false);
    }
    *manager = site.connection_manager().await?;
    Ok(true)
}

/// The failure where no human can be asked.
pub(super) fn unasked(server: &McpServer) -> Failure {
    let failure = Failure::new(Code::NeedsReauthorization, format!("the MCP server `{}` wants a sign-in", server.name));
    match (&server.oauth, server.headers.is_empty()) {
        (Some(_), _) => failure.hint(
            "a human signs in on the confirmation page (agent-magic-tool executor page) while a subtool of this server \
             runs",
        ),
        (None, true) => failure.hint(
            "a human adds \"oauth\": \"secret:NAME\" to the server in its definition, and is asked to sign in at the \
             next call; or, for a token that they have, \"headers\": {\"Authorization\": \"Bearer secret:NAME\"}",
        ),
        (None, false) => failure.hint(
            "a human checks the secrets in `headers` of the server's definition; or adds \"oauth\": \"secret:NAME\" in \
             their place, and is asked to sign in at the next call",
        ),
    }
}

impl<'a> SignInDesk<'a> {
    pub(super) fn new(
        server: &'a McpServer,
        invocation: &'a Invocation,
        context: &'a RunnerContext,
        cancel: &'a CancellationToken,
    ) -> Self {
        Self { server, invocation, context, cancel, asked: 0, seen: 0, is_unsent: invocation.is_unsent }
    }

    /// Notes that the server is about to be asked: a sign-in that ends from now on may change its answer.
    pub(super) fn before_asking(&mut self) {
        if let Some(secret) = &self.server.oauth {
            self.seen = self.context.mcp.sign_ins.place(secret).ended().count;
        }
    }

    /// Makes sure that the record does not say anymore that nothing was sent: from now on the tool may be called.
    pub(super) async fn before_sending(&mut self) -> Result<(), Failure> {
        if self.is_unsent {
            fault::point("sign_in", "ended");
            tokio::select! {
                biased;
                () = self.cancel.cancelled() => return Err(self.cancelled()),
                recorded = self.invocation.feedback.sending() => recorded?,
            }
            self.is_unsent = false;
            fault::point("sign_in", "recorded");
        }
        Ok(())
    }

    /// Has a human sign in, as `challenge` demands, and returns when the server can be asked again. `is_unsent` says
    /// that the tool was not called yet.
    pub(super) async fn sign_in(&mut self, challenge: Option<&str>, is_unsent: bool) -> Result<(), Failure> {
        let Some(site) = SignInSite::of(self.server, self.context)? else { return Err(unasked(self.server)) };
        let Some(delegation) = &self.context.delegation else { return Err(unasked(self.server)) };
        let _pause = self.invocation.clock.pause();
        let place = self.context.mcp.sign_ins.place(&site.secret);
        if is_unsent {
            self.is_unsent = true;
            self.invocation.feedback.unsent();
        }
        let _turn = self.turn(&place).await?;
        let ended = place.ended();
        if ended.count != self.seen {
            // Another task was signed in for meanwhile.
            self.seen = ended.count;
            self.tell_nothing();
            return ended.failure.map_or(Ok(()), |error| Err(error.into()));
        }
        self.asked += 1;
        if self.asked > MAX_SIGN_INS {
            let message = format!("the MCP server `{}` wants yet another sign-in", self.server.name);
            return Err(Failure::new(Code::NeedsReauthorization, message)
                .hint("the account may lack a permission that the tool needs: a human must look"));
        }
        let outcome = Box::pin(self.ask(&site, delegation, challenge)).await;
        place.is_asked.send_replace(false);
        self.tell_nothing();
        match &outcome {
            Ok(()) => place.note_end(None),
            Err(failure) if failure.error.code == Code::NeedsReauthorization => {
                place.note_end(Some(failure.error.clone()));
            }
            // The next task that waits asks again.
            Err(_) => {}
        }
        outcome
    }

    /// Waits until no other task asks for this sign-in.
    async fn turn<'p>(&self, place: &'p SignInPlace) -> Result<MutexGuard<'p, ()>, Failure> {
        let (turn, mut is_asked) = (place.turn.lock(), place.is_asked.subscribe());
        tokio::pin!(turn);
        loop {
            // The other's question is ours as well.
            let is_shown = *is_asked.borrow_and_update();
            if is_shown {
                self.tell_of_question();
            } else {
                self.tell_of_wait();
            }
            tokio::select! {
                biased;
                () = self.cancel.cancelled() => return Err(self.cancelled()),
                turn = &mut turn => return Ok(turn),
                Ok(()) = is_asked.changed() => {}
            }
        }
    }

    async fn ask(&self, site: &SignInSite, delegation: &Delegation, challenge: Option<&str>) -> Result<(), Failure> {
        let started = match self.resume(site, delegation, challenge).await? {
            Some(started) => started,
            None => self.begin(site, challenge).await?,
        };
        let SignInAttempt { pending, mut manager, port } = started;
        let place = self.context.mcp.sign_ins.place(&site.secret);
        let question = self.question(site, &pending);
        let link = self.context.mcp.sign_ins.show(&question, &pending.link);
        let input = Map::from_iter([("question".to_owned(), question.into()), ("options".to_owned(), json!([NO]))]);
        let (key, withdrawn) = (question_key(&pending), self.cancel.child_token());
        let on_shown = || {
            place.is_asked.send_replace(true);
            self.tell_of_question();
        };
        let asking = delegation.ask(self.invocation, QuestionKey::Shared(&key), input, &withdrawn, on_shown);
        tokio::pin!(asking);
        let expected = expected(&pending);
        let waited = tokio::select! {
            biased;
            came_back = port.wait(&expected) => came_back,
            asked = &mut asking => return Err(self.unanswered(site, &asked).await),
            () = site.file.signed_in_elsewhere(site.url.as_str()) => {
                withdrawn.cancel();
                drop(asking.await);
                return site.file.update(|record| record.pending = None).await;
            }
        };
        let came_back = waited.map_err(|error| Failure::new(Code::Io, error.to_string()))?;
        withdrawn.cancel();
        drop(link);
        let finish = flow::finish(site, self.server, &mut manager, &pending, &came_back);
        let (finished, _) = tokio::join!(finish, asking);
        if finished.is_err() {
            site.file.update(SignInRecord::give_up).await?;
        }
        finished
    }

    /// Begins a sign-in, and records what a later executor needs in order to go on with it.
    async fn begin(&self, site: &SignInSite, challenge: Option<&str>) -> Result<SignInAttempt, Failure> {
        let started = flow::begin(site, &site.file.read()?, self.server, self.context, challenge).await?;
        let recorded = started.pending.clone();
        site.file.update(|record| record.pending = Some(recorded)).await?;
        Ok(started)
    }

    /// Goes on with a sign-in that an earlier executor, or a task that has ended, left unfinished.
    async fn resume(
        &self,
        site: &SignInSite,
        delegation: &Delegation,
        challenge: Option<&str>,
    ) -> Result<Option<SignInAttempt>, Failure> {
        let record = site.file.read()?;
        let Some(pending) = record.pending_for(site.url.as_str()) else { return Ok(None) };
        if let Some(attempt) = flow::resume(site, pending, challenge).await? {
            return Ok(Some(attempt));
        }
        // Its question would lead nowhere.
        let (key, over) = (question_key(pending), CancellationToken::new());
        over.cancel();
        let input = Map::from_iter([("question".to_owned(), "This sign-in is over.".into())]);
        drop(delegation.ask(self.invocation, QuestionKey::Shared(&key), input, &over, || {}).await);
        site.file.update(|record| record.pending = None).await?;
        Ok(None)
    }

    /// What follows if the question ended before the browser came back.
    async fn unanswered(&self, site: &SignInSite, asked: &Result<CalledTask, Failure>) -> Failure {
        let (failure, is_over) = match asked {
            Ok(task) => (self.end_of_question(&task.result), true),
            Err(failure) if self.cancel.is_cancelled() => {
                // An executor that is stopping leaves the question to the next one.
                let state = failure.error.details.get("call").map_or(&Value::Null, |call| &call["state"]);
                (self.cancelled(), *state != json!(State::AwaitingConfirmation))
            }
            Err(failure) => {
                let reason = &failure.error.message;
                tracing::info!(server = self.server.name, error = %reason, "a human was not asked to sign in");
                (unasked(self.server).detail("reason", reason.as_str()), true)
            }
        };
        if is_over && let Err(error) = site.file.update(SignInRecord::give_up).await {
            tracing::warn!(error = %error.error.message, "failed to forget a sign-in");
        }
        failure
    }

    fn end_of_question(&self, result: &Value) -> Failure {
        if let Some("accept" | "decline") = result["data"]["action"].as_str() {
            return self.declined();
        }
        let message = format!("no human signed in to the MCP server `{}`", self.server.name);
        Failure::new(Code::NeedsReauthorization, message)
            .hint("run it again when a human is there: they will be asked on the confirmation page")
    }

    /// Tells sign-ins apart by what is in it, since the page finds the link by this text.
    fn question(&self, site: &SignInSite, pending: &PendingSignIn) -> String {
        let (server, there) = (host(site.url.as_str()), host(&pending.link));
        format!(
            "The MCP server `{}` at {server} wants you to sign in at {there}.\n\nOpen the link below only if you know \
             {there}: what you enter goes there, not to the agent. When you have signed in, the task goes on by itself. \
             The tokens are kept as `{}`.",
            self.server.name, site.secret
        )
    }

    fn tell_of_wait(&self) {
        let message = Some(format!("Waits until a human has signed in to `{}`", self.server.name));
        self.invocation.feedback.progress(AttemptProgress { message, ..AttemptProgress::default() });
    }

    fn tell_of_question(&self) {
        let message = Some(format!("A human is asked on the confirmation page to sign in to `{}`", self.server.name));
        let progress = AttemptProgress { message, asks_human: true, ..AttemptProgress::default() };
        self.invocation.feedback.progress(progress);
    }

    fn tell_nothing(&self) {
        self.invocation.feedback.progress(AttemptProgress::default());
    }

    fn cancelled(&self) -> Failure {
        let message = format!("cancelled while a human was asked to sign in to `{}`", self.server.name);
        Failure::new(Code::Cancelled, message)
    }

    fn declined(&self) -> Failure {
        let message = format!("the human did not want to sign in to the MCP server `{}`", self.server.name);
        Failure::new(Code::NeedsReauthorization, message).hint("ask them in the conversation before you run it again")
    }
}

/// A sign-in that waits for the browser.
struct SignInAttempt {
    pending: PendingSignIn,
    manager: AuthorizationManager,
    port: CallbackPort,
}

/// A sign-in has one question, whichever task asks it.
fn question_key(pending: &PendingSignIn) -> String {
    format!("sign-in-{}", pending.id)
}

fn expected(pending: &PendingSignIn) -> ExpectedReturn {
    ExpectedReturn {
        state: pending.state.csrf_token.clone(),
        issuer: pending.state.expected_issuer.clone(),
        requires_issuer: pending.state.require_issuer,
    }
}

/// The host of `url`, with its port if it has one.
fn host(url: &str) -> String {
    let parsed = Url::parse(url).ok();
    let host = parsed.as_ref().and_then(|url| {
        let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
        Some(format!("{}{port}", url.host_str()?))
    });
    host.unwrap_or_default()
}

/// A state store that knows the state of `pending`.
async fn states(pending: &PendingSignIn) -> Result<InMemoryStateStore, Failure> {
    use rmcp::transport::auth::StateStore as _;
    let states = InMemoryStateStore::new();
    let saved = states.save(&pending.state.csrf_token, pending.state.clone()).await;
    saved.map(|()| states).map_err(|error| Failure::new(Code::Internal, error.to_string()))
}

/// The failure of a sign-in to `server` that cannot succeed as things are.
fn failed(server: &McpServer, reason: &str) -> Failure {
    let message = format!("the sign-in to the MCP server `{}` failed: {reason}", server.name);
    Failure::new(Code::NeedsReauthorization, message)
        .hint("run it again to be asked again; if it stays so, a human must look at the server's own documentation")
}

/// What the SDK says, with the reason behind it.
fn describe(error: &AuthError) -> String {
    const MAX_CHARS: usize = 500;
    protocol::excerpt::line(&protocol::error::chain(error), MAX_CHARS)
}
