//! What may be wrong with the files of an installation: their modes, their age, what they take.
//!
//! Only looks. Each check says what it found and what to do about it.

use std::fs::{self, Metadata};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use executor::store::switched_off::{SwitchedOffTool, SwitchedOffTools};
use protocol::duration::PositiveDuration;
use protocol::mailbox::{Mailbox, is_older};
use protocol::paths::Paths;
use serde_json::{Value, json};

use super::Check;

/// No command leaves a request in the inbox for nearly as long.
const UNTAKEN: Duration = Duration::from_mins(1);
/// File systems and networked clocks may differ by this much.
const SKEW: Duration = Duration::from_secs(5);

/// How many bytes lie where.
pub(super) fn sizes(paths: &Paths) -> Value {
    let store = paths.store();
    // The database has companions: `tasks.db-wal`, `tasks.db-shm`.
    let record = ["", "-wal", "-shm"].iter().map(|end| {
        let mut path = store.clone().into_os_string();
        path.push(end);
        fs::metadata(path).map_or(0, |found| found.len())
    });
    json!({
        "results": size_of(&paths.mailbox.join("results")),
        "data": size_of(&paths.data()),
        "record": record.sum::<u64>(),
        "log": fs::metadata(paths.log()).map_or(0, |found| found.len()),
    })
}

fn size_of(folder: &Path) -> u64 {
    files_in(folder).iter().map(|(_, found)| found.len()).sum()
}

/// Requests that nobody took, or that somebody took and did not answer.
pub(super) fn requests(mailbox: &Mailbox, now: SystemTime) -> Check {
    const NAME: &str = "requests";
    let lying = |folder: &Path| -> Vec<String> {
        let files = files_in(folder)
            .into_iter()
            .filter(|(path, found)| is_older(found, now, UNTAKEN) && path.extension().is_some_and(|end| end == "json"));
        files.map(|(path, _)| format!("`{}`", path.display())).collect()
    };
    let found = [lying(&mailbox.inbox()), lying(&mailbox.root().join("taken"))].concat();
    if found.is_empty() {
        return Check::good(NAME, "none waits for an executor");
    }
    let message =
        format!("{} were not answered for more than {}", found.len(), PositiveDuration::from_secs(UNTAKEN.as_secs()));
    Check { found, ..Check::bad(NAME, message, "the next executor takes them: agent-magic-tool executor start") }
}

/// Whether result files come from the future: then the clock was set back, and ages mean nothing.
pub(super) fn clock(mailbox: &Mailbox, now: SystemTime) -> Check {
    const NAME: &str = "clock";
    let ahead = |found: &Metadata| found.modified().ok()?.duration_since(now).ok().filter(|ahead| *ahead > SKEW);
    let ahead: Vec<_> = files_in(&mailbox.results()).iter().filter_map(|(_, found)| ahead(found)).collect();
    match ahead.iter().max() {
        None => Check::good(NAME, "no result is from the future"),
        Some(most) => Check::bad(
            NAME,
            format!(
                "{} results are from the future, by up to {}",
                ahead.len(),
                PositiveDuration::from_secs(most.as_secs().max(1))
            ),
            "the clock was set back, or is wrong now: set it right; until then pauses and ages are wrong",
        ),
    }
}

/// The folders that are ours alone and that others may enter all the same.
pub(super) fn open_folders(paths: &Paths) -> Vec<PathBuf> {
    let mailbox = &paths.mailbox;
    let inside = ["inbox", "taken", "answers", "results"].map(|name| mailbox.join(name));
    let ours = [vec![paths.state.clone(), mailbox.clone()], inside.to_vec()].concat();
    ours.into_iter().filter(|folder| fs::symlink_metadata(folder).is_ok_and(|found| is_open(&found))).collect()
}

fn is_open(found: &Metadata) -> bool {
    let is_ours = found.is_dir() && found.uid() == nix::unistd::geteuid().as_raw();
    is_ours && found.permissions().mode() & 0o077 != 0
}

pub(super) fn modes(paths: &Paths) -> Check {
    const NAME: &str = "modes";
    let open = open_folders(paths);
    if open.is_empty() {
        return Check::good(NAME, "our folders are ours alone");
    }
    let found = open.iter().map(|folder| format!("`{}`", folder.display())).collect();
    let message = format!("others may enter {} of our folders", open.len());
    Check { found, ..Check::bad(NAME, message, "agent-magic-tool doctor --repair") }
}

/// What a session may not call any more: that is told, and is no fault of the installation.
pub(super) fn switches(paths: &Paths) -> Check {
    const NAME: &str = "switches";
    match SwitchedOffTools::below(&paths.executor()).all() {
        Ok(off) if off.is_empty() => Check::good(NAME, "no subtool is off"),
        Ok(off) => {
            let line = |off: &SwitchedOffTool| match &off.session {
                Some(session) => format!("`{}` for the session `{session}`, since {}", off.tool, off.since),
                None => format!("`{}` for callers without a session, since {}", off.tool, off.since),
            };
            let message = format!("{} are off for a session that called them too often", off.len());
            let hint = Some("agent-magic-tool executor switch-on NAME".to_owned());
            Check { hint, found: off.iter().map(line).collect(), ..Check::good(NAME, message) }
        }
        Err(error) => Check::bad(NAME, format!("what is off cannot be read: {error}"), "look at its owner and mode"),
    }
}

/// The plain files of a folder; none if it cannot be read, which other checks tell.
fn files_in(folder: &Path) -> Vec<(PathBuf, Metadata)> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let files = entries.filter_map(|entry| Some((entry.path(), entry.metadata().ok()?)));
    files.filter(|(_, found)| found.is_file()).collect()
}
