//! The runners: the ways of performing a task.
//!
//! A runner knows nothing about tasks, result files or retries: it gets a fixed [`Invocation`] and a
//! cancellation token, and returns the output or a failure. CONTRIBUTING.md
//! has the steps to add one.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use definition::run::{Run, VARIABLES};
use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, ready};
use ground::base::jq_pool::JqPool;
use ground::base::own_folders::OwnFolders;
use ground::base::template::TemplateValues;
use ground::config::Config;
use ground::config::secret::{HiddenTexts, SecretName, Secrets};
use ground::task::failure::{Failure, Retry};
use ground::task::feedback::{Feedback, ShutdownProbe};
use ground::task::fingerprint::{FileRole, Fingerprint};
use ground::task::places::{MAX_PLACES, places_in};
use net::clients::{HttpClients, HttpClientsError};
use protocol::caller::{BeyondTrust, Caller};
use protocol::code::Code;
use protocol::data_class::DataClass;
use protocol::extent::DataExtent;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;
use url::Url;

use crate::result_space::ResultSpace;

pub mod agent;
pub mod ask_user;
pub mod attempt_clock;
pub mod builtin;
mod calls_progress;
pub mod database_snapshot;
pub mod delegation;
mod fields;
mod heard_class;
pub mod http;
mod input_file;
mod lease;
pub mod llm;
pub mod mcp;
pub mod process;
pub mod result_space;
pub mod script;
pub mod server_snapshot;
mod spool;
pub mod sql;
pub mod steps;

pub use heard_class::HeardClass;
pub use http::ResponseFacts;

/// What a runner performs: fixed when the task is accepted, and the same for each attempt.
#[derive(Debug, Clone, Default)]
pub struct Invocation {
    /// The task's id, which is also suitable as an idempotency key.
    pub id: String,
    /// The number of this attempt, starting at 1.
    pub attempt: u32,
    pub input: Map<String, Value>,
    /// The caller of the task. Delegated tasks belong to the same session and are one level deeper.
    pub caller: Caller,
    /// The human's answer, if the task is a question to the human.
    pub answer: Option<Value>,
    /// The job that a lost attempt left with a server, to be asked for in place of a new request: a URL, or what the
    /// runner said of it.
    pub job: Option<String>,
    /// Whether the record says that nothing was sent yet; see [`AttemptNews::Unsent`].
    pub is_unsent: bool,
    /// Tells the executor what it must know before the attempt ends.
    pub feedback: Feedback,
    /// The files that a human was shown, if the task was approved: what is executed and read must be these.
    pub approved: Option<Vec<Fingerprint>>,
    /// The digest of the rows that a human was shown, if a change in a database was approved.
    pub approved_change: Option<String>,
    /// Whether it is only tried, for what a human is shown.
    pub is_shown: bool,
    /// The most pages, if all are wanted whatever the definition says is enough.
    pub all_pages: Option<u32>,
    /// The subtool as rules name it; `None` if it is not one that a caller called.
    pub subtool: Option<SubtoolLabel>,
    /// Stands still while a human or another machine is waited for.
    pub clock: attempt_clock::AttemptClock,
    /// How long `clock` may run; `None` without an executor.
    pub time_limit: Option<Duration>,
    pub shutdown: ShutdownProbe,
    /// The class of the data that it got from other tasks.
    pub heard: HeardClass,
    /// The hidden texts of `input`, which must not appear in a file that the runner writes.
    pub hidden: Arc<HiddenTexts>,
}

/// What rules know a subtool by.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SubtoolLabel {
    pub name: String,
    pub tags: Vec<String>,
}

impl Invocation {
    /// The values that templates can use.
    pub fn values(&self) -> TemplateValues {
        TemplateValues::of_names(&self.input, self.shared_names())
    }

    /// The names that templates can use beside the fields of the input, with their values.
    pub fn shared_names(&self) -> impl Iterator<Item = (&'static str, Value)> {
        VARIABLES.map(|name| name.trim_start_matches('$')).into_iter().zip(self.shared())
    }

    /// The values of those of [`VARIABLES`] that `expression` mentions.
    pub fn variables(&self, expression: &str) -> Vec<(&'static str, Value)> {
        if !expression.contains('$') {
            return Vec::new();
        }
        let named = VARIABLES.into_iter().zip(self.shared());
        named.filter(|(name, _)| expression.contains(name)).collect()
    }

    /// Fails if what it got may not go to a model that is trusted with `trust`.
    fn check_trust(&self, model: &str, trust: DataClass) -> Result<(), Failure> {
        match self.heard.most().filter(|class| *class > trust) {
            None => Ok(()),
            Some(class) => {
                Err(BeyondTrust { class, trust }.error(&format!("the input for the model `{model}`")).into())
            }
        }
    }

    /// Where links lead the paths in `passed`, for something that runs in `folder`.
    fn places(&self, passed: &Value, folder: &Path) -> Result<Vec<Fingerprint>, Failure> {
        let paths = checked_places(passed, folder)?.into_iter();
        Ok(paths.map(|path| Fingerprint::of(&path, FileRole::Place, self.caller.uid)).collect())
    }

