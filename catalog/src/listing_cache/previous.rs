//! The listing that is replaced: what is taken over from it, so that an edit costs what it changed.
//!
//! A definition is taken over if its file is the same, the whole file had no mistake, it needs no other definition, and
//! no other has its name: then nothing about it can have changed.

use std::collections::HashMap;
use std::io::Write;
use std::path::{Path, PathBuf};

use listing::header::{FACT_BYTES, HAS_RELATIVES, Header};
use protocol::file_state::FileState;
use search::{Index, IndexWriter, PreviousIndex, Unusable};
use serde::{Deserialize, Serialize};

use crate::scan::DefinitionFile;
use crate::{Catalog, DefinitionId, Origin};

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
            // Its manifest may have changed.
            Origin::File(_) if file.pack.is_some() => false,
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

impl Copier<'_> {
    /// Takes over one definition, if it cannot have changed, and returns its flags. A damaged listing is no reason to
    /// fail.
    pub(super) fn copy<W: Write>(
        &mut self,
        catalog: &Catalog,
        id: DefinitionId,
        writer: &mut IndexWriter<W>,
    ) -> Option<u8> {
        let name = catalog.name(id).as_str();
        if !self.unchanged[id.file as usize] || catalog.candidates(name).len() != 1 {
            return None;
        }
        let taken_over = self.try_copy(name, writer);
        if taken_over.is_err() {
            self.unchanged.fill(false);
        }
        taken_over.ok().flatten()
    }

    fn try_copy<W: Write>(&mut self, name: &str, writer: &mut IndexWriter<W>) -> Result<Option<u8>, Unusable> {
        let Some(number) = self.listing.index.find(name)? else { return Ok(None) };
        let flags = self.listing.header.facts.get(number as usize * FACT_BYTES);
        let Some(flags) = flags.copied().filter(|flags| flags & HAS_RELATIVES == 0) else { return Ok(None) };
        writer.copy(&mut self.words, number, None)?;
        Ok(Some(flags))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use ground::config::Config;
    use serde_json::{Map, json};

    use listing::Listing;

    use super::*;
    use crate::Sources;
    use crate::listing_cache;

    /// A folder of definitions and the cached listing of it.
    struct CachedFolder {
        folder: tempfile::TempDir,
        config: Config,
    }

    impl CachedFolder {
        fn new() -> Self {
            let mut config = Config::default();
            config.catalog.packs.clear();
            Self { folder: tempfile::tempdir().expect("a temporary folder"), config }
        }

        fn define(&self, file: &str, subtools: &[(&str, &str, &[&str])]) {
            let definitions: Map<_, _> = subtools
                .iter()
                .map(|(name, description, needs)| {
                    let definition = json!({"description": description, "input": {"type": "object"},
                        "depends_on": needs, "run": {"process": {"argv": ["true"]}}});
                    ((*name).to_owned(), definition)
                })
                .collect();
            let text = serde_json::Value::Object(definitions).to_string();
            fs::write(self.folder.path().join(file), text).expect("written");
        }

        fn sources(&self) -> Sources {
            Sources::new(&self.config, self.folder.path(), Some(self.folder.path().as_os_str()))
        }

        fn cache(&self) -> PathBuf {
            self.folder.path().join("cache/index")
        }

        fn descriptions(&self) -> Vec<String> {
            let read = |listing: &Listing| (0..listing.count()).map(|it| Ok(listing.entry(it)?.description)).collect();
            listing_cache::read(&self.sources(), &self.cache(), read).expect("a listing")
        }

        fn problems(&self) -> usize {
            listing_cache::read(&self.sources(), &self.cache(), |listing| Ok(listing.problems().len()))
                .expect("a listing")
        }

        /// Writes other descriptions into the cached listing, to see which of them are taken over.
        fn mark_cached(&self) {
            let PreviousListing { index, header } = open(&self.cache()).expect("a listing");
            let mut writer = IndexWriter::new(Vec::new()).expect("memory");
            let mut words = PreviousIndex::new(&index).expect("its words");
            for number in 0..index.document_count() {
                let payload = String::from_utf8(index.payload(number).expect("an entry")).expect("JSON");
                let marked = payload.replace("\"description\":\"", "\"description\":\"cached ");
                writer.copy(&mut words, number, Some(marked.as_bytes())).expect("copied");
            }
            fs::write(self.cache(), writer.finish(&header.encode()).expect("written")).expect("written");
        }
    }

    #[test]
    fn only_what_may_have_changed_is_read_again() {
        let mut folder = CachedFolder::new();
        folder.define("a.json", &[("apple", "Eats an apple.", &[]), ("bread", "Bakes a bread.", &[])]);
        folder.define("b.json", &[("cake", "Bakes a cake.", &["apple"]), ("date", "Picks a date.", &[])]);
        folder.define("c.json", &[("egg", "Boils an egg.", &[])]);
        assert_eq!(folder.descriptions().len(), 5);
        folder.mark_cached();
        folder.define("c.json", &[("egg", "Fries an egg.", &[])]);
        let cached = ["cached Eats an apple.", "cached Bakes a bread.", "Bakes a cake.", "cached Picks a date."];
        assert_eq!(folder.descriptions(), [&cached[..], &["Fries an egg."]].concat(), "`cake` needs another subtool");
        // What an unchanged subtool needs is gone.
        folder.define("a.json", &[("bread", "Bakes a bread.", &[])]);
        assert_eq!((folder.descriptions().len(), folder.problems()), (3, 1));
        // Another file defines the same name.
        folder.define("c.json", &[("bread", "Toasts a bread.", &[])]);
        assert_eq!((folder.descriptions().len(), folder.problems()), (2, 2));
        // A setting changed.
        folder.define("a.json", &[("apple", "Eats an apple.", &[]), ("bread", "Bakes a bread.", &[])]);
        folder.define("c.json", &[]);
        assert_eq!(folder.descriptions().len(), 4);
        folder.mark_cached();
        folder.config.access.deny = vec!["apple".to_owned()];
        assert_eq!(folder.descriptions(), ["Bakes a bread.", "Bakes a cake.", "Picks a date."]);
    }

    #[test]
    fn a_damaged_listing_is_replaced_as_a_whole() {
        let folder = CachedFolder::new();
        folder.define("a.json", &[("apple", "Eats an apple.", &[])]);
        folder.define("b.json", &[("bread", "Bakes a bread.", &[])]);
        assert_eq!(folder.descriptions().len(), 2);
        let whole = fs::read(folder.cache()).expect("the listing");
        for at in (0..whole.len()).step_by(7) {
            let mut damaged = whole.clone();
            damaged[at] ^= 0x41;
            fs::write(folder.cache(), damaged).expect("written");
            folder.define("b.json", &[("bread", &format!("Bakes a bread of {at} grams."), &[])]);
            assert_eq!(folder.descriptions(), ["Eats an apple.".to_owned(), format!("Bakes a bread of {at} grams.")]);
        }
    }
}
