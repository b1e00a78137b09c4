//! The glossary: English words for Chinese and German ones, because most subtools are described in English.
//!
//! Added to a query at a lower weight than the user's own words, and to a document in Chinese when it is indexed. A text
//! in English is never changed: each language decides by itself whether a text is written in it.

use std::borrow::Cow;

use crate::glossary::sorted_lines::SortedLines;

mod chinese;
mod german;
mod sorted_lines;

pub(crate) use german::GermanQuery;

/// The English words for a part of a text.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Gloss {
    /// The word as it stands in the text.
    pub(crate) source: String,
    /// Its meanings, the most usual one first.
    pub(crate) senses: Vec<&'static str>,
}

impl Gloss {
    fn new(source: &str, meaning: &'static str) -> Self {
        let senses = meaning.split(',').map(str::trim).filter(|sense| !sense.is_empty()).collect();
        Self { source: source.to_owned(), senses }
    }

    /// The words of its meanings, each with the number of its meaning.
    pub(crate) fn words(&self) -> impl Iterator<Item = (usize, &'static str)> {
        self.senses
            .iter()
            .enumerate()
            .flat_map(|(number, sense)| sense.split_ascii_whitespace().map(move |word| (number, word)))
    }
}

/// English for the Chinese words of a text.
pub(crate) fn chinese(text: &str) -> Vec<Gloss> {
    if text.chars().any(chinese::is_chinese) { chinese::glosses(text) } else { Vec::new() }
}

/// `text` without the Chinese words that say nothing about what is wanted.
pub(crate) fn without_silent_words(text: &str) -> Cow<'_, str> {
    if text.chars().any(chinese::is_chinese) { chinese::without_silent_words(text).into() } else { text.into() }
}
