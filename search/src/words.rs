//! Words: splits text into the words that are compared, in the index and in a query alike.
//!
//! Text is split at punctuation, at changes of case (`getUser`, `HTTPServer`) and between letters and digits. Words are
//! put in lower case and stemmed (Snowball English), and words that say nothing are dropped. Chinese, Japanese and
//! Korean text becomes single characters and pairs of them, which needs no dictionary.

use std::borrow::Cow;

use rust_stemmers::{Algorithm, Stemmer};

use crate::silent_words::is_silent;

/// Longer words are cut: such a text is no word.
const MAX_WORD_BYTES: usize = 64;

/// Stems that are the same word as others: people use one, and APIs the other.
const SHORT_FORMS: [(&str, &str); 3] = [("repo", "repositori"), ("stargaz", "star"), ("config", "configur")];
/// Beginnings of words that are also written apart: `re_run` is `rerun`, too, and `e-mail` is `email`.
const BEGINNINGS: [&str; 6] = ["e", "re", "un", "pre", "sub", "multi"];

/// Splits text into stemmed words.
pub(crate) struct WordSplitter {
    stemmer: Stemmer,
}

impl WordSplitter {
    pub(crate) fn new() -> Self {
        Self { stemmer: Stemmer::create(Algorithm::English) }
    }

    /// The stemmed words of `text`, without the silent ones.
    pub(crate) fn split(&self, text: &str) -> Vec<String> {
        let mut words = Vec::new();
        pieces(text, |piece| {
            if !is_silent(piece) {
                words.push(self.stem(piece).into_owned());
            }
        });
        words
    }

    pub(crate) fn stem<'a>(&self, word: &'a str) -> Cow<'a, str> {
        let stem = self.stemmer.stem(word);
        match SHORT_FORMS.iter().find(|(short, _)| *short == stem) {
            Some((_, whole)) => Cow::Borrowed(whole),
            None => stem,
        }
    }
}

/// Calls `found` with each word of `text` in lower case, and with the characters and pairs of ideographic text.
pub(crate) fn pieces(text: &str, mut found: impl FnMut(&str)) {
    let mut word = String::new();
    let mut pair = String::new();
    let mut beginning = String::new();
    let (mut previous, mut ideogram): (Option<char>, Option<char>) = (None, None);
    let mut characters = text.chars().peekable();
    let mut finish = |word: &mut String, joint: Option<char>, found: &mut dyn FnMut(&str)| {
        if word.is_empty() {
            beginning.clear();
            return;
        }
        if !beginning.is_empty() {
            beginning.push_str(word);
            found(&beginning);
            beginning.clear();
        }
        found(word);
        if joint.is_some_and(|joint| matches!(joint, '-' | '_')) && BEGINNINGS.contains(&word.as_str()) {
            beginning.push_str(word);
        }
        word.clear();
    };
    while let Some(character) = characters.next() {
        if is_ideogram(character) {
            finish(&mut word, None, &mut found);
            pair.clear();
            pair.push(character);
            found(&pair);
            if let Some(before) = ideogram {
                pair.insert(0, before);
                found(&pair);
            }
            ideogram = Some(character);
        } else if character.is_alphanumeric() {
            ideogram = None;
            if previous.is_some_and(|before| is_boundary(before, character, characters.clone())) {
                finish(&mut word, None, &mut found);
            }
            if word.len() < MAX_WORD_BYTES {
                word.extend(character.to_lowercase());
            }
        } else {
            ideogram = None;
            finish(&mut word, Some(character), &mut found);
        }
        previous = Some(character);
    }
    finish(&mut word, None, &mut found);
}

/// Whether a word ends between `before` and `character`, which the rest of the text follows.
fn is_boundary(before: char, character: char, mut rest: impl Iterator<Item = char>) -> bool {
    if before.is_numeric() != character.is_numeric() {
        return true;
    }
    if !character.is_uppercase() {
        return false;
    }
    if before.is_lowercase() {
        return true;
    }
    // The last capital of an acronym begins the next word, except in a plural such as `APIs`.
    before.is_uppercase()
        && rest
            .next()
            .is_some_and(|next| next.is_lowercase() && (next != 's' || rest.next().is_some_and(char::is_alphabetic)))
}

pub(crate) fn is_ideogram(character: char) -> bool {
    character >= '\u{3040}'
        && matches!(character,
            '\u{3040}'..='\u{30ff}'      // kana
            | '\u{3400}'..='\u{4dbf}' | '\u{4e00}'..='\u{9fff}' | '\u{f900}'..='\u{faff}' // ideographs
            | '\u{ac00}'..='\u{d7af}'    // hangul
            | '\u{20000}'..='\u{3ffff}') // ideographs beyond the basic plane
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(text: &str) -> Vec<String> {
        WordSplitter::new().split(text)
    }

    #[test]
    fn names_are_split_at_case_digits_and_punctuation() {
        assert_eq!(split("getUser_by-id42 HTTPServer"), ["get", "user", "id", "42", "http", "server"]);
        assert_eq!(split("listURLs parseJSONFile APIs"), ["list", "url", "pars", "json", "file", "api"]);
    }

    #[test]
    fn short_forms_and_words_written_apart_are_the_same_words() {
        assert_eq!(split("re_run e-mail"), ["rerun", "run", "email", "mail"]);
        assert_eq!(split("repos repository stargazers starred"), ["repositori", "repositori", "star", "star"]);
        assert_eq!(split("re - run, re/run"), ["run", "run"]);
    }

    #[test]
    fn words_that_say_nothing_are_dropped() {
        assert_eq!(split("please send the message to me"), ["send", "messag"]);
        assert_eq!(split("🙂 !! …"), [] as [&str; 0]);
    }

    #[test]
    fn chinese_becomes_characters_and_pairs() {
        assert_eq!(split("年度, 报告"), ["年", "度", "年度", "报", "告", "报告"]);
    }

    #[test]
    fn a_word_is_cut_where_it_is_too_long_for_one() {
        assert_eq!(split(&"x".repeat(1000))[0].len(), MAX_WORD_BYTES);
    }
}
