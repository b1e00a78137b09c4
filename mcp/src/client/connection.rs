//! One connection to a server: how it is made, and what it keeps while it lasts.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use reqwest::header::{HeaderName, HeaderValue};
use rmcp::ClientHandler;
use rmcp::model::{
    ClientCapabilities, ClientConfig, CustomRequest, CustomResult, ElicitRequestParams, ElicitResult,
    ElicitationCapability, ErrorCode, ErrorData, ExtensionCapabilities, Implementation, ProgressNotificationParam,
    ProgressToken, ProtocolVersion, SubscriptionFilter, TASKS_EXTENSION_ID,
};
use rmcp::service::{
    ClientInitializeError, ClientLifecycleMode, NotificationContext, Peer, RequestContext, RoleClient, RunningService,
    serve_client_with_lifecycle,
};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::auth::AuthClient;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::task::{AbortOnDropHandle, TaskTracker};

use super::call::question_of;
use super::error::ClientError;
use super::host::{CallHost, CallProgress, HumanAnswer};
use super::lines::{self, Dropped};
use super::sized::SizedClient;
use super::sse::SseTransport;
use super::tools::{self, OfferedTool};

/// How large the buffer between the program and the messages is.
const PIPE_BYTES: usize = 64 << 10;
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// How a connection is made.
#[derive(Debug, Clone, Default)]
pub struct ConnectionSettings {
    /// The largest message that is read, in bytes.
    pub max_bytes: usize,
    pub greeting: Greeting,
}

/// How a client and a server find out which version they speak.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Greeting {
    /// Ask the way of 2026-07-28 first, then the older way.
    #[default]
    Probe,
    /// `server/discover`: servers since 2026-07-28.
    Discover,
    /// The handshake of the versions up to 2025-11-25.
    Initialize,
}

impl Greeting {
    /// The ways to try, in this order, for a server that spoke `version` when it was last seen.
    pub fn attempts(version: Option<&str>) -> &'static [Self] {
        match version {
            // Versions are dates.
            Some(version) if version < ProtocolVersion::V_2026_07_28.as_str() => &[Self::Initialize, Self::Probe],
            Some(_) => &[Self::Discover, Self::Probe],
            None => &[Self::Probe, Self::Initialize],
        }
    }

    fn lifecycle(self) -> ClientLifecycleMode {
        let preferred_versions = vec![ProtocolVersion::V_2026_07_28];
        match self {
            Self::Probe => ClientLifecycleMode::Auto {
                preferred_versions,
                legacy_version: Some(ProtocolVersion::LATEST_WITH_INITIALIZE),
            },
            Self::Discover => ClientLifecycleMode::Discover { preferred_versions },
            Self::Initialize => ClientLifecycleMode::Initialize,
        }
    }
}

/// A server that is reached by HTTP.
#[derive(Debug, Clone)]
pub struct HttpEndpoint {
    pub url: String,
    pub client: reqwest::Client,
    /// Sent with each request.
    pub headers: HashMap<HeaderName, HeaderValue>,
    /// Where the access token of each request comes from, if a human signs in to the server.
    pub authorization: Option<Authorization>,
    pub kind: HttpKind,
}

/// Gives each request the access token of a sign-in, and renews it. Clones share the token.
pub type Authorization = AuthClient<reqwest::Client>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HttpKind {
    Streamable,
    /// The transport of 2024-11-05.
    Sse,
}

/// What a server says of itself.
#[derive(Debug, Clone, PartialEq)]
pub struct ServerDescription {
    /// The protocol version that both speak, such as `2026-07-28`.
    pub protocol: String,
    /// `name`, `version` and whatever else it tells.
    pub info: Value,
    pub instructions: Option<String>,
}

/// A connection to a server.
#[derive(Debug)]
pub struct Connection {
    service: RunningService<RoleClient, Receiver>,
    pub(super) calls: Arc<RunningCalls>,
    pub(super) dropped: Dropped,
    tools_changed: Arc<AtomicBool>,
    pub(super) max_bytes: usize,
    /// Ends the copying from the program, and the subscription to changes.
    _tasks: Vec<AbortOnDropHandle<()>>,
}

impl Connection {
    /// Speaks over the standard output and input of a program.
    pub async fn of_program(
        stdout: impl AsyncRead + Send + Unpin + 'static,
        stdin: impl AsyncWrite + Send + Unpin + 'static,
        settings: &ConnectionSettings,
    ) -> Result<Self, ClientError> {
        let (target, messages) = tokio::io::duplex(PIPE_BYTES);
        let dropped = Dropped::default();
        let relay = TaskTracker::new().spawn(lines::relay(stdout, target, settings.max_bytes, dropped.clone()));
        let transport =
            rmcp::transport::async_rw::AsyncRwTransport::new_client(messages, stdin).with_max_line_length(usize::MAX);
        Self::greet(transport, settings, dropped, vec![AbortOnDropHandle::new(relay)]).await
    }

