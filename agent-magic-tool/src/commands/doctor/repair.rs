//! What can be mended without asking anybody: nothing that holds a result, a request or a setting.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::time::SystemTime;

use protocol::mailbox::Mailbox;
use protocol::paths::Paths;

use super::health;
use crate::output::Output;

/// Closes our folders to others and removes stale temporary files; what was done, in words.
pub(super) fn repair(paths: &Paths, output: &Output) -> Vec<String> {
    let mut done = Vec::new();
    let mut tell = |what: String, outcome: io::Result<()>| match outcome {
        Ok(()) => done.push(what),
        Err(error) => output.note(&format!("not repaired: {what}: {error}")),
    };
    for folder in health::open_folders(paths) {
        let outcome = fs::set_permissions(&folder, Permissions::from_mode(0o700));
        tell(format!("closed `{}` to others", folder.display()), outcome);
    }
    // One that cannot be trusted even now is told by its own check.
    if let Ok(mailbox) = Mailbox::open(&paths.mailbox) {
        match mailbox.sweep(SystemTime::now()) {
            Ok(0) => {}
            Ok(swept) => tell(format!("removed {swept} stale temporary files and answers from the mailbox"), Ok(())),
            Err(error) => tell("stale temporary files in the mailbox".to_owned(), Err(error)),
        }
    }
    done
}
