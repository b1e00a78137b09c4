//! The search path: which packs and files make up the catalog, and whether they changed.

use std::ffi::OsStr;
use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use globset::{Glob, GlobSet, GlobSetBuilder};
use protocol::command_executor::ForeignCommands;
use protocol::paths::Paths;
use serde::{Deserialize, Serialize};

use super::LoadProblem;
use super::load::{Pack, SHIPPED};
use crate::base::trust::{self, Distrust};
use crate::catalog::definition::Definition;
use crate::config::{self, Config};

/// The pack that is there when a human wants to be asked about whole command lines.
const SHELL_PACK: &str = "shell";

/// The pack that is there where there is a model to ask.
const MODELS_PACK: &str = "models";

/// Where definitions are read, and which of them callers may use.
#[derive(Debug, Clone)]
pub struct Sources {
    packs: Vec<&'static Pack>,
    folders: Vec<PathBuf>,
    /// A folder that was named in so many words must be there; the default one need not.
    named: bool,
    access: AccessFilter,
    problems: Vec<LoadProblem>,
}

/// A definition file, and what was found there, if anything.
#[derive(Debug)]
pub(super) struct SourceFile {
    pub(super) path: PathBuf,
    pub(super) found: Option<Metadata>,
}

/// What makes a listing stale: any other size, time or identity of any file, another that is not taken,
/// another program, other settings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourcesStamp {
    program: String,
    settings: String,
    problems: Vec<LoadProblem>,
    files: Vec<(PathBuf, u64, i64, i64, u64)>,
}

impl Sources {
    /// The search path of this user.
    pub fn of(paths: &Paths, config: &Config) -> Self {
        Self::new(config, &paths.config, paths.named_subtools())
    }

    /// `named` is the value of `AGENT_MAGIC_TOOL_SUBTOOLS`: folders or files joined by `:`.
    pub fn new(config: &Config, config_folder: &Path, named: Option<&OsStr>) -> Self {
        let mut problems = Vec::new();
        let mut packs = Vec::new();
        for name in &config.catalog.packs {
            match SHIPPED.iter().find(|pack| pack.name == name) {
                Some(pack) => packs.push(pack),
                None => problems.push(LoadProblem {
                    file: "config.toml".to_owned(),
                    subtool: None,
                    place: Some("catalog.packs".to_owned()),
                    message: format!("there is no pack `{name}`"),
                }),
            }
        }
        if !config.models.values().any(|model| model.enabled) {
            packs.retain(|pack| pack.name != MODELS_PACK);
        }
        if config.shell.others == ForeignCommands::Ask && packs.iter().all(|pack| pack.name != SHELL_PACK) {
            packs.extend(SHIPPED.iter().find(|pack| pack.name == SHELL_PACK));
        }
        let folders = match named {
            Some(named) => std::env::split_paths(named).filter(|path| !path.as_os_str().is_empty()).collect(),
            None => config.catalog.folders.iter().map(|folder| config_folder.join(folder)).collect(),
        };
        let access = AccessFilter::new(&config.access, &mut problems);
        Self { packs, folders, named: named.is_some(), access, problems }
    }

    pub(super) fn packs(&self) -> &[&'static Pack] {
        &self.packs
    }

    /// The folders and files of the search path, for people to read.
    pub fn folders(&self) -> &[PathBuf] {
        &self.folders
    }

    /// Every definition file that is taken, in the order of the search path, and what is wrong with the
    /// path and with the others.
    pub(super) fn files(&self) -> (Vec<SourceFile>, Vec<LoadProblem>) {
        let mut files = Vec::new();
        let mut problems = self.problems.clone();
        let mut problem = |file: &Path, message: String| {
            let file = file.display().to_string();
            problems.push(LoadProblem { file, subtool: None, place: None, message });
        };
        for folder in &self.folders {
            if let Err(distrust) = trust::check(folder)
                && distrust.is_of_others()
            {
                problem(folder, left_out(&distrust));
                continue;
            }
            match definition_files(folder) {
                Ok(found) => {
                    for path in found {
                        match trusted(&path) {
                            Ok(found) => files.push(SourceFile { path, found }),
                            Err(distrust) => problem(&path, left_out(&distrust)),
                        }
                    }
                }
                Err(error) if error.kind() == std::io::ErrorKind::NotFound && !self.named => {}
                Err(error) => problem(folder, format!("it cannot be read: {error}")),
            }
        }
        (files, problems)
    }

