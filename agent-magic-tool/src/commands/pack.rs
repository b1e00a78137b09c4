//! `pack`: which packs there are and what they lack; switches them on and off, and checks whether they work.

use agent_side::context::Context;
use agent_side::error::Error;
use catalog::Sources;
use catalog::packs::manifest::PackManifest;
use catalog::packs::report::{PackReport, PackState, PackSurvey};
use definition::enabled_files::{self, EnabledFiles};
use ground::config::Config;
use ground::config::secret::SecretPlace;
use protocol::code::{Code, Exit};
use protocol::command_executor::ForeignCommands;
use protocol::nearest::{did_you_mean, nearest};
use serde_json::{Map, Value, json};

use crate::commands::import::hosts;

mod check;
mod enabled;

#[derive(Debug, clap::Subcommand)]
pub(crate) enum PackCommand {
    /// List all packs: those that ship, and those in the folder `packs` of the configuration
    List,
    /// Show one pack: what it needs, its subtools, switches and limits
    Info { name: String },
    /// Load the subtools of a pack from now on, as it is now, and say what it still lacks and what runs unasked
    Enable {
        name: String,
        /// Let secrets that are known go to this host of the pack too: HOST, HOST:PORT or *.DOMAIN; or let a program of it
        /// have them: 'program:COMMAND LINE'
        #[arg(long, value_name = "HOST")]
        allow_host: Vec<SecretPlace>,
    },
    /// No longer load the subtools of a pack
    Disable { name: String },
    /// Run the health check of a pack, or of all that are enabled
    Check { name: Option<String> },
}

pub(crate) fn run(command: &PackCommand, context: &Context) -> Result<Exit, Error> {
    let config = Config::read(&context.paths)?;
    let survey = PackSurvey::new(&context.paths, &config)?;
    match command {
        PackCommand::List => list(&survey, context),
        PackCommand::Info { name } => info(name, &survey, &config, context),
        PackCommand::Enable { name, allow_host } => enable(name, allow_host, &survey, &config, context),
        PackCommand::Disable { name } => disable(name, &survey, &config, context),
        PackCommand::Check { name } => check::run(name.as_deref(), &survey, context),
    }
}

fn list(survey: &PackSurvey, context: &Context) -> Result<Exit, Error> {
    let packs: Vec<_> = survey.names().iter().filter_map(|name| survey.report(name)).collect();
    context.output.json(&packs)?;
    context.output.note("what a pack needs and how to get it: agent-magic-tool pack info NAME");
    Ok(Exit::Ok)
}

fn info(name: &str, survey: &PackSurvey, config: &Config, context: &Context) -> Result<Exit, Error> {
    let mut report = known(name, survey)?;
    // Its definitions are only read if it is enabled, and some mistakes only show beside them.
    let changes = survey.changes(name);
    let enabled = if survey.is_loaded(name) { None } else { Some(survey.with_accepted(name)?) };
    let subtools = match &enabled {
        None => survey.subtools(name),
        Some(enabled) => {
            let found = enabled.report(name).filter(|found| found.state == PackState::Unavailable);
            report = found.map_or(report.clone(), |found| PackReport { enabled: report.enabled, ..found });
            if report.manifest.is_none() {
                report.manifest = enabled.report(name).and_then(|found| found.manifest);
            }
            enabled.subtools(name)
        }
    };
    let mut shown = json!(report);
    if !changes.is_empty() {
        shown["changed"] = json!(changes);
    }
    if let Some(manifest) = &report.manifest {
        shown["needs"] = json!(report.needs);
        for (key, names) in [("hosts", &manifest.hosts), ("uses", &manifest.uses)] {
            if !names.is_empty() {
                shown[key] = json!(names);
            }
        }
        shown["switches"] = json!(switches(manifest, name, config));
        shown["limits"] = json!(manifest.limits);
        shown["health"] = json!(manifest.health);
        shown["executor"] = json!(manifest.executor);
        shown["subtools"] = json!(subtools);
        let unasked = enabled.as_ref().unwrap_or(survey).unasked(name);
        if report.folder.is_some() && !unasked.is_empty() {
            shown["runs_unasked"] = json!(unasked);
        }
    }
    context.output.json(&shown)?;
    Ok(Exit::Ok)
}

