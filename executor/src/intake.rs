//! Intake: turns a request into a task, or into a refusal that says how to fix the request.
//!
//! Holds the catalog and keeps it up to date. What happens to an admitted task is up to the dispatcher.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use catalog::absent::needed_is_absent;
use catalog::{Catalog, Sources, SourcesWatch, Subtool, plain_credentials};
use definition::Definition;
use dispatcher::{AppliedRateLimit, RateLimitKey, RecoveryInfo};
use ground::base::credential;
use ground::base::schema::{MAX_PROBLEMS, Problem};
use ground::config::seal;
use ground::config::secret::Secrets;
use ground::config::{Config, RateLimit};
use ground::task::Task;
use ground::task::effect::EffectClass;
use ground::task::name::SubtoolName;
use ground::task::notes::TaskNotes;
use ground::task::question_key::QUESTION;
use jiff::Timestamp;
use protocol::caller::{CallBudget, Caller};
use protocol::code::Code;
use protocol::duration::PositiveDuration;
use protocol::error::ErrorBody;
use protocol::layout::compact_bytes;
use protocol::mailbox::TakenRequest;
use protocol::mailbox::request::{IfNoApprover, InvalidRequest, Request, RunRequest};
use protocol::schedule;
use protocol::task::{State, Step, TaskId};
use protocol::tool_scope::ToolScope;
use runner::delegation::Posted;
use runner::{Invocation, Runner as _, RunnerContext};
use serde_json::{Map, Value, json};
use store::Store;
use tokio::sync::watch;

use crate::attempt::{self, all_pages};
use crate::intake::approver::ApproverPresence;
use crate::intake::dry_runs::{DryRunKey, DryRunUse, DryRuns};
use crate::intake::policy::{PolicyCase, PolicyDecision};
use crate::intake::ruling::ApproverWait;
use crate::intake::settings::{LiveSettings, Settings, SettingsError};

pub mod approver;
pub mod dry_runs;
mod hidden;
mod key_value_words;
mod lookups;
mod parts;
pub mod policy;
mod reason;
mod reassessment;
pub mod rights_gaps;
mod ruling;
pub mod settings;
pub mod targets;
/// How long the calls for a question are counted. After a restart those are that have not ended, or as long as rate limits
/// look back.
const QUESTION_WINDOW: PositiveDuration = PositiveDuration::from_secs(24 * 60 * 60);

/// Adds to the plan of a dry run what it lacks, when it would start, and whether it would read all pages.
fn complete_plan(plan: &mut Value, missing: Option<ErrorBody>, run_at: Option<Timestamp>, all_pages: bool) {
    if let Some(missing) = missing {
        plan["needs"] = json!({"message": missing.message, "hint": missing.hint});
    }
    if let Some(at) = run_at {
        plan["run_at"] = at.to_string().into();
    }
    if all_pages {
        plan["all_pages"] = true.into();
    }
}

/// Fails if not all pages of the list that `subtool` returns may be read in one call.
fn check_all_pages(subtool: &Subtool, decision: PolicyDecision, config: &Config) -> Result<(), ErrorBody> {
    all_pages::check(&subtool.name, &subtool.definition, config).map_err(|failure| failure.error)?;
    match decision {
        PolicyDecision::Ask | PolicyDecision::NeedsAssurance => Err(all_pages::needs_human(&subtool.name).error),
        PolicyDecision::Run | PolicyDecision::Refuse => Ok(()),
    }
}

#[cfg(test)]
mod tests;
mod trust;

/// Checks requests against the catalog and the policy.
#[derive(Debug)]
pub struct Intake {
    /// Shared with everything that obeys the configuration.
    settings: watch::Sender<Arc<Settings>>,
    definitions_watch: SourcesWatch,
    /// Shared with the page.
    catalog: watch::Sender<Arc<Catalog>>,
    /// Identifies this store: an approval given for another store is not valid here.
    instance: String,
    approver: Arc<ApproverPresence>,
    /// The folder with the sections of the system prompt.
    prompts: PathBuf,
    /// By the clients of API keys that have one, the profile that each has now.
    key_profiles: BTreeMap<String, String>,
    dry_runs: DryRuns,
}

