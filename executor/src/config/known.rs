//! Which configuration files were in force: one that is gone is no permission to go on with the defaults.
//!
//! The same holds for one that was emptied, if it forbade or limited something. A file may be removed or emptied by
//! mistake, or hidden by another environment. A human says that none is wanted any more.

use std::io::{self, Write as _};
use std::path::PathBuf;

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
        if known == before { Ok(()) } else { self.write(&known) }
    }

    /// Forgets the configuration file, as a human said who wants none.
    pub fn remove(&self) -> io::Result<()> {
        let (mut known, own) = (self.read()?, [self.own(), self.own_restriction()]);
        known.retain(|line| !own.contains(line));
        self.write(&known)
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
