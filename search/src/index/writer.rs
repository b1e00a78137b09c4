//! Writes an index file, from front to back.
//!
//! Payloads go straight to the output. Kept until the end are the postings, as compact bytes, because what a word
//! weighs in a document depends on all documents.

use std::collections::HashMap;
use std::io::{self, Write};

use super::format::{
    DocumentRecord, FOOTER_BYTES, Footer, IMPACT_STEP, MAGIC, START_BYTES, VERSION, checksum, hash, put_varint,
};
use super::words_of_document::WordsOfDocument;
use super::{Index, Unusable};
use crate::document::Document;
use crate::fields::{FIELD_COUNT, Fields, GLOSSES, NAME, PHRASES, WEIGHTS, weighted};
use crate::glossary;
use crate::ranking::rarity;
use crate::silent_words::is_silent;
use crate::verbs::Verb;
use crate::words::{WordSplitter, pieces};

/// How many words a bucket has on average. A query reads one bucket for each of its words.
const WORDS_A_BUCKET: usize = 8;

/// Builds an index from documents, in any order.
pub struct IndexWriter<W> {
    output: W,
    written: u64,
    splitter: WordSplitter,
    /// The number of each word, in the order of their first occurrence.
    words: HashMap<Box<str>, u32>,
    /// The number of the stem of each word as it is written, so that a word is stemmed only once.
    stems: HashMap<Box<str>, Option<u32>>,
    /// The postings of each word: document, fields, count in each.
    postings: Vec<WordPostings>,
    documents: Vec<NewDocument>,
}

#[derive(Default)]
struct WordPostings {
    documents: u32,
    last: u32,
    bytes: Vec<u8>,
}

struct NewDocument {
    name: Box<str>,
    record: DocumentRecord,
    lengths: [u32; FIELD_COUNT],
    /// The different words of its name.
    name_words: Box<[u32]>,
}

impl<W> std::fmt::Debug for IndexWriter<W> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("IndexWriter").field("documents", &self.documents.len()).finish_non_exhaustive()
    }
}

/// An index whose documents are taken over into another one.
#[derive(Debug)]
pub struct PreviousIndex<'a> {
    index: &'a Index,
    words: Vec<Box<str>>,
    /// The numbers that these words have in the new index, once they have one.
    numbers: Vec<Option<u32>>,
}

impl<'a> PreviousIndex<'a> {
    /// Reads the words of `index`.
    pub fn new(index: &'a Index) -> Result<Self, Unusable> {
        let words = index.words()?;
        let numbers = vec![None; words.len()];
        Ok(Self { index, words, numbers })
    }
}

impl<W: Write> IndexWriter<W> {
    pub fn new(mut output: W) -> io::Result<Self> {
        let mut start = Vec::with_capacity(START_BYTES);
        start.extend(MAGIC);
        start.extend(VERSION.to_le_bytes());
        start.extend([0; 4]);
        output.write_all(&start)?;
        Ok(Self {
            output,
            written: START_BYTES as u64,
            splitter: WordSplitter::new(),
            words: HashMap::new(),
            stems: HashMap::new(),
            postings: Vec::new(),
            documents: Vec::new(),
        })
    }

    /// Adds a document. A search gives back `payload` as it is.
    pub fn add(&mut self, document: &Document<'_>, payload: &[u8]) -> io::Result<()> {
        let mut counts: Vec<(u32, usize)> = Vec::new();
        let mut lengths = [0; FIELD_COUNT];
        let mut add = |field: usize, word: u32| {
            counts.push((word, field));
            lengths[field] += 1;
        };
        let texts = document.texts();
        let mut phrases = Vec::new();
        for (field, texts) in texts.iter().enumerate() {
            for text in texts {
                let mut words = Vec::new();
                pieces(text, |piece| {
                    let word = self.stem(piece);
                    if let Some(word) = word {
                        add(field, word);
                    }
                    if field == PHRASES {
                        words.push(word.unwrap_or_else(|| self.number(piece)));
                    }
                });
                if field == PHRASES {
                    phrases.push(words);
                }
            }
        }
        for gloss in texts.iter().flatten().flat_map(|text| glossary::chinese(text)) {
            for (_, word) in gloss.words() {
                if let Some(word) = self.stem(word) {
                    add(GLOSSES, word);
                }
            }
        }
        let words = WordsOfDocument::count(counts, lengths, phrases);
        let verb = document.verb.or_else(|| self.verb_of_name(document.name));
        self.push(document.name, &words, verb, payload)
    }

    /// What a name says that its subtool does.
    fn verb_of_name(&self, name: &str) -> Option<Verb> {
        let mut found = None;
        pieces(name, |piece| {
            found = found.or_else(|| Verb::of_stem(&self.splitter.stem(piece), false));
        });
        found
    }

