//! `inspect`: shows everything about one subtool, from the same catalog that `run` uses.

use std::collections::BTreeMap;

use agent_side::commands::run;
use agent_side::context::Context;
use agent_side::error::Error;
use catalog::{Catalog, CheckOutcome, Sources, Subtool};
use definition::Definition;
use executor::intake::invalid;
use executor::intake::policy::{Policy, PolicyCase, PolicyDecision, PolicyRuling};
use executor::intake::rights_gaps;
use ground::config::Config;
use ground::task::confirmation::Assurance;
use protocol::caller::Caller;
use protocol::code::{Code, Exit};
use protocol::tool_scope::ToolScope;
use serde_json::{Map, Value, json};

use crate::profile;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The subtool; without one, an overview of all: origin, runner, effect, dependencies, privileges
    name: Option<String>,
    /// Show whether a run with this input needs a human's confirmation: a JSON object, `@FILE`, or `-` for standard input
    #[arg(long, short, value_name = "JSON|@FILE|-", requires = "name")]
    input: Option<String>,
    /// Show it as callers with this profile have it, or why they do not: a name in `[profiles]`
    #[arg(long, value_name = "NAME")]
    profile: Option<String>,
}

pub(crate) fn run(args: &Args, context: &Context) -> Result<Exit, Error> {
    let config = Config::read(&context.paths)?;
    let catalog = Catalog::load(&Sources::of(&context.paths, &config));
    let caller = profile::caller(args.profile.as_deref(), &config, context)?;
    let Some(name) = &args.name else { return overview(&catalog, &caller, context) };
    if let (Some(profile), Some(known)) = (&args.profile, catalog.usable(name, &context.caller.tool_scope))
        && let Some(why) = catalog.profiles().exclusion(profile, name, &known.definition)
    {
        return Err(Error::new(
            Code::UnknownSubtool,
            format!("callers with the profile `{profile}` do not have `{name}`: {why}"),
        )
        .hint(format!("a human can change [profiles.{profile}] in config.toml")));
    }
    let tool_scope = &caller.tool_scope;
    let Some(subtool) = catalog.usable(name, tool_scope) else {
        let absent = catalog.absent(name, tool_scope);
        let is_explained = absent.details.get("nearest").is_none();
        if catalog.is_hidden(name) && tool_scope.is_everything() && !is_explained {
            return Err(hidden(name, &config));
        }
        return Err(absent.into());
    };
    let policy = Policy::new(&config)?;
    let input = args.input.as_deref().map(|text| run::read_input(text, name, context)).transpose()?;
    let confirmation = confirmation(&subtool, input, &policy, &caller, context)?;
    let definition = &*subtool.definition;
    let lacks = args.profile.as_ref().map(|profile| rights_gaps::of_subtool(profile, &subtool, &catalog));
    context.output.json(&json!({
        "name": subtool.name,
        "origin": subtool.origin.to_string(),
        "changed_by": subtool.changed_by.as_ref().map(ToString::to_string),
        "hash": subtool.hash,
        "effect": definition.effect_class(),
        "confirmation": confirmation,
        "dry_run": dry_run(definition, &caller, &config),
        "lacks": lacks.filter(|names| !names.is_empty()),
        "definition": definition,
    }))?;
    Ok(Exit::Ok)
}

/// What shows what a run would change, and by which setting it must be shown first; null if nothing does.
fn dry_run(definition: &Definition, caller: &Caller, config: &Config) -> Value {
    if !definition.has_dry_run() {
        return Value::Null;
    }
    let by_another = definition.dry_run.as_ref().and_then(|dry_run| dry_run.subtool.as_ref());
    let shown_by = match by_another {
        Some(subtool) => subtool.as_str(),
        None if definition.run.change().is_some() => "a try that is rolled back",
        None => "its own request",
    };
    let first = config.demands_dry_run(&caller.tool_scope).map(|setting| ("first".to_owned(), setting.into()));
    Value::Object([("shown_by".to_owned(), shown_by.into())].into_iter().chain(first).collect())
}

