//! Files that a request sends: only those inside the folders that the configuration names.

use std::io;
use std::path::{Path, PathBuf};

use cap_std::ambient_authority;
use cap_std::fs::{Dir, OpenOptions, OpenOptionsExt as _};

use super::{Code, Failure};

/// Opens `path`, which no link and no `..` leads out of one of `roots`; returns its length too.
///
/// The root `.` is the caller's folder, and so is what a relative path or root is relative to.
pub(super) async fn open(
    path: &Path,
    roots: &[PathBuf],
    caller_folder: Option<&Path>,
) -> Result<(tokio::fs::File, u64), Failure> {
    let (path, roots) = (path.to_owned(), roots.to_owned());
    let folder = caller_folder.map(Path::to_owned);
    let opened = tokio::task::spawn_blocking(move || open_within(&path, &roots, folder.as_deref())).await;
    let (file, length) =
        opened.map_err(|error| Failure::new(Code::Internal, format!("opening a file failed: {error}")))??;
    Ok((tokio::fs::File::from_std(file), length))
}

fn open_within(path: &Path, roots: &[PathBuf], folder: Option<&Path>) -> Result<(std::fs::File, u64), Failure> {
    let mut missing = false;
    for root in roots {
        let Some(root) = absolute(root, folder) else { continue };
        let inside = match absolute(path, folder) {
            Some(full) => match full.strip_prefix(&root) {
                Ok(inside) => inside.to_owned(),
                Err(_) => continue,
            },
            None => path.to_owned(),
        };
        match open_beneath(&root, &inside) {
            Ok(opened) => return Ok(opened),
            Err(error) if error.kind() == io::ErrorKind::NotFound => missing = true,
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {}
            Err(error) => {
                return Err(Failure::new(Code::Io, format!("failed to open `{}`: {error}", path.display())));
            }
        }
    }
    Err(if missing {
        Failure::new(Code::NotFound, format!("no file `{}`", path.display()))
    } else {
        Failure::new(Code::OutsideRoots, format!("`{}` lies outside the folders that may be read", path.display()))
            .hint("a human names the folders as `files.roots` in the configuration")
    })
}

fn open_beneath(root: &Path, inside: &Path) -> io::Result<(std::fs::File, u64)> {
    let root = Dir::open_ambient_dir(root, ambient_authority())?;
    // A pipe must not block the one who opens it.
    let file = root.open_with(inside, OpenOptions::new().read(true).custom_flags(nix::libc::O_NONBLOCK))?;
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no regular file"));
    }
    Ok((file.into_std(), metadata.len()))
}

fn absolute(path: &Path, folder: Option<&Path>) -> Option<PathBuf> {
    let joined = if path.is_absolute() { path.to_owned() } else { folder?.join(path) };
    // `.` vanishes; `..` stays, and is resolved beneath the root.
    Some(joined.components().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn only_files_inside_the_roots_are_sent() {
        let folder = tempfile::tempdir().expect("a folder");
        let (inside, outside) = (folder.path().join("in"), folder.path().join("out"));
        for (folder, name) in [(&inside, "a.txt"), (&outside, "b.txt")] {
            std::fs::create_dir(folder).expect("created");
            std::fs::write(folder.join(name), "12345").expect("written");
        }
        std::os::unix::fs::symlink(outside.join("b.txt"), inside.join("link")).expect("linked");
        let roots = [PathBuf::from(".")];
        let code =
            async |path: &Path| open(path, &roots, Some(&inside)).await.map(|(_, length)| length).map_err(|f| f.code);
        assert_eq!(code(Path::new("a.txt")).await, Ok(5));
        assert_eq!(code(&inside.join("a.txt")).await, Ok(5));
        assert_eq!(code(Path::new("none")).await, Err(Code::NotFound));
        assert_eq!(code(Path::new("../out/b.txt")).await, Err(Code::OutsideRoots));
        assert_eq!(code(Path::new("link")).await, Err(Code::OutsideRoots));
        assert_eq!(code(&outside.join("b.txt")).await, Err(Code::OutsideRoots));
    }
}