    /// Fails if links lead a path in `passed` to another place than a human was shown.
    fn check_places(&self, passed: &Value, folder: &Path) -> Result<(), Failure> {
        let shown = self.approved.as_deref().unwrap_or_default();
        if self.places(passed, folder)?.iter().all(|place| shown.iter().any(|shown| shown.is_same_as(place))) {
            return Ok(());
        }
        Err(Failure::drifted("where a path of the input leads changed after the human was asked"))
    }

    /// The values of [`VARIABLES`], in that order.
    fn shared(&self) -> [Value; 3] {
        let mut caller = serde_json::to_value(&self.caller).expect("a caller can be serialized");
        // Serialization omits a depth of 0, but a template may always use it.
        caller["depth"] = self.caller.depth.into();
        [Value::Object(self.input.clone()), json!({"id": self.id}), caller]
    }
}

/// The paths in `passed` that links lead elsewhere, for something that runs in `folder`. Fails if they are too many to be shown.
fn checked_places(passed: &Value, folder: &Path) -> Result<BTreeSet<PathBuf>, Failure> {
    let found = places_in(passed, folder);
    if found.len() > MAX_PLACES {
        let message = format!("the input names more than {MAX_PLACES} paths that symbolic links lead elsewhere");
        return Err(Failure::new(Code::Rejected, message).hint("name fewer of them, or their real paths"));
    }
    Ok(found)
}

/// What all runners share under one configuration. An attempt keeps the context with which it started.
#[derive(Debug)]
pub struct RunnerContext {
    pub config: Config,
    pub secrets: Secrets,
    pub http: Arc<HttpClients>,
    /// The access tokens obtained so far.
    pub tokens: Arc<http::OAuthTokens>,
    /// The folders that no subtool may read.
    pub own_folders: OwnFolders,
    /// The executor's folder for output that is too large for memory or is not text.
    pub spool: PathBuf,
    /// How much disk the results of each caller take.
    pub results: Arc<ResultSpace>,
    /// Evaluates the jq expressions of definitions.
    pub jq: Arc<JqPool>,
    /// The MCP servers that are kept.
    pub mcp: Arc<mcp::McpServers>,
    /// The databases that are kept.
    pub databases: Arc<sql::Databases>,
    /// The rules about what is done in databases, which are asked where that is known; `None` without an executor.
    pub table_rules: Option<Arc<dyn sql::TableRules>>,
    /// How runners have other tasks run; `None` without an executor.
    pub delegation: Option<Arc<delegation::Delegation>>,
}

impl RunnerContext {
    /// The context of a first configuration: evaluates jq in this process, and has no executor to delegate to.
    pub fn new(config: Config, secrets: Secrets, spool: PathBuf) -> Result<Self, HttpClientsError> {
        let http = Arc::new(HttpClients::new(&config)?);
        Ok(Self {
            config,
            secrets,
            http,
            tokens: Arc::default(),
            own_folders: OwnFolders::default(),
            spool,
            results: Arc::default(),
            jq: Arc::new(JqPool::in_process()),
            mcp: Arc::default(),
            databases: Arc::default(),
            table_rules: None,
            delegation: None,
        })
    }

    /// The context of the next configuration. Keeps the access tokens, and the connections unless their settings
    /// changed.
    pub fn with_config(&self, config: Config) -> Result<Self, HttpClientsError> {
        let keeps_clients = self.config.http.private_hosts == config.http.private_hosts
            && self.config.http.user_agent == config.http.user_agent;
        let http = if keeps_clients { Arc::clone(&self.http) } else { Arc::new(HttpClients::new(&config)?) };
        let secrets = self.secrets.with_sources_of(&config);
        Ok(Self {
            config,
            secrets,
            http,
            tokens: Arc::clone(&self.tokens),
            own_folders: self.own_folders.clone(),
            spool: self.spool.clone(),
            results: Arc::clone(&self.results),
            jq: Arc::clone(&self.jq),
            mcp: Arc::clone(&self.mcp),
            databases: Arc::clone(&self.databases),
            table_rules: self.table_rules.clone(),
            delegation: self.delegation.clone(),
        })
    }
}

/// The output of a successful invocation.
#[derive(Debug)]
pub struct RunnerOutput {
    pub data: OutputData,
    /// Fields of the result's `_meta`, like `http_status` or `exit_code`.
    pub meta: Map<String, Value>,
    /// What an HTTP response says beside its body.
    pub facts: Option<ResponseFacts>,
}

/// The data of an output.
#[derive(Debug)]
pub enum OutputData {
    Json(Value),
    /// A file in [`RunnerContext::spool`]; the caller of the runner takes ownership of it.
    File {
        path: PathBuf,
        content_type: String,
        bytes: u64,
    },
}

impl RunnerOutput {
    pub fn json(data: Value) -> Self {
        Self { data: OutputData::Json(data), meta: Map::new(), facts: None }
    }

    #[must_use]
    pub fn with_meta(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.meta.insert(key.to_owned(), value.into());
        self
    }

    /// Says which part of all there is the data is.
    #[must_use]
    pub fn with_extent(mut self, extent: DataExtent) -> Self {
        extent.add_to(&mut self.meta);
        self
    }
}