/// What a valid request to run a subtool becomes.
#[derive(Debug)]
pub enum ValidRun {
    Task {
        task: Box<Task>,
        definition: Arc<Definition>,
        dry_run: DryRunUse,
    },
    /// What a dry run would send.
    Plan {
        tool: SubtoolName,
        plan: Value,
        /// What shows what it would change, if the subtool has that.
        dry_run: Option<Box<DryRunOrder>>,
    },
}

/// A dry run to be performed: shows what a call would change, and is no task.
#[derive(Debug)]
pub struct DryRunOrder {
    /// The task that the call would be.
    pub task: Task,
    pub definition: Arc<Definition>,
    pub key: DryRunKey,
}

impl Intake {
    /// `catalog` holds the definitions of the settings' sources, and `definitions_watch` was started before it was
    /// loaded.
    pub fn new(
        settings: Settings,
        definitions_watch: SourcesWatch,
        catalog: watch::Sender<Arc<Catalog>>,
        instance: String,
        approver: Arc<ApproverPresence>,
    ) -> Self {
        let settings = watch::Sender::new(Arc::new(settings));
        Self {
            settings,
            definitions_watch,
            catalog,
            instance,
            approver,
            prompts: PathBuf::new(),
            key_profiles: BTreeMap::new(),
            dry_runs: DryRuns::default(),
        }
    }

    /// Sets the folder with the sections of the system prompt.
    #[must_use]
    pub fn with_prompts(mut self, folder: PathBuf) -> Self {
        self.prompts = folder;
        self
    }

    /// An intake without an executor, with the definitions and secrets in `folder`.
    pub fn alone(config: Config, folder: &Path, instance: &str) -> Result<Self, SettingsError> {
        let sources = Sources::new(&config, folder, None);
        let secrets = Secrets::new(folder.join("secrets"), config.secrets.clone());
        let catalog = watch::Sender::new(Arc::new(Catalog::load(&sources)));
        let context = RunnerContext::new(config, secrets, folder.to_owned())?;
        let settings = Settings::new(1, sources, context)?;
        Ok(Self::new(settings, SourcesWatch::none(), catalog, instance.to_owned(), Arc::default()))
    }

    /// Reloads the catalog if any of its files changed. Returns whether it did.
    pub fn refresh(&mut self) -> bool {
        let settings = self.settings();
        let may_have_changed =
            self.definitions_watch.may_have_changed(&settings.sources) || self.catalog.borrow().is_stale();
        may_have_changed && self.reload_if_changed(&settings.sources)
    }

    /// Looks at every file, and reloads the catalog if any of them changed. Returns whether it did.
    fn reload_if_changed(&mut self, sources: &Sources) -> bool {
        self.definitions_watch.restart(sources);
        let current = Arc::clone(&self.catalog.borrow());
        if !current.is_stale() && sources.stamp() == *current.stamp() {
            return false;
        }
        let next = Catalog::load(sources);
        if next.is_stale() {
            tracing::warn!("definitions could not be read, since descriptors or memory ran out; it is tried again");
            current.mark_stale();
            return false;
        }
        self.catalog.send_replace(Arc::new(next));
        true
    }

    /// Puts `settings` in force, with the catalog of their sources.
    pub fn apply(&mut self, settings: Settings) {
        let settings = Arc::new(settings);
        self.settings.send_replace(Arc::clone(&settings));
        self.reload_if_changed(&settings.sources);
    }

    /// Sets which profile the client of each API key has now. Returns whether that is new.
    pub fn set_key_profiles(&mut self, profiles: BTreeMap<String, String>) -> bool {
        let is_new = self.key_profiles != profiles;
        self.key_profiles = profiles;
        is_new
    }

