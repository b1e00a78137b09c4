//! `doctor`: checks this installation, and shows its paths and sizes.

use std::collections::BTreeSet;
use std::time::SystemTime;

use agent_side::context::Context;
use agent_side::error::Error;
use agent_side::sandbox;
use catalog::packs::report::PackSurvey;
use catalog::{Catalog, Sources, left_out};
use executor::intake::policy::Policy;
use executor::intake::{rights_gaps, targets};
use ground::config::api_keys::ApiKeys;
use ground::config::secret::Secrets;
use ground::config::{self, Config, HookReceiver};
use protocol::code::Exit;
use protocol::error::chain;
use protocol::mailbox::Mailbox;
use protocol::paths::Paths;
use protocol::wording::counted;
use serde::Serialize;
use serde_json::json;

mod catalog_survey;
mod client;
mod confirmation_page;
mod health;
mod hooks;
mod live;
mod packs;
mod programs;
mod repair;

use catalog_survey::CatalogSurvey;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Print every setting with its default, as a config file to start from
    #[arg(long)]
    settings: bool,
    /// Fix what is safe to fix, and report it: make our folders private, remove stale temporary files
    #[arg(long, conflicts_with = "settings")]
    repair: bool,
}

impl Args {
    pub(crate) fn changes_something(&self) -> bool {
        self.repair
    }
}

/// The result of one check.
#[derive(Debug, Serialize)]
struct Check {
    name: &'static str,
    ok: bool,
    message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    found: Vec<String>,
}

impl Check {
    fn good(name: &'static str, message: impl Into<String>) -> Self {
        Self { name, ok: true, message: message.into(), hint: None, found: Vec::new() }
    }

    fn bad(name: &'static str, message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { name, ok: false, message: message.into(), hint: Some(hint.into()), found: Vec::new() }
    }
}

pub(crate) fn run(args: &Args, context: &Context) -> Result<Exit, Error> {
    if args.settings {
        context.output.text(config::DEFAULTS)?;
        return Ok(Exit::Ok);
    }
    let paths = &context.paths;
    let repaired = args.repair.then(|| repair::repair(paths, &context.output));
    let mut checks = Vec::new();
    let config = match Config::read(paths) {
        Ok(config) => {
            let file = paths.config_file();
            checks.push(Check::good(
                "config",
                if file.exists() {
                    format!("`{}` and the defaults", file.display())
                } else {
                    format!("the defaults; there is no `{}`", file.display())
                },
            ));
            config
        }
        Err(error) => {
            checks.push(Check::bad("config", chain(&error), error.hint()));
            Config::default()
        }
    };
    let mailbox = match Mailbox::open(&paths.mailbox) {
        Ok(mailbox) => {
            checks.push(Check::good("mailbox", format!("`{}`", paths.mailbox.display())));
            Some(mailbox)
        }
        Err(error) => {
            let error = Error::from(error);
            checks.push(Check::bad("mailbox", &error.body().message, error.body().hint.clone().unwrap_or_default()));
            None
        }
    };
    if let Some(mailbox) = &mailbox {
        let now = SystemTime::now();
        checks.extend([leftovers(mailbox), health::requests(mailbox, now), health::clock(mailbox, now)]);
    }
    checks.push(health::disks(paths, mailbox.as_ref()));
    checks.push(health::modes(paths));
    checks.push(health::state(paths));
    checks.extend(executor(mailbox.as_ref(), context));
    checks.push(health::record(paths, mailbox.as_ref()));
    checks.extend(mailbox.as_ref().and_then(|mailbox| live::check(mailbox, context)));
    checks.push(client::check(context, mailbox.as_ref()));
    let catalog = Catalog::load(&Sources::of(paths, &config));
    let survey = CatalogSurvey::of(&catalog, &config);
    checks.push(rules(&config, paths));
    checks.push(rights(&config, &catalog, paths));
    checks.push(confirmation_page::check(&config, mailbox.as_ref(), context));
    checks.push(definitions(&survey));
    // The check `secrets` says why the secrets cannot be read.
    let packs = PackSurvey::of_catalog(paths, &config, catalog, survey.problems.clone());
    checks.extend(packs.ok().map(|survey| packs::check(&survey)));
    checks.push(secrets(survey.secrets, &config, context));
    checks.push(hooks::check(&config, paths));
    checks.push(health::switches(paths));
    checks.push(programs::check(&survey.programs));
    checks.push(health::leftovers_of_programs());
    let ok = checks.iter().all(|check| check.ok);
    let mut report = json!({
        "ok": ok,
        "version": env!("CARGO_PKG_VERSION"),
        "checks": checks,
        "sizes": health::sizes(paths),
        "places": {
            "mailbox": paths.mailbox,
            "config_file": paths.config_file(),
            "subtools": Sources::of(paths, &config).folders(),
            "state": paths.state,
            "store": paths.store(),
            "log": paths.log(),
            "cache": paths.cache,
        },
    });
    for (name, log) in [("serve_log", paths.serve_log()), ("agent_log", paths.agent_log())] {
        if log.exists() {
            report["places"][name] = json!(log);
        }
    }
    if let (Some(report), Some(repaired)) = (report.as_object_mut(), repaired) {
        report.insert("repaired".to_owned(), repaired.into());
    }
    context.output.json(&report)?;
    Ok(if ok { Exit::Ok } else { Exit::Failed })
}

