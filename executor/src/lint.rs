//! Lint: everything that is wrong with definitions, and what loads but is hard to find or easy to misuse.
//!
//! Each finding says how to mend it. Nothing is sent: examples are only planned.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use catalog::packs::{MANIFEST, SHIPPED};
use catalog::{Catalog, Origin, Subtool};
use ground::config::Config;
use serde::Serialize;
use serde_with_macros::skip_serializing_none;

use self::coverage::SeenServers;
use self::databases::MissingDatabases;
use self::phrases::MissingPhrases;

mod conditions;
mod coverage;
mod credentials;
mod databases;
mod definition;
mod description;
mod dry_runs;
mod examples;
mod inputs;
mod limits;
mod lines;
mod phrases;
mod programs;
mod scripts;
mod targets;
mod ties;
mod words;

/// One finding about the catalog.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    pub level: Level,
    pub code: &'static str,
    pub file: String,
    pub line: Option<usize>,
    pub subtool: Option<String>,
    pub place: Option<String>,
    pub message: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// It could not be loaded, or cannot work.
    Error,
    Warning,
    /// It works, and would be found more often otherwise.
    Advice,
}

impl Finding {
    /// The finding as compilers print one: `FILE:LINE: error: SUBTOOL: PLACE: MESSAGE`.
    pub fn to_line(&self) -> String {
        let line = self.line.map(|line| format!(":{line}")).unwrap_or_default();
        let level = match self.level {
            Level::Error => "error",
            Level::Warning => "warning",
            Level::Advice => "advice",
        };
        let parts = [self.subtool.as_deref(), self.place.as_deref(), Some(self.message.as_str())];
        let text: Vec<_> = parts.into_iter().flatten().collect();
        format!("{}{line}: {level}: {}", self.file, text.join(": "))
    }
}

/// Which findings are wanted.
#[derive(Debug, Clone, Default)]
pub struct LintScope {
    /// Files and folders; empty means everything that was loaded.
    only: Vec<PathBuf>,
}

impl LintScope {
    /// Only what is found in these files and folders, which still are compared with all others.
    pub fn only(paths: &[PathBuf]) -> Self {
        let canonical = |path: &PathBuf| path.canonicalize().unwrap_or_else(|_| path.clone());
        Self { only: paths.iter().map(canonical).collect() }
    }

    fn covers(&self, file: &str) -> bool {
        let file = Path::new(file);
        let file = file.canonicalize().unwrap_or_else(|_| file.to_owned());
        self.only.is_empty() || self.only.iter().any(|path| file.starts_with(path))
    }

    fn covers_subtool(&self, subtool: &Subtool) -> bool {
        match &subtool.origin {
            Origin::Pack(_) => self.only.is_empty(),
            Origin::File(path) => self.covers(&path.to_string_lossy()),
        }
    }
}

/// Returns the load problems of `catalog` as errors, and what is weak or cannot work in its subtools; ordered by file
/// and line.
pub fn lint(catalog: &Catalog, config: &Config, scope: &LintScope) -> Vec<Finding> {
    let mut findings: Vec<_> = catalog
        .all_problems()
        .into_iter()
        .filter(|problem| scope.covers(&problem.file))
        .map(|problem| Finding {
            level: Level::Error,
            code: "not-loaded",
            file: problem.file,
            line: None,
            subtool: problem.subtool,
            place: problem.place,
            message: problem.message,
        })
        .collect();
    let (mut missing, mut databases) = (MissingPhrases::default(), MissingDatabases::default());
    let mut servers = SeenServers::default();
    for subtool in catalog.subtools().filter(|subtool| scope.covers_subtool(subtool)) {
        missing.note(&subtool);
        words::check(&subtool, &mut findings);
        description::check(&subtool, catalog, &mut findings);
        definition::check(&subtool, &mut findings);
        dry_runs::check(&subtool, &mut findings);
        credentials::check(&subtool, &mut findings);
        conditions::check(&subtool, &mut findings);
        limits::check(&subtool, &mut findings);
        inputs::check(&subtool, &mut findings);
        if !databases.note(&subtool, catalog, config) {
            examples::check(&subtool, config, &mut findings);
            targets::check(&subtool, config, &mut findings);
        }
        programs::check(&subtool, catalog, config, &mut findings);
        scripts::check(&subtool, catalog, &mut findings);
        servers.check(&subtool, config, &mut findings);
    }
    programs::check_packs(catalog, config, scope, &mut findings);
    ties::check(catalog, scope, &mut findings);
    missing.add_to(&mut findings);
    databases.add_to(&mut findings);
    find_lines(&mut findings);
    findings.sort_by(|one, other| (&one.file, one.line, one.level).cmp(&(&other.file, other.line, other.level)));
    findings
}

/// Adds the lines to findings, reading each file once.
fn find_lines(findings: &mut [Finding]) {
    let mut texts: BTreeMap<(String, bool), Option<String>> = BTreeMap::new();
    for finding in findings {
        let shipped = SHIPPED.iter().find(|pack| Origin::Pack(pack.name.to_owned()).to_string() == finding.file);
        // The definitions of a shipped pack have no mistakes as a whole.
        let is_manifest = match shipped {
            Some(_) => finding.subtool.is_none(),
            None => Path::new(&finding.file).file_name() == Some(OsStr::new(MANIFEST)),
        };
        let text = texts.entry((finding.file.clone(), is_manifest)).or_insert_with(|| match shipped {
            Some(pack) if is_manifest => Some(pack.manifest.to_owned()),
            Some(pack) => Some(pack.text.to_owned()),
            None => text_of(&finding.file),
        });
        let place = finding.place.as_deref().unwrap_or_default();
        finding.line = text.as_deref().and_then(|text| {
            if is_manifest {
                lines::line_in_manifest(text, place)
            } else {
                lines::line_of(text, finding.subtool.as_deref(), place)
            }
        });
    }
}

fn text_of(file: &str) -> Option<String> {
    std::fs::metadata(file).ok().filter(std::fs::Metadata::is_file).and_then(|_| std::fs::read_to_string(file).ok())
}

fn finding(subtool: &Subtool, level: Level, code: &'static str, place: &str, message: String) -> Finding {
    Finding {
        level,
        code,
        file: subtool.origin.to_string(),
        line: None,
        subtool: Some(subtool.name.to_string()),
        place: Some(place.to_owned()),
        message,
    }
}

fn warning(subtool: &Subtool, code: &'static str, place: &str, message: impl Into<String>) -> Finding {
    finding(subtool, Level::Warning, code, place, message.into())
}