    /// Adds document `number` of `previous` as it is, with its words as they were analysed, and with `payload` or the one
    /// that it has there.
    pub fn copy(
        &mut self,
        previous: &mut PreviousIndex<'_>,
        number: u32,
        payload: Option<&[u8]>,
    ) -> Result<(), Unusable> {
        let mut words = previous.index.words_of(number)?;
        let numbers = words.words.iter_mut().map(|word| &mut word.word);
        for number in numbers.chain(words.phrases.iter_mut().flatten()) {
            let old = *number as usize;
            let text = previous.words.get(old).ok_or(Unusable::Damaged("a document has an unknown word"))?;
            let new = match previous.numbers[old] {
                Some(new) => new,
                None => self.number(text),
            };
            previous.numbers[old] = Some(new);
            *number = new;
        }
        words.words.sort_unstable_by_key(|word| word.word);
        let (name, verb) = (previous.index.name(number)?, previous.index.verb(number)?);
        let kept;
        let payload = if let Some(payload) = payload {
            payload
        } else {
            kept = previous.index.payload(number)?;
            &kept
        };
        Ok(self.push(&name, &words, verb, payload)?)
    }

    /// Writes what remains. `header` is what [`Index::header`] gives back.
    pub fn finish(mut self, header: &[u8]) -> io::Result<W> {
        let order = self.sort_by_name();
        let places = inverse(&order);
        let count = self.documents.len();
        let means = self.mean_lengths();
        let shares = self.shares_of_names();

        let postings_at = self.written;
        let mut entries: Vec<(u32, u64, u64)> = Vec::with_capacity(self.postings.len());
        let mut encoded = Vec::new();
        for number in 0..self.postings.len() {
            let postings = std::mem::take(&mut self.postings[number]);
            let at = self.written;
            encoded.clear();
            self.encode_postings(&postings, &places, &means, &shares, &mut encoded);
            encoded.extend(checksum(at, &encoded).to_le_bytes());
            self.write(&encoded)?;
            entries.push((postings.documents, at, encoded.len() as u64));
        }

        let buckets_at = self.written;
        let buckets = (self.words.len() / WORDS_A_BUCKET).max(1).next_power_of_two();
        let directory = self.write_buckets(buckets, &entries, buckets_at)?;
        let directory_at = self.written;
        self.write(&directory)?;

        let documents_at = self.written;
        let (mut records, mut names) = (Vec::with_capacity(count * super::format::RECORD_BYTES), Vec::new());
        let slots = (count * 2).max(1).next_power_of_two();
        let mut table = vec![0_u32; slots];
        for (number, original) in (0..).zip(&order) {
            let document = &mut self.documents[*original as usize];
            document.record.name_at = length32(names.len())?;
            names.extend(document.name.as_bytes());
            document.record.encode(number, &mut records);
            let mut slot = hash(&document.name) as usize;
            while table[slot % slots] != 0 {
                slot += 1;
            }
            table[slot % slots] = number + 1;
        }
        self.write(&records)?;
        let names_at = self.written;
        self.write(&names)?;
        let slots_at = self.written;
        let table: Vec<u8> = table.into_iter().flat_map(u32::to_le_bytes).collect();
        self.write(&table)?;
        let header_at = self.written;
        self.write(header)?;
        let footer = Footer {
            documents: length32(count)?,
            words: length32(self.words.len())?,
            buckets: length32(buckets)?,
            slots: length32(slots)?,
            postings_at,
            buckets_at,
            directory_at,
            documents_at,
            names_at,
            slots_at,
            header_at,
            end_at: self.written,
            header_checksum: checksum(header_at, header),
        };
        let footer = footer.encode();
        debug_assert_eq!(footer.len(), FOOTER_BYTES);
        self.write(&footer)?;
        Ok(self.output)
    }

    fn push(&mut self, name: &str, words: &WordsOfDocument, verb: Option<Verb>, payload: &[u8]) -> io::Result<()> {
        let number = length32(self.documents.len())?;
        let encoded = words.encode();
        let record = DocumentRecord {
            at: self.written,
            words_length: length32(encoded.len())?,
            payload_length: length32(payload.len())?,
            name_at: 0,
            name_length: length32(name.len())?,
            words_checksum: checksum(self.written, &encoded),
            payload_checksum: checksum(self.written, payload),
            verb: Verb::to_byte(verb),
        };
        self.write(&encoded)?;
        self.write(payload)?;
        let mut name_words = Vec::new();
        for word in &words.words {
            if word.counts[NAME] > 0 {
                name_words.push(word.word);
            }
            let postings = &mut self.postings[word.word as usize];
            put_varint(u64::from(number - postings.last), &mut postings.bytes);
            word.put_counts(&mut postings.bytes);
            postings.last = number;
            postings.documents += 1;
        }
        self.documents.push(NewDocument {
            name: name.into(),
            record,
            lengths: words.lengths,
            name_words: name_words.into(),
        });
        Ok(())
    }

    /// The number of the stem of `piece`, unless it is a silent word.
    fn stem(&mut self, piece: &str) -> Option<u32> {
        if let Some(known) = self.stems.get(piece) {
            return *known;
        }
        let number = (!is_silent(piece)).then(|| {
            let stem = self.splitter.stem(piece).into_owned();
            self.number(&stem)
        });
        self.stems.insert(piece.into(), number);
        number
    }

