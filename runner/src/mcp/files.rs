//! The files that the input of a call names and that the server reads.
//!
//! A server runs before the call and opens files by their names, so it gets copies in a folder of their own, which is
//! removed when the call ends. That no one changed a copy is seen after the call.

use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use definition::run::mcp::Mcp;
use ground::task::failure::Failure;
use ground::task::fingerprint::{Fingerprint, hash_copy};
use protocol::code::Code;
use protocol::regular_file;
use serde_json::{Map, Value};
use tempfile::TempDir;

use super::filled;
use crate::{Invocation, RunnerContext, input_file};

/// The copies that a call uses.
#[derive(Debug, Default)]
pub(super) struct FileCopies {
    folders: Vec<TempDir>,
    /// Each with the hash of its content.
    copies: Vec<(PathBuf, String)>,
}

impl FileCopies {
    /// Fails if a copy is not what it was.
    pub(super) async fn check(self) -> Result<(), Failure> {
        if self.copies.is_empty() {
            return Ok(());
        }
        let checked = tokio::task::spawn_blocking(move || {
            let hash = |path: &Path| hash_copy(&mut regular_file::open(path)?, &mut io::sink());
            let changed = self.copies.iter().find(|(path, sha256)| hash(path).ok().as_ref() != Some(sha256));
            changed.map(|(path, _)| path.clone())
        });
        match checked.await {
            Ok(None) => Ok(()),
            Ok(Some(path)) => {
                let message = format!("the copy of `{}` changed while the server read it", file_name(&path));
                Err(Failure::drifted(&message).effect_possible())
            }
            Err(error) => {
                Err(Failure::new(Code::Internal, format!("failed to read a file: {error}")).effect_possible())
            }
        }
    }
}

/// The files that the server reads.
pub(super) fn read_files(
    mcp: &Mcp,
    invocation: &Invocation,
    context: &RunnerContext,
) -> Result<Vec<Fingerprint>, Failure> {
    let mut arguments = filled(mcp, invocation)?;
    let paths = paths(mcp, &mut arguments)?;
    paths.into_iter().map(|path| input_file::fingerprint(path.as_str(), invocation, context)).collect()
}

/// Puts the paths of copies in the place of those that the input names.
pub(super) async fn copy_files(
    mcp: &Mcp,
    arguments: &mut Map<String, Value>,
    invocation: &Invocation,
    context: &RunnerContext,
) -> Result<FileCopies, Failure> {
    let mut found = FileCopies::default();
    for path in paths(mcp, arguments)? {
        let mut opened = input_file::private(path, invocation, context).await?;
        let spool = context.spool.clone();
        let copied = tokio::task::spawn_blocking(move || -> io::Result<(TempDir, PathBuf, String)> {
            fs::create_dir_all(&spool)?;
            let folder = tempfile::Builder::new().prefix("input-").tempdir_in(&spool)?;
            let copy = folder.path().join(file_name(&opened.path));
            let sha256 = hash_copy(&mut opened.file, &mut File::create_new(&copy)?)?;
            fs::set_permissions(&copy, Permissions::from_mode(0o400))?;
            Ok((folder, copy, sha256))
        });
        let copied = copied.await.unwrap_or_else(|error| Err(io::Error::other(error)));
        let (folder, copy, sha256) =
            copied.map_err(|error| Failure::new(Code::Io, format!("failed to copy `{path}`: {error}")))?;
        *path = copy.display().to_string();
        found.folders.push(folder);
        found.copies.push((copy, sha256));
    }
    Ok(found)
}

/// The paths among the arguments of a call.
fn paths<'a>(mcp: &Mcp, arguments: &'a mut Map<String, Value>) -> Result<Vec<&'a mut String>, Failure> {
    let mut paths = Vec::new();
    for (name, value) in arguments.iter_mut().filter(|(name, _)| mcp.files.contains(name)) {
        let values = match value {
            Value::Null => Vec::new(),
            Value::Array(items) => items.iter_mut().collect(),
            one => vec![one],
        };
        for value in values {
            let Value::String(path) = value else {
                let message = format!("`{name}` must be the path of a file, or a list of such paths");
                return Err(Failure::new(Code::Rejected, message));
            };
            paths.push(path);
        }
    }
    Ok(paths)
}

fn file_name(path: &Path) -> String {
    path.file_name().map_or_else(|| "file".to_owned(), |name| name.to_string_lossy().into_owned())
}