    /// The scope of a caller who has a task already: that of then, and the profile that its key has now.
    fn scope_now(&self, caller: &Caller) -> ToolScope {
        let profile = caller.api_key().and_then(|client| self.key_profiles.get(client));
        match profile.map(|profile| caller.tool_scope.within_profile(profile)) {
            None => caller.tool_scope.clone(),
            Some(scope) => scope.unwrap_or_else(|_| ToolScope::nothing()),
        }
    }

    /// Notes that a caller was shown what a call would change.
    pub fn note_dry_run(&mut self, key: DryRunKey, now: Timestamp) {
        self.dry_runs.note(key, now);
    }

    /// Notes that a task succeeded, which may have been one that only tries a change.
    pub fn note_success(&mut self, id: TaskId, now: Timestamp) {
        self.dry_runs.on_success(id, now);
    }

    /// Returns the refusal of a new task that may only be made after a dry run.
    pub fn check_shown(&mut self, id: TaskId, dry_run: DryRunUse, now: Timestamp) -> Result<(), ErrorBody> {
        match dry_run {
            DryRunUse::None => Ok(()),
            DryRunUse::Is(key) => {
                self.dry_runs.on_try(id, key);
                Ok(())
            }
            DryRunUse::Needs(key, _) if self.dry_runs.has(key, now) => Ok(()),
            DryRunUse::Needs(_, error) => Err(*error),
        }
    }

    /// The settings in force.
    pub fn settings(&self) -> Arc<Settings> {
        Arc::clone(&self.settings.borrow())
    }

    /// Always holds the settings in force.
    pub fn live_settings(&self) -> LiveSettings {
        LiveSettings::new(self.settings.subscribe())
    }

    /// Returns a receiver that always holds the current catalog.
    pub fn catalog(&self) -> watch::Receiver<Arc<Catalog>> {
        self.catalog.subscribe()
    }

    /// Returns the definition of `task`, unless it changed since the task was accepted.
    pub fn definition_of(&self, task: &Task) -> Option<Arc<Definition>> {
        let catalog = self.catalog.borrow();
        let subtool = catalog.get(task.tool.as_str())?;
        (subtool.hash == task.definition_hash).then(|| Arc::clone(&subtool.definition))
    }

    /// Returns what the dispatcher needs to recover a task that an earlier executor left open. `store` is read for
    /// the time of its last start.
    pub fn recovery_info(&self, task: &Task, store: &dyn Store, now: Timestamp) -> RecoveryInfo {
        let definition = self.definition_of(task);
        let reassessed = self.reassess_recovered(task, definition.as_deref(), now);
        let mut sent = Map::new();
        if task.state == State::Running {
            if let Some(definition) = &definition {
                let invocation = attempt::invocation(task, task.input.clone());
                sent = attempt::sent(definition, &invocation, self.settings().config());
                let (catalog, scope) = (self.catalog.borrow(), &task.caller.tool_scope);
                let is_read = |name: &&SubtoolName| {
                    catalog
                        .usable(name.as_str(), scope)
                        .is_some_and(|other| other.definition.effect_class() == EffectClass::Read)
                };
                let checks: Vec<_> = definition.depends_on.iter().filter(is_read).map(SubtoolName::as_str).collect();
                if !checks.is_empty() {
                    sent.insert("check_with".to_owned(), checks.into());
                }
            }
            let started = store.steps(task.id).ok().and_then(|steps| {
                steps.into_iter().rev().find(|recorded| recorded.step == Step::Start).map(|recorded| recorded.at)
            });
            sent.extend(started.map(|at| ("started_at".to_owned(), at.to_string().into())));
        }
        RecoveryInfo { definition, reassessed, sent, had_ended: false }
    }

