//! `lint`: reports errors and weaknesses in discovery JSON.

use std::fs;
use std::path::{Path, PathBuf};

use agent_side::context::Context;
use agent_side::error::Error;
use catalog::listing_cache;
use catalog::routing::{self, RoutingReport};
use catalog::{Catalog, Sources, format};
use executor::intake::policy::Policy;
use executor::intake::{rights_gaps, targets};
use executor::lint::{Finding, Level, LintScope, lint};
use ground::config::{Config, ConfigText};
use protocol::code::{Code, Exit};
use protocol::wording::counted;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Report only on these files or folders, compared with all other definitions [default: the whole search path]
    paths: Vec<PathBuf>,
    /// How to print findings [default: `lines` on a terminal, otherwise `json`]
    #[arg(long, value_name = "lines|json")]
    format: Option<FindingsFormat>,
    /// Print the JSON Schema of discovery JSON, for use in editors
    #[arg(long, conflicts_with_all = ["paths", "format"])]
    schema: bool,
    /// Instead: how many requests of this file find their subtool; one `{"query": "...", "subtools": ["..."]}` a line
    #[arg(long, value_name = "FILE", conflicts_with_all = ["format", "schema"])]
    eval: Option<PathBuf>,
    /// With --eval: fail if fewer than this share of the requests find their subtool first
    #[arg(long, value_name = "PERCENT", requires = "eval", value_parser = clap::value_parser!(u8).range(0..=100))]
    min: Option<u8>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum FindingsFormat {
    /// `FILE:LINE: error: SUBTOOL: PLACE: MESSAGE`
    Lines,
    Json,
}

impl Args {
    /// Whether it would read files that the configuration does not name.
    pub(crate) fn names_files(&self) -> bool {
        !self.paths.is_empty() || self.eval.is_some()
    }
}

pub(crate) fn run(args: &Args, context: &Context) -> Result<Exit, Error> {
    if args.schema {
        context.output.text(&format::file_schema_text())?;
        return Ok(Exit::Ok);
    }
    if let Some(absent) = args.paths.iter().find(|path| !path.exists()) {
        return Err(Error::new(Code::NotFound, format!("no file or folder `{}`", absent.display()))
            .hint("name a file with discovery JSON; without one, all of them are checked"));
    }
    let config = Config::read(&context.paths)?;
    let sources = Sources::of(&context.paths, &config).with(&args.paths);
    if let Some(file) = &args.eval {
        return evaluate(file, args.min, &sources, context);
    }
    let catalog = Catalog::load(&sources);
    let mut findings = lint(&catalog, &config, &LintScope::only(&args.paths));
    if args.paths.is_empty() {
        findings.splice(..0, of_configuration(&config, &catalog, context));
    }
    let count = |level| findings.iter().filter(|finding| finding.level == level).count();
    let (errors, warnings, advice) = (count(Level::Error), count(Level::Warning), count(Level::Advice));
    print(&findings, args.format, context)?;
    let advice = match advice {
        0 => String::new(),
        1 => ", 1 piece of advice".to_owned(),
        advice => format!(", {advice} pieces of advice"),
    };
    context.output.note(&format!("{}, {}{advice}", counted(errors, "error"), counted(warnings, "warning")));
    Ok(if errors == 0 { Exit::Ok } else { Exit::Usage })
}

/// What is wrong with the rules of the configuration, what of it is about nothing, and what is allowed and lacks something.
fn of_configuration(config: &Config, catalog: &Catalog, context: &Context) -> Vec<Finding> {
    let file = context.paths.config_file();
    let text = ConfigText::read(&file).ok();
    let finding = |level, code, place: String, message| Finding {
        level,
        code,
        file: file.display().to_string(),
        line: text.as_ref().and_then(|text| text.line_of(&place)),
        subtool: None,
        place: Some(place),
        message,
    };
    let wrong = Policy::new(config).err();
    let wrong = wrong.map(|error| finding(Level::Error, "bad-rule", error.path(), error.to_string()));
    let unmatched = targets::unmatched(config, &context.paths).into_iter().map(|unmatched| {
        let level = if unmatched.is_error { Level::Error } else { Level::Warning };
        finding(level, "about-nothing", unmatched.path, unmatched.message)
    });
    let gaps = rights_gaps::of(config, catalog).into_iter();
    let gaps = gaps.map(|gap| finding(Level::Warning, "rights-gap", gap.path, gap.message));
    wrong.into_iter().chain(unmatched).chain(gaps).collect()
}

/// Reports how well requests find their subtools, without what was learned on this machine.
fn evaluate(file: &Path, min: Option<u8>, sources: &Sources, context: &Context) -> Result<Exit, Error> {
    let text =
        fs::read_to_string(file).map_err(|error| Error::io(&format!("failed to read `{}`", file.display()), &error))?;
    let requests = routing::parse(&text).map_err(|(line, error)| {
        Error::usage(format!("`{}` line {line}: {error}", file.display()))
            .hint("write one object a line: {\"query\": \"who wrote this line\", \"subtools\": [\"git_blame\"]}")
    })?;
    // Not in the place of the listing for `list`, since other files may be added.
    let cache = tempfile::tempdir().map_err(|error| Error::io("failed to make a temporary folder", &error))?;
    let (report, unknown) = listing_cache::read(sources, &cache.path().join("index"), |listing| {
        let mut unknown = Vec::new();
        for name in requests.iter().flat_map(|request| &request.subtools) {
            if listing.find(name)?.is_none() && !unknown.contains(name) {
                unknown.push(name.clone());
            }
        }
        Ok((routing::evaluate(listing, &requests)?, unknown))
    })
    .map_err(|error| Error::new(Code::Internal, format!("failed to build the index: {error}")))?;
    context.output.json(&report)?;
    if !unknown.is_empty() {
        context.output.note(&format!("no subtool is named so: {}", unknown.join(", ")));
    }
    let RoutingReport { requests, first, among_three, .. } = report;
    let percent = |count: usize| (100 * count).checked_div(requests).unwrap_or(0);
    let (right, near) = (percent(first), percent(among_three));
    context.output.note(&format!(
        "{first} of {requests} requests ({right} %) find their subtool first, {near} % among the best three"
    ));
    let is_enough = min.is_none_or(|min| 100 * first >= usize::from(min) * requests);
    Ok(if is_enough { Exit::Ok } else { Exit::Failed })
}

fn print(findings: &[Finding], format: Option<FindingsFormat>, context: &Context) -> Result<(), Error> {
    let default = if context.output.is_terminal() { FindingsFormat::Lines } else { FindingsFormat::Json };
    match format.unwrap_or(default) {
        // Asked for by name, it is for a program.
        FindingsFormat::Json if format.is_some() => context.output.whole_json(&findings),
        FindingsFormat::Json => context
            .output
            .json_or(&findings, "the findings of one file: agent-magic-tool lint FILE; all: --format json"),
        FindingsFormat::Lines => {
            findings.iter().try_for_each(|finding| context.output.lines(&format!("{}\n", finding.to_line())))
        }
    }
}
