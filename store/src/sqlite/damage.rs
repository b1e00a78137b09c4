//! Damage: a database file that does not contain what was written to it.
//!
//! The cause may be bad memory, a bad disk or a careless copy. The damage is reported and a copy of the file is made.
//! The file is neither repaired nor replaced by an empty one, because callers rely on the tasks in it.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::{fs, io};

use rusqlite::{Connection, ErrorCode};

use super::{StoreError, log};

/// Up to this size the integrity is checked on every start, which takes about 2 ms.
const MAX_CHECKED_BYTES: u64 = 1 << 20;
/// Up to this size the integrity is checked after an unclean shutdown, which takes about 0.1 s. Damage in a larger
/// file is found when that part is read, or by `doctor`: checking 150 MB takes 4 s, and callers would have to wait
/// that long after every power loss.
const MAX_CHECKED_BYTES_AFTER_CRASH: u64 = 16 << 20;
/// The smallest page of SQLite, and so the smallest database.
const MIN_BYTES: u64 = 512;
/// What the header begins with.
const MAGIC: &[u8] = b"SQLite format 3\0";
/// Where the header names the versions of the format for writing and reading.
const VERSIONS: std::ops::RangeInclusive<usize> = 18..=19;

/// Detects damage of the database file at one path.
pub(super) struct DamageGuard<'a> {
    path: &'a Path,
}

impl<'a> DamageGuard<'a> {
    pub(super) fn new(path: &'a Path) -> Self {
        Self { path }
    }

    /// Finds the damage that SQLite would not report: it takes an empty file, or a database whose log cannot be
    /// read, for one without tasks. Must be called before SQLite opens the file. Changes nothing.
    pub(super) fn check_files(&self) -> Result<(), StoreError> {
        let log = self.beside("-wal");
        let is_there = expect_file(self.path)?;
        let has_log = expect_file(&log)? && fs::metadata(&log).map_err(StoreError::Folder)?.len() > 0;
        expect_file(&self.beside("-shm"))?;
        if !is_there {
            return if has_log { Err(StoreError::LogWithoutStore { log: log.display().to_string() }) } else { Ok(()) };
        }
        let mut header = Vec::new();
        let file = File::open(self.path).map_err(StoreError::Folder)?;
        file.take(MIN_BYTES).read_to_end(&mut header).map_err(StoreError::Folder)?;
        check_header(&header)?;
        let damaged = log::damage(&log).map_err(StoreError::Folder)?;
        damaged.map_or(Ok(()), |reason| Err(StoreError::Malformed(format!("its log `{}`: {reason}", log.display()))))
    }

    /// Whether the file is small enough to check its integrity while a command waits.
    pub(super) fn is_quickly_checked(&self) -> bool {
        let size = |path: &Path| fs::metadata(path).map_or(0, |found| found.len());
        size(self.path) + size(&self.beside("-wal")) <= MAX_CHECKED_BYTES_AFTER_CRASH
    }

    /// Whether the file is small enough to check its integrity before using it.
    pub(super) fn needs_integrity_check(&self) -> bool {
        let size = |path: &Path| fs::metadata(path).map_or(0, |found| found.len());
        let log = size(&self.beside("-wal"));
        size(self.path) + log <= if log > 0 { MAX_CHECKED_BYTES_AFTER_CRASH } else { MAX_CHECKED_BYTES }
    }

    /// Turns an error that indicates damage into [`StoreError::Damaged`], after copying the file.
    pub(super) fn check<T>(&self, outcome: Result<T, StoreError>) -> Result<T, StoreError> {
        self.rename(outcome, || self.path.exists().then(|| self.copy()).transpose())
    }

    /// Like [`Self::check`], but makes no copy.
    pub(super) fn check_only<T>(&self, outcome: Result<T, StoreError>) -> Result<T, StoreError> {
        self.rename(outcome, || self.existing_copy())
    }

