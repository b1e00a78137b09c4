//! What the executor publishes for its callers, who may see nothing of the machine but the mailbox: the settings that
//! they go by, and the listing of all subtools.
//!
//! ```text
//! for-callers.json     CallerSettings
//! listing              the listing, as the crate `listing` reads it
//! ```
//!
//! Nothing here is trusted with more than what is shown and how long is waited: what a caller may do, the executor decides.
//! All who may write to the mailbox can change it, as they can change results.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Seek as _};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::{Mailbox, replace, replace_with};
use crate::access::AccessRules;
use crate::command_executor::ForeignCommands;
use crate::duration::PositiveDuration;
use crate::file_state::FileState;
use crate::regular_file;
use crate::task::TaskId;

/// Far more than the settings take.
const MAX_SETTINGS_BYTES: u64 = 16 << 10;

/// The settings of the executor that concern its callers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallerSettings {
    /// How long `wait` waits without a `--timeout`.
    pub wait: PositiveDuration,
    /// How long a hook waits if its client is blocked meanwhile.
    pub hook_wait: PositiveDuration,
    /// How long a hook waits if its client runs it in the background.
    pub hook_wait_beside: PositiveDuration,
    /// What is done with a command line for another program.
    pub foreign_commands: ForeignCommands,
    /// Whether searches remember which subtool was run after them.
    pub learns: bool,
}

impl Default for CallerSettings {
    /// As in the default configuration.
    fn default() -> Self {
        Self {
            wait: PositiveDuration::from_secs(100),
            hook_wait: PositiveDuration::from_secs(600),
            hook_wait_beside: PositiveDuration::from_secs(3600),
            foreign_commands: ForeignCommands::Refuse,
            learns: true,
        }
    }
}

#[derive(Debug, Serialize, Deserialize)]
struct PublishedSettings {
    /// That of the executor: what an earlier one has left is not in force.
    pid: u32,
    settings: CallerSettings,
}

/// What a `list` asks the executor about what it is to print.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListingQuestion {
    /// The state of the file from which the listing was read; without one, there was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<FileState>,
    /// The subtools that are to be printed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub subtools: Vec<String>,
    /// Whether the rules of the caller's profiles are wanted.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub wants_rules: bool,
}

/// What subtools need and the machine does not have.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lacking {
    pub secrets: Vec<String>,
    pub programs: Vec<PathBuf>,
}

/// The answer to it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListingAnswer {
    /// Whether it is the very file that the executor has published of the definitions as they are. If not, a new one is being
    /// made.
    pub is_current: bool,
    /// What the subtools lack, if it is.
    pub lacking: Lacking,
    /// What the profiles of the caller allow, by their names, if that was asked.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub rules: BTreeMap<String, AccessRules>,
}

impl Mailbox {
    fn settings_file(&self) -> PathBuf {
        self.root().join("for-callers.json")
    }

    /// The listing, if the executor has published one.
    pub fn listing(&self) -> PathBuf {
        self.root().join("listing")
    }

    /// Publishes the settings of this process, which is the executor.
    pub fn publish_settings(&self, settings: &CallerSettings) -> io::Result<()> {
        let published = PublishedSettings { pid: std::process::id(), settings: *settings };
        replace(&self.settings_file(), &serde_json::to_vec(&published)?, "settings")
    }

    /// The settings of the executor that runs; `None` if none does, or it has not come so far.
    pub fn settings(&self) -> Option<CallerSettings> {
        let text = regular_file::read_text(&self.settings_file(), MAX_SETTINGS_BYTES).ok()?;
        let published: PublishedSettings = serde_json::from_str(&text).ok()?;
        // From inside a container its id is not visible.
        let executor = self.executor().ok()??;
        (executor == published.pid || executor == 0).then_some(published.settings)
    }

    /// Publishes a copy of `listing`, never the file itself: all who may write to the mailbox may change what lies there.
    /// Returns the copy.
    pub fn publish_listing(&self, mut listing: &File) -> io::Result<File> {
        // A folder in its place cannot be replaced by a file; it is put aside, not deleted.
        if fs::symlink_metadata(self.listing()).is_ok_and(|found| found.is_dir()) {
            fs::rename(self.listing(), self.root().join(format!(".listing-folder.{}", TaskId::new())))?;
        }
        let mut copy = None;
        replace_with(&self.listing(), "listing", |file| {
            listing.rewind()?;
            io::copy(&mut listing, file)?;
            copy = Some(file.try_clone()?);
            Ok(())
        })?;
        copy.ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listing_is_published_as_a_copy_of_its_own() {
        let folder = tempfile::tempdir().expect("a folder");
        let mailbox = Mailbox::open(&folder.path().join("mailbox")).expect("a mailbox");
        let path = folder.path().join("listing");
        for text in ["one", "two"] {
            fs::write(&path, text).expect("written");
            mailbox.publish_listing(&File::open(&path).expect("it is there")).expect("published");
            assert_eq!(fs::read_to_string(mailbox.listing()).expect("readable"), text);
        }
        fs::write(mailbox.listing(), "changed").expect("written");
        assert_eq!(fs::read_to_string(&path).expect("readable"), "two");
    }

    #[test]
    fn the_settings_of_an_executor_that_is_gone_are_not_in_force() {
        let folder = tempfile::tempdir().expect("a folder");
        let mailbox = Mailbox::open(&folder.path().join("mailbox")).expect("a mailbox");
        let settings = CallerSettings { learns: false, ..CallerSettings::default() };
        mailbox.publish_settings(&settings).expect("published");
        assert_eq!(mailbox.settings(), None, "no process is the executor of this mailbox");
    }
}
