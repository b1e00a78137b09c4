//! An index file, opened: finds words, documents and payloads by a few reads at known places.
//!
//! Nothing is mapped into memory, and nothing is loaded but what is asked for. Everything that is read is verified, so a
//! damaged file gives an error, never a wrong place or a panic. What the file's bytes mean is in `index/format.rs`.

use std::borrow::Cow;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use self::format::{
    DocumentRecord, FOOTER_BYTES, Footer, IMPACT_STEP, MAGIC, RECORD_BYTES, START_BYTES, VERSION, checksum, hash,
    verified,
};
use self::words_of_document::WordsOfDocument;
use crate::fields::{Fields, NAME};
use crate::verbs::Verb;

pub(crate) mod format;
mod words_of_document;
pub(crate) mod writer;

/// Why an index cannot be used. It has to be built again.
#[derive(Debug, thiserror::Error)]
pub enum Unusable {
    #[error("failed to read the index")]
    Io(#[from] io::Error),
    #[error("the file is not an index")]
    Foreign,
    #[error("the index has version {0}, this program uses {VERSION}")]
    Version(u32),
    #[error("the index is damaged: {0}")]
    Damaged(&'static str),
}

/// An index that is read in place.
#[derive(Debug)]
pub struct Index {
    source: Source,
    length: u64,
    footer: Footer,
}

#[derive(Debug)]
enum Source {
    File(File),
    Bytes(Vec<u8>),
}

/// What the index knows of a word.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WordEntry {
    pub(crate) number: u32,
    /// How many documents have it.
    pub(crate) documents: u32,
    at: u64,
    length: u64,
}

/// One document that has a word.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Posting {
    pub(crate) document: u32,
    pub(crate) fields: Fields,
    /// The sum of the weighted counts in all fields.
    pub(crate) impact: f64,
    /// The share of the document's name that the word makes up.
    pub(crate) name_share: f64,
}

/// The words of an index, in memory.
pub(crate) struct WordTable<'a> {
    index: &'a Index,
    bytes: Vec<u8>,
}

/// The most bytes of words that a query reads at once.
const MAX_WORD_TABLE: u64 = 1 << 20;

impl WordTable<'_> {
    /// How many documents have a word.
    pub(crate) fn documents(&self, word: &str) -> Result<u32, Unusable> {
        let read = |at: u64, length: u64| {
            let at = at.checked_sub(self.index.footer.buckets_at).and_then(|at| usize::try_from(at).ok());
            let part =
                at.zip(usize::try_from(length).ok()).and_then(|(at, length)| self.bytes.get(at..)?.get(..length));
            part.map(Cow::Borrowed).ok_or(Unusable::Damaged("a part is outside"))
        };
        Ok(self.index.word_from(read, word)?.map_or(0, |entry| entry.documents))
    }
}

impl Index {
    /// Opens an index file.
    pub fn open(path: &Path) -> Result<Self, Unusable> {
        Self::from_file(File::open(path)?)
    }

    /// Opens an index in a file that is open already.
    pub fn from_file(file: File) -> Result<Self, Unusable> {
        let length = file.metadata()?.len();
        Self::from_source(Source::File(file), length)
    }

    /// Opens an index that lies in memory.
    pub fn from_bytes(bytes: Vec<u8>) -> Result<Self, Unusable> {
        let length = bytes.len() as u64;
        Self::from_source(Source::Bytes(bytes), length)
    }

    fn from_source(source: Source, length: u64) -> Result<Self, Unusable> {
        let mut start = [0; START_BYTES];
        source.read(&mut start, 0, length).map_err(|error| match error {
            Unusable::Damaged(_) => Unusable::Foreign,
            other => other,
        })?;
        if !start.starts_with(MAGIC) {
            return Err(Unusable::Foreign);
        }
        let version = u32::from_le_bytes(start[8..12].try_into().expect("four bytes"));
        if version != VERSION {
            return Err(Unusable::Version(version));
        }
        let mut footer = [0; FOOTER_BYTES];
        let at = length.checked_sub(FOOTER_BYTES as u64).ok_or(Unusable::Damaged("too short"))?;
        source.read(&mut footer, at, length)?;
        Ok(Self { source, length, footer: Footer::decode(&footer, length)? })
    }

    /// How many documents there are. Their numbers, from 0, are in the order of their names.
    pub fn document_count(&self) -> u32 {
        self.footer.documents
    }

    /// What the writer was given when it finished.
    pub fn header(&self) -> Result<Vec<u8>, Unusable> {
        let header = self.read(self.footer.header_at, self.footer.end_at - self.footer.header_at)?;
        if checksum(self.footer.header_at, &header) == self.footer.header_checksum {
            Ok(header)
        } else {
            Err(Unusable::Damaged("the checksum of the header is wrong"))
        }
    }

