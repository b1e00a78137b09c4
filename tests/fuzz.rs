//! The fuzz targets on stable: every seed of their corpora, and variants of each.
//!
//! The variants follow from a seed and are the same in every run; `fuzz/` finds other ones, with
//! libFuzzer. What it found and what was mended stays in the corpora.

use std::fs;
use std::panic::catch_unwind;
use std::path::Path;

#[path = "../fuzz/src/lib.rs"]
#[expect(unreachable_pub, reason = "the targets are a crate of their own for libFuzzer")]
mod targets;

/// As many variants of each target's seeds in all.
const VARIANTS: usize = 1000;

/// What breaks parsers.
const PIECES: &[&[u8]] = &[
    b"{{",
    b"}}",
    b"{%",
    b"%}",
    b"\"",
    b"\\",
    b"\\u0000",
    b"\\ud800",
    b"[",
    b"]",
    b"{",
    b"}",
    b":",
    b",",
    b"\0",
    b"\xff",
    b"\n",
    b"-",
    b"1e999",
    b"-0.0",
    b"9223372036854775808",
    b"0.1",
    b"null",
    b"true",
    b"../",
    b"%2f",
    b"$defaults",
    b"$ref",
    b"secret:x",
    b"|",
    b"(",
    b")",
    b" ",
    b"\xf0\x9f\x92\xa9",
    b"\xe2\x80\xae",
];

#[test]
fn no_seed_and_no_variant_of_one_breaks_a_promise() {
    std::thread::scope(|scope| {
        for (name, target) in targets::TARGETS {
            scope.spawn(move || replay(name, *target));
        }
    });
}

fn replay(name: &str, target: fn(&[u8])) {
    let seeds = seeds(name);
    assert!(seeds.len() > 4, "`fuzz/corpus/{name}` has {} seeds", seeds.len());
    for seed in &seeds {
        hold(name, target, seed);
    }
    let mut chance = Chance(name.len() as u64);
    for number in 0..VARIANTS {
        let mut bytes = seeds[number % seeds.len()].clone();
        for _ in 0..=chance.below(4) {
            let other = &seeds[chance.below(seeds.len())];
            mutate(&mut bytes, other, &mut chance);
        }
        hold(name, target, &bytes);
    }
}

/// Fails with the bytes that broke it: put them into the corpus.
fn hold(name: &str, target: fn(&[u8]), bytes: &[u8]) {
    let held = catch_unwind(|| target(bytes)).is_ok();
    assert!(held, "the target `{name}` fails with `{}`", bytes.escape_ascii());
}

fn seeds(name: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus").join(name);
    let mut files: Vec<_> = fs::read_dir(folder).expect("a corpus").flatten().map(|entry| entry.path()).collect();
    files.sort();
    files.iter().map(|file| fs::read(file).expect("a seed")).collect()
}

fn mutate(bytes: &mut Vec<u8>, other: &[u8], chance: &mut Chance) {
    let at = chance.below(bytes.len() + 1);
    let end = (at + chance.below(16)).min(bytes.len());
    match chance.below(6) {
        0 => drop(bytes.drain(at..end)),
        1 => {
            let piece = PIECES[chance.below(PIECES.len())];
            drop(bytes.splice(at..at, piece.iter().copied()));
        }
        2 => {
            let copy = bytes[at..end].to_vec();
            drop(bytes.splice(at..at, copy));
        }
        3 => {
            let from = chance.below(other.len() + 1);
            bytes.truncate(at);
            bytes.extend_from_slice(&other[from..]);
        }
        4 => bytes.truncate(at),
        _ => {
            if let Some(byte) = bytes.get_mut(at) {
                *byte ^= 1 << chance.below(8);
            }
        }
    }
}

/// Numbers that follow from the one before: `SplitMix64`.
struct Chance(u64);

impl Chance {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((mixed ^ (mixed >> 31)) % end as u64).expect("less than a length")
    }
}
