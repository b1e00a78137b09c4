//! Damage: a record that does not say any more what was written to it.
//!
//! Bad memory, a bad disk, a careless copy. It is told and a copy is kept; nothing is mended, and no
//! empty record is put in its place: what was promised to callers stands in the damaged one.

use std::path::{Path, PathBuf};
use std::{fs, io};

use rusqlite::{Connection, ErrorCode};

use super::StoreError;

/// Up to this size a record is checked each time it is opened: it takes about two milliseconds.
const ALWAYS_CHECKED: u64 = 1 << 20;
/// Up to this size it is checked when its last owner did not close it: about a tenth of a second.
/// A larger one is found damaged where it is read, and by the doctor; a whole check of 150 MB takes
/// four seconds, which callers would have to wait after every loss of power.
const CHECKED_WHEN_LEFT_OPEN: u64 = 16 << 20;

/// What tells and keeps the damage of the record at one path.
pub(super) struct Damage<'a> {
    path: &'a Path,
}

impl<'a> Damage<'a> {
    pub(super) fn of(path: &'a Path) -> Self {
        Self { path }
    }

    /// Whether it is worth its time to look for damage before the record is used.
    pub(super) fn expects_it(&self) -> bool {
        let size = |path: &Path| fs::metadata(path).map_or(0, |found| found.len());
        let log = size(&self.beside("-wal"));
        size(self.path) + log <= if log > 0 { CHECKED_WHEN_LEFT_OPEN } else { ALWAYS_CHECKED }
    }

    /// An error that means damage becomes one that says so, once a copy is kept.
    pub(super) fn report<T>(&self, outcome: Result<T, StoreError>) -> Result<T, StoreError> {
        let reason = match &outcome {
            Err(StoreError::Engine(error)) if is_damage(error) => error.to_string(),
            Err(StoreError::Malformed(reason)) => reason.clone(),
            _ => return outcome,
        };
        let copy = self.keep_copy().map_err(StoreError::Folder)?;
        Err(StoreError::Damaged { path: self.path.display().to_string(), copy: copy.display().to_string(), reason })
    }

    /// One copy, of the first damage: who tries again and again must not fill the disk.
    fn keep_copy(&self) -> io::Result<PathBuf> {
        if let Some(kept) = self.kept()? {
            return Ok(kept);
        }
        let copy = self.beside(&format!(".corrupt-{}", protocol::clock::now().as_second()));
        let log = self.beside("-wal");
        if log.exists() {
            let mut name = copy.clone().into_os_string();
            name.push("-wal");
            fs::copy(&log, name)?;
        }
        fs::copy(self.path, &copy)?;
        Ok(copy)
    }

    fn kept(&self) -> io::Result<Option<PathBuf>> {
        let folder = self.path.parent().unwrap_or(Path::new("/"));
        let beginning = self.beside(".corrupt-");
        let mut kept = fs::read_dir(folder)?.flatten().map(|entry| entry.path());
        Ok(kept.find(|path| {
            let is_copy = path.as_os_str().as_encoded_bytes().starts_with(beginning.as_os_str().as_encoded_bytes());
            is_copy && !path.as_os_str().as_encoded_bytes().ends_with(b"-wal")
        }))
    }

    fn beside(&self, ending: &str) -> PathBuf {
        let mut name = self.path.as_os_str().to_owned();
        name.push(ending);
        name.into()
    }
}

/// Reads the whole record, and compares its indexes with what they index.
pub(super) fn check(connection: &Connection) -> Result<(), StoreError> {
    let found: String = connection.query_row("PRAGMA integrity_check(1)", [], |row| row.get(0))?;
    if found == "ok" { Ok(()) } else { Err(StoreError::Malformed(found)) }
}

fn is_damage(error: &rusqlite::Error) -> bool {
    match error {
        rusqlite::Error::SqliteFailure(error, _) => {
            // An unknown table or column is a schema that was damaged: ours is not migrated here.
            matches!(error.code, ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase)
                || error.extended_code == rusqlite::ffi::SQLITE_ERROR
        }
        rusqlite::Error::SqlInputError { .. } => true,
        rusqlite::Error::FromSqlConversionFailure(..)
        | rusqlite::Error::InvalidColumnType(..)
        | rusqlite::Error::IntegralValueOutOfRange(..)
        | rusqlite::Error::Utf8Error(..) => true,
        _ => false,
    }
}
