//! The runners: the ways of performing a task.
//!
//! A runner knows nothing about tasks, result files or retries: it gets a fixed [`Invocation`] and a
//! cancellation token, and returns the output or a failure. To add one: a file under `runner/`, a variant
//! of [`Run`], and its arm in the matches below.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ground::base::jq_pool::JqPool;
use ground::base::own_folders::OwnFolders;
use ground::base::template::TemplateValues;
use ground::config::Config;
use ground::config::secret::{HiddenTexts, SecretName, Secrets};
use ground::net::clients::{HttpClients, HttpClientsError};
use ground::task::failure::{Failure, Retry};
use ground::task::fingerprint::{FileRole, Fingerprint};
use ground::task::places::{MAX_PLACES, places_in};
use protocol::caller::{BeyondTrust, Caller};
use protocol::code::Code;
use protocol::data_class::DataClass;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;
use url::Url;

use crate::runner::result_space::ResultSpace;
use protocol::extent::DataExtent;

pub mod agent;
pub mod ask_user;
pub mod attempt_clock;
pub mod builtin;
pub mod database_snapshot;
pub mod delegation;
mod feedback;
mod fields;
mod heard_class;
pub mod http;
mod input_file;
pub mod llm;
pub mod mcp;
pub mod process;
pub mod result_space;
pub mod server_snapshot;
mod spool;
pub mod sql;
pub mod steps;

pub use feedback::{AttemptNews, Feedback, RecordedSignal, ShutdownProbe};
pub use heard_class::HeardClass;
pub use http::ResponseFacts;

