//! Holds the files that a human was shown, so that the start of a program executes them and no others.
//!
//! A file is opened, what is open is compared with the approval, and what is open is executed, by its descriptor. So
//! that nothing is written to it in between, a program's file is under a lease; where there are no leases, and for every
//! script, a sealed copy in memory is executed in its place. A file that neither the agent nor others can change, nor
//! any folder above it, is started by its name.
//!
//! A script that is held sees `/proc/self/fd/N` as its own name. Its true path is in the variable [`SCRIPT`], and
//! Python finds the modules in its folder. Without `/proc` and elsewhere than on Linux, files are compared directly
//! before the start, and opened again by the system.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};

use ground::base::write_access::WriteAccess;
use ground::task::failure::Failure;
use ground::task::fingerprint::{FileRole, Fingerprint, hash_copy};
use protocol::code::Code;
use protocol::regular_file;

use super::startup::{Startup, StartupArgument, interpreter_kind};
use crate::lease::{self, Lease};

/// The variable with the true path of a script that is held.
pub(super) const SCRIPT: &str = "AGENT_MAGIC_TOOL_SCRIPT";

/// The files that are held open for one start.
#[derive(Debug, Default)]
pub(crate) struct HeldFiles {
    /// Not inherited: the kernel opens it before it closes what is not inherited.
    binary: Option<File>,
    passed: Vec<File>,
}

impl HeldFiles {
    /// What the program inherits.
    pub(crate) fn passed(&self) -> &[File] {
        &self.passed
    }

    /// Adds what the program inherits as well.
    pub(super) fn hold_all(&mut self, others: Self) {
        self.passed.extend(others.passed);
    }

    /// Adds a file that the program reads. Returns the path by which it opens it: `path` where it must use its own.
    pub(super) fn hold_input(&mut self, file: File, path: PathBuf) -> PathBuf {
        let held = if can_hold() { in_child(&file) } else { path };
        self.passed.push(file);
        held
    }
}

/// How a program is started from the files that are held.
#[derive(Debug)]
pub(super) struct HeldStart {
    pub(super) files: HeldFiles,
    /// What is executed.
    pub(super) binary: PathBuf,
    /// What precedes the arguments of the call.
    pub(super) before: Vec<OsString>,
    /// What replaces an argument of the call.
    pub(super) script: Option<(usize, Vec<OsString>)>,
    /// Variables for a script that is held.
    pub(super) env: Vec<(&'static str, PathBuf)>,
}

impl HeldStart {
    /// Opens the files of `startup` and compares them with `approved`. `agent` is the Unix user of the agent.
    pub(super) fn of(startup: &Startup, approved: &[Fingerprint], agent: u32) -> Result<Self, Failure> {
        let mut start = Self {
            files: HeldFiles::default(),
            binary: startup.binary.clone(),
            before: Vec::new(),
            script: None,
            env: Vec::new(),
        };
        for covered in approved.iter().filter(|file| is_opened_by_name(file.role)) {
            compare(covered)?;
        }
        let executed = |file: &&Fingerprint| !file.role.is_of_input();
        let shown =
            |path: &Path| approved.iter().filter(executed).find(|file| file.path == path).ok_or_else(|| changed(path));
        if let Some(file) = open_binary(shown(&startup.binary)?, agent)? {
            start.binary = in_child(&file);
            start.files.binary = Some(file);
        }
        for argument in &startup.before {
            match argument {
                StartupArgument::Text(text) => start.before.push(text.clone()),
                StartupArgument::Script(path) => {
                    let words = start.hold_script(shown(path)?, &startup.binary, agent)?;
                    start.before.extend(words);
                }
            }
        }
        if let Some((place, path)) = &startup.script {
            let words = start.hold_script(shown(path)?, &startup.program, agent)?;
            start.script = Some((*place, words));
        }
        Ok(start)
    }

