//! Typing mistakes: words that stand in no document, and are one edit away from one that does.
//!
//! Only the words of the index are known, so that names and rare words look like mistakes, too. The first letter must be
//! right, and short words are left alone: most are one edit away from some other word.

use crate::Index;
use crate::index::{Unusable, WordTable};
use crate::query::Query;

/// Words of another length are not corrected.
const LENGTHS: std::ops::RangeInclusive<usize> = 5..=20;
/// How many words of a query are corrected.
const MAX_CORRECTED: usize = 2;
/// What a corrected word weighs.
const CORRECTED_WEIGHT: f64 = 0.8;

impl Index {
    /// Corrects the words of `query` that no document has.
    pub(crate) fn correct(&self, query: &mut Query<'_>) -> Result<(), Unusable> {
        if !query.is_english {
            return Ok(());
        }
        let mut unknown = Vec::new();
        for term in query.terms.iter_mut().filter(|term| term.is_own && may_be_mistake(&term.word)) {
            if unknown.len() < MAX_CORRECTED && self.word(&term.word)?.is_none() {
                unknown.push(term);
            }
        }
        let Some(words) = (if unknown.is_empty() { None } else { self.word_table()? }) else { return Ok(()) };
        for term in unknown {
            if let Some(word) = corrected(&term.word, &words)? {
                term.word = word;
                term.weight *= CORRECTED_WEIGHT;
            }
        }
        Ok(())
    }
}

fn may_be_mistake(word: &str) -> bool {
    LENGTHS.contains(&word.len()) && word.bytes().all(|byte| byte.is_ascii_lowercase())
}

/// Endings that make another word of the same family, which the stemmer leaves.
const ENDINGS: [&str; 8] = ["er", "or", "est", "ful", "able", "age", "ment", "ness"];
/// How much of a word is left without such an ending, at least.
const MIN_FAMILY: usize = 4;

/// A word of the same family as `word`, or the one that is one edit away. Of several, the one that most documents have.
fn corrected(word: &str, words: &WordTable<'_>) -> Result<Option<String>, Unusable> {
    for beginning in ENDINGS.iter().filter_map(|ending| word.strip_suffix(ending)) {
        if beginning.len() >= MIN_FAMILY && words.documents(beginning)? > 0 {
            return Ok(Some(beginning.to_owned()));
        }
    }
    let (mut best, mut most) = (None, 0);
    for candidate in edits(word) {
        let documents = words.documents(&candidate)?;
        if documents > most {
            (best, most) = (Some(candidate), documents);
        }
    }
    Ok(best)
}

/// All words that begin like `word` and are a letter more, less or other, or have two neighbours exchanged.
fn edits(word: &str) -> impl Iterator<Item = String> {
    let letters = || (b'a'..=b'z').map(char::from);
    let with = move |begin: usize, end: usize, middle: &str| format!("{}{middle}{}", &word[..begin], &word[end..]);
    let removed = (1..word.len()).map(move |at| with(at, at + 1, ""));
    let exchanged =
        (1..word.len() - 1).map(move |at| with(at, at + 2, &[&word[at + 1..at + 2], &word[at..=at]].concat()));
    let replaced = (1..word.len())
        .flat_map(move |at| letters().map(move |letter| with(at, at + 1, letter.encode_utf8(&mut [0; 4]))));
    let inserted =
        (1..=word.len()).flat_map(move |at| letters().map(move |letter| with(at, at, letter.encode_utf8(&mut [0; 4]))));
    removed.chain(exchanged).chain(replaced).chain(inserted)
}

#[cfg(test)]
mod tests {
    use serde_json::Map;

    use super::*;
    use crate::{Document, IndexWriter};

    #[test]
    fn a_word_of_the_same_family_is_found_first() {
        let mut writer = IndexWriter::new(Vec::new()).expect("memory");
        let input = Map::new();
        let description = "Makes things cheap, cheapen it, and translates.";
        let document = Document { name: "a", description, phrases: &[], tags: &[], verb: None, input: &input };
        writer.add(&document, &[]).expect("memory");
        let index = Index::from_bytes(writer.finish(&[]).expect("memory")).expect("just written");
        let words = index.word_table().expect("in memory").expect("small");
        let corrected = |word| corrected(word, &words).expect("in memory");
        assert_eq!(corrected("cheaper").as_deref(), Some("cheap"));
        assert_eq!(corrected("transalt").as_deref(), Some("translat"));
        assert_eq!(corrected("flight"), None);
    }

    #[test]
    fn one_edit_is_a_letter_more_less_or_other_or_two_exchanged() {
        let all: Vec<_> = edits("delte").collect();
        for word in ["delete", "dlte", "dealt", "delta", "detle", "deltes"] {
            assert!(all.iter().any(|edit| edit == word) == (word != "dealt"), "{word}");
        }
        assert!(all.iter().all(|word| word.starts_with('d')));
    }
}
