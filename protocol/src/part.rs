//! Reads a part of data of any size: a range of bytes or lines, or a page of a list.
//!
//! Keeps only the part in memory, and limits its size.

use std::fmt;
use std::io::{self, BufRead, Read, Seek, SeekFrom};
use std::ops::RangeInclusive;

use crate::wording::{at_most, in_backticks};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde::de::{DeserializeSeed, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

/// The largest part, in bytes.
pub const MAX_BYTES: usize = 1_000_000;

/// A range of the source, in the unit of the request: bytes from 0 or lines from 1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DataPart {
    /// The first unit of the part.
    pub first: u64,
    /// The unit after the part; equal to `first` if the part is empty.
    pub end: u64,
    /// The number of units in the source.
    pub total: u64,
    /// The offset of the part in the source, in bytes.
    pub offset: u64,
    /// Whether the part is the beginning of a single line that is longer than a part may be.
    pub is_cut: bool,
    pub bytes: Vec<u8>,
}

/// The bytes of a part in a form that JSON can hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PartContent {
    Text(String),
    Base64(String),
}

/// Reads the bytes in `range`, counted from 0: at most `max_bytes` of them. If they are text, leaves out partial characters
/// at both ends.
pub fn bytes(mut source: impl Read + Seek, range: &RangeInclusive<u64>, max_bytes: usize) -> io::Result<DataPart> {
    let total = source.seek(SeekFrom::End(0))?;
    let first = (*range.start()).min(total);
    let end = range.end().saturating_add(1).min(total).min(first + max_bytes as u64);
    source.seek(SeekFrom::Start(first))?;
    let mut bytes = Vec::new();
    source.take(end.saturating_sub(first)).read_to_end(&mut bytes)?;
    let mut part = DataPart { first, end: first + bytes.len() as u64, total, offset: first, is_cut: false, bytes };
    part.trim_partial_characters();
    Ok(part)
}

/// Reads the lines in `range`, counted from 1, without the line break of the last one: at most `max_bytes` of them.
pub fn lines(mut source: impl BufRead, range: &RangeInclusive<u64>, max_bytes: usize) -> io::Result<DataPart> {
    let (mut line, mut offset) = (0, 0);
    while line + 1 < *range.start() {
        match source.skip_until(b'\n')? {
            0 => break,
            skipped => offset += skipped as u64,
        }
        line += 1;
    }
    let mut part = DataPart { first: line + 1, end: line + 1, total: 0, offset, is_cut: false, bytes: Vec::new() };
    while line < *range.end() && !part.is_cut && part.bytes.len() < max_bytes {
        let (before, room) = (part.bytes.len(), max_bytes - part.bytes.len());
        let read = source.by_ref().take(room as u64).read_until(b'\n', &mut part.bytes)?;
        if read == 0 {
            break;
        }
        line += 1;
        let is_whole = read < room || part.bytes.ends_with(b"\n") || source.skip_until(b'\n')? == 0;
        if !is_whole && before > 0 {
            part.bytes.truncate(before);
            break;
        }
        part.is_cut = !is_whole;
        part.end = line + 1;
    }
    while source.skip_until(b'\n')? > 0 {
        line += 1;
    }
    part.total = line;
    if part.is_cut {
        part.trim_partial_characters();
    } else if part.bytes.ends_with(b"\n") {
        part.bytes.pop();
    }
    Ok(part)
}

impl DataPart {
    /// UTF-8 text, or base64 if the bytes are not valid UTF-8.
    pub fn content(&self) -> PartContent {
        match std::str::from_utf8(&self.bytes) {
            Ok(text) => PartContent::Text(text.to_owned()),
            Err(_) => PartContent::Base64(BASE64_STANDARD.encode(&self.bytes)),
        }
    }

