//! The bytes of an index file: numbers, checksums, and the footer that says where everything is.
//!
//! ```text
//! magic, version                             16 bytes
//! for each document: its words, its payload  in the order in which they were added
//! for each word: its postings                documents in ascending order, as varints
//! buckets of words                           a word's hash chooses its bucket
//! bucket directory                           where each bucket begins
//! documents                                  one record each, in the order of their names
//! names                                      of all documents, one after the other
//! name slots                                 a hash table from names to documents
//! header                                     whatever the caller wants to find first
//! footer                                     88 bytes: where each of the above is
//! ```
//!
//! All numbers are little-endian. Each part that is read on its own ends with, or is recorded with, a checksum, which is
//! verified before anything in the part is believed. A file is only ever written as a whole.

use super::Unusable;

pub(crate) const MAGIC: &[u8; 8] = b"AMTINDEX";

/// Goes up whenever the layout, or what an indexed word is or weighs, changes.
pub(crate) const VERSION: u32 = 5;

/// The length of what stands before the first document.
pub(crate) const START_BYTES: usize = 16;

/// The length of a checksum.
pub(crate) const CHECKSUM_BYTES: usize = 4;

/// Impacts are stored as multiples of this.
pub(crate) const IMPACT_STEP: f64 = 1.0 / 64.0;

/// A fast checksum, which finds every single damaged bit, and others with a chance of all but one in four billion.
/// `place` makes the same bytes at another place wrong.
pub(crate) fn checksum(place: u64, bytes: &[u8]) -> u32 {
    const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
    let mix = |hash: u64, part: u64| (hash ^ part).wrapping_mul(FACTOR).rotate_left(29);
    let mut hash = mix(place.wrapping_add(1), bytes.len() as u64);
    let mut chunks = bytes.chunks_exact(8);
    for chunk in &mut chunks {
        hash = mix(hash, u64::from_le_bytes(chunk.try_into().expect("eight bytes")));
    }
    let mut last = [0; 8];
    last[..chunks.remainder().len()].copy_from_slice(chunks.remainder());
    let hash = mix(mix(hash, u64::from_le_bytes(last)), 0);
    u32::try_from((hash ^ (hash >> 32)) & 0xffff_ffff).expect("32 bits")
}

/// The hash that chooses a bucket or a slot.
pub(crate) fn hash(text: &str) -> u32 {
    checksum(u64::MAX, text.as_bytes())
}

pub(crate) fn put_varint(mut number: u64, out: &mut Vec<u8>) {
    while number >= 0x80 {
        out.push(u8::try_from(number & 0x7f).expect("seven bits") | 0x80);
        number >>= 7;
    }
    out.push(u8::try_from(number).expect("seven bits"));
}

/// Reads numbers and texts from bytes that may be damaged.
#[derive(Clone)]
pub(crate) struct Decoder<'a> {
    rest: &'a [u8],
}

impl<'a> Decoder<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    pub(crate) fn byte(&mut self) -> Result<u8, Unusable> {
        let (first, rest) = self.rest.split_first().ok_or(Unusable::Damaged("a part ends too early"))?;
        self.rest = rest;
        Ok(*first)
    }

    pub(crate) fn varint(&mut self) -> Result<u64, Unusable> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(number);
            }
        }
        Err(Unusable::Damaged("a number has no end"))
    }

    pub(crate) fn varint32(&mut self) -> Result<u32, Unusable> {
        u32::try_from(self.varint()?).map_err(|_| Unusable::Damaged("a number is too large"))
    }

    pub(crate) fn bytes(&mut self, length: usize) -> Result<&'a [u8], Unusable> {
        let (bytes, rest) = self.rest.split_at_checked(length).ok_or(Unusable::Damaged("a part ends too early"))?;
        self.rest = rest;
        Ok(bytes)
    }

    pub(crate) fn u32(&mut self) -> Result<u32, Unusable> {
        Ok(u32::from_le_bytes(self.bytes(4)?.try_into().expect("four bytes")))
    }

    pub(crate) fn u64(&mut self) -> Result<u64, Unusable> {
        Ok(u64::from_le_bytes(self.bytes(8)?.try_into().expect("eight bytes")))
    }

    pub(crate) fn text(&mut self, length: usize) -> Result<&'a str, Unusable> {
        std::str::from_utf8(self.bytes(length)?).map_err(|_| Unusable::Damaged("a text is not UTF-8"))
    }
}

/// Splits bytes that end with their checksum.
pub(crate) fn verified(place: u64, bytes: &[u8]) -> Result<&[u8], Unusable> {
    let length = bytes.len().checked_sub(CHECKSUM_BYTES).ok_or(Unusable::Damaged("a part has no checksum"))?;
    let (content, sum) = bytes.split_at(length);
    if checksum(place, content).to_le_bytes() == sum {
        Ok(content)
    } else {
        Err(Unusable::Damaged("a checksum is wrong"))
    }
}

