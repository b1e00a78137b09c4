//! How a subtool is performed: the settings of exactly one runner, and their mistakes.
//!
//! What performs each of them is in `runner/src/`; CONTRIBUTING.md has the steps to add one.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub mod agent;
pub mod ask_user;
pub mod builtin;
pub mod http;
pub mod llm;
pub mod mcp;
pub mod process;
pub mod script;
pub mod sql;
pub mod steps;

/// The variables that every jq expression of a definition may use.
pub const VARIABLES: [&str; 3] = ["$input", "$task", "$caller"];
/// Those that expressions over a response may use besides.
pub const RESPONSE_VARIABLES: [&str; 2] = ["$status", "$headers"];

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
    /// A program that calls other subtools.
    Script(script::Script),
    /// A statement in a database.
    Sql(Box<sql::Sql>),
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

/// The settings of one runner.
trait Settings {
    /// Finds the mistakes that the types do not rule out, except in templates. Called when a definition is loaded.
    fn check(&self) -> Vec<DefinitionMistake>;

    /// Returns what the text at `place` in the settings is, such as `query.q` or `argv[0]`.
    fn text_kind(&self, place: &str) -> TextKind;
}

impl Run {
    fn settings(&self) -> &dyn Settings {
        match self {
            Self::Http(http) => &**http,
            Self::Process(process) => process,
            Self::Builtin(builtin) => builtin,
            Self::AskUser(ask_user) => ask_user,
            Self::Llm(llm) => llm,
            Self::Agent(agent) => agent,
            Self::Mcp(mcp) => &**mcp,
            Self::Steps(steps) => steps,
            Self::Script(script) => script,
            Self::Sql(sql) => &**sql,
        }
    }

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
            Self::Script(_) => "script",
            Self::Sql(_) => "sql",
        }
    }

    /// Finds the mistakes that the types do not rule out, except in templates.
    pub fn check(&self) -> Vec<DefinitionMistake> {
        self.settings().check()
    }

    /// Returns what the text at `place` in the settings of the runner is.
    pub fn text_kind(&self, place: &str) -> TextKind {
        self.settings().text_kind(place)
    }

    /// Whether the runner starts other tasks that the definition does not name, and waits for them.
    pub fn delegates(&self) -> bool {
        matches!(self, Self::Agent(_)) || matches!(self, Self::Llm(llm) if llm.calls())
    }

    /// Whether it names the subtools that it uses, which its caller may not have.
    pub fn names_subtools(&self) -> bool {
        match self {
            Self::Steps(_) => true,
            Self::Script(script) => !script.runs_any_program(),
            Self::Agent(agent) => agent.url.is_none() && agent.names_subtools(),
            Self::Llm(llm) => llm.calls(),
            _ => false,
        }
    }

    /// Whether it reads files of this machine that the input or the definition names, besides those of a program.
    pub fn reads_files(&self) -> bool {
        match self {
            Self::Http(http) => http.body.as_ref().is_some_and(http::Body::has_files),
            Self::Process(process) => process.reads_files(),
            Self::Mcp(mcp) => !mcp.files.is_empty(),
            Self::Builtin(builtin) => builtin.reads_files(),
            Self::Sql(_) | Self::Llm(_) | Self::Agent(_) | Self::AskUser(_) | Self::Steps(_) | Self::Script(_) => false,
        }
    }

    /// Whether the runner may wait for another task: those that it delegates, its steps, or a question to the human.
    pub fn waits_for_tasks(&self) -> bool {
        self.delegates() || matches!(self, Self::Mcp(_) | Self::Steps(_) | Self::Script(_))
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

    /// Whether all attempts share the tasks of what it runs, each of which has an effect class of its own.
    pub fn shares_its_tasks(&self) -> bool {
        matches!(self, Self::Steps(_) | Self::Script(_))
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
}