/// The error for a subtool that the configuration excludes.
fn hidden(name: &str, config: &Config) -> Error {
    let access = &config.access;
    let matching = |patterns: &[String]| {
        let matches = |pattern: &&String| {
            ToolScope::default().narrowed(vec![(*pattern).clone()]).is_ok_and(|scope| scope.covers(name))
        };
        patterns.iter().find(matches).cloned()
    };
    let why = match (matching(&access.deny), matching(&access.allow)) {
        (Some(pattern), _) => format!("`access.deny` excludes it by `{pattern}`"),
        (None, None) => "`access.allow` does not list it".to_owned(),
        (None, Some(_)) => "`access.privileges` or `access.admin` excludes it".to_owned(),
    };
    Error::new(Code::UnknownSubtool, format!("the configuration excludes `{name}`: {why}"))
        .hint("a human can change [access] in config.toml")
}

/// The decision that the executor's policy would make about a run with this input, or with an empty one.
///
/// Grants are known only to the executor: one may approve a run for which this says `asks`.
fn confirmation(
    subtool: &Subtool,
    input: Option<Map<String, Value>>,
    policy: &Policy,
    caller: &Caller,
    context: &Context,
) -> Result<Value, Error> {
    let has_input = input.is_some();
    let mut input = input.unwrap_or_default();
    subtool.schema.normalize(&mut input);
    let input = Value::Object(input);
    let problems = if has_input { subtool.schema.problems(&input) } else { Vec::new() };
    if !problems.is_empty() {
        return Err(invalid(subtool, &problems).into());
    }
    let Value::Object(input) = input else { unreachable!("it was built as an object above") };
    let definition = &*subtool.definition;
    // A sandbox may hide the keys; then it says what holds without one.
    let has_keys = super::approver::key_file(context).and_then(|file| super::approver::read(&file));
    let assurance = if has_keys.is_ok_and(|keys| !keys.is_empty()) { Assurance::Touch } else { Assurance::Page };
    let ruling = policy.decide(PolicyCase { name: &subtool.name, definition, input: &input, caller, assurance });
    let PolicyRuling { decision, why, rule, needs, .. } =
        if caller.read_only { ruling.for_read_only_session(definition) } else { ruling };
    Ok(json!({
        "decision": match decision {
            PolicyDecision::Run => "runs",
            PolicyDecision::Ask => "asks",
            PolicyDecision::Refuse | PolicyDecision::NeedsAssurance => "refused",
        },
        "why": why,
        "rule": rule,
        "min_assurance": needs.or_else(|| (assurance == Assurance::Touch && definition.is_grave()).then_some(assurance)),
        "grantable": definition.grantable,
    }))
}

/// One line of the overview.
fn line(subtool: &Subtool) -> Value {
    let definition = &subtool.definition;
    json!({
        "name": subtool.name,
        "origin": subtool.origin.to_string(),
        "runner": definition.run.name(),
        "effect": definition.effect_class(),
        "depends_on": definition.depends_on,
        "requires": definition.requires,
        "data_class": definition.data_class(),
    })
}

fn overview(catalog: &Catalog, caller: &Caller, context: &Context) -> Result<Exit, Error> {
    let (mut lines, mut problems) = (BTreeMap::new(), catalog.problems().to_vec());
    for (name, checked) in catalog.check() {
        match checked {
            CheckOutcome::Usable(subtool) if catalog.admits(&subtool, &caller.tool_scope) => {
                lines.insert(name, line(&subtool));
            }
            CheckOutcome::Usable(_) | CheckOutcome::Hidden => {}
            CheckOutcome::Broken(found) => problems.extend(found),
        }
    }
    context.output.json_or(&lines.values().collect::<Vec<_>>(), "one of them: agent-magic-tool inspect NAME")?;
    // Who may use a part is told nothing of the rest.
    for problem in problems.into_iter().filter(|_| context.caller.tool_scope.is_everything()) {
        context.output.note(&format!("not loaded: {problem}"));
    }
    Ok(Exit::Ok)
}
