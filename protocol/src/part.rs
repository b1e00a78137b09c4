//! A part of data, however large all of it is: bytes, lines, or the page of a list.
//!
//! Reads from whatever it is given and keeps only the part, which is bounded itself. Knows nothing
//! of results.

use std::fmt;
use std::io::{self, BufRead, Read, Seek, SeekFrom};
use std::ops::RangeInclusive;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde::de::{DeserializeSeed, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

/// More bytes than this are not given at once: nobody reads them, and memory is the caller's.
pub const MAX_BYTES: usize = 1_000_000;

/// A piece of data as it lies in its source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DataPart {
    /// Where it begins, counted as it was asked for: bytes from 0, lines from 1.
    pub first: u64,
    /// What follows it, counted likewise; as large as `first` where the part is empty.
    pub end: u64,
    /// How many there are in all.
    pub of: u64,
    /// The byte of the source at which the part begins.
    pub at: u64,
    /// Whether its one line is longer than a part may be.
    pub is_cut: bool,
    pub bytes: Vec<u8>,
}

/// What the bytes of a part are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PartContent {
    Text(String),
    Base64(String),
}

/// The bytes in `range`, from 0; but for whole characters where they are text.
pub fn bytes(mut source: impl Read + Seek, range: &RangeInclusive<u64>) -> io::Result<DataPart> {
    let of = source.seek(SeekFrom::End(0))?;
    let first = (*range.start()).min(of);
    let end = range.end().saturating_add(1).min(of).min(first + MAX_BYTES as u64);
    source.seek(SeekFrom::Start(first))?;
    let mut bytes = Vec::new();
    source.take(end.saturating_sub(first)).read_to_end(&mut bytes)?;
    let mut part = DataPart { first, end: first + bytes.len() as u64, of, at: first, is_cut: false, bytes };
    part.keep_whole_characters();
    Ok(part)
}

/// The lines in `range`, from 1, without the end of the last one.
pub fn lines(mut source: impl BufRead, range: &RangeInclusive<u64>) -> io::Result<DataPart> {
    let (mut line, mut at) = (0, 0);
    while line + 1 < *range.start() {
        match source.skip_until(b'\n')? {
            0 => break,
            skipped => at += skipped as u64,
        }
        line += 1;
    }
    let mut part = DataPart { first: line + 1, end: line + 1, of: 0, at, is_cut: false, bytes: Vec::new() };
    while line < *range.end() && !part.is_cut && part.bytes.len() < MAX_BYTES {
        let (before, room) = (part.bytes.len(), MAX_BYTES - part.bytes.len());
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
    part.of = line;
    if part.is_cut {
        part.keep_whole_characters();
    } else if part.bytes.ends_with(b"\n") {
        part.bytes.pop();
    }
    Ok(part)
}

impl DataPart {
    /// As text, or encoded where it is none.
    pub fn content(&self) -> PartContent {
        match std::str::from_utf8(&self.bytes) {
            Ok(text) => PartContent::Text(text.to_owned()),
            Err(_) => PartContent::Base64(BASE64_STANDARD.encode(&self.bytes)),
        }
    }

    /// Leaves half characters at both ends to the parts before and after, unless nothing else is there.
    fn keep_whole_characters(&mut self) {
        let is_inside = |byte: &&u8| **byte & 0b1100_0000 == 0b1000_0000;
        let skipped = if self.at == 0 { 0 } else { self.bytes.iter().take(3).take_while(is_inside).count() };
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
            self.at = self.first;
            self.end -= dropped as u64;
        }
    }
}

/// A page of a list.
#[derive(Debug, Clone, PartialEq)]
pub struct ListPage {
    pub items: Vec<Value>,
    /// How many items the list has.
    pub of: u64,
}

/// Why there is no page.
#[derive(Debug, thiserror::Error)]
pub enum PageError {
    #[error("the data is no list, but an object with {}", named(.0))]
    Object(Vec<String>),
    #[error("the data is no list")]
    NoList,
    #[error("the data is not valid JSON: {0}")]
    Malformed(serde_json::Error),
}

fn named(keys: &[String]) -> String {
    const MAX_BYTES: usize = 10;
    let shown: Vec<_> = keys.iter().take(MAX_BYTES).map(|key| format!("`{key}`")).collect();
    let more = if keys.len() > MAX_BYTES { format!(" and {} more", keys.len() - MAX_BYTES) } else { String::new() };
    format!("{}{more}", shown.join(", "))
}

/// The items of the list in `source` from the `skip`ped on, at most `size`. Only these are kept in memory.
pub fn page(source: impl Read, skip: u64, size: u64) -> Result<ListPage, PageError> {
    let mut deserializer = serde_json::Deserializer::from_reader(io::BufReader::new(source));
    match (Paging { skip, size }).deserialize(&mut deserializer) {
        Ok(found) => found,
        Err(error) => Err(PageError::Malformed(error)),
    }
}

#[derive(Clone, Copy)]
struct Paging {
    skip: u64,
    size: u64,
}