    /// Removes partial characters at both ends, which belong to the adjacent parts, unless the part has
    /// nothing else.
    fn trim_partial_characters(&mut self) {
        let is_continuation = |byte: &&u8| **byte & 0b1100_0000 == 0b1000_0000;
        let skipped = if self.offset == 0 { 0 } else { self.bytes.iter().take(3).take_while(is_continuation).count() };
        let kept = match std::str::from_utf8(&self.bytes[skipped..]) {
            Ok(text) => text.len(),
            Err(error) if error.error_len().is_none() => error.valid_up_to(),
            Err(_) => return,
        };
        if kept == 0 || kept == self.bytes.len() {
            return;
        }
        let dropped = self.bytes.len() - skipped - kept;
        self.bytes.drain(..skipped);
        self.bytes.truncate(kept);
        if !self.is_cut {
            self.first += skipped as u64;
            self.offset = self.first;
            self.end -= dropped as u64;
        }
    }
}

/// A page of a list.
#[derive(Debug, Clone, PartialEq)]
pub struct ListPage {
    pub items: Vec<Value>,
    /// The number of items in the list.
    pub total: u64,
}

/// Why the data has no pages.
#[derive(Debug, thiserror::Error)]
pub enum PageError {
    #[error("the data is not a list but an object with {}", key_list(.0))]
    Object(Vec<String>),
    #[error("the data is not a list")]
    NotAList,
    #[error("the data is not valid JSON: {0}")]
    Malformed(serde_json::Error),
}

fn key_list(keys: &[String]) -> String {
    const MAX_KEYS: usize = 10;
    at_most(MAX_KEYS, keys.iter().map(in_backticks))
}

/// Reads at most `size` items of the list in `source`, after the first `skip`. Only these are kept in memory.
pub fn page(source: impl Read, skip: u64, size: u64) -> Result<ListPage, PageError> {
    let mut deserializer = serde_json::Deserializer::from_reader(io::BufReader::new(source));
    match (PageReader { skip, size }).deserialize(&mut deserializer) {
        Ok(found) => found,
        Err(error) => Err(PageError::Malformed(error)),
    }
}

#[derive(Clone, Copy)]
struct PageReader {
    skip: u64,
    size: u64,
}

