//! Which configuration files were in force: one that is gone is no permission to go on with the defaults.
//!
//! The same holds for one that was emptied, if it forbade or limited something, and for another file in its place: a
//! file may be removed or emptied by mistake, or hidden by another environment. So the record and the mailbox keep which
//! one they were last used with, since another environment names other folders; and so does the state folder, which has
//! the secrets, for all mailboxes. The definitions that the environment names count as a part of it. A human says that
//! none is wanted any more, or that the other one is meant.

use std::ffi::OsStr;
use std::io::{self, Write as _};
use std::path::PathBuf;

use protocol::mailbox::Mailbox;
use protocol::paths::{Paths, create_private, is_same_file};
use protocol::regular_file;
use serde::{Deserialize, Serialize};
use serde_json::json;
use serde_with_macros::skip_serializing_none;

/// A path has at most 4 KiB, and a user few configuration folders.
const MAX_BYTES: u64 = 1 << 20;
/// The folder of definitions, beside the configuration file.
const SUBTOOLS: &str = "subtools";
/// The key of a line of the list: what was in force with the secrets of this state folder.
const USED: &str = "used";

/// The list of the paths, in the state folder.
#[derive(Debug)]
pub struct KnownConfigurations<'a> {
    paths: &'a Paths,
}

/// What an executor is told by: the configuration file, the definitions, and the home of what both of them abbreviate.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UsedConfiguration {
    pub file: PathBuf,
    /// The folders and files that the environment names in place of those in the folder of the configuration.
    pub subtools: Option<String>,
    /// What `~` stands for, if that was written.
    pub home: Option<PathBuf>,
}

impl UsedConfiguration {
    pub fn of(paths: &Paths) -> Self {
        let subtools = paths.named_subtools().map(|named| named.to_string_lossy().into_owned());
        Self { file: paths.config_file(), subtools, home: paths.home().ok() }
    }

    /// What was written; before there were definitions in it, that was the path alone.
    fn parse(text: &str) -> Self {
        let path = |file: &str| Self { file: file.into(), subtools: None, home: None };
        let read = serde_json::from_str(text);
        read.unwrap_or_else(|_| serde_json::from_str::<String>(text).map_or_else(|_| path(text), |file| path(&file)))
    }

    fn text(&self) -> String {
        json!(self).to_string()
    }

    /// Where the definitions are.
    fn definitions(&self) -> Vec<PathBuf> {
        match &self.subtools {
            Some(named) => std::env::split_paths(OsStr::new(named)).collect(),
            None => vec![self.file.with_file_name(SUBTOOLS)],
        }
    }

    fn is_same(&self, other: &Self) -> bool {
        let (own, others) = (self.definitions(), other.definitions());
        let is_same_home = match (&self.home, &other.home) {
            (Some(own), Some(other)) => is_same_file(own, other),
            _ => true,
        };
        is_same_file(&self.file, &other.file)
            && is_same_home
            && own.len() == others.len()
            && own.iter().zip(&others).all(|(one, other)| is_same_file(one, other))
    }
}

impl std::fmt::Display for UsedConfiguration {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "config `{}`", self.file.display())?;
        self.subtools.as_ref().map_or(Ok(()), |named| write!(f, ", the definitions in `{named}`"))?;
        self.home.as_ref().map_or(Ok(()), |home| write!(f, " (with the home `{}`)", home.display()))
    }
}

impl<'a> KnownConfigurations<'a> {
    pub fn of(paths: &'a Paths) -> Self {
        Self { paths }
    }

    /// Whether the configuration file was in force before.
    pub fn contains(&self) -> io::Result<bool> {
        Ok(self.read()?.contains(&self.own()))
    }

    /// Whether the configuration that was in force last forbade or limited something.
    pub fn restricted(&self) -> io::Result<bool> {
        Ok(self.read()?.contains(&self.own_restriction()))
    }

    /// Remembers that the configuration file is in force, and whether it `restricts`.
    pub fn add(&self, restricts: bool) -> io::Result<()> {
        let (before, own, restriction) = (self.read()?, self.own(), self.own_restriction());
        let mut known = before.clone();
        known.retain(|line| restricts || *line != restriction);
        for line in [Some(own), restricts.then_some(restriction)].into_iter().flatten() {
            if !known.contains(&line) {
                known.push(line);
            }
        }
        if known == before { Ok(()) } else { self.write(&known) }
    }