impl<'de> DeserializeSeed<'de> for Paging {
    type Value = Result<ListPage, PageError>;

    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Paging {
    type Value = Result<ListPage, PageError>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let mut page = ListPage { items: Vec::new(), of: 0 };
        loop {
            let is_wanted = page.of >= self.skip && (page.items.len() as u64) < self.size;
            if is_wanted {
                let Some(item) = list.next_element()? else { return Ok(Ok(page)) };
                page.items.push(item);
            } else if list.next_element::<IgnoredAny>()?.is_none() {
                return Ok(Ok(page));
            }
            page.of += 1;
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
        Ok(Err(PageError::NoList))
    }

    fn visit_bool<E>(self, _: bool) -> Result<Self::Value, E> {
        Ok(Err(PageError::NoList))
    }

    fn visit_i64<E>(self, _: i64) -> Result<Self::Value, E> {
        Ok(Err(PageError::NoList))
    }

    fn visit_u64<E>(self, _: u64) -> Result<Self::Value, E> {
        Ok(Err(PageError::NoList))
    }

    fn visit_f64<E>(self, _: f64) -> Result<Self::Value, E> {
        Ok(Err(PageError::NoList))
    }

    fn visit_str<E>(self, _: &str) -> Result<Self::Value, E> {
        Ok(Err(PageError::NoList))
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;

    fn text(part: &DataPart) -> String {
        match part.content() {
            PartContent::Text(text) => text,
            PartContent::Base64(text) => panic!("no text: {text}"),
        }
    }

    #[test]
    fn bytes_are_counted_from_zero_and_characters_stay_whole() {
        let data = "a年度b";
        let part = |first, last| bytes(Cursor::new(data), &(first..=last)).expect("read");
        for (first, last, expected, begins, ends) in [
            (0, 0, "a", 0, 1),
            (0, 100, data, 0, 8),
            (0, 4, "a年", 0, 4),
            (2, 7, "度b", 4, 8),
            (7, 7, "b", 7, 8),
            (8, 9, "", 8, 8),
            (90, 99, "", 8, 8),
        ] {
            let part = part(first, last);
            assert_eq!((text(&part).as_str(), part.first, part.end, part.of), (expected, begins, ends, 8));
        }
        assert_eq!(part(2, 2).content(), PartContent::Base64("uQ==".to_owned()), "nothing but a piece of a character");
        let binary = bytes(Cursor::new([0xff, 0xfe, 0]), &(0..=9)).expect("read");
        assert_eq!((binary.content(), binary.end), (PartContent::Base64("//4A".to_owned()), 3));
    }

    #[test]
    fn lines_are_counted_from_one() {
        for data in ["one\ntwo\nthree", "one\ntwo\nthree\n"] {
            let part = |first, last| lines(data.as_bytes(), &(first..=last)).expect("read");
            for (first, last, expected, begins, ends) in [
                (1, 1, "one", 1, 2),
                (2, 3, "two\nthree", 2, 4),
                (1, 100, "one\ntwo\nthree", 1, 4),
                (3, u64::MAX, "three", 3, 4),
                (4, 9, "", 4, 4),
                (90, 99, "", 4, 4),
            ] {
                let part = part(first, last);
                assert_eq!((text(&part).as_str(), part.first, part.end, part.of), (expected, begins, ends, 3));
            }
            assert_eq!(part(3, 3).at, 8);
        }
        assert_eq!(lines(&b""[..], &(1..=1)).expect("read").of, 0);
    }

    #[test]
    fn a_part_is_bounded_and_says_where_it_ends() {
        let data = format!("{}\n{}\nend\n", "x".repeat(MAX_BYTES / 2), "y".repeat(MAX_BYTES / 2));
        let part = lines(data.as_bytes(), &(1..=9)).expect("read");
        assert_eq!(
            (part.end, part.of, part.bytes.len(), part.is_cut),
            (2, 3, MAX_BYTES / 2, false),
            "whole lines only"
        );
        let data = format!("short\n{}年\nend", "x".repeat(2 * MAX_BYTES));
        let part = lines(data.as_bytes(), &(2..=2)).expect("read");
        assert_eq!((part.end, part.of, part.at, part.bytes.len(), part.is_cut), (3, 3, 6, MAX_BYTES, true));
        let part = bytes(Cursor::new(&data), &(0..=u64::MAX)).expect("read");
        assert_eq!((part.end, part.bytes.len()), (MAX_BYTES as u64, MAX_BYTES));
        let exact = "z".repeat(MAX_BYTES);
        let part = lines(exact.as_bytes(), &(1..=1)).expect("read");
        assert_eq!((part.of, part.is_cut), (1, false));
    }

    #[test]
    fn a_page_is_taken_out_of_a_list_and_of_nothing_else() {
        let list = "[0, {\"a\": [1]}, 2, 3, 4]";
        let page_of = |skip, size| page(list.as_bytes(), skip, size).expect("a list");
        assert_eq!(page_of(1, 2), ListPage { items: vec![serde_json::json!({"a": [1]}), 2.into()], of: 5 });
        assert_eq!(page_of(4, 2), ListPage { items: vec![4.into()], of: 5 });
        assert_eq!(page_of(9, 2), ListPage { items: vec![], of: 5 });
        let message = |text: &str| page(text.as_bytes(), 0, 1).expect_err(text).to_string();
        assert_eq!(message("{\"items\": [], \"next\": 1}"), "the data is no list, but an object with `items`, `next`");
        for text in ["1", "-1", "1.5", "null", "true", "\"x\""] {
            assert_eq!(message(text), "the data is no list");
        }
        assert!(message("[1").starts_with("the data is not valid JSON"));
    }
}