/// The contract of a runner, implemented for its settings. What it leaves out, a runner does not do.
pub trait Runner: Sync {
    /// Returns what [`Runner::perform`] would send, as JSON, with secrets as `secret:NAME`, and without the runner's name, under which
    /// it is shown. Has no side effects.
    fn plan(&self, invocation: &Invocation, config: &Config) -> Result<Value, Failure>;

    /// Fails if the invocation is certain to fail, as far as that is known without a secret and without a connection.
    fn check_before(&self, invocation: &Invocation, context: &RunnerContext) -> Result<(), Failure> {
        self.plan(invocation, &context.config).map(drop)
    }

    /// The secrets that it would send, and where to. What only an opened secret names is not among them.
    fn sent_secrets(&self, _: &Invocation, _: &Config) -> Result<Vec<(SecretName, Url)>, Failure> {
        Ok(Vec::new())
    }

    /// Returns the files that the invocation would execute, and those that its input names and that it would read, as
    /// far as they are known before.
    fn files(&self, _: &Invocation, _: &RunnerContext) -> Result<Vec<Fingerprint>, Failure> {
        Ok(Vec::new())
    }

    /// The folders from which the program that it starts takes code, as its constants say.
    fn code_folders(&self, _: &Invocation) -> Result<BTreeSet<PathBuf>, Failure> {
        Ok(BTreeSet::new())
    }

    /// What something else of this machine gets, and the folder in which that opens what the paths lead to. A program is
    /// looked at with all its arguments in [`Runner::files`]; a built-in and an upload open their files themselves.
    fn passed_on(&self, _: &Invocation) -> Result<Option<(Value, PathBuf)>, Failure> {
        Ok(None)
    }

    /// Performs the invocation once.
    ///
    /// When `cancel` fires, the runner stops as soon as it can, leaves nothing running, and returns
    /// [`Code::Cancelled`] with its output so far in `details`, and with [`SideEffect::Possible`] unless
    /// nothing can have happened yet. A runner has no timeout of its own: its caller cancels it.
    ///
    /// [`SideEffect::Possible`]: ground::task::failure::SideEffect::Possible
    fn perform<'a>(
        &'a self,
        invocation: &'a Invocation,
        context: &'a RunnerContext,
        cancel: &'a CancellationToken,
    ) -> BoxFuture<'a, Result<RunnerOutput, Failure>>;
}

/// What performs `run`.
fn runner(run: &Run) -> &dyn Runner {
    match run {
        Run::Http(http) => &**http,
        Run::Process(process) => process,
        Run::Builtin(builtin) => builtin,
        Run::AskUser(ask_user) => ask_user,
        Run::Llm(llm) => llm,
        Run::Agent(agent) => agent,
        Run::Mcp(mcp) => &**mcp,
        Run::Steps(steps) => steps,
        Run::Script(script) => script,
        Run::Sql(sql) => &**sql,
    }
}

/// The runner that a definition names, with what holds for all of them.
impl Runner for Run {
    fn plan(&self, invocation: &Invocation, config: &Config) -> Result<Value, Failure> {
        runner(self).plan(invocation, config)
    }

    fn check_before(&self, invocation: &Invocation, context: &RunnerContext) -> Result<(), Failure> {
        runner(self).check_before(invocation, context)?;
        // Each is asked about again when it is sent.
        let mut sent = self.sent_secrets(invocation, &context.config)?.into_iter();
        Ok(sent.try_for_each(|(secret, url)| context.secrets.may_go(&secret, &url))?)
    }

    fn sent_secrets(&self, invocation: &Invocation, config: &Config) -> Result<Vec<(SecretName, Url)>, Failure> {
        runner(self).sent_secrets(invocation, config)
    }

    fn files(&self, invocation: &Invocation, context: &RunnerContext) -> Result<Vec<Fingerprint>, Failure> {
        let mut files = runner(self).files(invocation, context)?;
        if let Some((passed, folder)) = self.passed_on(invocation)? {
            files.extend(invocation.places(&passed, &folder)?);
        }
        Ok(files)
    }

    fn code_folders(&self, invocation: &Invocation) -> Result<BTreeSet<PathBuf>, Failure> {
        runner(self).code_folders(invocation)
    }

    fn passed_on(&self, invocation: &Invocation) -> Result<Option<(Value, PathBuf)>, Failure> {
        runner(self).passed_on(invocation)
    }

    fn perform<'a>(
        &'a self,
        invocation: &'a Invocation,
        context: &'a RunnerContext,
        cancel: &'a CancellationToken,
    ) -> BoxFuture<'a, Result<RunnerOutput, Failure>> {
        if invocation.approved.is_some() {
            let passed_on = self.passed_on(invocation);
            let checked = passed_on.and_then(|passed_on| match passed_on {
                Some((passed, folder)) => invocation.check_places(&passed, &folder),
                None => Ok(()),
            });
            if let Err(failure) = checked {
                return ready(Err(failure)).boxed();
            }
        }
        runner(self).perform(invocation, context, cancel)
    }
}