    /// Whether callers may use this subtool at all.
    pub(super) fn permit(&self, name: &str, definition: &Definition) -> bool {
        definition.enabled && self.access.permits(name, definition)
    }

    /// The state of everything that the catalog is made from.
    pub fn stamp(&self) -> SourcesStamp {
        let (files, problems) = self.files();
        let files = files
            .into_iter()
            .map(|SourceFile { path, found }| match found {
                Some(found) => (path, found.len(), found.mtime(), found.mtime_nsec(), found.ino()),
                None => (path, 0, 0, 0, 0),
            })
            .collect();
        let packs: Vec<_> = self.packs.iter().map(|pack| (pack.name, pack.text.len())).collect();
        SourcesStamp {
            program: env!("CARGO_PKG_VERSION").to_owned(),
            settings: format!("{packs:?} {:?} {:?} {:?}", self.folders, self.named, self.access.words),
            problems,
            files,
        }
    }
}

/// What is found at the path of a file in a trusted folder. Most are no links, and one look is enough.
fn trusted(path: &Path) -> Result<Option<Metadata>, Distrust> {
    // What cannot be looked at is told by whoever reads it.
    let Ok(found) = fs::symlink_metadata(path) else { return Ok(None) };
    let is_link = found.is_symlink();
    let checked = if is_link { trust::check(path) } else { trust::check_one(path, &found) };
    match checked {
        Err(distrust) if distrust.is_of_others() => Err(distrust),
        _ if is_link => Ok(fs::metadata(path).ok()),
        _ => Ok(Some(found)),
    }
}

fn left_out(distrust: &Distrust) -> String {
    let remedy = distrust.remedy().map(|remedy| format!(": {remedy}")).unwrap_or_default();
    format!("it is not read, since it might be somebody else's word: {distrust}{remedy}")
}

/// The `*.json` of a folder by name, or the file itself.
fn definition_files(path: &Path) -> std::io::Result<Vec<PathBuf>> {
    if fs::metadata(path)?.is_file() {
        return Ok(vec![path.to_owned()]);
    }
    let mut files = Vec::new();
    for entry in fs::read_dir(path)? {
        let path = entry?.path();
        let name = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
        let is_definition =
            path.extension() == Some(OsStr::new("json")) && !name.ends_with(".schema.json") && !name.starts_with('.');
        if is_definition {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// `[access]` of the configuration, ready to ask.
#[derive(Debug, Clone)]
struct AccessFilter {
    allow: GlobSet,
    deny: GlobSet,
    privileges: GlobSet,
    admin: bool,
    /// The settings as text, for the stamp.
    words: String,
}

impl AccessFilter {
    fn new(access: &config::AccessSettings, problems: &mut Vec<LoadProblem>) -> Self {
        Self {
            allow: globs(&access.allow, "access.allow", problems),
            deny: globs(&access.deny, "access.deny", problems),
            privileges: globs(&access.privileges, "access.privileges", problems),
            admin: access.admin,
            words: format!("{access:?}"),
        }
    }

    fn permits(&self, name: &str, definition: &Definition) -> bool {
        self.allow.is_match(name)
            && !self.deny.is_match(name)
            && (self.admin || !definition.admin)
            && definition.requires.iter().all(|privilege| self.privileges.is_match(privilege))
    }
}

fn globs(patterns: &[String], place: &str, problems: &mut Vec<LoadProblem>) -> GlobSet {
    let mut set = GlobSetBuilder::new();
    for pattern in patterns {
        match Glob::new(pattern) {
            Ok(glob) => {
                set.add(glob);
            }
            Err(error) => problems.push(LoadProblem {
                file: "config.toml".to_owned(),
                subtool: None,
                place: Some(place.to_owned()),
                message: error.to_string(),
            }),
        }
    }
    set.build().unwrap_or_default()
}
