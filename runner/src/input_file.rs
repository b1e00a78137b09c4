//! Files that an input names and that are read: uploads, and what a definition declares for a program or a tool.
//!
//! Each is found within the folders that may be read, and opened once. What a human approved is bound to its content:
//! the open file is copied to where no one can change it, the copy is compared with the approval, and only the copy is
//! used.

use std::fs::File;
use std::io::{self, Seek as _};
use std::path::{Path, PathBuf};

use ground::base::own_folders::OwnFolders;
use ground::config::Config;
use ground::task::failure::Failure;
use ground::task::fingerprint::{FileRole, Fingerprint, hash_copy};
use protocol::code::Code;

use super::builtin::roots::Roots;
use super::process::held;
use super::{Invocation, RunnerContext};

/// How often a file is looked for again.
const MAX_TRIES: usize = 8;

/// A file that an input names, opened at its start.
#[derive(Debug)]
pub(super) struct OpenedInput {
    pub(super) file: File,
    /// Absolute, without links.
    pub(super) path: PathBuf,
    pub(super) bytes: u64,
}

/// What is shown of the file `path` to a human.
pub(super) fn fingerprint(
    path: &str,
    invocation: &Invocation,
    context: &RunnerContext,
) -> Result<Fingerprint, Failure> {
    let mut opened = open(path, invocation, &context.config, &context.own_folders)?;
    Fingerprint::of_input(&opened.path, &mut opened.file, invocation.caller.uid).map_err(|error| {
        let failure = Failure::new(Code::Rejected, format!("failed to read `{path}`: {error}"));
        failure.hint("a human approves a file by its content; use a smaller file")
    })
}

/// Opens `path` for sending.
pub(super) async fn private(
    path: &str,
    invocation: &Invocation,
    context: &RunnerContext,
) -> Result<OpenedInput, Failure> {
    let spool = context.spool.clone();
    opened(path, invocation, context, move |file, _| {
        std::fs::create_dir_all(&spool)?;
        let mut copy = tempfile::tempfile_in(&spool)?;
        let sha256 = hash_copy(file, &mut copy)?;
        Ok((copy, sha256))
    })
    .await
}

/// Opens `path` for a program that inherits it.
pub(super) async fn sealed(
    path: &str,
    invocation: &Invocation,
    context: &RunnerContext,
) -> Result<OpenedInput, Failure> {
    opened(path, invocation, context, |file, path| {
        if held::can_hold() {
            return held::sealed_copy(file, path);
        }
        let sha256 = hash_copy(file, &mut io::sink())?;
        Ok((file.try_clone()?, sha256))
    })
    .await
}

/// Opens `path`. If a human approved it, `copy` is what is used, and it must be what was shown.
async fn opened(
    path: &str,
    invocation: &Invocation,
    context: &RunnerContext,
    copy: impl FnOnce(&mut File, &Path) -> io::Result<(File, String)> + Send + 'static,
) -> Result<OpenedInput, Failure> {
    let (path, own) = (path.to_owned(), context.own_folders.clone());
    let (invocation, config) = (invocation.clone(), context.config.clone());
    let work = move || {
        let opened = open(&path, &invocation, &config, &own);
        let Some(approved) = &invocation.approved else { return opened };
        let mut opened = opened.map_err(|failure| changed(&path, &failure.error.message))?;
        let is_shown = |file: &&Fingerprint| file.role == FileRole::Input && file.path == opened.path;
        let shown = approved.iter().find(is_shown).ok_or_else(|| changed(&path, "it is another file now"))?;
        let (mut file, sha256) =
            copy(&mut opened.file, &opened.path).map_err(|error| changed(&path, &error.to_string()))?;
        if sha256 != shown.sha256 {
            return Err(changed(&path, "its content is not what was shown"));
        }
        let unreadable =
            |error: io::Error| Failure::new(Code::Io, format!("failed to read a copy of `{path}`: {error}"));
        file.rewind().map_err(unreadable)?;
        let bytes = file.metadata().map_err(unreadable)?.len();
        Ok(OpenedInput { file, path: opened.path, bytes })
    };
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|error| Err(Failure::new(Code::Internal, format!("failed to open a file: {error}"))))
}