    /// What the record, the mailbox or the state folder was used with, if that is not what this environment says.
    pub fn elsewhere(&self) -> io::Result<Option<UsedConfiguration>> {
        let own = UsedConfiguration::of(self.paths);
        for file in self.last_used() {
            match regular_file::read_text(&file, MAX_BYTES) {
                Ok(text) => {
                    let before = UsedConfiguration::parse(&text);
                    if !before.is_same(&own) {
                        return Ok(Some(before));
                    }
                }
                Err(error) if is_missing(&error) => {}
                Err(error) => return Err(error),
            }
        }
        let mut used = used_in(&self.read()?);
        let is_known = used.is_empty() || used.iter().any(|before| before.is_same(&own));
        Ok(used.pop().filter(|_| !is_known))
    }

    /// Takes what this environment says for what is meant, as a human said.
    pub fn accept(&self) -> io::Result<()> {
        self.forget_last_used()?;
        self.list_as_used()
    }

    /// Forgets which one was last used.
    fn forget_last_used(&self) -> io::Result<()> {
        for file in self.last_used() {
            match std::fs::remove_file(file) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                Ok(()) | Err(_) => {}
            }
        }
        Ok(())
    }

    fn list_as_used(&self) -> io::Result<()> {
        let (mut known, own) = (self.read()?, UsedConfiguration::of(self.paths));
        if used_in(&known).iter().any(|before| before.is_same(&own)) {
            return Ok(());
        }
        known.push(json!({ USED: own }).to_string());
        self.write(&known)
    }

    /// Remembers that an executor uses it.
    pub fn record_use(&self) -> io::Result<()> {
        let own = UsedConfiguration::of(self.paths).text();
        self.list_as_used()?;
        Mailbox::open(&self.paths.mailbox).map_err(io::Error::other)?;
        create_private(&self.paths.executor())?;
        for file in self.last_used() {
            if regular_file::read_text(&file, MAX_BYTES).is_ok_and(|text| text == own) {
                continue;
            }
            let folder = file.parent().expect("it is in a folder");
            let mut written = tempfile::NamedTempFile::new_in(folder)?;
            written.write_all(own.as_bytes())?;
            written.persist(&file).map_err(|error| error.error)?;
        }
        Ok(())
    }

    /// In the record's folder, and in the mailbox: the home that has the record may be another one.
    fn last_used(&self) -> [PathBuf; 2] {
        [self.paths.executor(), self.paths.mailbox.clone()].map(|folder| folder.join("configuration"))
    }

    /// Forgets the configuration file, as a human said who wants none.
    pub fn remove(&self) -> io::Result<()> {
        let (mut known, own) = (self.read()?, [self.own(), self.own_restriction()]);
        known.retain(|line| !own.contains(line));
        self.write(&known)?;
        self.forget_last_used()
    }

    /// The configuration file as a JSON string, so that each line is one value.
    fn own(&self) -> String {
        serde_json::Value::from(self.paths.config_file().to_string_lossy()).to_string()
    }

    /// The line that says that it restricted something.
    fn own_restriction(&self) -> String {
        serde_json::json!({ "restricted": self.paths.config_file().to_string_lossy() }).to_string()
    }

    fn file(&self) -> PathBuf {
        self.paths.state.join("configurations")
    }

    fn read(&self) -> io::Result<Vec<String>> {
        match regular_file::read_text(&self.file(), MAX_BYTES) {
            Ok(text) => Ok(text.lines().map(str::to_owned).collect()),
            Err(error) if is_missing(&error) => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }

    fn write(&self, known: &[String]) -> io::Result<()> {
        create_private(&self.paths.state)?;
        let mut file = tempfile::NamedTempFile::new_in(&self.paths.state)?;
        known.iter().try_for_each(|path| writeln!(file, "{path}"))?;
        file.persist(self.file()).map(drop).map_err(|error| error.error)
    }
}

fn is_missing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

/// What the lines of the list say was used.
fn used_in(lines: &[String]) -> Vec<UsedConfiguration> {
    let values = lines.iter().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    values.filter_map(|mut value| serde_json::from_value(value.get_mut(USED)?.take()).ok()).collect()
}