/// Exactly one runner and its settings.
#[derive(Debug, Clone, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Run {
    /// An HTTP request.
    Http(Box<http::Http>),
    /// A program.
    Process(process::Process),
    /// A function of the executor.
    Builtin(builtin::Builtin),
    /// A question to the human.
    AskUser(ask_user::AskUser),
    /// One question to a language model.
    Llm(llm::Llm),
    /// A sub-agent with its own catalog and budget.
    Agent(agent::Agent),
    /// A tool of an MCP server.
    Mcp(Box<mcp::Mcp>),
    /// Several subtools, one after another or side by side.
    Steps(steps::Steps),
    /// A statement in a database.
    Sql(Box<sql::Sql>),
}

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
    /// The names that every jq expression of a definition can use.
    pub const VARIABLES: [&'static str; 3] = ["$input", "$task", "$caller"];

    /// The values that templates can use.
    pub fn values(&self) -> TemplateValues {
        TemplateValues::of_names(&self.input, self.shared_names())
    }

    /// The names that templates can use beside the fields of the input, with their values.
    pub fn shared_names(&self) -> impl Iterator<Item = (&'static str, Value)> {
        Self::VARIABLES.map(|name| name.trim_start_matches('$')).into_iter().zip(self.shared())
    }

    /// The values of those of [`Self::VARIABLES`] that `expression` mentions.
    pub fn variables(&self, expression: &str) -> Vec<(&'static str, Value)> {
        if !expression.contains('$') {
            return Vec::new();
        }
        let named = Self::VARIABLES.into_iter().zip(self.shared());
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

    /// The values of [`Self::VARIABLES`], in that order.
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

/// A mistake in a definition.
#[derive(Debug, PartialEq, Eq)]
pub struct DefinitionMistake {
    /// The path of the field within the runner's object, like `query.q`.
    pub place: String,
    pub message: String,
}

impl DefinitionMistake {
    pub fn new(place: impl Into<String>, message: &impl ToString) -> Self {
        Self { place: place.into(), message: message.to_string() }
    }
}

/// The mistakes of a definition, all of them.
#[derive(Debug, Default)]
pub struct DefinitionMistakes(Vec<DefinitionMistake>);

impl DefinitionMistakes {
    /// Keeps the mistake, if there is one.
    pub fn note(&mut self, checked: Result<(), DefinitionMistake>) {
        self.0.extend(checked.err());
    }

    pub fn into_vec(self) -> Vec<DefinitionMistake> {
        self.0
    }
}

/// What a text in the settings of a runner is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TextKind {
    /// It is used as it is written.
    Constant,
    Template,
    /// A template, or a reference to a secret.
    TemplateOrSecret,
    /// A template, or a text whose last word may be a reference to a secret, as in `Token secret:NAME`.
    TemplateOrLastSecret,
    /// A jq expression over the body of a response, with the variables of [`ResponseFacts`].
    ResponseJq,
    /// An expression over the same names as a template.
    Condition,
}

/// The contract of a runner.
pub trait Runner {
    /// Finds the mistakes that the types do not rule out, except in templates. Called when a definition is loaded.
    fn check(&self) -> Vec<DefinitionMistake>;

    /// Returns what the text at `place` in its settings is, such as `query.q` or `argv[0]`.
    fn text_kind(&self, place: &str) -> TextKind;

    /// Returns what [`Runner::perform`] would send, as JSON, with secrets as `secret:NAME`. Has no side effects.
    fn plan(&self, invocation: &Invocation, config: &Config) -> Result<Value, Failure>;

    /// Performs the invocation once.
    ///
    /// When `cancel` fires, the runner stops as soon as it can, leaves nothing running, and returns
    /// [`Code::Cancelled`] with its output so far in `details`, and with [`SideEffect::Possible`] unless
    /// nothing can have happened yet. A runner has no timeout of its own: its caller cancels it.
    ///
    /// [`SideEffect::Possible`]: ground::task::failure::SideEffect::Possible
    fn perform(
        &self,
        invocation: &Invocation,
        context: &RunnerContext,
        cancel: &CancellationToken,
    ) -> impl Future<Output = Result<RunnerOutput, Failure>> + Send;
}

impl Run {
    pub fn name(&self) -> &'static str {
        match self {
            Self::Http(_) => "http",
            Self::Process(_) => "process",
            Self::Builtin(_) => "builtin",
            Self::AskUser(_) => "ask_user",
            Self::Llm(_) => "llm",
            Self::Agent(_) => "agent",
            Self::Mcp(_) => "mcp",
            Self::Steps(_) => "steps",
            Self::Sql(_) => "sql",
        }
    }

    pub fn check(&self) -> Vec<DefinitionMistake> {
        match self {
            Self::Http(http) => http.check(),
            Self::Process(process) => process.check(),
            Self::Builtin(builtin) => builtin.check(),
            Self::AskUser(ask_user) => ask_user.check(),
            Self::Llm(llm) => llm.check(),
            Self::Agent(agent) => agent.check(),
            Self::Mcp(mcp) => mcp.check(),
            Self::Steps(steps) => steps.check(),
            Self::Sql(sql) => sql.check(),
        }
    }

    /// Returns what the text at `place` in the settings of the runner is.
    pub fn text_kind(&self, place: &str) -> TextKind {
        match self {
            Self::Http(http) => http.text_kind(place),
            Self::Process(process) => process.text_kind(place),
            Self::Builtin(builtin) => builtin.text_kind(place),
            Self::AskUser(ask_user) => ask_user.text_kind(place),
            Self::Llm(llm) => llm.text_kind(place),
            Self::Agent(agent) => agent.text_kind(place),
            Self::Mcp(mcp) => mcp.text_kind(place),
            Self::Steps(steps) => steps.text_kind(place),
            Self::Sql(sql) => sql.text_kind(place),
        }
    }

    pub fn plan(&self, invocation: &Invocation, config: &Config) -> Result<Value, Failure> {
        match self {
            Self::Http(http) => http.plan(invocation, config),
            Self::Process(process) => process.plan(invocation, config),
            Self::Builtin(builtin) => builtin.plan(invocation, config),
            Self::AskUser(ask_user) => ask_user.plan(invocation, config),
            Self::Llm(llm) => llm.plan(invocation, config),
            Self::Agent(agent) => agent.plan(invocation, config),
            Self::Mcp(mcp) => mcp.plan(invocation, config),
            Self::Steps(steps) => steps.plan(invocation, config),
            Self::Sql(sql) => sql.plan(invocation, config),
        }
    }

    /// Fails if the invocation is certain to fail, as far as that is known without a secret and without a connection.
    pub fn check_before(&self, invocation: &Invocation, context: &RunnerContext) -> Result<(), Failure> {
        match self {
            Self::Http(http) => http.check_before(invocation, context),
            Self::Process(process) => process.check_before(invocation, context),
            Self::Builtin(builtin) => builtin.files(invocation, context).map(drop),
            Self::Mcp(mcp) => mcp.check_before(invocation, context),
            _ => self.plan(invocation, &context.config).map(drop),
        }?;
        // Each is asked about again when it is sent.
        let mut sent = self.sent_secrets(invocation, &context.config)?.into_iter();
        Ok(sent.try_for_each(|(secret, url)| context.secrets.may_go(&secret, &url))?)
    }

    /// The secrets that it would send, and where to. What only an opened secret names is not among them.
    fn sent_secrets(&self, invocation: &Invocation, config: &Config) -> Result<Vec<(SecretName, Url)>, Failure> {
        Ok(match self {
            Self::Http(http) => http.sent_secrets(invocation, config)?,
            Self::Mcp(mcp) => mcp.sent_secrets(),
            Self::Agent(agent) => agent.sent_secret(invocation, config)?.into_iter().collect(),
            Self::Llm(llm) => llm.sent_secret(invocation, config)?.into_iter().collect(),
            Self::Sql(sql) => sql.sent_secret(config)?.into_iter().collect(),
            Self::Process(_) | Self::Builtin(_) | Self::AskUser(_) | Self::Steps(_) => Vec::new(),
        })
    }

    /// Whether the runner starts other tasks that the definition does not name, and waits for them.
    pub fn delegates(&self) -> bool {
        matches!(self, Self::Agent(_)) || matches!(self, Self::Llm(llm) if llm.calls())
    }

    /// Whether it reads files of this machine that the input or the definition names, besides those of a program.
    pub fn reads_files(&self) -> bool {
        match self {
            Self::Http(http) => http.body.as_ref().is_some_and(http::Body::has_files),
            Self::Process(process) => process.reads_files(),
            Self::Mcp(mcp) => !mcp.files.is_empty(),
            Self::Builtin(builtin) => builtin.reads_files(),
            Self::Sql(_) | Self::Llm(_) | Self::Agent(_) | Self::AskUser(_) | Self::Steps(_) => false,
        }
    }

    /// Whether the runner may wait for another task: those that it delegates, its steps, or a question to the human.
    pub fn waits_for_tasks(&self) -> bool {
        self.delegates() || matches!(self, Self::Mcp(_) | Self::Steps(_))
    }

    /// What it does with which tables, if it asks a database.
    pub fn accessed_tables(&self, invocation: &Invocation, known: &sql::KnownTables) -> Option<sql::AccessedTables> {
        match self {
            Self::Sql(sql) => Some(sql.accessed_tables(invocation, known)),
            _ => None,
        }
    }

    /// The change in a database that it makes, which can be tried.
    pub fn change(&self) -> Option<&sql::Sql> {
        match self {
            Self::Sql(sql) if sql.changes() => Some(sql),
            _ => None,
        }
    }

    /// The subtools that it runs as its steps.
    pub fn steps(&self) -> Option<&steps::Steps> {
        match self {
            Self::Steps(steps) => Some(steps),
            _ => None,
        }
    }

    /// Whether its attempts are safe to repeat because the service knows the task by a key: another task has another one.
    pub fn has_key_of_task(&self) -> bool {
        use http::Method::{Patch, Post};
        matches!(self, Self::Http(http) if http.idempotency_header.is_some() && matches!(http.method, Post | Patch))
    }

    /// Whether one attempt sends a request several times that could change something.
    pub fn repeats_a_change(&self) -> bool {
        matches!(self, Self::Http(http) if http.repeats_a_change())
    }

    /// Returns the files that the invocation would execute, and those that its input names and that it would read, as
    /// far as they are known before.
    pub fn files(&self, invocation: &Invocation, context: &RunnerContext) -> Result<Vec<Fingerprint>, Failure> {
        let mut files = match self {
            Self::Http(http) => http.files(invocation, context)?,
            Self::Process(process) => process.files(invocation, context)?,
            Self::Builtin(builtin) => builtin.files(invocation, context)?,
            Self::Mcp(mcp) => mcp.files(invocation, context)?,
            Self::AskUser(_) | Self::Llm(_) | Self::Agent(_) | Self::Steps(_) | Self::Sql(_) => Vec::new(),
        };
        if let Some((passed, folder)) = self.passed_on(invocation)? {
            files.extend(invocation.places(&passed, &folder)?);
        }
        Ok(files)
    }

    /// The folders from which the program that it starts takes code, as its constants say.
    pub fn code_folders(&self, invocation: &Invocation) -> Result<BTreeSet<PathBuf>, Failure> {
        match self {
            Self::Process(process) => process.code_folders(invocation),
            Self::Mcp(mcp) => Ok(mcp.server.code_folders()),
            _ => Ok(BTreeSet::new()),
        }
    }

    /// What something else of this machine gets, and the folder in which that opens what the paths lead to.
    fn passed_on(&self, invocation: &Invocation) -> Result<Option<(Value, PathBuf)>, Failure> {
        let root = || PathBuf::from("/");
        Ok(match self {
            Self::Steps(_) => {
                let folder = invocation.caller.folder.clone().unwrap_or_else(root);
                Some((Value::Object(invocation.input.clone()), folder))
            }
            Self::Mcp(mcp) if mcp.server.url.is_none() => {
                let folder = mcp.server.folder.as_ref().map_or_else(root, PathBuf::from);
                Some((Value::Object(mcp.filled(invocation)?), folder))
            }
            // A program is looked at with all its arguments; a built-in and an upload open their files themselves.
            Self::Process(_) | Self::Builtin(_) | Self::Http(_) | Self::Mcp(_) => None,
            Self::AskUser(_) | Self::Llm(_) | Self::Agent(_) | Self::Sql(_) => None,
        })
    }

    pub async fn perform(
        &self,
        invocation: &Invocation,
        context: &RunnerContext,
        cancel: &CancellationToken,
    ) -> Result<RunnerOutput, Failure> {
        if invocation.approved.is_some()
            && let Some((passed, folder)) = self.passed_on(invocation)?
        {
            invocation.check_places(&passed, &folder)?;
        }
        match self {
            Self::Http(http) => http.perform(invocation, context, cancel).await,
            Self::Process(process) => process.perform(invocation, context, cancel).await,
            Self::Builtin(builtin) => builtin.perform(invocation, context, cancel).await,
            Self::AskUser(ask_user) => ask_user.perform(invocation, context, cancel).await,
            Self::Llm(llm) => llm.perform(invocation, context, cancel).await,
            Self::Agent(agent) => agent.perform(invocation, context, cancel).await,
            Self::Mcp(mcp) => mcp.perform(invocation, context, cancel).await,
            Self::Steps(steps) => steps.perform(invocation, context, cancel).await,
            Self::Sql(sql) => sql.perform(invocation, context, cancel).await,
        }
    }
}