    fn number(&mut self, word: &str) -> u32 {
        if let Some(number) = self.words.get(word) {
            return *number;
        }
        let number = u32::try_from(self.postings.len()).expect("memory ends before four billion words");
        self.words.insert(word.into(), number);
        self.postings.push(WordPostings::default());
        number
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.written += bytes.len() as u64;
        self.output.write_all(bytes)
    }

    /// The numbers of the documents as they were added, in the order of their names.
    fn sort_by_name(&self) -> Vec<u32> {
        let mut order: Vec<u32> = (0..u32::try_from(self.documents.len()).expect("counted as 32 bits")).collect();
        order.sort_by(|a, b| self.documents[*a as usize].name.cmp(&self.documents[*b as usize].name));
        order
    }

    /// The mean length of each field in the documents that have it: a field that few documents have, such as phrases,
    /// would otherwise seem very long in all of them.
    fn mean_lengths(&self) -> [f64; FIELD_COUNT] {
        std::array::from_fn(|field| {
            let lengths = || self.documents.iter().map(|document| document.lengths[field]).filter(|length| *length > 0);
            let total: f64 = lengths().map(f64::from).sum();
            #[expect(clippy::cast_precision_loss, reason = "a count of documents is far below 2^52")]
            let count = lengths().count().max(1) as f64;
            total / count
        })
    }

    /// For each document the rarity of all words of its name, by which the share of one of them is computed.
    fn shares_of_names(&self) -> Vec<f64> {
        let count = self.documents.len();
        let rarity_of = |word: &u32| rarity(count, self.postings[*word as usize].documents as usize);
        self.documents.iter().map(|document| document.name_words.iter().map(rarity_of).sum()).collect()
    }

    /// A posting: document (as the distance from the one before), fields, impact, and, if the word is in its name, the
    /// share of the name that it makes up, in 255ths.
    fn encode_postings(
        &self,
        postings: &WordPostings,
        places: &[u32],
        means: &[f64; FIELD_COUNT],
        names: &[f64],
        out: &mut Vec<u8>,
    ) {
        let own_rarity = rarity(self.documents.len(), postings.documents as usize);
        let mut decoder = super::format::Decoder::new(&postings.bytes);
        let mut number = 0;
        let mut found: Vec<(u32, Fields, u32, u8)> = Vec::with_capacity(postings.documents as usize);
        while !decoder.is_empty() {
            number += decoder.varint32().expect("written above");
            let counts = super::words_of_document::read_counts(&mut decoder).expect("written above");
            let document = &self.documents[number as usize];
            let mut fields = Fields::default();
            let mut impact = 0.0;
            for (field, count) in counts.into_iter().enumerate().filter(|(_, count)| *count > 0) {
                fields = fields.with(Fields::of(field));
                impact += weighted(&WEIGHTS[field], f64::from(count), f64::from(document.lengths[field]), means[field]);
            }
            let share = own_rarity / names[number as usize].max(f64::EPSILON) * 255.0;
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "both are clamped")]
            let (impact, share) = (
                (impact / IMPACT_STEP).round().clamp(1.0, f64::from(u32::MAX)) as u32,
                share.round().clamp(0.0, 255.0) as u8,
            );
            found.push((places[number as usize], fields, impact, share));
        }
        found.sort_unstable_by_key(|posting| posting.0);
        let mut last = 0;
        for (place, fields, impact, share) in found {
            put_varint(u64::from(place - last), out);
            out.push(fields.bits());
            put_varint(u64::from(impact), out);
            if fields.contains(NAME) {
                out.push(share);
            }
            last = place;
        }
    }

    /// Writes the words, and returns the directory of their buckets.
    fn write_buckets(&mut self, buckets: usize, entries: &[(u32, u64, u64)], at: u64) -> io::Result<Vec<u8>> {
        let mut sorted: Vec<(usize, Box<str>, u32)> =
            self.words.iter().map(|(word, number)| (hash(word) as usize % buckets, word.clone(), *number)).collect();
        sorted.sort_unstable();
        let mut sorted = sorted.into_iter().peekable();
        let mut directory = Vec::with_capacity(buckets * 4);
        let mut bytes = Vec::new();
        for bucket in 0..buckets {
            directory.extend(length32(usize::try_from(self.written - at).map_err(io::Error::other)?)?.to_le_bytes());
            bytes.clear();
            while let Some((_, word, number)) = sorted.next_if(|(own, ..)| *own == bucket) {
                let (documents, postings_at, length) = entries[number as usize];
                put_varint(word.len() as u64, &mut bytes);
                bytes.extend(word.as_bytes());
                for part in [u64::from(number), u64::from(documents), postings_at, length] {
                    put_varint(part, &mut bytes);
                }
            }
            bytes.extend(checksum(bucket as u64, &bytes).to_le_bytes());
            self.write(&bytes)?;
        }
        Ok(directory)
    }
}

/// For each document, as it was added, its place in `order`.
fn inverse(order: &[u32]) -> Vec<u32> {
    let mut places = vec![0; order.len()];
    for (place, number) in (0..).zip(order) {
        places[*number as usize] = place;
    }
    places
}

fn length32(length: usize) -> io::Result<u32> {
    u32::try_from(length).map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "an index is at most 4 GiB large"))
}
