//! A change of one file: shown first, applied atomically, and recorded so that it can be undone.

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use protocol::regular_file;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// Replaces the text of a file; `None` means that the file does not exist.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::commands) struct Change {
    pub(in crate::commands) path: PathBuf,
    pub(in crate::commands) before: Option<String>,
    pub(in crate::commands) after: Option<String>,
}

impl Change {
    pub(in crate::commands) fn show(&self) -> Value {
        let action = match (&self.before, &self.after) {
            (None, _) => "create",
            (_, None) => "remove",
            _ => "edit",
        };
        let (before, after) = (self.before.as_deref().unwrap_or_default(), self.after.as_deref().unwrap_or_default());
        json!({"file": self.path, "action": action, "diff": diff(before, after)})
    }

    /// Applies the change. Follows symbolic links and keeps the file's mode. Returns the folders that were created.
    pub(in crate::commands) fn apply(&self) -> io::Result<Vec<PathBuf>> {
        self.apply_as(false)
    }

    /// The same for our own file, which no other user reads: if it is new, with any umask.
    pub(in crate::commands) fn apply_private(&self) -> io::Result<Vec<PathBuf>> {
        self.apply_as(true)
    }

    fn apply_as(&self, is_private: bool) -> io::Result<Vec<PathBuf>> {
        let Some(text) = &self.after else {
            fs::remove_file(&self.path)?;
            return Ok(Vec::new());
        };
        let path = if self.path.exists() { self.path.canonicalize()? } else { self.path.clone() };
        let folder = path.parent().unwrap_or(Path::new("/"));
        let missing = folder.ancestors().take_while(|folder| !folder.exists());
        let missing: Vec<_> = missing.map(Path::to_owned).collect();
        fs::DirBuilder::new().recursive(true).mode(if is_private { 0o700 } else { 0o777 }).create(folder)?;
        let new = fs::Permissions::from_mode(if is_private { 0o600 } else { 0o644 });
        let permissions = fs::metadata(&path).map_or(new, |found| found.permissions());
        let mut file = tempfile::Builder::new().prefix(".agent-magic-tool-").tempfile_in(folder)?;
        file.write_all(text.as_bytes())?;
        file.as_file().set_permissions(permissions)?;
        file.persist(&path)?;
        Ok(missing)
    }
}

/// The largest file of another program.
const MAX_FILE_BYTES: u64 = 16 << 20;

/// Returns the text of a file; `None` if it does not exist.
pub(in crate::commands) fn read(path: &Path) -> io::Result<Option<String>> {
    match regular_file::read_text(path, MAX_FILE_BYTES) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// The removed and added lines with one line of context. Assumes that the changes are in one place.
fn diff(before: &str, after: &str) -> String {
    let (old, new): (Vec<_>, Vec<_>) = (before.lines().collect(), after.lines().collect());
    let same = old.iter().zip(&new).take_while(|(a, b)| a == b).count();
    let left = old.len().min(new.len()) - same;
    let end = old.iter().rev().zip(new.iter().rev()).take(left).take_while(|(a, b)| a == b).count();
    let mut lines = vec![format!("@@ line {} @@", same + 1)];
    lines.extend(same.checked_sub(1).map(|index| format!(" {}", old[index])));
    lines.extend(old[same..old.len() - end].iter().map(|line| format!("-{line}")));
    lines.extend(new[same..new.len() - end].iter().map(|line| format!("+{line}")));
    lines.extend((end > 0).then(|| format!(" {}", old[old.len() - end])));
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_diff_shows_removed_and_added_lines_with_context() {
        assert_eq!(diff("a\nb\nc\n", "a\nx\nc\n"), "@@ line 2 @@\n a\n-b\n+x\n c");
        assert_eq!(diff("", "a\n"), "@@ line 1 @@\n+a");
        assert_eq!(diff("a\n", ""), "@@ line 1 @@\n-a");
        assert_eq!(diff("a\n", "a\na\n"), "@@ line 2 @@\n a\n+a");
    }
}