    /// The number of the document with this name.
    pub fn find(&self, name: &str) -> Result<Option<u32>, Unusable> {
        let first = hash(name);
        for step in 0..self.footer.slots {
            let slot = first.wrapping_add(step) & (self.footer.slots - 1);
            let bytes = self.read(self.footer.slots_at + u64::from(slot) * 4, 4)?;
            let found = u32::from_le_bytes(bytes.try_into().expect("four bytes"));
            let Some(document) = found.checked_sub(1) else { return Ok(None) };
            if self.name(document)? == name {
                return Ok(Some(document));
            }
        }
        Ok(None)
    }

    pub fn name(&self, document: u32) -> Result<String, Unusable> {
        let record = self.record(document)?;
        let at = self.footer.names_at + u64::from(record.name_at);
        let name = self.read(at, u64::from(record.name_length))?;
        String::from_utf8(name).map_err(|_| Unusable::Damaged("a name is not UTF-8"))
    }

    /// What the writer was given with this document.
    pub fn payload(&self, document: u32) -> Result<Vec<u8>, Unusable> {
        let record = self.record(document)?;
        let payload = self.read(record.at + u64::from(record.words_length), u64::from(record.payload_length))?;
        if checksum(record.at, &payload) == record.payload_checksum {
            Ok(payload)
        } else {
            Err(Unusable::Damaged("the checksum of a document is wrong"))
        }
    }

    /// What a document does, if that is known.
    pub(crate) fn verb(&self, document: u32) -> Result<Option<Verb>, Unusable> {
        Ok(Verb::from_byte(self.record(document)?.verb))
    }

    /// The names of all documents, in order.
    pub fn names(&self) -> Result<Vec<String>, Unusable> {
        let names = self.read(self.footer.names_at, self.footer.slots_at - self.footer.names_at)?;
        let records = self.read(self.footer.documents_at, self.footer.names_at - self.footer.documents_at)?;
        (0..self.footer.documents)
            .zip(records.chunks_exact(RECORD_BYTES))
            .map(|(number, bytes)| {
                let record = DocumentRecord::decode(bytes, number)?;
                let (at, length) = (record.name_at as usize, record.name_length as usize);
                let name = names.get(at..).and_then(|rest| rest.get(..length));
                let name = name.ok_or(Unusable::Damaged("a name is outside"))?;
                String::from_utf8(name.to_vec()).map_err(|_| Unusable::Damaged("a name is not UTF-8"))
            })
            .collect()
    }

    pub(crate) fn word(&self, word: &str) -> Result<Option<WordEntry>, Unusable> {
        self.word_from(|at, length| self.read(at, length).map(Cow::Owned), word)
    }

