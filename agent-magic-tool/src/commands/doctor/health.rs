//! Checks the files of an installation: their modes, their age, their size.
//!
//! Changes nothing. Each check reports what it found and what to do about it.

use std::fs::{self, Metadata};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use agent_side::launch::START_BY_HAND;
use ground::base::children;
use ground::config::state;
use protocol::duration::PositiveDuration;
use protocol::error::chain;
use protocol::mailbox::{Mailbox, disk, is_older};
use protocol::paths::Paths;
use protocol::wording::inflected;
use serde_json::{Value, json};
use store::sqlite;
use store::switched_off::{SwitchedOffTool, SwitchedOffTools};

use super::Check;

/// A request older than this is stuck, since a command waits far less for its answer.
const STUCK_AFTER: Duration = Duration::from_mins(1);
/// The clocks of file systems and machines may differ by this much.
const MAX_CLOCK_SKEW: Duration = Duration::from_secs(5);

/// The sizes of the installation's files, in bytes.
pub(super) fn sizes(paths: &Paths) -> Value {
    let store = paths.store();
    // SQLite keeps `tasks.db-wal` and `tasks.db-shm` next to the database.
    let record = ["", "-wal", "-shm"].iter().map(|suffix| {
        let mut path = store.clone().into_os_string();
        path.push(suffix);
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

/// Whether the disks with the mailbox and the executor's files have space.
pub(super) fn disks(paths: &Paths, mailbox: Option<&Mailbox>) -> Check {
    const NAME: &str = "disks";
    const HINT: &str = "free space there; nothing can be recorded until then";
    if let Some(problem) = mailbox.and_then(Mailbox::disk_problem) {
        let since = problem.since.map(|since| format!(" since {since}")).unwrap_or_default();
        return Check::bad(NAME, format!("{}{since}", problem.message), problem.hint);
    }
    let folders = [("state", &paths.state), ("cache", &paths.cache)];
    match folders.iter().find(|(_, folder)| disk::is_full(folder)) {
        Some((name, folder)) => {
            Check::bad(NAME, format!("the disk with the {name} folder `{}` is full", folder.display()), HINT)
        }
        None => Check::good(NAME, "there is space"),
    }
}

/// Whether the record of tasks can be read as a whole, and whether the last executor failed.
pub(super) fn record(paths: &Paths, mailbox: Option<&Mailbox>) -> Check {
    const NAME: &str = "record";
    let is_in_use = mailbox.is_some_and(|mailbox| mailbox.executor().is_ok_and(|pid| pid.is_some()));
    if let Err(error) = sqlite::inspect(&paths.store(), is_in_use) {
        return Check::bad(NAME, chain(&error), error.hint().unwrap_or_else(|| "check its owner and mode".to_owned()));
    }
    match mailbox.and_then(Mailbox::failure).filter(|_| !is_in_use) {
        None => Check::good(NAME, "intact"),
        Some(failure) => {
            let hint = failure.hint.unwrap_or_else(|| START_BY_HAND.to_owned());
            Check::bad(NAME, format!("intact, but the last executor failed: {}", failure.message), hint)
        }
    }
}

/// Whether everything that a program starts ends with it.
pub(super) fn leftovers_of_programs() -> Check {
    const NAME: &str = "programs";
    if children::can_adopt() {
        return Check::good(NAME, "what they start ends with them");
    }
    let message =
        "a process that a program moves to a session of its own outlives it: this system has no way to find it";
    Check::good(NAME, message)
}

/// Requests that no executor took, or that one took but did not answer.
pub(super) fn requests(mailbox: &Mailbox, now: SystemTime) -> Check {
    const NAME: &str = "requests";
    let stuck = |folder: &Path| -> Vec<String> {
        let files = files_in(folder).into_iter().filter(|(path, found)| {
            is_older(found, now, STUCK_AFTER) && path.extension().is_some_and(|extension| extension == "json")
        });
        files.map(|(path, _)| format!("`{}`", path.display())).collect()
    };
    let found = [stuck(&mailbox.inbox()), stuck(&mailbox.root().join("taken"))].concat();
    if found.is_empty() {
        return Check::good(NAME, "none is stuck");
    }
    let message = format!(
        "{} have not been answered for more than {}",
        found.len(),
        PositiveDuration::from_secs(STUCK_AFTER.as_secs())
    );
    Check {
        found,
        ..Check::bad(NAME, message, "an executor takes them when it starts: agent-magic-tool executor start")
    }
}

/// Whether result files are dated in the future: then the clock was set back, and ages are wrong.
pub(super) fn clock(mailbox: &Mailbox, now: SystemTime) -> Check {
    const NAME: &str = "clock";
    let ahead =
        |found: &Metadata| found.modified().ok()?.duration_since(now).ok().filter(|ahead| *ahead > MAX_CLOCK_SKEW);
    let ahead: Vec<_> = files_in(&mailbox.results()).iter().filter_map(|(_, found)| ahead(found)).collect();
    match ahead.iter().max() {
        None => Check::good(NAME, "no result is dated in the future"),
        Some(max) => Check::bad(
            NAME,
            format!(
                "{} dated in the future, by up to {}",
                inflected(ahead.len(), "result is", "results are"),
                PositiveDuration::from_secs(max.as_secs().max(1))
            ),
            "the clock was set back or is wrong: correct it, since delays and ages are wrong until then",
        ),
    }
}

/// Returns those of our private folders that other users can access.
pub(super) fn open_folders(paths: &Paths) -> Vec<PathBuf> {
    let mailbox = &paths.mailbox;
    let inside = ["inbox", "taken", "answers", "results"].map(|name| mailbox.join(name));
    let private = [vec![paths.state.clone(), mailbox.clone()], inside.to_vec()].concat();
    private.into_iter().filter(|folder| fs::symlink_metadata(folder).is_ok_and(|found| is_open(&found))).collect()
}

fn is_open(found: &Metadata) -> bool {
    let is_ours = found.is_dir() && found.uid() == nix::unistd::geteuid().as_raw();
    is_ours && found.permissions().mode() & 0o077 != 0
}

pub(super) fn modes(paths: &Paths) -> Check {
    const NAME: &str = "modes";
    let open = open_folders(paths);
    if open.is_empty() {
        return Check::good(NAME, "our folders are private");
    }
    let found = open.iter().map(|folder| format!("`{}`", folder.display())).collect();
    let message = format!("other users can access {} of our folders", open.len());
    Check { found, ..Check::bad(NAME, message, "agent-magic-tool doctor --repair") }
}

/// Whether another user can have written what decides.
pub(super) fn state(paths: &Paths) -> Check {
    const NAME: &str = "state";
    let (distrusted, open) = (state::distrusted(paths), state::open_secrets(paths));
    if let Some(first) = distrusted.first() {
        let hint = first.remedy().unwrap_or_default();
        let found = distrusted.iter().map(ToString::to_string).collect();
        return Check {
            found,
            ..Check::bad(NAME, "secrets, keys and grants are not believed, and no executor starts", hint)
        };
    }
    if open.is_empty() {
        return Check::good(NAME, "secrets, keys and grants are our own");
    }
    let found = open.iter().map(|path| format!("`{}`", path.display())).collect();
    let message = format!("{} stored secrets are not used, because others can read or change the file", open.len());
    Check { found, ..Check::bad(NAME, message, "agent-magic-tool secret set NAME, with a new value") }
}

/// The subtools that are switched off. Not a failure of the installation.
pub(super) fn switches(paths: &Paths) -> Check {
    const NAME: &str = "switches";
    match SwitchedOffTools::below(&paths.executor()).all() {
        Ok(off) if off.is_empty() => Check::good(NAME, "no subtool is switched off"),
        Ok(off) => {
            let line = |off: &SwitchedOffTool| match &off.session {
                Some(session) => format!("`{}` for the session `{session}`, since {}", off.tool, off.since),
                None => format!("`{}` for callers without a session, since {}", off.tool, off.since),
            };
            let message = format!("{} are switched off for a session that called them too often", off.len());
            let hint = Some("agent-magic-tool executor switch-on NAME".to_owned());
            Check { hint, found: off.iter().map(line).collect(), ..Check::good(NAME, message) }
        }
        Err(error) => Check::bad(
            NAME,
            format!("failed to read which subtools are switched off: {error}"),
            "check its owner and mode",
        ),
    }
}

/// The regular files of a folder; empty if it cannot be read, which other checks report.
fn files_in(folder: &Path) -> Vec<(PathBuf, Metadata)> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let files = entries.filter_map(|entry| Some((entry.path(), entry.metadata().ok()?)));
    files.filter(|(_, found)| found.is_file()).collect()
}
