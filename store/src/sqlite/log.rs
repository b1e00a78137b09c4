//! Damage in the write-ahead log, in the format of <https://www.sqlite.org/fileformat2.html#walformat>.
//!
//! SQLite stops reading the log at the first frame whose checksum does not match. That is right after a power loss,
//! which can tear the last commit. If the byte was damaged later, SQLite drops every commit after it without a word.
//! Each checksum continues the stored one before it, so frames beyond a damaged one can still be verified. If they
//! belong to a later commit than the damaged frame, that frame was on the disk before and is damaged.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::Path;

const HEADER_BYTES: usize = 32;
const FRAME_HEADER_BYTES: usize = 24;
/// The first four bytes of a log, whose last bit says that checksums are big-endian.
const MAGIC: u32 = 0x377f_0682;
const VERSION: u32 = 3_007_000;

/// A running checksum.
type Checksum = (u32, u32);

/// Returns how the log at `path` is damaged; `None` if it is intact, torn at its end, empty, or missing.
pub(super) fn damage(path: &Path) -> io::Result<Option<String>> {
    let mut log = match File::open(path) {
        Ok(file) => BufReader::new(file),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut header = [0; HEADER_BYTES];
    let mut probe = [0];
    // SQLite syncs the header before it writes the first frame, so a log without frames holds nothing.
    if !fill(&mut log, &mut header)? || !fill(&mut log, &mut probe)? {
        return Ok(None);
    }
    let mut log = probe.as_slice().chain(log);
    let is_big_endian = word(&header, 0) == MAGIC | 1;
    let mut checksum = extend((0, 0), &header[..24], is_big_endian);
    let page_bytes = word(&header, 8);
    let is_known = word(&header, 0) & !1 == MAGIC && word(&header, 4) == VERSION;
    if !is_known || checksum != stored(&header, 24) || !(512..=65_536).contains(&page_bytes) {
        return Ok(Some("its header is damaged, so none of its commits can be read".to_owned()));
    }
    let mut frame = vec![0; FRAME_HEADER_BYTES + usize::try_from(page_bytes).unwrap_or_default()];
    let mut damaged = None;
    let mut has_commit_after = false;
    let mut number = 0_u64;
    while fill(&mut log, &mut frame)? {
        // Frames of an earlier log, which this one overwrites, have other salts.
        let is_current = frame[8..16] == header[16..24];
        let computed = extend(extend(checksum, &frame[..8], is_big_endian), &frame[24..], is_big_endian);
        checksum = stored(&frame, 16);
        let is_intact = is_current && computed == checksum;
        if let Some(damaged) = damaged.filter(|_| is_intact && has_commit_after) {
            let reason = format!("its frame {damaged} is damaged, and later commits would be lost");
            return Ok(Some(reason));
        }
        if !is_intact {
            damaged = damaged.or(Some(number));
        }
        // A commit is synced before the next one is written.
        has_commit_after |= damaged.is_some() && is_current && word(&frame, 4) != 0;
        number += 1;
    }
    Ok(None)
}

/// Reads exactly as many bytes as `buffer` has; false if there are fewer.
fn fill(log: &mut impl Read, buffer: &mut [u8]) -> io::Result<bool> {
    match log.read_exact(buffer) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}

fn word(bytes: &[u8], at: usize) -> u32 {
    bytes[at..at + 4].iter().fold(0, |word, byte| word << 8 | u32::from(*byte))
}

fn stored(bytes: &[u8], at: usize) -> Checksum {
    (word(bytes, at), word(bytes, at + 4))
}

fn extend((mut first, mut second): Checksum, bytes: &[u8], is_big_endian: bool) -> Checksum {
    for pair in bytes.chunks_exact(8) {
        let read = |at| if is_big_endian { word(pair, at) } else { word(pair, at).swap_bytes() };
        first = first.wrapping_add(read(0)).wrapping_add(second);
        second = second.wrapping_add(read(4)).wrapping_add(first);
    }
    (first, second)
}
