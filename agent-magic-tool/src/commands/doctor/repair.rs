//! Repairs what is safe to repair without asking; never touches a result, a request or a setting.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::time::SystemTime;

use agent_side::output::Output;
use protocol::mailbox::Mailbox;
use protocol::paths::Paths;

use super::health;

/// Makes our folders private and removes stale temporary files; returns what was done, one sentence each.
pub(super) fn repair(paths: &Paths, output: &Output) -> Vec<String> {
    let mut done = Vec::new();
    let mut report = |what: String, outcome: io::Result<()>| match outcome {
        Ok(()) => done.push(what),
        Err(error) => output.note(&format!("failed to repair: {what}: {error}")),
    };
    for folder in health::open_folders(paths) {
        let outcome = fs::set_permissions(&folder, Permissions::from_mode(0o700));
        report(format!("made `{}` private", folder.display()), outcome);
    }
    // If the mailbox is still not trusted, its own check reports it.
    if let Ok(mailbox) = Mailbox::open(&paths.mailbox) {
        match mailbox.sweep(SystemTime::now()) {
            Ok(0) => {}
            Ok(swept) => report(format!("removed {swept} stale temporary files and answers from the mailbox"), Ok(())),
            Err(error) => report("removing stale temporary files from the mailbox".to_owned(), Err(error)),
        }
    }
    done
}