    /// The rate limits of a call: those of the subtool, which the configuration can replace, of its tags, of the
    /// caller's profiles, and of the question that it is made for.
    pub fn rate_limits(&self, tool: &SubtoolName, caller: &Caller) -> Vec<AppliedRateLimit> {
        let (settings, catalog) = (self.settings(), self.catalog.borrow());
        let configured = &settings.config().rate_limits;
        let definition = catalog.get(tool.as_str()).map(|subtool| Arc::clone(&subtool.definition));
        let own =
            configured.tools.get(tool.as_str()).copied().or(definition.as_ref().and_then(|known| known.rate_limit));
        let own = own.map(|limit| AppliedRateLimit::new(RateLimitKey::Tool(tool.clone()), limit));
        let tags = definition.as_ref().map(|known| known.tags.as_slice()).unwrap_or_default().iter();
        let of_tag = |tag: &String| {
            let limit = *configured.tags.get(tag)?;
            Some(AppliedRateLimit::new(RateLimitKey::Tag(tag.clone()), limit))
        };
        let of_profiles = caller.tool_scope.profiles().flat_map(|name| {
            let limits = settings.config().profiles.get(name).map(|profile| profile.rate_limits.as_slice());
            let key = |limit: &RateLimit| RateLimitKey::Profile { name: name.to_owned(), per: limit.per };
            limits.unwrap_or_default().iter().map(move |limit| AppliedRateLimit::new(key(limit), *limit))
        });
        let of_question = caller.call_budget.as_ref().map(|CallBudget { question, calls }| {
            let limit = RateLimit { calls: *calls, per: QUESTION_WINDOW, auto_disable: false };
            AppliedRateLimit::new(RateLimitKey::Question(question.clone()), limit)
        });
        own.into_iter().chain(tags.filter_map(of_tag)).chain(of_profiles).chain(of_question).collect()
    }

    /// The longest window of any rate limit, at least.
    pub fn longest_window(&self) -> Option<Duration> {
        let (settings, catalog) = (self.settings(), self.catalog.borrow());
        let configured = &settings.config().rate_limits;
        let of_profiles = settings.config().profiles.values().flat_map(|profile| &profile.rate_limits);
        let limits = configured.tools.values().chain(configured.tags.values()).chain(of_profiles);
        limits.map(|limit| limit.per.get()).chain(catalog.longest_window()).max()
    }