/// Opens `path` with the same checks as the file subtools.
fn open(path: &str, invocation: &Invocation, config: &Config, own: &OwnFolders) -> Result<OpenedInput, Failure> {
    let roots = Roots::open(invocation, config, own)?;
    // The system gives up if something is renamed while it looks for the file.
    let mut tries = 0..MAX_TRIES;
    loop {
        match open_within(&roots, path) {
            Err(failure) if failure.error.code == Code::Io && tries.next().is_some() => {}
            opened => return opened,
        }
    }
}

fn open_within(roots: &Roots, path: &str) -> Result<OpenedInput, Failure> {
    let found = roots.find(path)?;
    let file = found.file()?;
    let metadata = file.metadata();
    let bytes = metadata.map_err(|error| Failure::new(Code::Io, format!("failed to read `{path}`: {error}")))?.len();
    Ok(OpenedInput { file, path: found.path(), bytes })
}

fn changed(path: &str, how: &str) -> Failure {
    Failure::drifted(&format!("the file `{path}` changed after the human was asked: {how}"))
}

#[cfg(test)]
mod tests {
    use ground::config::secret::Secrets;
    use protocol::caller::Caller;

    use super::*;

    #[test]
    fn only_files_inside_the_roots_can_be_used() {
        let folder = tempfile::tempdir().expect("a folder");
        let (inside, outside) = (folder.path().join("in"), folder.path().join("out"));
        for (folder, name) in [(&inside, "a.txt"), (&outside, "b.txt")] {
            std::fs::create_dir(folder).expect("created");
            std::fs::write(folder.join(name), "12345").expect("written");
        }
        std::os::unix::fs::symlink(outside.join("b.txt"), inside.join("link")).expect("linked");
        let caller = Caller { folder: Some(inside.clone()), ..Caller::default() };
        let invocation = Invocation { id: "task".to_owned(), attempt: 1, caller, ..Invocation::default() };
        let (config, own) = (Config::default(), OwnFolders::default());
        let code = |path: &Path| {
            let opened = open(&path.to_string_lossy(), &invocation, &config, &own);
            opened.map(|file| file.bytes).map_err(|failure| failure.error.code)
        };
        assert_eq!(code(Path::new("a.txt")), Ok(5));
        assert_eq!(code(&inside.join("a.txt")), Ok(5));
        assert_eq!(code(Path::new("none")), Err(Code::NotFound));
        assert_eq!(code(Path::new(".")), Err(Code::Rejected));
        for path in [Path::new("../out/b.txt"), Path::new("link"), &outside.join("b.txt")] {
            assert_eq!(code(path), Err(Code::OutsideRoots), "{}", path.display());
        }
    }

    /// A runner that opens a file which a human was not shown opens none.
    #[tokio::test]
    async fn an_approval_opens_only_what_was_shown() {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("a"), "12345").expect("written");
        let secrets = Secrets::new(folder.path().join("secrets"), std::collections::BTreeMap::default());
        let context = RunnerContext::new(Config::default(), secrets, folder.path().join("spool")).expect("a context");
        let caller = Caller { folder: Some(folder.path().to_owned()), ..Caller::default() };
        let mut invocation = Invocation { attempt: 1, caller, ..Invocation::default() };
        let shown = fingerprint("a", &invocation, &context).expect("it is there");
        assert_eq!((shown.bytes, shown.role), (Some(5), FileRole::Input));
        for (approved, is_opened) in [(vec![shown.clone()], true), (vec![], false)] {
            invocation.approved = Some(approved);
            assert_eq!(private("a", &invocation, &context).await.is_ok(), is_opened);
            assert_eq!(sealed("a", &invocation, &context).await.is_ok(), is_opened);
        }
        invocation.approved = Some(vec![shown]);
        std::fs::write(folder.path().join("a"), "12346").expect("written");
        for opened in [private("a", &invocation, &context).await, sealed("a", &invocation, &context).await] {
            assert_eq!(opened.expect_err("changed").error.code, Code::Drifted);
        }
    }
}
