//! The full program: it has all commands, and is the executor. The small program hands to it what it does not do itself.
//!
//! The full program does everything alone. The small one looks for it beside itself, then in `libexec`, then on the
//! search path, and says of which version it is, so that two that do not belong together tell so.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use protocol::code::Code;
use protocol::paths;

use crate::error::Error;
use crate::launch;

/// What it is called.
const NAME: &str = "agent-magic-tool";
/// The first word of a call by the small program: `--for-version=0.1.0`.
const FOR_VERSION: &str = "--for-version=";
const VERSION: &str = env!("CARGO_PKG_VERSION");

static IS_THIS: OnceLock<()> = OnceLock::new();

/// To be called by the full program before anything else.
pub fn is_this() {
    IS_THIS.get_or_init(|| ());
}

/// Where the full program is; `None` if it is not installed here.
pub fn path() -> Option<PathBuf> {
    let this = launch::program().ok()?;
    if IS_THIS.get().is_some() {
        return Some(this);
    }
    let this = fs::canonicalize(&this).unwrap_or(this);
    let folder = this.parent()?;
    let beside = [folder.join(NAME), folder.join("../libexec").join(NAME).join(NAME)];
    let on_path = paths::search_path().into_iter().map(|folder| folder.join(NAME));
    beside.into_iter().chain(on_path).find(|candidate| is_other_program(candidate, &this))
}

fn is_other_program(candidate: &Path, this: &Path) -> bool {
    let (Ok(found), Ok(this)) = (fs::metadata(candidate), fs::metadata(this)) else { return false };
    found.is_file() && found.mode() & 0o111 != 0 && (found.dev(), found.ino()) != (this.dev(), this.ino())
}

/// A call of the full program, to which its arguments are added.
pub fn command() -> Result<Command, Error> {
    let path = path().ok_or_else(missing)?;
    let mut command = Command::new(path);
    if IS_THIS.get().is_none() {
        command.arg(format!("{FOR_VERSION}{VERSION}"));
    }
    Ok(command)
}

/// Becomes the full program, with these arguments. Returns only if that fails.
pub fn become_it(arguments: &[OsString]) -> Error {
    match command() {
        Ok(mut command) => {
            let error = command.arg0(NAME).args(arguments).exec();
            Error::new(Code::CannotStart, format!("failed to start the full program: {error}"))
        }
        Err(error) => error,
    }
}

fn missing() -> Error {
    Error::new(Code::CannotStart, "this is the small program, and the full one, which this command needs, is not here")
        .hint(format!("install `{NAME}` beside it, in `../libexec/{NAME}`, or on PATH; list, run, wait, read, tasks and cancel need only a running executor"))
}

/// Takes what the small program put before the arguments; fails if the small program is of another version.
pub fn take_version(arguments: &mut Vec<OsString>) -> Result<(), Error> {
    let first = arguments.get(1).and_then(|word| word.to_str());
    let Some(version) = first.and_then(|word| word.strip_prefix(FOR_VERSION)) else { return Ok(()) };
    if IS_THIS.get().is_none() {
        return Err(missing().hint("what was found in its place is another small program"));
    }
    if version != VERSION {
        let message = format!("the small program has version {version}, and the full one {VERSION}");
        return Err(Error::new(Code::CannotStart, message).hint("install both from one release"));
    }
    arguments.remove(1);
    Ok(())
}