    /// Speaks to a URL.
    pub async fn of_url(endpoint: HttpEndpoint, settings: &ConnectionSettings) -> Result<Self, ClientError> {
        match endpoint.kind {
            HttpKind::Streamable => {
                let mut config = StreamableHttpClientTransportConfig::with_uri(endpoint.url)
                    .custom_headers(endpoint.headers)
                    .max_concurrent_requests(64);
                config.max_sse_event_size = settings.max_bytes;
                config.max_json_response_size = settings.max_bytes;
                let (dropped, tasks) = (Dropped::default(), Vec::new());
                if let Some(client) = endpoint.authorization {
                    let client = SizedClient { client, dropped: dropped.clone() };
                    let transport = StreamableHttpClientTransport::with_client(client, config);
                    return Self::greet(transport, settings, dropped, tasks).await;
                }
                let client = SizedClient { client: endpoint.client, dropped: dropped.clone() };
                let transport = StreamableHttpClientTransport::with_client(client, config);
                Self::greet(transport, settings, dropped, tasks).await
            }
            HttpKind::Sse => {
                let dropped = Dropped::default();
                let transport = SseTransport::open(endpoint, settings.max_bytes, dropped.clone()).await?;
                let settings = ConnectionSettings { greeting: Greeting::Initialize, ..settings.clone() };
                Self::greet(transport, &settings, dropped, Vec::new()).await
            }
        }
    }

    async fn greet<T, E, A>(
        transport: T,
        settings: &ConnectionSettings,
        dropped: Dropped,
        mut tasks: Vec<AbortOnDropHandle<()>>,
    ) -> Result<Self, ClientError>
    where
        T: rmcp::transport::IntoTransport<RoleClient, E, A>,
        E: std::error::Error + Send + Sync + 'static,
    {
        let (calls, tools_changed) = (Arc::<RunningCalls>::default(), Arc::<AtomicBool>::default());
        let receiver = Receiver { calls: Arc::clone(&calls), tools_changed: Arc::clone(&tools_changed) };
        let greeted: Result<_, ClientInitializeError> =
            serve_client_with_lifecycle(receiver, transport, settings.greeting.lifecycle()).await;
        let service = greeted.map_err(|error| ClientError::of_greeting(&error, settings.max_bytes))?;
        tasks.extend(watch_tools(service.peer(), &tools_changed));
        Ok(Self { service, calls, dropped, tools_changed, max_bytes: settings.max_bytes, _tasks: tasks })
    }

    pub(super) fn peer(&self) -> &Peer<RoleClient> {
        self.service.peer()
    }

    /// Whether the other side has ended it, or does not know it any more.
    pub fn is_closed(&self) -> bool {
        self.dropped.has_lost_session() || self.service.is_closed() || self.peer().is_transport_closed()
    }

    /// The last line that a program printed among its messages without being one.
    pub fn noise(&self) -> Option<String> {
        self.dropped.noise()
    }

    pub fn description(&self) -> ServerDescription {
        let info = self.peer().peer_info();
        let described = info.as_ref();
        ServerDescription {
            protocol: described.map(|info| info.protocol_version.to_string()).unwrap_or_default(),
            info: described.and_then(|info| serde_json::to_value(&info.server_info).ok()).unwrap_or_default(),
            instructions: described.and_then(|info| info.instructions.clone()),
        }
    }

    /// Lists the tools.
    pub async fn tools(&self) -> Result<Vec<OfferedTool>, ClientError> {
        let offers_tools = self.peer().peer_info().is_none_or(|info| info.capabilities.tools.is_some());
        if offers_tools { tools::list(self.peer(), self.max_bytes).await } else { Ok(Vec::new()) }
    }

    /// Whether the server said since the last call of this function that its tools changed.
    pub fn have_tools_changed(&self) -> bool {
        self.tools_changed.swap(false, Ordering::AcqRel)
    }

    /// Ends it in good order, as far as the other side lets us.
    pub async fn close(mut self) {
        drop(self.service.close_with_timeout(CLOSE_TIMEOUT).await);
    }
}

/// Since 2026-07-28 a server tells of changes only to those who listen.
fn watch_tools(peer: &Peer<RoleClient>, changed: &Arc<AtomicBool>) -> Option<AbortOnDropHandle<()>> {
    let info = peer.peer_info()?;
    let tells = info.capabilities.tools.as_ref().is_some_and(|tools| tools.list_changed == Some(true));
    if info.protocol_version.has_initialize() || !tells {
        return None;
    }
    let (peer, changed) = (peer.clone(), Arc::clone(changed));
    let watching = TaskTracker::new().spawn(async move {
        let filter = SubscriptionFilter::builder().tools_list_changed().build();
        let Ok(mut subscription) = peer.listen(filter).await else { return };
        while let Ok(Some(_)) = subscription.next().await {
            changed.store(true, Ordering::Release);
        }
        // Without the stream, changes go unnoticed: assume one.
        changed.store(true, Ordering::Release);
    });
    Some(AbortOnDropHandle::new(watching))
}