/// Foreign files in the mailbox. The executor ignores them.
fn leftovers(mailbox: &Mailbox) -> Check {
    const NAME: &str = "leftovers";
    match mailbox.foreign_files() {
        Ok(found) if found.is_empty() => Check::good(NAME, "no foreign files"),
        Ok(found) => Check {
            found: found.iter().map(|left| format!("`{}`: {}", left.path.display(), left.reason)).collect(),
            ..Check::bad(NAME, "the mailbox contains files that are not ours", "inspect and remove them")
        },
        Err(error) => Check::bad(NAME, format!("failed to read the mailbox: {error}"), "check its owner and mode"),
    }
}

/// Whether an executor is running, and whether this environment would allow one to be started.
fn executor(mailbox: Option<&Mailbox>, context: &Context) -> [Check; 2] {
    const NAME: &str = "executor";
    let obstacle = sandbox::obstacle(&context.paths);
    let sandbox = match &obstacle {
        None => Check::good("sandbox", "an executor can be started from here"),
        Some(obstacle) => Check::good("sandbox", format!("an executor cannot be started from here: {obstacle}")),
    };
    let executor = match (mailbox.and_then(|mailbox| mailbox.executor().ok().flatten()), obstacle) {
        (Some(pid), _) => {
            let version = mailbox.and_then(Mailbox::identity).map(|identity| identity.version).unwrap_or_default();
            let message = format!("process {pid}, version {version}");
            if version == env!("CARGO_PKG_VERSION") {
                Check::good(NAME, message)
            } else {
                let message = format!("{message}; this command is version {}", env!("CARGO_PKG_VERSION"));
                Check::bad(
                    NAME,
                    message,
                    "stop it, and the next task starts the new version: agent-magic-tool executor stop",
                )
            }
        }
        (None, None) => Check::good(NAME, "not running; the next task starts it"),
        (None, Some(obstacle)) => Check::bad(
            NAME,
            format!("not running, and cannot be started from here: {obstacle}"),
            "start it outside the sandbox: agent-magic-tool executor start",
        ),
    };
    [executor, sandbox]
}