    /// Returns the arguments with which `interpreter` reads a script.
    fn hold_script(&mut self, shown: &Fingerprint, interpreter: &Path, agent: u32) -> Result<Vec<OsString>, Failure> {
        let Some(copy) = copy_of_script(shown, agent)? else { return Ok(vec![shown.path.clone().into()]) };
        let path = in_child(&copy);
        self.files.passed.push(copy);
        self.env.retain(|(name, _)| *name != SCRIPT);
        self.env.push((SCRIPT, shown.path.clone()));
        let kind = interpreter_kind(interpreter).map(|(kind, _)| kind);
        let folder = shown.path.canonicalize().ok().and_then(|path| path.parent().map(Path::to_owned));
        if let (Some("python" | "pypy"), Some(folder)) = (kind, folder) {
            self.env.push(("PYTHONPATH", folder));
            // Compiled code beside a module would be executed in its place.
            self.env.push(("PYTHONPYCACHEPREFIX", PathBuf::from("/dev/null")));
        }
        // Node otherwise looks for the file that the descriptor is a link to.
        let option = matches!(kind, Some("node" | "nodejs")).then(|| OsString::from("--preserve-symlinks-main"));
        Ok(option.into_iter().chain([path.into()]).collect())
    }
}

fn is_opened_by_name(role: FileRole) -> bool {
    matches!(role, FileRole::Covered | FileRole::Folder) || role.is_of_argument()
}

/// Opens the file that the kernel executes; `None` if it is started by its name.
fn open_binary(shown: &Fingerprint, agent: u32) -> Result<Option<File>, Failure> {
    if !can_hold() || WriteAccess::to(&shown.path, agent).is_none() {
        return compare(shown).map(|()| None);
    }
    let mut file = regular_file::open(&shown.path).map_err(|error| unreadable(&shown.path, &error))?;
    let held = match lease::acquire(&file) {
        Lease::OpenForWriting => return Err(changed(&shown.path)),
        Lease::Unsupported => return copied(&mut file, shown).map(Some),
        Lease::Held => hash_copy(&mut file, &mut io::sink()),
    };
    let sha256 = held.map_err(|error| unreadable(&shown.path, &error))?;
    if sha256 == shown.sha256 { Ok(Some(file)) } else { Err(changed(&shown.path)) }
}

/// Copies a script; `None` if it is read by its name.
fn copy_of_script(shown: &Fingerprint, agent: u32) -> Result<Option<File>, Failure> {
    if !can_hold() || WriteAccess::to(&shown.path, agent).is_none() {
        return compare(shown).map(|()| None);
    }
    let mut file = regular_file::open(&shown.path).map_err(|error| unreadable(&shown.path, &error))?;
    copied(&mut file, shown).map(Some)
}

/// Copies `file` to a file in memory that cannot be changed any more, and compares the copy with what was shown.
fn copied(file: &mut File, shown: &Fingerprint) -> Result<File, Failure> {
    let sealed = sealed_copy(file, &shown.path).map_err(|error| unreadable(&shown.path, &error))?;
    let (copy, sha256) = sealed;
    if sha256 == shown.sha256 { Ok(copy) } else { Err(changed(&shown.path)) }
}

/// Copies `file` to memory that cannot be changed any more. Returns the copy and the hash of its content.
#[cfg(target_os = "linux")]
pub(crate) fn sealed_copy(file: &mut File, path: &Path) -> io::Result<(File, String)> {
    use nix::fcntl::{FcntlArg, SealFlag, fcntl};
    use nix::sys::memfd::{MFdFlags, memfd_create};

    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or("script");
    let name: String = name.chars().filter(char::is_ascii_graphic).take(MAX_NAME_CHARS).collect();
    let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
    let mut copy = File::from(memfd_create(name.as_str(), flags)?);
    let sha256 = hash_copy(file, &mut copy)?;
    let seals = SealFlag::F_SEAL_WRITE | SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_SEAL;
    fcntl(&copy, FcntlArg::F_ADD_SEALS(seals))?;
    Ok((copy, sha256))
}

/// The longest name of a copy in memory; the system allows 249 bytes.
#[cfg(target_os = "linux")]
const MAX_NAME_CHARS: usize = 100;

#[cfg(not(target_os = "linux"))]
pub(crate) fn sealed_copy(_: &mut File, _: &Path) -> io::Result<(File, String)> {
    Err(io::Error::from(io::ErrorKind::Unsupported))
}

/// Whether files can be executed and read by their descriptors here.
pub(crate) fn can_hold() -> bool {
    cfg!(target_os = "linux") && Path::new("/proc/self/fd").is_dir()
}

/// The path under which a program opens a file that it inherits.
fn in_child(file: &File) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

fn compare(shown: &Fingerprint) -> Result<(), Failure> {
    if shown.is_current() { Ok(()) } else { Err(changed(&shown.path)) }
}

fn changed(path: &Path) -> Failure {
    Failure::drifted(&format!(
        "the program or one of its files changed after the human was asked: `{}`",
        path.display()
    ))
}

fn unreadable(path: &Path, error: &io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::NotFound => changed(path),
        _ => Failure::new(Code::CannotStart, format!("failed to read `{}`: {error}", path.display())),
    }
}
