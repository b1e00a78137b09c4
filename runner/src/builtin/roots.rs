//! Confines the builtins to the folders that may be read, the roots.
//!
//! The kernel enforces the confinement (`openat2` with `RESOLVE_BENEATH`, through cap-std), not a comparison of
//! texts: an opened file always lies in a root, whatever the path contains and whatever is renamed meanwhile. A
//! link to an absolute path counts as leading out of the root, even if its target lies inside. A path that leads
//! out fails in the same way whether or not it exists.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cap_std::ambient_authority;
use cap_std::fs::{Dir, Metadata, OpenOptions, OpenOptionsExt as _};
use ground::base::own_folders::{ClosedFolders, OwnFolders};
use ground::config::Config;
use ground::task::failure::Failure;
use nix::errno::Errno;
use nix::fcntl::OFlag;
use protocol::code::Code;
use tokio_util::sync::CancellationToken;

use super::interrupt::blocking;
use crate::{Invocation, RunnerContext, RunnerOutput};

/// The folders that an invocation may read.
#[derive(Debug)]
pub(crate) struct Roots {
    roots: Vec<Root>,
    /// The caller's folder, as the caller names it and without links.
    caller: Option<(PathBuf, PathBuf)>,
}

#[derive(Debug)]
struct Root {
    path: PathBuf,
    /// `path` without links.
    real: PathBuf,
    folder: Dir,
    closed: Arc<ClosedFolders>,
}

/// An existing path in a root.
#[derive(Debug)]
pub(crate) struct FoundPath<'a> {
    root: &'a Root,
    /// Relative to the root, without links.
    relative: PathBuf,
    pub(crate) metadata: Metadata,
}

/// Runs `work` with the roots of the invocation, on a thread that may block.
pub(super) async fn within_roots(
    invocation: &Invocation,
    context: &RunnerContext,
    cancel: &CancellationToken,
    work: impl FnOnce(&Roots, &CancellationToken) -> Result<RunnerOutput, Failure> + Send + 'static,
) -> Result<RunnerOutput, Failure> {
    let (invocation, config, own) = (invocation.clone(), context.config.clone(), context.own_folders.clone());
    blocking(cancel, move |cancel| work(&Roots::open(&invocation, &config, &own)?, cancel)).await
}

impl Roots {
    /// Opens the configured roots that exist; a relative root starts at the caller's folder.
    pub(crate) fn open(invocation: &Invocation, config: &Config, own: &OwnFolders) -> Result<Self, Failure> {
        let closed = Arc::new(own.closed());
        let caller = invocation.caller.folder.as_ref().map(|folder| (folder.clone(), canonical(folder)));
        let configured = config.files.roots.iter().filter_map(|root| match &invocation.caller.folder {
            Some(folder) => Some(folder.join(root)),
            None => root.is_absolute().then(|| root.clone()),
        });
        let roots: Vec<Root> = configured
            .filter_map(|path| {
                let folder = Dir::open_ambient_dir(&path, ambient_authority()).ok()?;
                // `components` removes the `.` that `join` leaves in the path.
                let real = match &caller {
                    Some((folder, real)) if path.components().eq(folder.components()) => real.clone(),
                    _ => canonical(&path),
                };
                let closed = Arc::clone(&closed);
                Some(Root { real, path: path.components().collect(), folder, closed })
            })
            .collect();
        if roots.is_empty() {
            return Err(Failure::new(Code::OutsideRoots, "there is no folder that may be read")
                .hint("a human can add folders to `roots` under [files] in config.toml"));
        }
        Ok(Self { roots, caller })
    }