/// Whether the rules in the configuration are valid and their samples pass, and which names in them match nothing.
fn rules(config: &Config, paths: &Paths) -> Check {
    const NAME: &str = "rules";
    let unmatched = targets::unmatched(config, paths);
    let found = unmatched.iter().map(|unmatched| format!("`{}`: {}", unmatched.path, unmatched.message)).collect();
    let errors = unmatched.iter().filter(|unmatched| unmatched.is_error).count();
    match Policy::new(config) {
        Ok(_) if errors > 0 => {
            let message = format!("{} of the configuration would protect nothing", counted(errors, "part"));
            let hint = "mend the names, or remove what is about nothing; lines: agent-magic-tool lint";
            Check { found, ..Check::bad(NAME, message, hint) }
        }
        Ok(policy) => Check {
            found,
            ..Check::good(NAME, format!("{} in `confirm.rules`, all samples pass", counted(policy.rules(), "rule")))
        },
        Err(error) => {
            let error = Error::from(error);
            Check::bad(NAME, &error.body().message, error.body().hint.clone().unwrap_or_default())
        }
    }
}

/// What callers may use and lack something for.
fn rights(config: &Config, catalog: &Catalog, paths: &Paths) -> Check {
    const NAME: &str = "rights";
    let found: Vec<_> =
        rights_gaps::of(config, catalog).iter().map(|gap| format!("`{}`: {}", gap.path, gap.message)).collect();
    let is_gone = |profile: &String| !config.profiles.contains_key(profile);
    let keys = ApiKeys::of(paths).list().unwrap_or_default().into_iter();
    let stranded: Vec<_> = keys
        .filter_map(|key| key.profile.filter(is_gone).map(|gone| format!("the API key `{}` has `{gone}`", key.name)))
        .collect();
    if !stranded.is_empty() {
        let message =
            format!("{} whose profile does not exist, and which may use nothing", counted(stranded.len(), "API key"));
        let hint =
            "write that profile, or give the key another one: agent-magic-tool serve key set-profile NAME PROFILE";
        return Check { found: stranded, ..Check::bad(NAME, message, hint) };
    }
    let profiles = counted(config.profiles.len(), "profile");
    if found.is_empty() {
        return Check::good(NAME, profiles);
    }
    // It restricts, as someone may have meant it.
    let message = format!("{profiles}; {} that callers may use cannot work for them", counted(found.len(), "subtool"));
    let hint = "what callers with a profile may use: agent-magic-tool inspect NAME --profile PROFILE";
    Check { found, hint: Some(hint.to_owned()), ..Check::good(NAME, message) }
}

fn definitions(survey: &CatalogSurvey) -> Check {
    let CatalogSurvey { count, problems, .. } = survey;
    let Some(left_out) = left_out(problems) else { return Check::good("subtools", format!("{count} loaded")) };
    let message = format!("{count} loaded, {left_out}");
    let found = problems.iter().map(ToString::to_string).collect();
    Check { found, ..Check::bad("subtools", message, "agent-magic-tool lint") }
}

/// Secrets that a definition or a hook refers to but that have no value.
fn secrets(mut referenced: BTreeSet<String>, config: &Config, context: &Context) -> Check {
    const NAME: &str = "secrets";
    let set: BTreeSet<String> = match Secrets::of(&context.paths, config).names() {
        Ok(names) => names.into_iter().map(|(name, _)| name).collect(),
        Err(error) => {
            let error = Error::from(error);
            return Check::bad(NAME, &error.body().message, error.body().hint.clone().unwrap_or_default());
        }
    };
    for hook in config.hooks.values() {
        if let HookReceiver::Webhook { secret, .. } = &hook.receiver {
            referenced.insert(secret.as_str().to_owned());
        }
    }
    let missing: Vec<_> = referenced.into_iter().filter(|name| !set.contains(name)).collect();
    if missing.is_empty() {
        return Check::good(NAME, format!("{} set", set.len()));
    }
    // Not a failure, since hardly any installation uses every shipped pack.
    let message = format!("{} set; not set, so subtools that use them will fail: {}", set.len(), missing.join(", "));
    Check { hint: Some("agent-magic-tool secret set NAME".to_owned()), ..Check::good(NAME, message) }
}