/// The calls that are under way on a connection.
#[derive(Default)]
pub(super) struct RunningCalls {
    next: AtomicU64,
    calls: Mutex<BTreeMap<u64, RunningCall>>,
}

#[derive(Clone)]
struct RunningCall {
    host: Arc<dyn CallHost>,
    token: Option<ProgressToken>,
    /// How many questions the server has asked during it.
    questions: u32,
}

impl std::fmt::Debug for RunningCalls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RunningCalls").field("calls", &self.locked().len()).finish_non_exhaustive()
    }
}

impl RunningCalls {
    fn locked(&self) -> MutexGuard<'_, BTreeMap<u64, RunningCall>> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers a call until what is returned is dropped.
    pub(super) fn enter(self: &Arc<Self>, host: Arc<dyn CallHost>) -> EnteredCall {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        self.locked().insert(number, RunningCall { host, token: None, questions: 0 });
        EnteredCall { calls: Arc::clone(self), number }
    }

    /// The call for which the server asks something, with the number of its question. Older versions do not say which
    /// one: it is the oldest.
    fn asked(&self) -> Option<(Arc<dyn CallHost>, u32)> {
        let mut calls = self.locked();
        let call = calls.values_mut().next()?;
        call.questions += 1;
        Some((Arc::clone(&call.host), call.questions))
    }

    fn with_token(&self, token: &ProgressToken) -> Option<Arc<dyn CallHost>> {
        let calls = self.locked();
        calls.values().find(|call| call.token.as_ref() == Some(token)).map(|call| Arc::clone(&call.host))
    }
}

/// A registered call.
#[derive(Debug)]
pub(super) struct EnteredCall {
    calls: Arc<RunningCalls>,
    number: u64,
}

impl EnteredCall {
    pub(super) fn set_token(&self, token: ProgressToken) {
        if let Some(call) = self.calls.locked().get_mut(&self.number) {
            call.token = Some(token);
        }
    }
}

impl Drop for EnteredCall {
    fn drop(&mut self) {
        self.calls.locked().remove(&self.number);
    }
}

/// What a server sends without being asked.
#[derive(Debug)]
struct Receiver {
    calls: Arc<RunningCalls>,
    tools_changed: Arc<AtomicBool>,
}

impl Receiver {
    async fn elicit(&self, params: Value) -> Result<Value, ErrorData> {
        let Some((host, number)) = self.calls.asked() else {
            return Ok(HumanAnswer::Cancel.into_result());
        };
        let question = question_of(format!("asked-{number}"), &params)
            .map_err(|message| ErrorData::invalid_params(message, None))?;
        Ok(host.ask(&question).await.into_result())
    }
}

impl ClientHandler for Receiver {
    async fn create_elicitation(
        &self,
        request: ElicitRequestParams,
        _: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        let params = serde_json::to_value(request).unwrap_or_default();
        let result = self.elicit(params).await?;
        serde_json::from_value(result).map_err(|error| ErrorData::internal_error(error.to_string(), None))
    }

    /// Questions of a form that the SDK does not know arrive here.
    async fn on_custom_request(
        &self,
        request: CustomRequest,
        _: RequestContext<RoleClient>,
    ) -> Result<CustomResult, ErrorData> {
        match (request.method.as_str(), request.params) {
            ("elicitation/create", Some(params)) => Ok(CustomResult(self.elicit(params).await?)),
            (method, _) => Err(ErrorData::new(ErrorCode::METHOD_NOT_FOUND, method.to_owned(), None)),
        }
    }

    async fn on_progress(&self, params: ProgressNotificationParam, _: NotificationContext<RoleClient>) {
        if let Some(host) = self.calls.with_token(&params.progress_token) {
            host.progress(&CallProgress { progress: params.progress, total: params.total, message: params.message });
        }
    }

    async fn on_tool_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.tools_changed.store(true, Ordering::Release);
    }

    fn get_info(&self) -> ClientConfig {
        let elicitation: ElicitationCapability =
            serde_json::from_value(json!({"form": {}, "url": {}})).expect("a capability of the protocol");
        let mut capabilities = ClientCapabilities::default();
        capabilities.elicitation = Some(elicitation);
        capabilities.extensions =
            Some(ExtensionCapabilities::from([(TASKS_EXTENSION_ID.to_owned(), serde_json::Map::new())]));
        let info = Implementation::new("agent-magic-tool", env!("CARGO_PKG_VERSION"));
        ClientConfig::new(capabilities, info).with_protocol_version(ProtocolVersion::LATEST_WITH_INITIALIZE)
    }
}