/// Where the parts of a file are. Each part lasts until the next one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Footer {
    pub(crate) documents: u32,
    /// How many words the index knows, and how many buckets they are in, which is a power of two.
    pub(crate) words: u32,
    pub(crate) buckets: u32,
    /// How many slots the hash table of names has, which is a power of two.
    pub(crate) slots: u32,
    pub(crate) postings_at: u64,
    pub(crate) buckets_at: u64,
    pub(crate) directory_at: u64,
    pub(crate) documents_at: u64,
    pub(crate) names_at: u64,
    pub(crate) slots_at: u64,
    pub(crate) header_at: u64,
    pub(crate) end_at: u64,
    pub(crate) header_checksum: u32,
}

/// The length of a footer, with its checksum.
pub(crate) const FOOTER_BYTES: usize = 88;
/// The length of a document's record, with its checksum.
pub(crate) const RECORD_BYTES: usize = 37;

impl Footer {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(FOOTER_BYTES);
        for number in [self.documents, self.words, self.buckets, self.slots] {
            bytes.extend(number.to_le_bytes());
        }
        for place in self.places() {
            bytes.extend(place.to_le_bytes());
        }
        bytes.extend(self.header_checksum.to_le_bytes());
        bytes.extend(checksum(self.end_at, &bytes).to_le_bytes());
        bytes
    }

    /// Reads the footer of a file that is `length` bytes long, and makes sure that all of its parts are inside.
    pub(crate) fn decode(bytes: &[u8], length: u64) -> Result<Self, Unusable> {
        let at = length.checked_sub(FOOTER_BYTES as u64).ok_or(Unusable::Damaged("too short"))?;
        let mut decoder = Decoder::new(verified(at, bytes)?);
        let footer = Self {
            documents: decoder.u32()?,
            words: decoder.u32()?,
            buckets: decoder.u32()?,
            slots: decoder.u32()?,
            postings_at: decoder.u64()?,
            buckets_at: decoder.u64()?,
            directory_at: decoder.u64()?,
            documents_at: decoder.u64()?,
            names_at: decoder.u64()?,
            slots_at: decoder.u64()?,
            header_at: decoder.u64()?,
            end_at: decoder.u64()?,
            header_checksum: decoder.u32()?,
        };
        let spans = |from: u64, to: u64, count: u32, size: u64| to.checked_sub(from) == Some(u64::from(count) * size);
        let fits = footer.places().is_sorted()
            && footer.end_at == at
            && footer.buckets.is_power_of_two()
            && footer.slots.is_power_of_two()
            && spans(footer.directory_at, footer.documents_at, footer.buckets, 4)
            && spans(footer.documents_at, footer.names_at, footer.documents, RECORD_BYTES as u64)
            && spans(footer.slots_at, footer.header_at, footer.slots, 4);
        if fits { Ok(footer) } else { Err(Unusable::Damaged("the parts do not fit together")) }
    }

    fn places(&self) -> [u64; 8] {
        [
            self.postings_at,
            self.buckets_at,
            self.directory_at,
            self.documents_at,
            self.names_at,
            self.slots_at,
            self.header_at,
            self.end_at,
        ]
    }
}

/// What is recorded of a document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DocumentRecord {
    /// Where its words begin; its payload follows them.
    pub(crate) at: u64,
    pub(crate) words_length: u32,
    pub(crate) payload_length: u32,
    /// Where its name begins, counted from the first name.
    pub(crate) name_at: u32,
    pub(crate) name_length: u32,
    pub(crate) words_checksum: u32,
    pub(crate) payload_checksum: u32,
    /// What it does, as [`Verb`](crate::Verb) makes it a byte.
    pub(crate) verb: u8,
}

impl DocumentRecord {
    pub(crate) fn encode(&self, number: u32, out: &mut Vec<u8>) {
        let begin = out.len();
        out.extend(self.at.to_le_bytes());
        for part in [self.words_length, self.payload_length, self.name_at, self.name_length, self.words_checksum] {
            out.extend(part.to_le_bytes());
        }
        out.extend(self.payload_checksum.to_le_bytes());
        out.push(self.verb);
        let sum = checksum(u64::from(number), &out[begin..]);
        out.extend(sum.to_le_bytes());
    }

    pub(crate) fn decode(bytes: &[u8], number: u32) -> Result<Self, Unusable> {
        let mut decoder = Decoder::new(verified(u64::from(number), bytes)?);
        Ok(Self {
            at: decoder.u64()?,
            words_length: decoder.u32()?,
            payload_length: decoder.u32()?,
            name_at: decoder.u32()?,
            name_length: decoder.u32()?,
            words_checksum: decoder.u32()?,
            payload_checksum: decoder.u32()?,
            verb: decoder.byte()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_every_size_are_read_as_they_were_written() {
        let numbers = [0, 1, 127, 128, 16_383, 16_384, u64::from(u32::MAX), u64::MAX];
        let mut bytes = Vec::new();
        for number in numbers {
            put_varint(number, &mut bytes);
        }
        let mut decoder = Decoder::new(&bytes);
        assert_eq!(numbers.map(|_| decoder.varint().expect("a number")), numbers);
        assert!(decoder.varint().is_err());
    }

    #[test]
    fn a_checksum_depends_on_every_bit_and_on_the_place() {
        let bytes: Vec<u8> = (0..41).collect();
        let sum = checksum(7, &bytes);
        assert_ne!(sum, checksum(8, &bytes));
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert_ne!(sum, checksum(7, &damaged), "bit {bit}");
        }
    }
}
