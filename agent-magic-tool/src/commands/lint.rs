//! `lint`: reports errors and weaknesses in discovery JSON.

use std::path::PathBuf;

use executor::catalog::lint::{Level, lint};
use executor::catalog::{Catalog, Sources, format};
use executor::config::Config;
use protocol::code::Exit;

use crate::context::Context;
use crate::error::Error;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Files or folders of discovery JSON to check, besides the shipped packs [default: the whole search path]
    paths: Vec<PathBuf>,
    /// Print the JSON Schema of discovery JSON, for use in editors
    #[arg(long, conflicts_with = "paths")]
    schema: bool,
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
    let config = Config::read(&context.paths)?;
    let sources = if args.paths.is_empty() {
        Sources::of(&context.paths, &config)
    } else {
        let paths =
            std::env::join_paths(&args.paths).map_err(|error| Error::usage(format!("a path is not valid: {error}")))?;
        Sources::new(&config, &context.paths.config, Some(&paths))
    };
    let findings = lint(&Catalog::load(&sources));
    let errors = findings.iter().filter(|finding| finding.level == Level::Error).count();
    context.output.json(&findings)?;
    context.output.note(&format!("{errors} errors, {} warnings", findings.len() - errors));
    Ok(if errors == 0 { Exit::Ok } else { Exit::Usage })
}
