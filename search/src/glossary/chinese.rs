//! Chinese: the longest words first that one of the two lists knows. Our own list, of words of software and daily life,
//! is asked before the dictionary.

use super::{Gloss, SortedLines};

/// CC-CEDICT, cut down; `data/README.md` has its licence.
const DICTIONARY: SortedLines = SortedLines(include_str!("../../data/chinese-cedict.tsv"));
/// Our own list.
const WORDS: SortedLines = SortedLines(include_str!("../../data/chinese.tsv"));
/// Words that say nothing about what is wanted.
const SILENT: SortedLines = SortedLines(include_str!("../../data/chinese-silent.txt"));
/// The simplified character for each traditional one.
const VARIANTS: SortedLines = SortedLines(include_str!("../../data/chinese-variants.tsv"));

/// The longest word of the lists, in characters.
const MAX_CHARACTERS: usize = 6;

pub(super) fn is_chinese(character: char) -> bool {
    matches!(character, '\u{3400}'..='\u{4dbf}' | '\u{4e00}'..='\u{9fff}')
}

/// A part of a text.
enum Segment<'a> {
    /// A word that the lists know, and its meaning.
    Word(String, &'static str),
    /// Says nothing.
    Silent,
    /// Anything else.
    Other(&'a [char]),
}

/// The words of `text` that are known, in their order.
pub(super) fn glosses(text: &str) -> Vec<Gloss> {
    let mut found = Vec::new();
    for run in text.split(|character| !is_chinese(character)).filter(|run| !run.is_empty()) {
        let run: Vec<char> = run.chars().collect();
        segments(&run, |segment| {
            if let Segment::Word(word, meaning) = segment {
                found.push(Gloss::new(&word, meaning));
            }
        });
    }
    found
}

/// `text` with a space for each Chinese word that says nothing.
pub(super) fn without_silent_words(text: &str) -> String {
    let mut kept = String::with_capacity(text.len());
    let characters: Vec<char> = text.chars().collect();
    for run in characters.chunk_by(|a, b| is_chinese(*a) == is_chinese(*b)) {
        if is_chinese(run[0]) {
            segments(run, |segment| match segment {
                Segment::Word(word, _) => kept.push_str(&word),
                Segment::Silent => kept.push(' '),
                Segment::Other(characters) => kept.extend(characters),
            });
        } else {
            kept.extend(run);
        }
    }
    kept
}

/// Calls `found` with the segments of Chinese text, at each place the longest that is known.
fn segments(run: &[char], mut found: impl FnMut(Segment<'_>)) {
    let simplified: Vec<char> = run.iter().copied().map(simplify).collect();
    let mut at = 0;
    while at < run.len() {
        let longest = MAX_CHARACTERS.min(run.len() - at);
        let known = (1..=longest).rev().find_map(|length| {
            let word: String = simplified[at..at + length].iter().collect();
            if SILENT.contains(&word) {
                return Some((length, Segment::Silent));
            }
            let meaning = WORDS.find(&word).or_else(|| DICTIONARY.find(&word))?;
            Some((length, Segment::Word(run[at..at + length].iter().collect(), meaning)))
        });
        let (length, segment) = known.unwrap_or_else(|| (1, Segment::Other(&run[at..=at])));
        found(segment);
        at += length;
    }
}

fn simplify(character: char) -> char {
    let simplified = VARIANTS.find(character.encode_utf8(&mut [0; 4]));
    simplified.and_then(|simplified| simplified.chars().next()).unwrap_or(character)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lists_are_sorted() {
        assert!(DICTIONARY.is_sorted() && WORDS.is_sorted() && SILENT.is_sorted() && VARIANTS.is_sorted());
    }

    #[test]
    fn the_longest_word_is_taken() {
        let glosses = glosses("把停车场的坐标");
        let found: Vec<_> = glosses.iter().map(|gloss| (gloss.source.as_str(), gloss.senses[0])).collect();
        assert_eq!(found, [("停车场", "parking lot"), ("坐标", "coordinates")]);
    }

    #[test]
    fn traditional_characters_are_read_as_simplified_ones() {
        assert_eq!(glosses("下載網頁")[0], Gloss { source: "下載".to_owned(), senses: vec!["download"] });
    }
}