    /// Checks a request to run a subtool.
    pub fn run(&self, id: TaskId, caller: Caller, mut run: RunRequest, now: Timestamp) -> Result<ValidRun, ErrorBody> {
        let (settings, catalog) = (self.settings(), Arc::clone(&self.catalog.borrow()));
        // The built-in question, and the keys of parts, belong to tasks that run, not to their callers.
        let posted = || settings.runner_context.delegation.as_ref().and_then(|own| own.posted_as(id));
        let is_theirs = run.tool != QUESTION || posted() == Some(Posted::Question);
        parts::check_key(run.idempotency_key.as_deref(), || posted().is_some_and(|it| it != Posted::OfHuman))?;
        catalog.profiles().check(&caller.tool_scope)?;
        // A task of an API key may have begun before its rights were narrowed: what it calls goes by those of now.
        let caller = Caller { tool_scope: self.scope_now(&caller), ..caller };
        let caller = settings.within_profiles(caller);
        let found = catalog.usable(&run.tool, &caller.tool_scope).filter(|_| is_theirs);
        let subtool = found.ok_or_else(|| catalog.absent(&run.tool, &caller.tool_scope))?;
        if let Some(error) = lacking_dependency(&subtool.definition, &catalog, &caller) {
            return Err(error);
        }
        parts::check_depth(&run.tool, &subtool.definition, &caller, settings.config())?;
        if let Some(error) = trust::beyond_trust(&run.tool, &subtool.definition, &caller) {
            return Err(error);
        }
        let mut input = std::mem::take(&mut run.input);
        key_value_words::read(&run.words, &subtool.schema, &mut input)?;
        subtool.schema.normalize(&mut input);
        hidden::check_no_token(&input)?;
        let problems = hidden::problems(&subtool, &input, settings.runner_context.secrets.seal());
        if !problems.is_empty() {
            return Err(invalid(&subtool, &problems));
        }
        settings.sources.check_privileges(&subtool.definition, &input, &caller.tool_scope)?;
        reason::check(&subtool, run.reason.as_deref())?;
        let dry_run_key = DryRunKey::of(&subtool, &input, &caller);
        let case = PolicyCase {
            name: &subtool.name,
            definition: &subtool.definition,
            input: &input,
            caller: &caller,
            assurance: self.approver.assurance(),
        };
        let ruling = settings.policy.decide_for_session(case);
        let decision = ruling.decision;
        if run.all_pages {
            check_all_pages(&subtool, decision, settings.config())?;
        }
        let run_at = run.at.map(|at| schedule::check(at, now)).transpose()?;
        // From here on, only an attempt opens the hidden values.
        hidden::hide(&subtool, &mut input, settings.runner_context.secrets.seal())?;
        let wait = ApproverWait::of(&caller, run.if_no_approver);
        let mut invocation = Invocation {
            id: id.to_string(),
            attempt: 1,
            input: input.clone(),
            caller: caller.clone(),
            ..Invocation::default()
        };
        let refusal = self.refusal(&subtool, wait, ruling.clone(), &invocation);
        if run.dry_run {
            invocation.input = seal::shown(&input);
            let mut plan = planned(&subtool, &run, &invocation, refusal, &settings)?;
            plan["confirmation"] = if decision == PolicyDecision::Run { Value::Null } else { ruling.why.into() };
            complete_plan(&mut plan, self.missing(&subtool.definition), run_at, run.all_pages);
            let dry_run = dry_run_key.filter(|_| !run.plan_only).map(|key| {
                let (tool, definition) = (subtool.name.clone(), Arc::clone(&subtool.definition));
                let effect = definition.effect_class();
                let task = Task::accepted(id, tool, subtool.hash.clone(), effect, input, caller, now);
                Box::new(DryRunOrder { task, definition, key })
            });
            return Ok(ValidRun::Plan { tool: subtool.name.clone(), plan, dry_run });
        }
        dry_runs::check_is_no_dry_run(&subtool, &input)?;
        // No human is asked about a call that can only fail.
        let missing = || self.missing(&subtool.definition).filter(|_| decision == PolicyDecision::Ask);
        if let Some(error) = refusal.or_else(missing) {
            return Err(error);
        }
        // A human who runs it from the page sees what it is.
        let dry_run_key = dry_run_key.filter(|_| posted() != Some(Posted::OfHuman));
        let dry_run = DryRunUse::of(dry_run_key, &subtool, &input, &caller, settings.config());
        // A task keeps its input too, however it ends.
        let runner = &settings.runner_context;
        runner
            .results
            .settle(id, &caller, compact_bytes(&input), &settings.config().executor)
            .map_err(|it| it.error)?;
        let (tool, hash) = (subtool.name.clone(), subtool.hash.clone());
        let class = run.data_class.map(|class| class.max(subtool.definition.data_class()));
        let data_class = class.or(subtool.definition.data_class);
        let idempotency_key = run.idempotency_key.map(|key| caller.own_key(key));
        // What it calls must not wait for a human either.
        let is_unattended = run.if_no_approver == IfNoApprover::Fail && subtool.definition.run.waits_for_tasks();
        let caller = Caller { unattended: caller.unattended || is_unattended, ..caller };
        let mut task = Task {
            idempotency_key,
            run_at,
            notes: TaskNotes {
                found_by: run.found_by,
                input_class: run.data_class,
                data_class,
                all_pages: run.all_pages,
                ..TaskNotes::of_reason(run.reason.as_deref())
            },
            ..Task::accepted(id, tool, hash, subtool.definition.effect_class(), input, caller, now)
        };
        if decision == PolicyDecision::Ask {
            let confirmation = self.confirmation(&task, &subtool.definition, (&ruling, wait), run.reason, now);
            task.confirmation = Some(Box::new(confirmation));
        }
        Ok(ValidRun::Task { task: Box::new(task), definition: Arc::clone(&subtool.definition), dry_run })
    }
}

