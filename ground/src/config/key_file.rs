//! The file of the approver's keys: which keys may approve, and who may change that.
//!
//! Usually it lies in the executor's folder. It is then as safe as that folder, so a program of the same user could
//! replace it. A file that the configuration names with `confirm.keys` is the only one believed; it must belong to root.

use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use protocol::trust;

use crate::task::approver_key::ApproverKeys;
use protocol::file_state::FileState;

/// The file in the executor's folder.
const FILE_NAME: &str = "approver-keys.json";
/// Far more than all keys need.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// Where the keys are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyFile {
    path: PathBuf,
    /// Whether the configuration names it, so that only root may change it.
    is_pinned: bool,
}

/// The file as it was read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReadKeys {
    pub keys: ApproverKeys,
    /// Whether root wrote it.
    pub is_roots: bool,
    /// The state of the file; `None` without one.
    pub state: Option<FileState>,
}

/// Why the keys are not believed.
#[derive(Debug, thiserror::Error)]
pub enum KeyFileError {
    #[error("failed to read the keys in `{path}`")]
    Io { path: String, source: io::Error },
    #[error("the keys in `{path}` are not believed")]
    Distrusted { path: String, source: trust::Distrust },
    #[error("the keys in `{path}` are not believed: `confirm.keys` names it, and it does not belong to root")]
    NotRoots { path: String },
    #[error("the file of keys `{path}` is malformed")]
    Malformed { path: String, source: serde_json::Error },
}

impl KeyFile {
    /// `folder` is the executor's folder, `pinned` the file that the configuration names.
    pub fn new(folder: &Path, pinned: Option<&Path>) -> Self {
        let path = pinned.map_or_else(|| folder.join(FILE_NAME), Path::to_owned);
        Self { path, is_pinned: pinned.is_some() }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn is_pinned(&self) -> bool {
        self.is_pinned
    }

    /// The state of the file, to notice a change.
    pub fn state(&self) -> Option<FileState> {
        FileState::at(&self.path)
    }

    /// Reads the keys. A file that does not exist has none, unless the configuration names it.
    pub fn read(&self) -> Result<ReadKeys, KeyFileError> {
        let failed = |source| KeyFileError::Io { path: self.shown(), source };
        let file = match File::open(&self.path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound && !self.is_pinned => return Ok(ReadKeys::default()),
            Err(error) => return Err(failed(error)),
        };
        let metadata = file.metadata().map_err(failed)?;
        let distrusted = |source| KeyFileError::Distrusted { path: self.shown(), source };
        trust::check(&self.path).map_err(distrusted)?;
        trust::check_entry(&self.path, &metadata).map_err(distrusted)?;
        let is_roots = metadata.uid() == 0;
        if self.is_pinned && !is_roots {
            return Err(KeyFileError::NotRoots { path: self.shown() });
        }
        let mut text = Vec::new();
        (&file).take(MAX_FILE_BYTES).read_to_end(&mut text).map_err(failed)?;
        let malformed = |source| KeyFileError::Malformed { path: self.shown(), source };
        let keys = serde_json::from_slice(&text).map_err(malformed)?;
        Ok(ReadKeys { keys, is_roots, state: Some(FileState::of(&metadata)) })
    }

    /// Replaces the file as a whole. `mode` lets others read what root writes; nothing in it is secret.
    pub fn write(&self, keys: &ApproverKeys, mode: u32) -> io::Result<()> {
        let folder = self.path.parent().unwrap_or_else(|| Path::new("/"));
        let mut file = tempfile::NamedTempFile::new_in(folder)?;
        file.write_all(&serde_json::to_vec_pretty(keys)?)?;
        file.as_file().set_permissions(fs::Permissions::from_mode(mode))?;
        file.as_file().sync_all()?;
        file.persist(&self.path).map_err(|error| error.error)?;
        File::open(folder)?.sync_all()
    }

    fn shown(&self) -> String {
        self.path.display().to_string()
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;

    #[test]
    fn keys_are_read_as_they_were_written_by_their_owner_only() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = KeyFile::new(folder.path(), None);
        assert_eq!(file.read().expect("none"), ReadKeys::default());
        let keys = ApproverKeys { reset_at: Some(Timestamp::UNIX_EPOCH), ..ApproverKeys::default() };
        file.write(&keys, 0o600).expect("written");
        let read = file.read().expect("read");
        assert_eq!((&read.keys, read.state), (&keys, file.state()));
        let mode = fs::metadata(file.path()).expect("it is there").mode();
        assert_eq!(mode & 0o777, 0o600);
        fs::set_permissions(file.path(), fs::Permissions::from_mode(0o666)).expect("changed");
        assert!(matches!(file.read(), Err(KeyFileError::Distrusted { .. })));
        file.write(&keys, 0o600).expect("written");
        fs::write(file.path(), "{\"keys\": [{}]}").expect("written");
        assert!(matches!(file.read(), Err(KeyFileError::Malformed { .. })));
    }

    #[test]
    fn a_file_that_the_configuration_names_must_be_there_and_belong_to_root() {
        let folder = tempfile::tempdir().expect("a folder");
        let pinned = folder.path().join("keys.json");
        let file = KeyFile::new(folder.path(), Some(&pinned));
        assert!(matches!(file.read(), Err(KeyFileError::Io { .. })));
        file.write(&ApproverKeys::default(), 0o644).expect("written");
        let is_root = nix::unistd::geteuid().is_root();
        assert_eq!(file.read().is_ok(), is_root, "it belongs to the user who runs this test");
    }
}
