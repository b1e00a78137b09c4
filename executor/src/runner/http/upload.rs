//! Files that a request uploads: only files inside the configured folders.
//!
//! `builtin/roots.rs` decides what is inside.

use std::path::Path;

use super::{Code, Failure};
use crate::base::own_folders::OwnFolders;
use crate::config::Config;
use crate::runner::Invocation;
use crate::runner::builtin::roots::Roots;

/// Opens `path` with the same checks as the file subtools. Returns the file and its length.
pub(super) async fn open(
    path: &Path,
    invocation: &Invocation,
    config: &Config,
    own: &OwnFolders,
) -> Result<(tokio::fs::File, u64), Failure> {
    let (path, own) = (path.to_string_lossy().into_owned(), own.clone());
    let (invocation, config) = (invocation.clone(), config.clone());
    let opened = tokio::task::spawn_blocking(move || open_within(&path, &invocation, &config, &own)).await;
    let (file, length) =
        opened.map_err(|error| Failure::new(Code::Internal, format!("failed to open a file: {error}")))??;
    Ok((tokio::fs::File::from_std(file), length))
}

/// Fails if `path` cannot be opened now.
pub(super) fn check(path: &Path, invocation: &Invocation, config: &Config, own: &OwnFolders) -> Result<(), Failure> {
    open_within(&path.to_string_lossy(), invocation, config, own).map(drop)
}

fn open_within(
    path: &str,
    invocation: &Invocation,
    config: &Config,
    own: &OwnFolders,
) -> Result<(std::fs::File, u64), Failure> {
    let roots = Roots::open(invocation, config, own)?;
    let file = roots.find(path)?.file()?;
    let length =
        file.metadata().map_err(|error| Failure::new(Code::Io, format!("failed to read `{path}`: {error}")))?.len();
    Ok((file, length))
}

#[cfg(test)]
mod tests {
    use protocol::caller::Caller;

    use super::*;

    #[tokio::test]
    async fn only_files_inside_the_roots_can_be_uploaded() {
        let folder = tempfile::tempdir().expect("a folder");
        let (inside, outside) = (folder.path().join("in"), folder.path().join("out"));
        for (folder, name) in [(&inside, "a.txt"), (&outside, "b.txt")] {
            std::fs::create_dir(folder).expect("created");
            std::fs::write(folder.join(name), "12345").expect("written");
        }
        std::os::unix::fs::symlink(outside.join("b.txt"), inside.join("link")).expect("linked");
        let invocation = Invocation {
            id: "task".to_owned(),
            attempt: 1,
            input: serde_json::Map::new(),
            caller: Caller { folder: Some(inside.clone()), ..Caller::default() },
            ..Invocation::default()
        };
        let config = Config::default();
        let code = async |path: &Path| {
            open(path, &invocation, &config, &OwnFolders::default())
                .await
                .map(|(_, length)| length)
                .map_err(|f| f.error.code)
        };
        assert_eq!(code(Path::new("a.txt")).await, Ok(5));
        assert_eq!(code(&inside.join("a.txt")).await, Ok(5));
        assert_eq!(code(Path::new("none")).await, Err(Code::NotFound));
        assert_eq!(code(Path::new(".")).await, Err(Code::Rejected));
        for path in [Path::new("../out/b.txt"), Path::new("link"), &outside.join("b.txt")] {
            assert_eq!(code(path).await, Err(Code::OutsideRoots), "{}", path.display());
        }
    }
}
