//! The search path: which packs and files make up the catalog, and whether they changed.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use globset::{Glob, GlobSet, GlobSetBuilder};
use serde::{Deserialize, Serialize};

use super::LoadProblem;
use super::load::{Pack, SHIPPED};
use crate::config::{self, Config};
use crate::subtool::Definition;

/// Where definitions are read, and which of them callers may use.
#[derive(Debug, Clone)]
pub struct Sources {
    packs: Vec<&'static Pack>,
    folders: Vec<PathBuf>,
    /// A folder that was named in so many words must be there; the default one need not.
    named: bool,
    access: Access,
    problems: Vec<LoadProblem>,
}

/// What makes a listing stale: any other size, time or identity of any file, another program, other settings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stamp {
    program: String,
    settings: String,
    files: Vec<(PathBuf, u64, i64, i64, u64)>,
}

impl Sources {
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
        let folders = match named {
            Some(named) => std::env::split_paths(named).filter(|path| !path.as_os_str().is_empty()).collect(),
            None => config.catalog.folders.iter().map(|folder| config_folder.join(folder)).collect(),
        };
        let access = Access::new(&config.access, &mut problems);
        Self { packs, folders, named: named.is_some(), access, problems }
    }

    pub(super) fn packs(&self) -> &[&'static Pack] {
        &self.packs
    }

    /// The folders and files of the search path, for people to read.
    pub fn folders(&self) -> &[PathBuf] {
        &self.folders
    }

    /// Every definition file, in the order of the search path, and what is wrong with the path.
    pub(super) fn files(&self) -> (Vec<PathBuf>, Vec<LoadProblem>) {
        let mut files = Vec::new();
        let mut problems = self.problems.clone();
        for folder in &self.folders {
            match definition_files(folder) {
                Ok(found) => files.extend(found),
                Err(error) if error.kind() == std::io::ErrorKind::NotFound && !self.named => {}
                Err(error) => problems.push(LoadProblem {
                    file: folder.display().to_string(),
                    subtool: None,
                    place: None,
                    message: format!("it cannot be read: {error}"),
                }),
            }
        }
        (files, problems)
    }

    /// Whether callers may use this subtool at all.
    pub(super) fn permit(&self, name: &str, definition: &Definition) -> bool {
        definition.enabled && self.access.permits(name, definition)
    }

    /// The state of everything that the catalog is made from.
    pub fn stamp(&self) -> Stamp {
        let (files, _) = self.files();
        let files = files
            .into_iter()
            .map(|path| match fs::metadata(&path) {
                Ok(found) => (path, found.len(), found.mtime(), found.mtime_nsec(), found.ino()),
                Err(_) => (path, 0, 0, 0, 0),
            })
            .collect();
        let packs: Vec<_> = self.packs.iter().map(|pack| (pack.name, pack.text.len())).collect();
        Stamp {
            program: env!("CARGO_PKG_VERSION").to_owned(),
            settings: format!(
                "{packs:?} {:?} {:?} {:?} {:?}",
                self.folders, self.named, self.access.words, self.problems
            ),
            files,
        }
    }
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
struct Access {
    allow: GlobSet,
    deny: GlobSet,
    privileges: GlobSet,
    admin: bool,
    /// The settings as text, for the stamp.
    words: String,
}

impl Access {
    fn new(access: &config::Access, problems: &mut Vec<LoadProblem>) -> Self {
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
