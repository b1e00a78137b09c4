//! Redacts what is too large to hold in memory, as it passes by. Changes no other byte.

use std::fmt;
use std::sync::Arc;

use super::SecretFinder;
use super::unwrapped::{MAX_BREAK_BYTES, Unwrapped};

/// The least that is searched at once, so that what is kept for the next search costs little.
const MIN_BLOCK_BYTES: usize = 64 * 1024;

/// Replaces secrets in bytes that come in pieces. Keeps no more than a block, and the longest secret some times over.
#[derive(Default)]
pub struct StreamRedaction {
    stages: Vec<Stage>,
}

/// Shows none of the bytes.
impl fmt::Debug for StreamRedaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StreamRedaction").finish_non_exhaustive()
    }
}

/// The secrets of one kind, and the bytes in which they have not been searched yet.
struct Stage {
    finder: Arc<SecretFinder>,
    waiting: Vec<u8>,
}

impl StreamRedaction {
    pub(super) fn add(&mut self, finder: Arc<SecretFinder>) {
        self.stages.push(Stage { finder, waiting: Vec::new() });
    }

    /// Takes the next bytes. Returns those that are ready to be written.
    pub fn push(&mut self, bytes: &[u8]) -> Vec<u8> {
        self.stages.iter_mut().fold(bytes.to_owned(), |bytes, stage| stage.push(&bytes))
    }

    /// Returns the rest.
    pub fn finish(self) -> Vec<u8> {
        self.stages.into_iter().fold(Vec::new(), |bytes, mut stage| {
            stage.waiting.extend_from_slice(&bytes);
            stage.search(true)
        })
    }
}

impl Stage {
    fn push(&mut self, bytes: &[u8]) -> Vec<u8> {
        self.waiting.extend_from_slice(bytes);
        // Between two characters of a wrapped secret there can be a break. So a search that starts with this much
        // always finishes a block.
        let kept = (self.finder.max_bytes() + MAX_BREAK_BYTES) * (1 + MAX_BREAK_BYTES);
        if self.waiting.len() < MIN_BLOCK_BYTES + kept { Vec::new() } else { self.search(false) }
    }

    /// Returns the waiting bytes, redacted; without `at_end` only those in which no secret starts that may go on.
    fn search(&mut self, at_end: bool) -> Vec<u8> {
        let unwrapped = Unwrapped::of(&self.waiting);
        let end = if at_end { self.waiting.len() } else { self.settled(unwrapped.as_ref()) };
        let (mut redacted, mut copied) = (Vec::with_capacity(self.waiting.len()), 0);
        for secret in self.finder.find(&self.waiting, unwrapped.as_ref()) {
            if secret.place.start >= end {
                break;
            }
            redacted.extend_from_slice(&self.waiting[copied..secret.place.start]);
            redacted.extend_from_slice(secret.replacement.as_bytes());
            copied = secret.place.end;
        }
        let end = end.max(copied);
        redacted.extend_from_slice(&self.waiting[copied..end]);
        self.waiting.drain(..end);
        redacted
    }

    /// How many of the waiting bytes are such that a secret which starts at one of them also ends before the last.
    fn settled(&self, unwrapped: Option<&Unwrapped>) -> usize {
        let max_bytes = self.finder.max_bytes();
        let plain = self.waiting.len().saturating_sub(max_bytes);
        let wrapped = unwrapped.map(|unwrapped| {
            // A break at the end is not left out, since what comes after it is not known yet.
            let settled = unwrapped.text().len().saturating_sub(max_bytes + MAX_BREAK_BYTES);
            unwrapped.original_start(settled)
        });
        wrapped.map_or(plain.saturating_sub(MAX_BREAK_BYTES), |wrapped| wrapped.min(plain))
    }
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;

    use super::super::KnownSecrets;
    use super::*;

    const SECRET: &str = "s3cr3t/tok\"en é+&>?";

    fn redacted(stream: &mut StreamRedaction, bytes: &[u8], piece: usize) -> Vec<u8> {
        let mut written = Vec::new();
        for piece in bytes.chunks(piece) {
            written.extend(stream.push(piece));
            let held: usize = stream.stages.iter().map(|stage| stage.waiting.len()).sum();
            assert!(held < 4 * MIN_BLOCK_BYTES, "{held} bytes are held");
        }
        written.extend(std::mem::take(stream).finish());
        written
    }

    /// Bytes that are neither text nor repetitive.
    fn noise(count: usize) -> Vec<u8> {
        let mut state = 7_u32;
        let next = |_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        };
        (0..count).map(next).collect()
    }

    #[test]
    fn secrets_at_every_place_are_replaced_and_no_other_byte_changes() {
        let mut known = KnownSecrets::default();
        known.insert(SECRET, "[secret:t]");
        let encoded = STANDARD.encode(format!("{SECRET}~")).into_bytes();
        let wrapped = [&encoded[..7], b"\r\n      ", &encoded[7..]].concat();
        let core_end = SECRET.len() * 8 / 6;
        let (masked, tail) = (b"[secret:t]".to_vec(), encoded[core_end..].to_vec());
        for (form, shown) in [(SECRET.as_bytes().to_vec(), masked.clone()), (wrapped, [masked, tail].concat())] {
            // Around the first border, and twice in the second block.
            for before in (MIN_BLOCK_BYTES - 60..MIN_BLOCK_BYTES + 60).step_by(17) {
                for padding in [0, 9_000] {
                    let noise = noise(before + padding);
                    let all = [&noise[..], &form, b"\xff", &noise, b"\n", &form].concat();
                    let expected = [&noise[..], &shown, b"\xff", &noise, b"\n", &shown].concat();
                    for piece in [10_007, all.len()] {
                        let mut stream = StreamRedaction::default();
                        known.extend_stream(&mut stream);
                        assert!(redacted(&mut stream, &all, piece) == expected, "{before} {padding} {piece}");
                    }
                }
            }
        }
    }

    #[test]
    fn what_never_ends_a_line_or_a_secret_is_held_no_longer() {
        let mut known = KnownSecrets::default();
        known.insert(SECRET, "[secret:t]");
        for unit in ["\n", "a\n", "s3cr3t/tok", "a\r\n                "] {
            let all = unit.repeat(300_000 / unit.len());
            let mut stream = StreamRedaction::default();
            known.extend_stream(&mut stream);
            assert!(redacted(&mut stream, all.as_bytes(), 1_000) == all.as_bytes(), "{unit:?}");
        }
        assert!(redacted(&mut StreamRedaction::default(), b"nothing is known", 3) == b"nothing is known");
    }
}