impl<'de> DeserializeSeed<'de> for PageReader {
    type Value = Result<ListPage, PageError>;

    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for PageReader {
    type Value = Result<ListPage, PageError>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let mut page = ListPage { items: Vec::new(), total: 0 };
        loop {
            let is_on_page = page.total >= self.skip && (page.items.len() as u64) < self.size;
            if is_on_page {
                let Some(item) = list.next_element()? else { return Ok(Ok(page)) };
                page.items.push(item);
            } else if list.next_element::<IgnoredAny>()?.is_none() {
                return Ok(Ok(page));
            }
            page.total += 1;
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Self::Value, A::Error> {
        const MAX_KEYS: usize = 1000;
        let mut keys = Vec::new();
        while let Some((key, IgnoredAny)) = fields.next_entry::<String, _>()? {
            if keys.len() < MAX_KEYS {
                keys.push(key);
            }
        }
        Ok(Err(PageError::Object(keys)))
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(Err(PageError::NotAList))
    }

    fn visit_bool<E>(self, _: bool) -> Result<Self::Value, E> {
        Ok(Err(PageError::NotAList))
    }

    fn visit_i64<E>(self, _: i64) -> Result<Self::Value, E> {
        Ok(Err(PageError::NotAList))
    }

    fn visit_u64<E>(self, _: u64) -> Result<Self::Value, E> {
        Ok(Err(PageError::NotAList))
    }

    fn visit_f64<E>(self, _: f64) -> Result<Self::Value, E> {
        Ok(Err(PageError::NotAList))
    }

    fn visit_str<E>(self, _: &str) -> Result<Self::Value, E> {
        Ok(Err(PageError::NotAList))
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;

    fn text(part: &DataPart) -> String {
        match part.content() {
            PartContent::Text(text) => text,
            PartContent::Base64(text) => panic!("not text: {text}"),
        }
    }

    #[test]
    fn bytes_are_counted_from_zero_and_characters_stay_whole() {
        let data = "a年度b";
        let part = |first, last| bytes(Cursor::new(data), &(first..=last), MAX_BYTES).expect("failed to read");
        for (first, last, expected, start, end) in [
            (0, 0, "a", 0, 1),
            (0, 100, data, 0, 8),
            (0, 4, "a年", 0, 4),
            (2, 7, "度b", 4, 8),
            (7, 7, "b", 7, 8),
            (8, 9, "", 8, 8),
            (90, 99, "", 8, 8),
        ] {
            let part = part(first, last);
            assert_eq!((text(&part).as_str(), part.first, part.end, part.total), (expected, start, end, 8));
        }
        assert_eq!(
            part(2, 2).content(),
            PartContent::Base64("uQ==".to_owned()),
            "a part with only a partial character keeps it"
        );
        let binary = bytes(Cursor::new([0xff, 0xfe, 0]), &(0..=9), MAX_BYTES).expect("failed to read");
        assert_eq!((binary.content(), binary.end), (PartContent::Base64("//4A".to_owned()), 3));
    }

    #[test]
    fn lines_are_counted_from_one() {
        for data in ["one\ntwo\nthree", "one\ntwo\nthree\n"] {
            let part = |first, last| lines(data.as_bytes(), &(first..=last), MAX_BYTES).expect("failed to read");
            for (first, last, expected, start, end) in [
                (1, 1, "one", 1, 2),
                (2, 3, "two\nthree", 2, 4),
                (1, 100, "one\ntwo\nthree", 1, 4),
                (3, u64::MAX, "three", 3, 4),
                (4, 9, "", 4, 4),
                (90, 99, "", 4, 4),
            ] {
                let part = part(first, last);
                assert_eq!((text(&part).as_str(), part.first, part.end, part.total), (expected, start, end, 3));
            }
            assert_eq!(part(3, 3).offset, 8);
        }
        assert_eq!(lines(&b""[..], &(1..=1), MAX_BYTES).expect("failed to read").total, 0);
    }

    #[test]
    fn a_part_is_limited_in_size_and_reports_its_end() {
        let data = format!("{}\n{}\nend\n", "x".repeat(MAX_BYTES / 2), "y".repeat(MAX_BYTES / 2));
        let part = lines(data.as_bytes(), &(1..=9), MAX_BYTES).expect("failed to read");
        assert_eq!(
            (part.end, part.total, part.bytes.len(), part.is_cut),
            (2, 3, MAX_BYTES / 2, false),
            "whole lines only"
        );
        let data = format!("short\n{}年\nend", "x".repeat(2 * MAX_BYTES));
        let part = lines(data.as_bytes(), &(2..=2), MAX_BYTES).expect("failed to read");
        assert_eq!((part.end, part.total, part.offset, part.bytes.len(), part.is_cut), (3, 3, 6, MAX_BYTES, true));
        let part = bytes(Cursor::new(&data), &(0..=u64::MAX), MAX_BYTES).expect("failed to read");
        assert_eq!((part.end, part.bytes.len()), (MAX_BYTES as u64, MAX_BYTES));
        let exact = "z".repeat(MAX_BYTES);
        let part = lines(exact.as_bytes(), &(1..=1), MAX_BYTES).expect("failed to read");
        assert_eq!((part.total, part.is_cut), (1, false));
    }

    #[test]
    fn only_lists_have_pages() {
        let list = "[0, {\"a\": [1]}, 2, 3, 4]";
        let page_of = |skip, size| page(list.as_bytes(), skip, size).expect("not a list");
        assert_eq!(page_of(1, 2), ListPage { items: vec![serde_json::json!({"a": [1]}), 2.into()], total: 5 });
        assert_eq!(page_of(4, 2), ListPage { items: vec![4.into()], total: 5 });
        assert_eq!(page_of(9, 2), ListPage { items: vec![], total: 5 });
        let message = |text: &str| page(text.as_bytes(), 0, 1).expect_err(text).to_string();
        assert_eq!(
            message("{\"items\": [], \"next\": 1}"),
            "the data is not a list but an object with `items`, `next`"
        );
        for text in ["1", "-1", "1.5", "null", "true", "\"x\""] {
            assert_eq!(message(text), "the data is not a list");
        }
        assert!(message("[1").starts_with("the data is not valid JSON"));
    }
}