    fn word_from<'b>(
        &self,
        read: impl Fn(u64, u64) -> Result<Cow<'b, [u8]>, Unusable>,
        word: &str,
    ) -> Result<Option<WordEntry>, Unusable> {
        let bucket = hash(word) & (self.footer.buckets - 1);
        let mut found = None;
        self.read_bucket_from(read, bucket, |known, entry| {
            if known == word {
                found = Some(entry);
            }
        })?;
        Ok(found)
    }

    /// All words at once, for looking up many. None if they are more than a query should read.
    pub(crate) fn word_table(&self) -> Result<Option<WordTable<'_>>, Unusable> {
        let length = self.footer.documents_at - self.footer.buckets_at;
        if length > MAX_WORD_TABLE {
            return Ok(None);
        }
        Ok(Some(WordTable { index: self, bytes: self.read(self.footer.buckets_at, length)? }))
    }

    /// The documents that have a word, in ascending order.
    pub(crate) fn postings(&self, entry: &WordEntry, mut found: impl FnMut(Posting)) -> Result<(), Unusable> {
        let bytes = self.read(entry.at, entry.length)?;
        let mut decoder = format::Decoder::new(verified(entry.at, &bytes)?);
        let mut document = 0_u32;
        while !decoder.is_empty() {
            document = document
                .checked_add(decoder.varint32()?)
                .filter(|document| *document < self.footer.documents)
                .ok_or(Unusable::Damaged("a word is in an unknown document"))?;
            let fields = Fields::from_bits(decoder.byte()?);
            let impact = f64::from(decoder.varint32()?) * IMPACT_STEP;
            let name_share = if fields.contains(NAME) { f64::from(decoder.byte()?) / 255.0 } else { 0.0 };
            found(Posting { document, fields, impact, name_share });
        }
        Ok(())
    }

    /// All words, in the order of their numbers.
    fn words(&self) -> Result<Vec<Box<str>>, Unusable> {
        // Each word takes more than a byte of the file, so a damaged count allocates no more than the file is long.
        let mut words =
            vec![Box::<str>::default(); (self.footer.words as usize).min(usize::try_from(self.length).unwrap_or(0))];
        for bucket in 0..self.footer.buckets {
            self.read_bucket(bucket, |word, entry| {
                if let Some(place) = words.get_mut(entry.number as usize) {
                    *place = word.into();
                }
            })?;
        }
        Ok(words)
    }

    fn words_of(&self, document: u32) -> Result<WordsOfDocument, Unusable> {
        WordsOfDocument::decode(&self.encoded_words(document)?)
    }

    /// The different words of each phrase of a document, by their numbers.
    pub(crate) fn phrases(&self, document: u32) -> Result<Vec<Vec<u32>>, Unusable> {
        WordsOfDocument::decode_phrases(&self.encoded_words(document)?)
    }

    fn encoded_words(&self, document: u32) -> Result<Vec<u8>, Unusable> {
        let record = self.record(document)?;
        let bytes = self.read(record.at, u64::from(record.words_length))?;
        if checksum(record.at, &bytes) != record.words_checksum {
            return Err(Unusable::Damaged("the checksum of a document is wrong"));
        }
        Ok(bytes)
    }

    fn record(&self, document: u32) -> Result<DocumentRecord, Unusable> {
        if document >= self.footer.documents {
            return Err(Unusable::Damaged("there is no document of this number"));
        }
        let at = self.footer.documents_at + u64::from(document) * RECORD_BYTES as u64;
        let mut bytes = [0; RECORD_BYTES];
        self.source.read(&mut bytes, at, self.length)?;
        let record = DocumentRecord::decode(&bytes, document)?;
        // Keeps the sums of its numbers within the file, whatever they are.
        if record.at > self.length { Err(Unusable::Damaged("a document is outside")) } else { Ok(record) }
    }

    fn read_bucket(&self, bucket: u32, found: impl FnMut(&str, WordEntry)) -> Result<(), Unusable> {
        self.read_bucket_from(|at, length| self.read(at, length).map(Cow::Owned), bucket, found)
    }

    fn read_bucket_from<'b>(
        &self,
        read: impl Fn(u64, u64) -> Result<Cow<'b, [u8]>, Unusable>,
        bucket: u32,
        mut found: impl FnMut(&str, WordEntry),
    ) -> Result<(), Unusable> {
        let begin_at = self.footer.directory_at + u64::from(bucket) * 4;
        let is_last = bucket + 1 == self.footer.buckets;
        let places = read(begin_at, if is_last { 4 } else { 8 })?;
        let place = |at: usize| u32::from_le_bytes(places[at..at + 4].try_into().expect("four bytes"));
        let all = self.footer.directory_at - self.footer.buckets_at;
        let (begin, end) = (u64::from(place(0)), if is_last { all } else { u64::from(place(4)) });
        if end > all {
            return Err(Unusable::Damaged("a bucket is outside"));
        }
        let length = end.checked_sub(begin).ok_or(Unusable::Damaged("a bucket ends before it begins"))?;
        let bytes = read(self.footer.buckets_at + begin, length)?;
        let mut decoder = format::Decoder::new(verified(u64::from(bucket), &bytes)?);
        while !decoder.is_empty() {
            let length = decoder.varint32()? as usize;
            let word = decoder.text(length)?;
            let entry = WordEntry {
                number: decoder.varint32()?,
                documents: decoder.varint32()?,
                at: decoder.varint()?,
                length: decoder.varint()?,
            };
            found(word, entry);
        }
        Ok(())
    }

    fn read(&self, at: u64, length: u64) -> Result<Vec<u8>, Unusable> {
        // Before anything is allocated.
        if at.checked_add(length).is_none_or(|end| end > self.length) {
            return Err(Unusable::Damaged("a part is outside"));
        }
        let mut bytes = vec![0; usize::try_from(length).map_err(|_| Unusable::Damaged("a part is too large"))?];
        self.source.read(&mut bytes, at, self.length)?;
        Ok(bytes)
    }
}

impl Source {
    /// Fills `bytes` from `at` on, of `length` in all.
    fn read(&self, bytes: &mut [u8], at: u64, length: u64) -> Result<(), Unusable> {
        if at.checked_add(bytes.len() as u64).is_none_or(|end| end > length) {
            return Err(Unusable::Damaged("a part is outside"));
        }
        match self {
            Self::File(file) => Ok(file.read_exact_at(bytes, at)?),
            Self::Bytes(source) => {
                let at = usize::try_from(at).map_err(|_| Unusable::Damaged("a part is outside"))?;
                bytes.copy_from_slice(&source[at..at + bytes.len()]);
                Ok(())
            }
        }
    }
}
