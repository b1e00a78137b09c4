//! The listing that is replaced: what is taken over from it, so that an edit costs what it changed.
//!
//! A definition is taken over if its file is the same, the whole file had no mistake, it needs no other definition, and
//! no other has its name: then nothing about it can have changed.

use std::collections::HashMap;
use std::io::Write;
use std::path::{Path, PathBuf};

use search::{Index, IndexWriter, PreviousIndex, Unusable};
use serde::{Deserialize, Serialize};

use super::{FACT_BYTES, HAS_RELATIVES, Header};
use crate::catalog::file_state::FileState;
use crate::catalog::scan::DefinitionFile;
use crate::catalog::{Catalog, DefinitionId, Origin};

/// A definition file as it was listed.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ListedFile {
    /// `None` for a pack that ships.
    path: Option<PathBuf>,
    state: Option<FileState>,
    /// Whether no definition had a mistake.
    is_clean: bool,
}

impl ListedFile {
    pub(super) fn of(file: &DefinitionFile, is_clean: bool) -> Self {
        let path = match &file.origin {
            Origin::Pack(_) => None,
            Origin::File(path) => Some(path.clone()),
        };
        Self { path, state: file.stamp, is_clean }
    }
}

/// A listing of earlier definitions.
pub(super) struct PreviousListing {
    index: Index,
    header: Header,
}

/// Opens the listing at `path`, whatever definitions it is of.
pub(super) fn open(path: &Path) -> Option<PreviousListing> {
    let index = Index::open(path).ok()?;
    let header = Header::decode(&index.header().ok()?).ok()?;
    Some(PreviousListing { index, header })
}

impl PreviousListing {
    /// What can be taken over into a listing of `catalog`; `None` if the settings or the program changed.
    pub(super) fn copier(&self, catalog: &Catalog) -> Option<Copier<'_>> {
        if self.header.base != catalog.stamp().base_digest() {
            return None;
        }
        let files: Vec<ListedFile> = serde_json::from_slice(&self.header.files).ok()?;
        let known: HashMap<PathBuf, FileState> = files
            .into_iter()
            .filter(|file| file.is_clean)
            .filter_map(|ListedFile { path, state, .. }| Some((path?, state?)))
            .collect();
        let is_unchanged = |file: &DefinitionFile| match &file.origin {
            Origin::Pack(_) => false,
            Origin::File(path) => file.stamp.is_some() && known.get(path) == file.stamp.as_ref(),
        };
        let unchanged = catalog.files().iter().map(is_unchanged).collect();
        let words = PreviousIndex::new(&self.index).ok()?;
        Some(Copier { listing: self, words, unchanged })
    }
}

/// Takes over entries of a previous listing.
pub(super) struct Copier<'a> {
    listing: &'a PreviousListing,
    words: PreviousIndex<'a>,
    /// Whether each file of the catalog is as it was.
    unchanged: Vec<bool>,
}

/// What a previous listing says about a definition.
pub(super) enum CopiedEntry {
    /// It was taken over, with these flags.
    Taken(u8),
    /// Callers may not use it.
    Hidden,
}

impl Copier<'_> {
    /// Takes over one definition, if it cannot have changed. A damaged listing is no reason to fail.
    pub(super) fn copy<W: Write>(
        &mut self,
        catalog: &Catalog,
        id: DefinitionId,
        writer: &mut IndexWriter<W>,
    ) -> Option<CopiedEntry> {
        let name = catalog.name(id).as_str();
        if !self.unchanged[id.file as usize] || catalog.candidates(name).len() != 1 {
            return None;
        }
        match self.try_copy(name, writer) {
            Ok(copied) => copied,
            Err(_) => {
                self.unchanged.fill(false);
                None
            }
        }
    }

    fn try_copy<W: Write>(&mut self, name: &str, writer: &mut IndexWriter<W>) -> Result<Option<CopiedEntry>, Unusable> {
        let Some(number) = self.listing.index.find(name)? else { return Ok(Some(CopiedEntry::Hidden)) };
        let flags = self.listing.header.facts.get(number as usize * FACT_BYTES);
        let Some(flags) = flags.copied().filter(|flags| flags & HAS_RELATIVES == 0) else { return Ok(None) };
        writer.copy(&mut self.words, number, None)?;
        Ok(Some(CopiedEntry::Taken(flags)))
    }
}
