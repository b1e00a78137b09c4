//! German: a list of our own, in which inflected and compound words are looked up, too.
//!
//! A query counts as German only if more of its words are German than English, and words that both languages have count
//! for neither.

use rust_stemmers::{Algorithm, Stemmer};

use super::{Gloss, SortedLines};
use crate::silent_words::is_silent;

/// Words and their English meanings.
const WORDS: SortedLines = SortedLines(include_str!("../../data/german.tsv"));
/// Words that say nothing about what is wanted.
const SILENT: SortedLines = SortedLines(include_str!("../../data/german-silent.txt"));
/// The English words in the meanings: what an English query is known by.
const ENGLISH: SortedLines = SortedLines(include_str!("../../data/german-english.txt"));
/// Words of both languages with different meanings, which are not in the list above. Sorted.
const HOMOGRAPHS: &[&str] = &[
    "also", "am", "an", "art", "arm", "bad", "bald", "band", "bank", "boot", "brief", "chef", "die", "dose", "elf",
    "fast", "fell", "gang", "gift", "hall", "handy", "hat", "hell", "her", "herd", "hose", "hut", "in", "kind", "land",
    "lang", "last", "links", "list", "lob", "man", "mode", "not", "note", "pass", "per", "post", "rat", "rate", "rind",
    "rock", "see", "sage", "so", "spring", "stern", "tag", "tage", "taste", "toll", "ton", "war", "was", "wand", "wo",
    "will", "wind",
];

/// A shorter part of a compound is found in too many words by accident.
const MIN_PART: usize = 4;
/// How many letters two forms of a word have in common at their beginning, at least.
const COMMON_START: usize = 3;
/// How many words of a text are looked up.
const MAX_WORDS: usize = 200;

/// A query in German.
pub(crate) struct GermanQuery {
    stemmer: Stemmer,
}

impl GermanQuery {
    /// None if `text` is not in German.
    pub(crate) fn new(text: &str) -> Option<Self> {
        let (mut german, mut english) = (0, 0);
        let query = Self { stemmer: Stemmer::create(Algorithm::German) };
        for word in words(text) {
            if HOMOGRAPHS.contains(&word.as_str()) || (ENGLISH.contains(&word) && WORDS.contains(&word)) {
                continue;
            }
            if word.contains(['ä', 'ö', 'ü', 'ß']) || SILENT.contains(&word) || WORDS.contains(&word) {
                german += 1;
            } else if is_silent(&word) || ENGLISH.contains(&word) || ENGLISH.contains(word.trim_end_matches('s')) {
                english += 1;
            } else if query.find(&word).is_some() {
                german += 1;
            }
        }
        (german > english).then_some(query)
    }

    /// Whether `word`, in lower case, says nothing in a German query.
    pub(crate) fn is_silent(word: &str) -> bool {
        SILENT.contains(word)
    }

    pub(crate) fn glosses(&self, text: &str) -> Vec<Gloss> {
        let mut found = Vec::new();
        for word in words(text).filter(|word| !Self::is_silent(word)) {
            if let Some(meaning) = self.find(&word) {
                found.push(Gloss::new(&word, meaning));
            } else if let Some((left, right)) = self.parts(&word) {
                found.extend([left, right].into_iter().flatten().map(|meaning| Gloss::new(&word, meaning)));
            }
        }
        found
    }

    /// The meaning of a word, in whatever form it is written.
    fn find(&self, word: &str) -> Option<&'static str> {
        if let Some(meaning) = WORDS.find(word) {
            return Some(meaning);
        }
        let without_umlauts = word.replace('ä', "a").replace('ö', "o").replace('ü', "u").replace('ß', "ss");
        let with_umlauts = word.replace("ae", "ä").replace("oe", "ö").replace("ue", "ü");
        let with_sharp_s = word.replace("ss", "ß");
        if let Some(meaning) = [&with_umlauts, &with_sharp_s].into_iter().find_map(|word| WORDS.find(word)) {
            return Some(meaning);
        }
        if word.chars().count() <= COMMON_START {
            return None;
        }
        let stem = self.stemmer.stem(word);
        [word, &without_umlauts, &with_umlauts].into_iter().find_map(|form| {
            let start = form.char_indices().nth(COMMON_START).map_or(form, |(at, _)| &form[..at]);
            WORDS
                .from(start)
                .take_while(|line| line.starts_with(start))
                .filter_map(|line| line.split_once('\t'))
                .find(|(known, _)| self.stemmer.stem(known) == stem)
                .map(|(_, meaning)| meaning)
        })
    }

    /// The meanings of the parts of a compound. Its last part is what it is; the first one may be unknown.
    fn parts(&self, word: &str) -> Option<(Option<&'static str>, Option<&'static str>)> {
        let places =
            || word.char_indices().map(|(at, _)| at).filter(|at| *at >= MIN_PART && at + MIN_PART <= word.len());
        let first = |left: &str| {
            let without_link = ["", "s", "es", "n", "en", "e"].into_iter().filter_map(|link| left.strip_suffix(link));
            without_link.filter(|part| part.len() >= MIN_PART).find_map(|part| WORDS.find(part))
        };
        let both = places().find_map(|at| {
            let (left, right) = word.split_at(at);
            Some((Some(first(left)?), Some(self.find(right)?)))
        });
        both.or_else(|| places().find_map(|at| Some((None, Some(WORDS.find(&word[at..])?)))))
    }
}

/// The words of `text`, in lower case.
fn words(text: &str) -> impl Iterator<Item = String> {
    text.split(|character: char| !character.is_alphabetic())
        .filter(|word| !word.is_empty())
        .take(MAX_WORDS)
        .map(str::to_lowercase)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn english(text: &str) -> Vec<(String, &'static str)> {
        let Some(query) = GermanQuery::new(text) else { return Vec::new() };
        query.glosses(text).into_iter().map(|gloss| (gloss.source.clone(), gloss.senses[0])).collect()
    }

    #[test]
    fn the_lists_are_sorted() {
        assert!(WORDS.is_sorted() && SILENT.is_sorted() && ENGLISH.is_sorted());
        assert!(HOMOGRAPHS.len() > 50);
    }

    #[test]
    fn an_english_query_is_not_german() {
        for query in [
            "send a brief note to the bank",
            "search messages",
            "list tags",
            "what was the last post",
            "show the weather in Berlin",
            "gift ideas for kind people",
            "http server status",
            "delete file",
            "mail",
            "convert pdf to docx",
        ] {
            assert!(GermanQuery::new(query).is_none(), "{query}");
        }
    }

    #[test]
    fn german_words_are_found_in_other_forms_and_in_compounds() {
        assert_eq!(english("bitte die Abfragen abbrechen")[1], ("abbrechen".to_owned(), "cancel"));
        assert!(!english("Abendessen buchen").is_empty());
    }
}
