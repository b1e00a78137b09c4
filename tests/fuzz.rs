//! Runs the fuzz targets on stable Rust, with every seed in their corpora and with mutations of the seeds.
//!
//! The mutations are deterministic. `fuzz/` explores further inputs with libFuzzer; inputs that once failed stay in
//! the corpora as regression tests.

use std::fs;
use std::panic::catch_unwind;
use std::path::Path;

#[path = "../fuzz/src/lib.rs"]
#[expect(unreachable_pub, reason = "the targets are a crate of their own for libFuzzer")]
mod targets;

/// The number of mutated inputs per target.
const MUTATIONS: usize = 1000;

/// Byte sequences that often break parsers.
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
fn no_seed_and_no_mutation_makes_a_target_fail() {
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
        check(name, target, seed);
    }
    let mut random = Random(name.len() as u64);
    for number in 0..MUTATIONS {
        let mut bytes = seeds[number % seeds.len()].clone();
        for _ in 0..=random.below(4) {
            let other = &seeds[random.below(seeds.len())];
            mutate(&mut bytes, other, &mut random);
        }
        check(name, target, &bytes);
    }
}

/// Panics with the bytes that make the target fail, to be added to the corpus.
fn check(name: &str, target: fn(&[u8]), bytes: &[u8]) {
    let passed = catch_unwind(|| target(bytes)).is_ok();
    assert!(passed, "the target `{name}` fails with `{}`", bytes.escape_ascii());
}

fn seeds(name: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus").join(name);
    let mut files: Vec<_> = fs::read_dir(folder).expect("a corpus").flatten().map(|entry| entry.path()).collect();
    files.sort();
    files.iter().map(|file| fs::read(file).expect("a seed")).collect()
}

fn mutate(bytes: &mut Vec<u8>, other: &[u8], random: &mut Random) {
    let at = random.below(bytes.len() + 1);
    let end = (at + random.below(16)).min(bytes.len());
    match random.below(6) {
        0 => drop(bytes.drain(at..end)),
        1 => {
            let piece = PIECES[random.below(PIECES.len())];
            drop(bytes.splice(at..at, piece.iter().copied()));
        }
        2 => {
            let copy = bytes[at..end].to_vec();
            drop(bytes.splice(at..at, copy));
        }
        3 => {
            let from = random.below(other.len() + 1);
            bytes.truncate(at);
            bytes.extend_from_slice(&other[from..]);
        }
        4 => bytes.truncate(at),
        _ => {
            if let Some(byte) = bytes.get_mut(at) {
                *byte ^= 1 << random.below(8);
            }
        }
    }
}

/// A deterministic random number generator: `SplitMix64`.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((mixed ^ (mixed >> 31)) % end as u64).expect("less than a length")
    }
}
