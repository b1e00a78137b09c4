//! Which configuration files were in force: one that is gone is no permission to go on with the defaults.
//!
//! The same holds for one that was emptied, if it forbade or limited something, and for another file in its place: a
//! file may be removed or emptied by mistake, or hidden by another environment. So the record and the mailbox keep which
//! one they were last used with, since another environment names other folders. A human says that none is wanted any
//! more, or that the other one is meant.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use protocol::mailbox::Mailbox;
use protocol::paths::{Paths, create_private};
use protocol::regular_file;

/// A path has at most 4 KiB, and a user few configuration folders.
const MAX_BYTES: u64 = 1 << 20;

/// The list of the paths, in the state folder.
#[derive(Debug)]
pub struct KnownConfigurations<'a> {
    paths: &'a Paths,
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
        if known != before {
            self.write(&known)?;
        }
        self.record_use()
    }

    /// The file that the record or the mailbox was last used with, if that is not this one.
    pub fn elsewhere(&self) -> io::Result<Option<PathBuf>> {
        let own = self.paths.config_file();
        for file in self.last_used() {
            match regular_file::read_text(&file, MAX_BYTES) {
                Ok(text) => {
                    let before = PathBuf::from(serde_json::from_str(&text).unwrap_or(text));
                    if !is_same_file(&before, &own) {
                        return Ok(Some(before));
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }

    /// Forgets which file was last used, as a human said who means another one.
    pub fn forget_last_used(&self) -> io::Result<()> {
        for file in self.last_used() {
            match std::fs::remove_file(file) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                Ok(()) | Err(_) => {}
            }
        }
        Ok(())
    }

    fn record_use(&self) -> io::Result<()> {
        let own = self.own();
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
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
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

/// Whether two paths name one file, also through symbolic links.
pub fn is_same_file(one: &Path, other: &Path) -> bool {
    match (one.canonicalize(), other.canonicalize()) {
        (Ok(one), Ok(other)) => one == other,
        _ => one == other,
    }
}
