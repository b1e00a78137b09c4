//! Damage: a database file that does not contain what was written to it.
//!
//! The cause may be bad memory, a bad disk or a careless copy. The damage is reported and a copy of the file is made.
//! The file is neither repaired nor replaced by an empty one, because callers rely on the tasks in it.

use std::path::{Path, PathBuf};
use std::{fs, io};

use rusqlite::{Connection, ErrorCode};

use super::StoreError;

/// Up to this size the integrity is checked on every start, which takes about 2 ms.
const MAX_CHECKED_BYTES: u64 = 1 << 20;
/// Up to this size the integrity is checked after an unclean shutdown, which takes about 0.1 s. Damage in a larger
/// file is found when that part is read, or by `doctor`: checking 150 MB takes 4 s, and callers would have to wait
/// that long after every power loss.
const MAX_CHECKED_BYTES_AFTER_CRASH: u64 = 16 << 20;

/// Detects damage of the database file at one path.
pub(super) struct DamageGuard<'a> {
    path: &'a Path,
}

impl<'a> DamageGuard<'a> {
    pub(super) fn new(path: &'a Path) -> Self {
        Self { path }
    }

    /// Whether the file is small enough to check its integrity before using it.
    pub(super) fn needs_integrity_check(&self) -> bool {
        let size = |path: &Path| fs::metadata(path).map_or(0, |found| found.len());
        let log = size(&self.beside("-wal"));
        size(self.path) + log <= if log > 0 { MAX_CHECKED_BYTES_AFTER_CRASH } else { MAX_CHECKED_BYTES }
    }

    /// Turns an error that indicates damage into [`StoreError::Damaged`], after copying the file.
    pub(super) fn check<T>(&self, outcome: Result<T, StoreError>) -> Result<T, StoreError> {
        let reason = match &outcome {
            Err(StoreError::Engine(error)) if is_damage(error) => error.to_string(),
            Err(StoreError::Malformed(reason)) => reason.clone(),
            _ => return outcome,
        };
        let copy = self.copy().map_err(StoreError::Folder)?;
        Err(StoreError::Damaged { path: self.path.display().to_string(), copy: copy.display().to_string(), reason })
    }

    /// Copies the file, unless an earlier copy exists: repeated attempts must not fill the disk.
    fn copy(&self) -> io::Result<PathBuf> {
        if let Some(copy) = self.existing_copy()? {
            return Ok(copy);
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

    fn existing_copy(&self) -> io::Result<Option<PathBuf>> {
        let folder = self.path.parent().unwrap_or(Path::new("/"));
        let prefix = self.beside(".corrupt-");
        let mut paths = fs::read_dir(folder)?.flatten().map(|entry| entry.path());
        Ok(paths.find(|path| {
            let is_copy = path.as_os_str().as_encoded_bytes().starts_with(prefix.as_os_str().as_encoded_bytes());
            is_copy && !path.as_os_str().as_encoded_bytes().ends_with(b"-wal")
        }))
    }

    /// The path with `suffix` appended.
    fn beside(&self, suffix: &str) -> PathBuf {
        let mut name = self.path.as_os_str().to_owned();
        name.push(suffix);
        name.into()
    }
}

/// Reads the whole database and compares the indexes with the tables.
pub(super) fn check_integrity(connection: &Connection) -> Result<(), StoreError> {
    let found: String = connection.query_row("PRAGMA integrity_check(1)", [], |row| row.get(0))?;
    if found == "ok" { Ok(()) } else { Err(StoreError::Malformed(found)) }
}

fn is_damage(error: &rusqlite::Error) -> bool {
    match error {
        rusqlite::Error::SqliteFailure(error, _) => {
            // An unknown table or column means a damaged schema, since migrations run before any query.
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
