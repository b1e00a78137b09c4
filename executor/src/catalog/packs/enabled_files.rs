//! What was in the folder of a pack when a human enabled it: the hash of each file. While it is not the same, the pack
//! is off. The record lies beside the packs, as the human's own file; a pack that the configuration enables by hand has
//! none, and is not compared.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use protocol::digest;
use protocol::regular_file;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// The name of the record in the folder of the packs.
const RECORD: &str = ".enabled.json";
/// The largest record.
const MAX_RECORD_BYTES: u64 = 16 << 20;
/// The most files of a pack, and the largest of them.
const MAX_FILES: usize = 10_000;
const MAX_FILE_BYTES: u64 = 64 << 20;
/// Not a part of the pack: git changes it without any change of the pack.
const NOT_OF_PACK: &str = ".git";

/// The files of a pack: their hashes by path.
pub type PackFiles = BTreeMap<String, String>;

/// The files of the packs that were enabled, by pack.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct EnabledFiles(BTreeMap<String, PackFiles>);

impl EnabledFiles {
    /// Reads the record in the folder of the packs.
    pub fn read(packs: &Path) -> io::Result<Self> {
        match regular_file::read(&packs.join(RECORD), MAX_RECORD_BYTES) {
            Ok(bytes) => serde_json::from_slice(&bytes).map_err(io::Error::from),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(error),
        }
    }

    /// Whether a human enabled the pack as it was then.
    pub fn knows(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// What is not as it was when the pack was enabled; empty if it was enabled by hand.
    pub fn changes(&self, name: &str, folder: &Path) -> io::Result<Vec<String>> {
        let Some(known) = self.0.get(name) else { return Ok(Vec::new()) };
        let now = files(folder)?;
        let gone = known.keys().filter(|path| !now.contains_key(*path)).map(|path| format!("`{path}` is gone"));
        let others = now.iter().filter_map(|(path, sha256)| match known.get(path) {
            None => Some(format!("`{path}` is new")),
            Some(before) if before != sha256 => Some(format!("`{path}` changed")),
            Some(_) => None,
        });
        Ok(gone.chain(others).collect())
    }

    pub(in crate::catalog) fn forget(&mut self, name: &str) {
        self.0.remove(name);
    }

    /// Remembers the files of a pack, or forgets them.
    pub fn record(packs: &Path, name: &str, files: Option<PackFiles>) -> io::Result<()> {
        let mut known = Self::read(packs)?;
        let is_other = match files {
            Some(files) => known.0.insert(name.to_owned(), files.clone()) != Some(files),
            None => known.0.remove(name).is_some(),
        };
        if is_other {
            let mut written = tempfile::NamedTempFile::new_in(packs)?;
            written.write_all(&serde_json::to_vec(&known)?)?;
            written.persist(packs.join(RECORD))?;
        }
        Ok(())
    }
}

/// The hashes of the files of the pack in `folder`.
pub fn files(folder: &Path) -> io::Result<PackFiles> {
    let mut found = PackFiles::new();
    for path in paths(folder)? {
        let name = path.strip_prefix(folder).unwrap_or(&path).to_string_lossy().into_owned();
        let bytes = regular_file::read(&path, MAX_FILE_BYTES)
            .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))?;
        found.insert(name, digest::hex(&Sha256::digest(&bytes)));
    }
    Ok(found)
}

/// The paths of the files of the pack in `folder`, and of links, whatever they lead to.
pub(in crate::catalog) fn paths(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let (mut found, mut folders) = (Vec::new(), vec![folder.to_owned()]);
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(&next)? {
            let entry = entry?;
            if entry.file_name() == NOT_OF_PACK {
                continue;
            }
            let list = if entry.file_type()?.is_dir() { &mut folders } else { &mut found };
            list.push(entry.path());
        }
        if found.len() + folders.len() > MAX_FILES {
            let message = format!("it has more than {MAX_FILES} files");
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, message));
        }
    }
    found.sort();
    Ok(found)
}