    /// Finds `path`, which is absolute or starts at the caller's folder. If that folder lies in no root, a relative
    /// path that does not lead into one starts at each root in turn.
    pub(crate) fn find(&self, path: &str) -> Result<FoundPath<'_>, Failure> {
        let mut first_error = None;
        for (root, relative) in self.candidates(Path::new(path)) {
            match root.find(&relative) {
                Ok(found) if found.is_closed() => return Err(closed(path)),
                Ok(found) => return Ok(found),
                Err(error) if !is_escape(&error) && root.leads_into_closed(&relative) => return Err(closed(path)),
                Err(error) if is_escape(&error) => {}
                Err(error) => first_error = first_error.or(Some(error)),
            }
        }
        Err(match first_error {
            Some(error) => self.unreadable(path, &error),
            None => self.outside(path),
        })
    }

    /// Returns the absolute path `path` relative to the caller's folder, if it lies in it.
    pub(crate) fn shown(&self, path: &Path) -> String {
        let from_caller = self.caller.as_ref().and_then(|(folder, real)| inside(path, folder, real));
        match from_caller {
            Some(relative) if relative.as_os_str().is_empty() => ".".to_owned(),
            Some(relative) => relative.to_string_lossy().into_owned(),
            None => path.to_string_lossy().into_owned(),
        }
    }

    fn candidates(&self, path: &Path) -> Vec<(&Root, PathBuf)> {
        let from = |place: PathBuf| {
            let candidate = |root| Some((root, Root::relative(root, &place)?));
            self.roots.iter().filter_map(candidate).collect::<Vec<_>>()
        };
        let Some((folder, real)) = self.caller.as_ref().filter(|_| path.is_relative()) else {
            let of_roots = || self.roots.iter().map(|root| (root, path.to_owned())).collect();
            return if path.is_absolute() { from(path.to_owned()) } else { of_roots() };
        };
        let mut found = from(folder.join(path));
        if found.is_empty() {
            found = from(real.join(path));
        }
        if !self.caller_is_inside() {
            found.extend(self.roots.iter().map(|root| (root, path.to_owned())));
        }
        found
    }

    /// Whether the caller's folder lies in a root.
    fn caller_is_inside(&self) -> bool {
        let is_in = |(folder, real): &(PathBuf, PathBuf)| {
            self.roots.iter().any(|root| root.relative(folder).or_else(|| root.relative(real)).is_some())
        };
        self.caller.as_ref().is_some_and(is_in)
    }

    fn outside(&self, path: &str) -> Failure {
        Failure::new(Code::OutsideRoots, format!("`{path}` is outside the folders that may be read"))
            .hint(format!(
                "use a path in one of: `{}`; the folder from which you call is one, others are `[files] roots` of the configuration",
                self.shown_roots()
            ))
    }

    fn shown_roots(&self) -> String {
        let roots: Vec<_> = self.roots.iter().map(|root| root.path.display().to_string()).collect();
        roots.join("`, `")
    }

    fn unreadable(&self, path: &str, error: &io::Error) -> Failure {
        match error.kind() {
            _ if error.raw_os_error() == Some(Errno::ELOOP as i32) => {
                Failure::new(Code::NotFound, format!("`{path}` is a loop of symbolic links"))
            }
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => {
                let failure = Failure::new(Code::NotFound, format!("`{path}` does not exist"));
                match &self.caller {
                    Some((folder, _)) if self.caller_is_inside() => {
                        failure.hint(format!("a relative path starts at `{}`", folder.display()))
                    }
                    _ => failure.hint(format!("a relative path starts at one of: `{}`", self.shown_roots())),
                }
            }
            io::ErrorKind::PermissionDenied => {
                Failure::new(Code::NotFound, format!("failed to read `{path}`: permission denied"))
            }
            io::ErrorKind::InvalidInput | io::ErrorKind::InvalidFilename => {
                Failure::new(Code::Rejected, format!("`{path}` is not a valid path"))
            }
            _ => Failure::new(Code::Io, format!("failed to read `{path}`: {error}")),
        }
    }
}

impl Root {
    /// Returns `path` relative to this root, if it begins with the path of the root.
    fn relative(&self, path: &Path) -> Option<PathBuf> {
        inside(path, &self.path, &self.real)
    }

