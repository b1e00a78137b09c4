//! The words of one document as the index keeps them, so that a later index can take them over.

use super::Unusable;
use super::format::{Decoder, put_varint};
use crate::fields::FIELD_COUNT;

/// Which words a document has, and how many of them are in each field.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct WordsOfDocument {
    pub(crate) lengths: [u32; FIELD_COUNT],
    /// The different words of each phrase.
    pub(crate) phrases: Vec<Vec<u32>>,
    /// Ordered by word.
    pub(crate) words: Vec<WordCounts>,
}

/// How often a document has a word in each field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WordCounts {
    /// The number of the word in its index.
    pub(crate) word: u32,
    pub(crate) counts: [u32; FIELD_COUNT],
}

impl WordsOfDocument {
    /// Counts occurrences of words in fields.
    pub(crate) fn count(
        mut occurrences: Vec<(u32, usize)>,
        lengths: [u32; FIELD_COUNT],
        mut phrases: Vec<Vec<u32>>,
    ) -> Self {
        for phrase in &mut phrases {
            phrase.sort_unstable();
            phrase.dedup();
        }
        occurrences.sort_unstable();
        let mut words: Vec<WordCounts> = Vec::new();
        for (word, field) in occurrences {
            if words.last().is_none_or(|last| last.word != word) {
                words.push(WordCounts { word, counts: [0; FIELD_COUNT] });
            }
            words.last_mut().expect("just pushed").counts[field] += 1;
        }
        Self { lengths, phrases, words }
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for length in self.lengths {
            put_varint(u64::from(length), &mut bytes);
        }
        put_varint(self.phrases.len() as u64, &mut bytes);
        for phrase in &self.phrases {
            put_varint(phrase.len() as u64, &mut bytes);
            for word in phrase {
                put_varint(u64::from(*word), &mut bytes);
            }
        }
        let mut last = 0;
        for word in &self.words {
            put_varint(u64::from(word.word - last), &mut bytes);
            word.put_counts(&mut bytes);
            last = word.word;
        }
        bytes
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, Unusable> {
        let mut decoder = Decoder::new(bytes);
        let mut words = Self::decode_beginning(&mut decoder)?;
        let mut last = 0_u32;
        while !decoder.is_empty() {
            let word = last.checked_add(decoder.varint32()?).ok_or(Unusable::Damaged("a number is too large"))?;
            words.words.push(WordCounts { word, counts: read_counts(&mut decoder)? });
            last = word;
        }
        Ok(words)
    }

    /// Reads the phrases alone.
    pub(crate) fn decode_phrases(bytes: &[u8]) -> Result<Vec<Vec<u32>>, Unusable> {
        Ok(Self::decode_beginning(&mut Decoder::new(bytes))?.phrases)
    }

    fn decode_beginning(decoder: &mut Decoder<'_>) -> Result<Self, Unusable> {
        let mut words = Self::default();
        for length in &mut words.lengths {
            *length = decoder.varint32()?;
        }
        // Nothing is allocated by these counts: a damaged one ends with the bytes.
        for _ in 0..decoder.varint32()? {
            let mut phrase = Vec::new();
            for _ in 0..decoder.varint32()? {
                phrase.push(decoder.varint32()?);
            }
            words.phrases.push(phrase);
        }
        Ok(words)
    }
}

impl WordCounts {
    /// The fields as bits, and the count in each of them.
    pub(crate) fn put_counts(&self, out: &mut Vec<u8>) {
        let bits = (0..FIELD_COUNT).filter(|field| self.counts[*field] > 0).fold(0, |bits, field| bits | 1 << field);
        out.push(bits);
        for count in self.counts.into_iter().filter(|count| *count > 0) {
            put_varint(u64::from(count), out);
        }
    }
}

/// Reads what [`WordCounts::put_counts`] has written.
pub(crate) fn read_counts(decoder: &mut Decoder<'_>) -> Result<[u32; FIELD_COUNT], Unusable> {
    let bits = decoder.byte()?;
    let mut counts = [0; FIELD_COUNT];
    for (field, count) in counts.iter_mut().enumerate() {
        if bits & (1 << field) != 0 {
            *count = decoder.varint32()?;
        }
    }
    Ok(counts)
}
