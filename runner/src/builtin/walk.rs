//! Walks a folder in order, with a glob, without following links.

use std::path::Path;

use globset::{GlobBuilder, GlobSet};
use ground::task::failure::Failure;
use ignore::{DirEntry, WalkBuilder};
use protocol::code::Code;
use protocol::excerpt;

use super::roots::FoundPath;

/// The most characters of a glob, or of what is wrong with it, in a message.
const MAX_SHOWN_CHARS: usize = 200;

/// A glob for paths. Without a `/` it matches names in any folder.
#[derive(Debug)]
pub(super) struct Pattern {
    matcher: GlobSet,
    by_name: bool,
}

impl Pattern {
    pub(super) fn new(glob: &str) -> Result<Self, Failure> {
        let by_name = !glob.contains('/');
        let built =
            GlobBuilder::new(glob.trim_start_matches("./")).literal_separator(true).empty_alternates(true).build();
        // A set says that a pattern is too large; a single matcher would panic.
        let (is_any, set) = match built {
            Ok(built) => (built.glob() == "**", GlobSet::builder().add(built).build()),
            Err(error) => (false, Err(error)),
        };
        let matcher = set.map_err(|error| {
            let (glob, why) = (excerpt::line(glob, MAX_SHOWN_CHARS), error.kind().to_string());
            let why = excerpt::line(&why, MAX_SHOWN_CHARS);
            Failure::new(Code::Rejected, format!("`{glob}` is not a valid glob: {why}"))
        })?;
        Ok(Self { matcher, by_name: by_name && !is_any })
    }

    /// Whether the pattern matches names only, so that a listing does not need to walk.
    pub(super) fn by_name(&self) -> bool {
        self.by_name
    }

    /// Whether `path`, relative to the start of the walk, matches.
    pub(super) fn matches(&self, path: &Path) -> bool {
        match path.file_name() {
            Some(name) if self.by_name => self.matcher.is_match(name),
            _ => self.matcher.is_match(path),
        }
    }
}

/// Returns everything below `start` (or `start` itself, if it is a file), sorted by path, except hidden, git-ignored
/// and unreadable entries, and our own folders.
///
/// The walk follows names, so a folder that is replaced with a link meanwhile could lead it out of the root. Access
/// the entries only through [`FoundPath`].
pub(super) fn below(start: &FoundPath<'_>) -> impl Iterator<Item = DirEntry> {
    let closed = start.closed_folders();
    let is_folder = |entry: &DirEntry| entry.file_type().is_some_and(|kind| kind.is_dir());
    WalkBuilder::new(start.path())
        .filter_entry(move |entry| !is_folder(entry) || !closed.include(entry.path()))
        .follow_links(false)
        // A `.gitignore` counts outside a repository too.
        .require_git(false)
        .git_global(false)
        .sort_by_file_name(Ord::cmp)
        .build()
        .filter_map(Result::ok)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_glob_that_cannot_be_compiled_is_an_error() {
        for glob in ["[", &("{".repeat(260) + "a" + &"}".repeat(260))] {
            let failure = Pattern::new(glob).expect_err("it is no glob");
            assert_eq!(failure.error.code, Code::Rejected);
            assert!(failure.error.message.chars().count() < 600, "{failure:?}");
        }
        assert!(Pattern::new("**").is_ok_and(|pattern| !pattern.by_name() && pattern.matches(Path::new("a/b"))));
    }
}
