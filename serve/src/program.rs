//! The server as a program: its runtime, its interfaces, and its end.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use ground::base::runtime;
use ground::config::ServeSettings;
use ground::config::api_keys::ApiKeys;
use ground::config::secret::Secrets;
use ground::page_client::api_client::GateClient;
use protocol::code::Code;
use protocol::error::{ErrorBody, chain};
use protocol::paths::Paths;
use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::a2a::TaskDesk;
use crate::http::{self, Binding, BindingError, ServeState};
use crate::routes;
use crate::service::{ServiceContext, SessionService, StateLock, io_error};
use crate::slack::{SlackConnector, SlackTiming};

/// Threads that answer clients. A session writes its journal on them, so there are more than cores.
const WORKERS: usize = 16;
/// How long calls that still run may take after the server was told to stop.
const GRACE: Duration = Duration::from_secs(2);

/// Tells the human something.
pub trait Announcer {
    /// The server listens here.
    fn listens(&self, url: &str) -> Result<(), ErrorBody>;

    /// Something is not as it should be, and the server goes on.
    fn note(&self, text: &str);
}

/// Serves all interfaces until the process is told to end. `listen` overrides the settings.
pub fn run(context: ServiceContext, listen: Option<SocketAddr>, announcer: &dyn Announcer) -> Result<(), ErrorBody> {
    let runtime = runtime::start(Builder::new_multi_thread().worker_threads(WORKERS))?;
    let (paths, settings) = (context.paths.clone(), context.config.serve.clone());
    let secrets = Secrets::of(&paths, &context.config);
    let stopping = CancellationToken::new();
    if let Some(slack) = &settings.slack {
        slack.check().map_err(|reason| {
            ErrorBody::new(Code::BadConfig, format!("`[serve.slack]`: {reason}"))
                .hint("docs/serve-slack.md has all keys")
        })?;
    }
    let _lock = runtime.block_on(StateLock::acquire(&paths.serve()))?;
    let service = SessionService::open(context, stopping.clone())?;
    let served = runtime.block_on(Box::pin(serve(service, &paths, settings, secrets, listen, announcer, stopping)));
    // Calls of tools may still block; what they started goes on without us.
    runtime.shutdown_timeout(GRACE);
    served
}

async fn serve(
    service: Arc<SessionService>,
    paths: &Paths,
    settings: ServeSettings,
    secrets: Secrets,
    listen: Option<SocketAddr>,
    announcer: &dyn Announcer,
    stopping: CancellationToken,
) -> Result<(), ErrorBody> {
    let binding = Binding::open(listen, &settings).await?;
    stop_on_signals(&stopping)?;
    service.start();
    if let Err(ErrorBody { message, hint, .. }) = service.check_model() {
        announcer
            .note(&format!("no question is answered until this is changed: {message}; {}", hint.unwrap_or_default()));
    }
    let config_notes = note_config_problems(&service, announcer, &stopping);
    let tasks = TaskDesk::open(&paths.serve().join("a2a"));
    let tasks = Arc::new(tasks.map_err(|error| io_error("failed to open the tasks of other agents", &error))?);
    tasks.resume(&service);
    announcer.listens(&binding.url())?;
    let slack = settings.slack.clone();
    let state = ServeState::new(Arc::clone(&service), ApiKeys::of(paths), GateClient::new(paths), settings);
    let http = http::serve(binding, routes::router(Arc::new(state), tasks), stopping.clone());
    let slack = async {
        let Some(settings) = slack else { return };
        let (sessions, folder) = (Arc::clone(&service), paths.serve().join("slack"));
        let connector = SlackConnector { sessions, settings, secrets, folder, timing: SlackTiming::default() };
        // The other interfaces go on without it.
        if let Err(error) = connector.run(stopping.clone()).await {
            let ErrorBody { message, hint, .. } = error.into();
            announcer.note(&format!("Slack: {message}; {}", hint.unwrap_or_default()));
        }
    };
    let revoked_keys = ApiKeys::of(paths);
    tokio::join!(http, slack, config_notes, service.end_revoked(&revoked_keys));
    service.stopped().await;
    Ok(())
}

/// Tells of each change of the configuration that is not in force, as long as the server runs.
async fn note_config_problems(service: &SessionService, announcer: &dyn Announcer, stopping: &CancellationToken) {
    let mut problems = service.config_problem();
    loop {
        tokio::select! {
            () = stopping.cancelled() => return,
            changed = problems.changed() => if changed.is_err() { return },
        }
        let problem = problems.borrow_and_update().clone();
        announcer.note(&match problem {
            Some(problem) => format!("the last good configuration stays in force: {problem}"),
            None => "the changed configuration is in force".to_owned(),
        });
    }
}

/// Stops the server when the process is told to end.
fn stop_on_signals(stopping: &CancellationToken) -> Result<(), ErrorBody> {
    for kind in [SignalKind::interrupt(), SignalKind::terminate()] {
        let mut signals = signal(kind).map_err(|error| io_error("failed to listen for signals", &error))?;
        let stopping = stopping.clone();
        #[expect(clippy::disallowed_methods, reason = "ends with the process's runtime")]
        drop(tokio::spawn(async move {
            signals.recv().await;
            stopping.cancel();
        }));
    }
    Ok(())
}

impl From<BindingError> for ErrorBody {
    fn from(error: BindingError) -> Self {
        let (code, hint) = match &error {
            BindingError::NotEncrypted(_) => (
                Code::BadConfig,
                "listen on 127.0.0.1; or set `certificate` and `certificate_key`, or `proxies`, under [serve]",
            ),
            BindingError::HalfTls | BindingError::Pem { .. } | BindingError::Tls(_) => {
                (Code::BadConfig, "correct `certificate` and `certificate_key` under [serve]")
            }
            BindingError::Listen { .. } => (
                Code::Io,
                "maybe another `serve` runs there; choose another port: agent-magic-tool serve --listen=127.0.0.1:0",
            ),
        };
        Self::new(code, chain(&error)).hint(hint)
    }
}
