//! Walking a folder: in order, with a glob, without following links.

use std::path::Path;

use globset::{GlobBuilder, GlobMatcher};
use ignore::{DirEntry, WalkBuilder};
use protocol::code::Code;

use super::roots::FoundPath;
use crate::task::failure::Failure;

/// A pattern for paths. One without `/` is for names, wherever they are.
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
            .map_err(|error| Failure::new(Code::Rejected, format!("`{glob}` is no glob: {}", error.kind())))?;
        Ok(Self { matcher: glob.compile_matcher(), by_name })
    }

    /// Whether it is for names alone.
    pub(super) fn by_name(&self) -> bool {
        self.by_name && self.matcher.glob().glob() != "**"
    }

    /// Whether `path`, from the folder where the walk began, matches.
    pub(super) fn matches(&self, path: &Path) -> bool {
        match path.file_name() {
            Some(name) if self.by_name => self.matcher.is_match(name),
            _ => self.matcher.is_match(path),
        }
    }
}

/// All that lies below `start` (or `start` itself, if it is a file), sorted by path: without what is
/// hidden or what a `.gitignore` names, and without what cannot be read.
///
/// It goes by names, so what it yields must still be looked at through [`FoundPath`]: a folder that
/// became a link meanwhile could lead it out.
pub(super) fn below(start: &FoundPath<'_>) -> impl Iterator<Item = DirEntry> {
    WalkBuilder::new(start.path())
        .follow_links(false)
        // A `.gitignore` means what it says where there is no repository too.
        .require_git(false)
        .git_global(false)
        .sort_by_file_name(Ord::cmp)
        .build()
        .filter_map(Result::ok)
}
