//! Walks a folder in order, with a glob, without following links.

use std::path::Path;

use globset::{GlobBuilder, GlobMatcher};
use ignore::{DirEntry, WalkBuilder};
use protocol::code::Code;

use super::roots::FoundPath;
use crate::task::failure::Failure;

/// A glob for paths. Without a `/` it matches names in any folder.
#[derive(Debug)]
pub(super) struct Pattern {
    matcher: GlobMatcher,
    by_name: bool,
}

impl Pattern {
    pub(super) fn new(glob: &str) -> Result<Self, Failure> {
        let by_name = !glob.contains('/');
        let glob = GlobBuilder::new(glob.trim_start_matches("./"))
            .literal_separator(true)
            .empty_alternates(true)
            .build()
            .map_err(|error| Failure::new(Code::Rejected, format!("`{glob}` is not a valid glob: {}", error.kind())))?;
        Ok(Self { matcher: glob.compile_matcher(), by_name })
    }

    /// Whether the pattern matches names only, so that a listing does not need to walk.
    pub(super) fn by_name(&self) -> bool {
        self.by_name && self.matcher.glob().glob() != "**"
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