    fn rename<T>(
        &self,
        outcome: Result<T, StoreError>,
        copy: impl FnOnce() -> io::Result<Option<PathBuf>>,
    ) -> Result<T, StoreError> {
        let reason = match &outcome {
            Err(StoreError::Engine(error)) if is_damage(error) => error.to_string(),
            Err(StoreError::Malformed(reason)) => reason.clone(),
            _ => return outcome,
        };
        let copy = copy().map_err(StoreError::Folder)?.map(|copy| copy.display().to_string());
        Err(StoreError::Damaged { path: self.path.display().to_string(), copy, reason })
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

/// The file of an open database, which SQLite reads from its cache: it would not notice what happens to the file.
#[derive(Debug)]
pub(super) struct OpenedFile {
    /// Opened before SQLite opens it, and closed after: closing any descriptor of the file releases SQLite's locks.
    file: File,
}

impl OpenedFile {
    pub(super) fn open(path: &Path) -> Result<Self, StoreError> {
        Ok(Self { file: File::open(path).map_err(StoreError::Folder)? })
    }

    /// Whether another file is at `path` now.
    pub(super) fn is_replaced(&self, path: &Path) -> bool {
        match (self.file.metadata(), fs::metadata(path)) {
            (Ok(held), Ok(found)) => (held.dev(), held.ino()) != (found.dev(), found.ino()),
            _ => false,
        }
    }

    /// Fails if the file is not at `path` any more, or has lost its header. Takes a few microseconds.
    pub(super) fn check(&self, path: &Path) -> Result<(), StoreError> {
        if self.is_replaced(path) {
            return Err(StoreError::Malformed("it was replaced while it was in use".to_owned()));
        }
        if !path.exists() {
            return Err(StoreError::Malformed("it was removed while it was in use".to_owned()));
        }
        let mut header = [0; 100];
        match self.file.read_exact_at(&mut header, 0) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                Err(StoreError::Malformed("it was cut while it was in use".to_owned()))
            }
            Err(error) => Err(StoreError::Folder(error)),
            Ok(()) if !header.starts_with(MAGIC) => {
                Err(StoreError::Malformed("its header was overwritten while it was in use".to_owned()))
            }
            Ok(()) => check_versions(&header),
        }
    }
}

fn check_header(header: &[u8]) -> Result<(), StoreError> {
    if (header.len() as u64) < MIN_BYTES {
        return Err(StoreError::Malformed(format!("it was cut to {} bytes", header.len())));
    }
    check_versions(header)
}

/// SQLite opens a database of an unknown version for reading, and refuses to write to it later.
fn check_versions(header: &[u8]) -> Result<(), StoreError> {
    if header[VERSIONS].iter().any(|version| !(1..=2).contains(version)) {
        return Err(StoreError::Malformed("its header names an unknown version of the format".to_owned()));
    }
    Ok(())
}

/// Reads the whole database and compares the indexes with the tables.
pub(super) fn check_integrity(connection: &Connection) -> Result<(), StoreError> {
    let found: String = connection.query_row("PRAGMA integrity_check(1)", [], |row| row.get(0))?;
    if found == "ok" { Ok(()) } else { Err(StoreError::Malformed(found)) }
}

/// Compares the tables and indexes with those that `migrations` create. A flipped byte in the text of the schema can
/// leave a schema that SQLite accepts and that lacks a column or a constraint. More tables, as `.recover` adds them,
/// are no damage.
pub(super) fn check_schema(connection: &Connection, migrations: &[&str]) -> Result<(), StoreError> {
    let intended = Connection::open_in_memory()?;
    for migration in migrations {
        intended.execute_batch(migration)?;
    }
    let found = schema(connection)?;
    for (name, sql) in schema(&intended)? {
        if found.get(&name) != Some(&sql) {
            return Err(StoreError::Malformed(format!("the schema of the {} `{}` was changed", name.0, name.1)));
        }
    }
    Ok(())
}

/// The kind and name of each table and index, with the table that it belongs to and its definition.
type Schema = BTreeMap<(String, String), (String, String)>;

fn schema(connection: &Connection) -> Result<Schema, StoreError> {
    let mut statement = connection.prepare("SELECT type, name, tbl_name, coalesce(sql, '') FROM sqlite_schema")?;
    let rows = statement.query_map([], |row| {
        let sql: String = row.get(3)?;
        // Versions of SQLite may differ in how they rewrite a definition when a table is renamed.
        let sql = sql.chars().filter(|char| *char != '"' && !char.is_whitespace()).collect();
        Ok(((row.get(0)?, row.get(1)?), (row.get(2)?, sql)))
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// Returns whether `path` exists; fails if it is anything but a regular file, which SQLite might wait for forever.
fn expect_file(path: &Path) -> Result<bool, StoreError> {
    match fs::metadata(path) {
        Ok(found) if found.is_file() => Ok(true),
        Ok(found) => {
            let found = if found.is_dir() { "a folder" } else { "not a regular file" };
            Err(StoreError::NotAFile { path: path.display().to_string(), found })
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(StoreError::Folder(error)),
    }
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
