//! `lint`: reports errors and weaknesses in discovery JSON.

use std::path::PathBuf;

use executor::catalog::lint::{Finding, Level, LintScope, lint};
use executor::catalog::{Catalog, Sources, counted, format};
use executor::config::Config;
use protocol::code::{Code, Exit};

use crate::context::Context;
use crate::error::Error;

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
        !self.paths.is_empty()
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
    let findings = lint(&Catalog::load(&sources), &config, &LintScope::only(&args.paths));
    let errors = findings.iter().filter(|finding| finding.level == Level::Error).count();
    print(&findings, args.format, context)?;
    let (errors_said, warnings) = (counted(errors, "error"), counted(findings.len() - errors, "warning"));
    context.output.note(&format!("{errors_said}, {warnings}"));
    Ok(if errors == 0 { Exit::Ok } else { Exit::Usage })
}

fn print(findings: &[Finding], format: Option<FindingsFormat>, context: &Context) -> Result<(), Error> {
    let default = if context.output.is_terminal() { FindingsFormat::Lines } else { FindingsFormat::Json };
    match format.unwrap_or(default) {
        FindingsFormat::Json => context.output.json(&findings),
        FindingsFormat::Lines => {
            findings.iter().try_for_each(|finding| context.output.text(&format!("{}\n", finding.to_line())))
        }
    }
}
