//! The outcomes of health checks: the last one of each pack, in a small file of the state folder. Losing it costs
//! nothing but another check.

use std::collections::BTreeMap;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use protocol::paths::create_private;
use protocol::regular_file;
use serde::{Deserialize, Serialize};

/// The largest file that is read; the messages in it are short.
const MAX_BYTES: u64 = 4 << 20;

/// How a health check ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PackCheck {
    pub at: Timestamp,
    /// The version of the pack that was checked. Of another one it says nothing.
    pub version: String,
    pub passed: bool,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// The last check of each pack.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PackChecks(BTreeMap<String, PackCheck>);

impl PackChecks {
    /// Reads those in the state folder. A file that is missing or damaged has none.
    pub fn read(state: &Path) -> Self {
        let text = regular_file::read(&file(state), MAX_BYTES).unwrap_or_default();
        serde_json::from_slice(&text).unwrap_or_default()
    }

    /// The last check of this version of a pack.
    pub fn of(&self, name: &str, version: &str) -> Option<&PackCheck> {
        self.0.get(name).filter(|check| check.version == version)
    }

    /// Remembers checks, in place of the earlier ones of these packs.
    pub fn record(state: &Path, checks: impl IntoIterator<Item = (String, PackCheck)>) -> io::Result<()> {
        create_private(state)?;
        let mut known = Self::read(state);
        known.0.extend(checks);
        let mut written = tempfile::NamedTempFile::new_in(state)?;
        written.write_all(&serde_json::to_vec(&known)?)?;
        written.persist(file(state))?;
        Ok(())
    }
}

fn file(state: &Path) -> PathBuf {
    state.join("pack-checks.json")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_check_of_a_version_is_kept_and_a_damaged_file_has_none() {
        let folder = tempfile::tempdir().expect("a folder");
        let state = folder.path().join("state");
        let check = |passed| PackCheck { at: Timestamp::UNIX_EPOCH, version: "1".to_owned(), passed, message: None };
        let record = |name: &str, passed| {
            PackChecks::record(&state, [(name.to_owned(), check(passed))]).expect("written");
        };
        record("zoo", false);
        record("house", true);
        record("zoo", true);
        let known = PackChecks::read(&state);
        assert_eq!((known.of("zoo", "1"), known.of("house", "1")), (Some(&check(true)), Some(&check(true))));
        assert_eq!((known.of("zoo", "2"), known.of("zebra", "1")), (None, None));
        std::fs::write(file(&state), "{\"zoo\": 5").expect("written");
        assert!(PackChecks::read(&state).of("zoo", "1").is_none());
        record("zoo", false);
        assert_eq!(PackChecks::read(&state).of("zoo", "1"), Some(&check(false)));
    }
}