/// The switches of a pack, and whether each is on.
fn switches(manifest: &PackManifest, name: &str, config: &Config) -> Map<String, Value> {
    let own = config.packs.get(name).map(|settings| &settings.switches);
    let switches = manifest.switches.iter().map(|(switch, settings)| {
        let on = own.and_then(|own| own.get(switch)).copied().unwrap_or(settings.default);
        let shown = json!({
            "on": on, "default": settings.default, "description": settings.description, "subtools": settings.subtools,
        });
        (switch.clone(), shown)
    });
    switches.collect()
}

fn enable(
    name: &str,
    allowed: &[SecretPlace],
    survey: &PackSurvey,
    config: &Config,
    context: &Context,
) -> Result<Exit, Error> {
    known(name, survey)?;
    let changes = survey.changes(name);
    // Before it is judged: what is enabled is what was read.
    let folder = survey.folder();
    let is_own = survey.report(name).is_some_and(|report| report.folder.is_some());
    let unreadable = |error: std::io::Error| Error::io(&format!("failed to read the pack `{name}`"), &error);
    let files = if is_own { Some(enabled_files::files(&folder.join(name)).map_err(unreadable)?) } else { None };
    let after = survey.with_accepted(name)?;
    let report = known(name, &after)?;
    if report.state == PackState::Unavailable {
        let message = format!("the pack `{name}` cannot be enabled here: {}", report.issues.join("; "));
        return Err(Error::new(Code::BadDefinition, message).hint("correct it, then enable it again"));
    }
    if let Some(files) = files {
        hosts::bind_pack(name, &after, allowed, &Sources::of(&context.paths, config), config, context)?;
        EnabledFiles::record(&folder, name, Some(files))
            .map_err(|error| Error::io("failed to keep what was enabled", &error))?;
    }
    enabled::write(name, true, config, context)?;
    let missing: Vec<_> = report.needs.iter().filter(|need| !need.met).collect();
    let count = after.subtools(name).len();
    let mut shown = json!({
        "name": name, "enabled": true, "state": report.state, "issues": report.issues, "missing": missing,
        "subtools": count,
    });
    if !changes.is_empty() {
        shown["changed"] = json!(changes);
    }
    let unasked = after.unasked(name);
    if is_own && !unasked.is_empty() {
        shown["runs_unasked"] = json!(unasked);
    }
    context.output.json(&shown)?;
    if report.check.is_some() {
        context.output.note(&format!("whether it works: agent-magic-tool pack check {name}"));
    }
    Ok(Exit::Ok)
}

fn disable(name: &str, survey: &PackSurvey, config: &Config, context: &Context) -> Result<Exit, Error> {
    // One whose folder is gone can still be named in the configuration.
    if !config.packs.contains_key(name) {
        known(name, survey)?;
    }
    if name == "shell" && config.shell.others == ForeignCommands::Ask {
        return Err(Error::usage("the pack `shell` is on as long as whole command lines are asked about")
            .hint("change `others = \"ask\"` under [shell] in config.toml"));
    }
    enabled::write(name, false, config, context)?;
    EnabledFiles::record(&survey.folder(), name, None)
        .map_err(|error| Error::io("failed to forget what was enabled", &error))?;
    context.output.json(&json!({"name": name, "enabled": false}))?;
    Ok(Exit::Ok)
}

/// The report of a pack that exists.
fn known(name: &str, survey: &PackSurvey) -> Result<PackReport, Error> {
    survey.report(name).ok_or_else(|| {
        let names = survey.names();
        let near = did_you_mean(nearest(name, names.iter().map(String::as_str), 1));
        let hint = near.map(|near| format!("{near} ")).unwrap_or_default();
        let folder = survey.folder();
        Error::new(Code::NotFound, format!("no pack named `{name}`")).hint(format!(
            "{hint}see the names: agent-magic-tool pack list; a pack of yours is a folder in `{}`",
            folder.display()
        ))
    })
}