/// What a dry run of this call says, without what a human decides about it.
fn planned(
    subtool: &Subtool,
    run: &RunRequest,
    invocation: &Invocation,
    refusal: Option<ErrorBody>,
    settings: &Settings,
) -> Result<Value, ErrorBody> {
    let performed = &subtool.definition.run;
    let mut plan = match performed.plan(invocation, settings.config()) {
        // It names other subtools, of which this caller may have none.
        Ok(_) if !invocation.caller.tool_scope.is_everything() && performed.names_subtools() => {
            json!({performed.name(): "not shown to a caller who has a part of all subtools"})
        }
        Ok(plan) => json!({performed.name(): plan}),
        Err(failure) => return Err(refusal.unwrap_or(failure.error)),
    };
    // Only then: what merely looks like a credential may be what the caller wants to see.
    if !plain_credentials::places(performed).is_empty() {
        credential::mask_value(&mut plan);
    }
    match refusal {
        Some(error) => Err(error.detail("would_send", plan)),
        None => Ok(json!({
            "tool": run.tool,
            "input": invocation.input,
            "dry_run": true,
            "confirmation": null,
            "would_send": plan,
        })),
    }
}

/// Why a caller cannot use a subtool that needs others: it does not have one of them.
fn lacking_dependency(definition: &Definition, catalog: &Catalog, caller: &Caller) -> Option<ErrorBody> {
    let scope = &caller.tool_scope;
    let has = |name: &SubtoolName| catalog.usable(name.as_str(), scope).is_some();
    let is_complete = scope.is_everything() || definition.depends_on.iter().all(has);
    (!is_complete).then(needed_is_absent)
}

/// Parses a request from the mailbox. The user id always comes from the mailbox, never from the request itself.
pub fn parse(taken: &TakenRequest) -> Result<Request, ErrorBody> {
    let bytes = taken.bytes.as_ref().map_err(|error| match error.kind() {
        io::ErrorKind::FileTooLarge => {
            ErrorBody::new(Code::RequestTooLarge, format!("the request is too large: {error}"))
                .hint("put large data into a file and pass its path")
        }
        _ => ErrorBody::new(Code::BadRequest, format!("failed to read the request: {error}")),
    })?;
    let request = Request::parse(bytes).map_err(|error| {
        let body = ErrorBody::new(Code::BadRequest, error.to_string());
        match error {
            InvalidRequest::Version(_) => {
                body.hint("the command and the executor have different versions: agent-magic-tool executor stop")
            }
            InvalidRequest::Malformed(_) => body,
        }
    })?;
    Ok(Request { caller: Caller { uid: taken.uid, ..request.caller }, ..request })
}

/// Returns the error for an input with these problems, of which there is at least one.
pub fn invalid(subtool: &Subtool, problems: &[Problem]) -> ErrorBody {
    let first = &problems[0];
    let location = if first.pointer.is_empty() { "the input".to_owned() } else { format!("`{}`", first.pointer) };
    let more = match problems.len() {
        1 => String::new(),
        MAX_PROBLEMS.. => format!("; {MAX_PROBLEMS} mistakes or more"),
        count => format!("; {count} mistakes in all"),
    };
    let message = format!("the input of `{}` is wrong at {location}: {first}{more}", subtool.name);
    // The message has those of the first problem.
    let mut said = vec![first.fields.as_deref()];
    let mut listed = serde_json::to_value(problems).expect("problems can be serialized");
    for (problem, listed) in problems.iter().zip(listed.as_array_mut().into_iter().flatten()) {
        if problem.fields.is_some() && !said.contains(&problem.fields.as_deref()) {
            listed["problem"] = problem.to_string().into();
            said.push(problem.fields.as_deref());
        }
    }
    ErrorBody::new(Code::InvalidInput, message)
        .hint(format!("fix the fields in `problems`; the schema: agent-magic-tool list tools {}", subtool.name))
        .detail("problems", listed)
}
