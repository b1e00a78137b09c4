//! `new`: writes the first version of a subtool, from a template or from a `curl` line that was pasted.
//!
//! What it writes loads and has no finding of `lint`. It never overwrites a file.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;

use agent_side::context::Context;
use agent_side::error::Error;
use catalog::drafts::{NewDefinition, Template};
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use ground::config::Config;
use ground::task::name::SubtoolName;
use protocol::code::Exit;
use protocol::paths::create_private;
use serde_json::json;

use crate::commands::import::check_hosts_of_draft;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The name of the subtool, like `weather_now`
    name: String,
    /// How it is performed
    #[arg(long, value_name = "RUNNER", default_value = "http", conflicts_with = "curl", value_parser = template())]
    runner: Template,
    /// A `curl` command line to translate: method, URL, query, headers, authentication, JSON body
    #[arg(long, value_name = "LINE")]
    curl: Option<String>,
    /// Where to write it [default: NAME.json in the first folder of definitions]
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Print it instead of writing a file
    #[arg(long, conflicts_with = "file")]
    print: bool,
}

/// Accepts the names of the templates, and shows them in the help.
fn template() -> impl TypedValueParser<Value = Template> {
    let names = Template::ALL.map(|(name, about, _)| PossibleValue::new(name).help(about));
    PossibleValuesParser::new(names).map(|wanted| {
        let known = Template::ALL.into_iter().find(|(name, ..)| *name == wanted);
        known.expect("only names from this table are accepted").2
    })
}

pub(crate) fn run(args: &Args, context: &Context) -> Result<Exit, Error> {
    let name: SubtoolName =
        args.name.parse().map_err(|error: ground::task::name::InvalidName| Error::usage(error.to_string()))?;
    let (definition, steps) = if let Some(line) = &args.curl {
        let draft = import::curl::of_curl(line, name.as_str());
        let draft = draft.map_err(|error| Error::usage(error.to_string()).hint(error.hint))?;
        (draft.definition, draft.steps)
    } else {
        let NewDefinition { definition, steps } = args.runner.draft();
        (definition, steps)
    };
    let document = json!({(name.as_str()): definition});
    if let (Some(_), Some(file)) = (&args.curl, document.as_object()) {
        check_hosts_of_draft(file, &Config::read(&context.paths)?, context)?;
    }
    let text = format!("{document:#}\n");
    if args.print {
        context.output.text(&text)?;
    } else {
        let path = match &args.file {
            Some(path) => path.clone(),
            None => default_file(&name, context)?,
        };
        write(&path, &text)?;
        context.output.json(&json!({"file": path, "subtool": name.as_str()}))?;
        context.output.note(&format!("check it: agent-magic-tool lint {}", path.display()));
        context.output.note(&format!("see what it would send: agent-magic-tool test {} --dry-run", name.as_str()));
    }
    for step in steps {
        context.output.note(&step);
    }
    Ok(Exit::Ok)
}

fn default_file(name: &SubtoolName, context: &Context) -> Result<PathBuf, Error> {
    let config = Config::read(&context.paths)?;
    let folder = config.catalog.folders.first().cloned().unwrap_or_else(|| PathBuf::from("subtools"));
    Ok(context.paths.config.join(folder).join(format!("{}.json", name.as_str())))
}

fn write(path: &PathBuf, text: &str) -> Result<(), Error> {
    let failed = |error: std::io::Error| match error.kind() {
        std::io::ErrorKind::AlreadyExists => Error::usage(format!("`{}` exists already", path.display()))
            .hint("choose another name, or name another file with --file"),
        _ => Error::io(&format!("failed to write `{}`", path.display()), &error),
    };
    if let Some(folder) = path.parent() {
        create_private(folder).map_err(failed)?;
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).map_err(failed)?;
    file.write_all(text.as_bytes()).map_err(failed)
}