    fn find(&self, relative: &Path) -> io::Result<FoundPath<'_>> {
        let start = if relative.as_os_str().is_empty() { Path::new(".") } else { relative };
        let relative = self.folder.canonicalize(start)?;
        let metadata = self.folder.symlink_metadata(&relative)?;
        Ok(FoundPath { root: self, relative, metadata })
    }

    /// Whether the existing part of `relative` lies in a folder of our own, so that an error would tell what is there.
    fn leads_into_closed(&self, relative: &Path) -> bool {
        let existing = relative.ancestors().skip(1).find_map(|ancestor| self.find(ancestor).ok());
        existing.is_some_and(|found| found.is_closed())
    }
}

impl FoundPath<'_> {
    /// Returns the absolute path without links, for showing or walking. Opening it would bypass the confinement.
    pub(crate) fn path(&self) -> PathBuf {
        self.root.real.join(self.relative.strip_prefix(".").unwrap_or(&self.relative))
    }

    /// Whether it lies in a folder of our own.
    fn is_closed(&self) -> bool {
        self.root.closed.contain(&self.path())
    }

    /// The folders that a walk from here must not enter.
    pub(crate) fn closed_folders(&self) -> Arc<ClosedFolders> {
        Arc::clone(&self.root.closed)
    }

    /// Opens the file for reading. Fails for anything but a regular file, without waiting for a pipe or a device.
    pub(crate) fn file(&self) -> Result<File, Failure> {
        let failure = |what| Failure::new(Code::Rejected, format!("`{}` is {what}, not a file", self.path().display()));
        if self.metadata.is_dir() {
            return Err(failure("a folder"));
        }
        match self.regular(&self.relative) {
            Ok(Some(file)) => Ok(file),
            // Another name of a file of our own.
            Ok(None) if self.metadata.is_file() => Err(closed(&self.path().display().to_string())),
            Ok(None) => Err(failure("a pipe, a device or another special file")),
            Err(error) if is_escape(&error) => Err(failure("a link out of its root")),
            Err(error) => {
                let code = if error.kind() == io::ErrorKind::PermissionDenied { Code::NotFound } else { Code::Io };
                Err(Failure::new(code, format!("failed to read `{}`: {error}", self.path().display())))
            }
        }
    }

    /// Returns the names of the direct entries of this folder.
    pub(crate) fn names(&self) -> io::Result<Vec<OsString>> {
        self.root.folder.read_dir(&self.relative)?.map(|entry| Ok(entry?.file_name())).collect()
    }

    /// Opens the regular file at the absolute path `path`, which a walk from here found.
    pub(crate) fn file_at(&self, path: &Path) -> Option<File> {
        self.regular(path.strip_prefix(&self.root.real).ok()?).ok().flatten()
    }

    /// Returns the metadata of the absolute path `path`, which a walk from here found. Does not follow a link.
    pub(crate) fn metadata_at(&self, path: &Path) -> Option<Metadata> {
        self.root.folder.symlink_metadata(path.strip_prefix(&self.root.real).ok()?).ok()
    }

    /// Opens a regular file; `None` if it is something else. Checks before opening, since opening a device can have
    /// side effects, and again after, since the path may have been replaced.
    fn regular(&self, relative: &Path) -> io::Result<Option<File>> {
        if !self.root.folder.metadata(relative)?.is_file() {
            return Ok(None);
        }
        let mut options = OpenOptions::new();
        options.read(true).custom_flags((OFlag::O_NONBLOCK | OFlag::O_NOCTTY).bits());
        let file = self.root.folder.open_with(relative, &options)?.into_std();
        Ok((file.metadata()?.is_file() && !self.root.closed.contain_file(&file)).then_some(file))
    }
}

fn closed(path: &str) -> Failure {
    Failure::new(Code::OutsideRoots, format!("`{path}` belongs to agent-magic-tool itself and is closed to subtools"))
        .hint("to see a result: agent-magic-tool read ID; a human sees the configuration with: agent-magic-tool doctor")
}

fn inside(path: &Path, folder: &Path, real: &Path) -> Option<PathBuf> {
    path.strip_prefix(folder).or_else(|_| path.strip_prefix(real)).ok().map(Path::to_owned)
}

fn canonical(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}

/// Whether cap-std refused the path; an error of the system has an error number.
fn is_escape(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::PermissionDenied && error.raw_os_error().is_none()
}
