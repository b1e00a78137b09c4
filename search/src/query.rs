//! A query: what a user says becomes weighted words.
//!
//! The user's own words weigh most. Words that stand for something else, such as the kind of a file whose path was
//! given, or the English word for a Chinese one, weigh less, and never less than nothing: a query without them is
//! searched by its own words alone.

use std::collections::HashMap;

use crate::glossary::{self, GermanQuery, Gloss};
use crate::literals::{Literal, literal};
use crate::silent_words::is_silent;
use crate::synonyms;
use crate::verbs::{Verb, Wish};
use crate::words::{WordSplitter, is_ideogram, pieces};

/// The weight of words that stand for a literal.
const KIND_WEIGHT: f64 = 0.5;
/// The weight of numbers and single letters: they are mostly values, not words.
const VALUE_WEIGHT: f64 = 0.3;
/// The weight of an ideographic character, and of a pair of them. A character is in many words, and most pairs are glossed,
/// too.
const CHARACTER_WEIGHT: f64 = 0.1;
const PAIR_WEIGHT: f64 = 0.4;
/// The weight of a word of the glossary, and how much less each further meaning of the same word weighs.
const GLOSS_WEIGHT: f64 = 1.2;
const SENSE_DECAY: f64 = 0.6;
/// The weight of each word of an abbreviation.
const ABBREVIATION_WEIGHT: f64 = 0.7;
/// The weight of neighbours in meaning.
const SYNONYM_WEIGHT: f64 = 0.2;
/// The weight of two words that are written as one, and how long each of them is, at least.
const JOINED_WEIGHT: f64 = 0.5;
const MIN_JOINED: usize = 3;
/// How much of a query is read.
const MAX_QUERY_BYTES: usize = 16 << 10;
/// How many different words of a query are looked up.
const MAX_TERMS: usize = 256;
/// How many words a query has at most, beside its verb, that merely names things.
const MAX_NOUNS: usize = 3;
/// How many parts of a query, between spaces, a match can name.
const MAX_PARTS: usize = 64;

/// A query, analysed.
#[derive(Debug)]
pub(crate) struct Query<'a> {
    /// The parts between spaces, as the user wrote them.
    pub(crate) parts: Vec<&'a str>,
    pub(crate) terms: Vec<Term>,
    /// The words that say nothing on their own, but something in a phrase: `what branch am I on`.
    pub(crate) others: Vec<OtherWord>,
    pub(crate) clauses: usize,
    /// Whether it is in a language whose words are those of the index, so that an unknown one may be a mistake.
    pub(crate) is_english: bool,
    /// What it wants done.
    pub(crate) wish: Option<Wish>,
}

/// A word that is compared with phrases alone.
#[derive(Debug)]
pub(crate) struct OtherWord {
    pub(crate) word: String,
    /// The clauses of the query that it is from, as bits.
    pub(crate) clauses: u8,
}

/// One word that is looked up.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Term {
    pub(crate) word: String,
    pub(crate) weight: f64,
    /// The parts of the query that it is from, as bits.
    pub(crate) parts: u64,
    /// The clauses of the query that it is from, as bits.
    pub(crate) clauses: u8,
    /// Whether the user wrote it, and it does not merely stand for what they wrote.
    pub(crate) is_own: bool,
}

/// How many clauses of a query are told apart.
pub(crate) const MAX_CLAUSES: usize = 8;

impl<'a> Query<'a> {
    pub(crate) fn new(text: &'a str) -> Self {
        let text = cut(text, MAX_QUERY_BYTES);
        let splitter = WordSplitter::new();
        let german = GermanQuery::new(text);
        let mut terms = Terms::default();
        let mut parts = Vec::new();
        let mut spoken = SpokenWords::default();
        let mut clause = 0;
        for part in text.split_whitespace() {
            let bits = 1_u64.checked_shl(u32::try_from(parts.len()).unwrap_or(u32::MAX)).unwrap_or(0);
            if parts.len() < MAX_PARTS {
                parts.push(part);
            }
            if clause + 1 < MAX_CLAUSES && terms.clause_has_words && begins_clause(part) {
                clause += 1;
                terms.clause_has_words = false;
            }
            let place = Place { parts: bits, clauses: 1 << clause };
            pieces(part, |piece| spoken.add(piece, place.clauses, &splitter));
            match literal(part) {
                Literal::Text => pieces(&glossary::without_silent_words(part), |piece| {
                    if !(is_silent(piece) || german.is_some() && GermanQuery::is_silent(piece)) {
                        let is_value = piece.chars().all(char::is_numeric) || (piece.len() == 1 && piece.is_ascii());
                        let ideograms = piece.chars().filter(|character| is_ideogram(*character)).count();
                        let weight = match ideograms {
                            _ if is_value => VALUE_WEIGHT,
                            0 => 1.0,
                            1 => CHARACTER_WEIGHT,
                            _ => PAIR_WEIGHT,
                        };
                        let stem = splitter.stem(piece);
                        terms.verb = terms.verb.or_else(|| Verb::of_stem(&stem, terms.own.is_empty()));
                        terms.asks_for_act |= Verb::is_act(piece);
                        terms.add_own(&stem, weight, place);
                        terms.add_joined(piece, place, &splitter);
                        if !is_value {
                            terms.clause_has_words = true;
                        }
                    }
                }),
                Literal::Kind(words) => {
                    terms.has_literals = true;
                    for word in words {
                        terms.add_other(&splitter.stem(word), KIND_WEIGHT, place);
                    }
                }
                Literal::Blob => terms.has_literals = true,
            }
            if clause + 1 < MAX_CLAUSES && terms.clause_has_words && ends_clause(part) {
                clause += 1;
                terms.clause_has_words = false;
            }
        }
        terms.expand(text, german.as_ref(), &splitter);
        let others = spoken.without(&terms);
        let is_english = german.is_none() && text.is_ascii();
        let wish = terms.wish(&parts, is_english && clause == 0);
        Self { parts, others, clauses: clause + 1, is_english, wish, terms: terms.finish() }
    }
}

/// All words of a query, also those that say nothing on their own.
#[derive(Default)]
struct SpokenWords(Vec<OtherWord>);

impl SpokenWords {
    fn add(&mut self, piece: &str, clauses: u8, splitter: &WordSplitter) {
        let word = if is_silent(piece) { piece.into() } else { splitter.stem(piece) };
        if let Some(known) = self.0.iter_mut().find(|known| known.word == *word) {
            known.clauses |= clauses;
        } else if self.0.len() < MAX_TERMS {
            self.0.push(OtherWord { word: word.into_owned(), clauses });
        }
    }

    fn without(mut self, terms: &Terms) -> Vec<OtherWord> {
        self.0.retain(|other| !terms.known.contains_key(&other.word));
        self.0
    }
}

/// Where in the query a word is.
#[derive(Clone, Copy)]
struct Place {
    parts: u64,
    clauses: u8,
}

#[derive(Default)]
struct Terms {
    /// The user's own words, with how often each stands there.
    own: Vec<(Term, f64)>,
    other: Vec<Term>,
    known: HashMap<String, usize>,
    clause_has_words: bool,
    verb: Option<Verb>,
    /// Whether a word asks for something else than the four.
    asks_for_act: bool,
    has_literals: bool,
    /// The word before, as it stands there.
    previous: String,
}

impl Terms {
    /// What is to be done. `may_be_short` says that the query is in English and has a single clause: only of such a query it
    /// is known that it has no verb.
    fn wish(&self, parts: &[&str], may_be_short: bool) -> Option<Wish> {
        let asks = parts.first().is_some_and(|part| Verb::is_question(&part.to_lowercase()));
        let most = MAX_NOUNS + usize::from(self.verb.is_some());
        let is_short = may_be_short
            && !(asks || self.asks_for_act || self.has_literals)
            && parts.len().max(self.own.len()) <= most;
        match self.verb {
            Some(Verb::Read) if is_short => Some(Wish::ShortRead),
            Some(verb) => Some(Wish::Verb(verb)),
            None if asks => Some(Wish::Verb(Verb::Read)),
            None => is_short.then_some(Wish::Nouns),
        }
    }

    /// Adds a word that is written as one where the user wrote two: `web hook`.
    fn add_joined(&mut self, piece: &str, place: Place, splitter: &WordSplitter) {
        let is_word = |word: &str| word.len() >= MIN_JOINED && word.bytes().all(|byte| byte.is_ascii_lowercase());
        if is_word(piece) && is_word(&self.previous) {
            let joined = format!("{}{piece}", self.previous);
            self.add_other(&splitter.stem(&joined), JOINED_WEIGHT, Place { parts: 0, ..place });
        }
        piece.clone_into(&mut self.previous);
    }

    fn add_own(&mut self, word: &str, weight: f64, place: Place) {
        if let Some(known) = self.known.get(word) {
            let (term, count) = &mut self.own[*known];
            term.parts |= place.parts;
            term.clauses |= place.clauses;
            *count += 1.0;
        } else if self.own.len() < MAX_TERMS {
            self.known.insert(word.to_owned(), self.own.len());
            let term = Term { word: word.to_owned(), weight, parts: place.parts, clauses: place.clauses, is_own: true };
            self.own.push((term, 1.0));
        }
    }

    /// Adds a word that the user did not write, at the largest of the weights it is added with.
    fn add_other(&mut self, word: &str, weight: f64, place: Place) {
        if let Some(term) = self.other.iter_mut().find(|term| term.word == word) {
            term.weight = term.weight.max(weight);
            term.parts |= place.parts;
            term.clauses |= place.clauses;
        } else if self.other.len() < MAX_TERMS {
            let term =
                Term { word: word.to_owned(), weight, parts: place.parts, clauses: place.clauses, is_own: false };
            self.other.push(term);
        }
    }

    fn expand(&mut self, text: &str, german: Option<&GermanQuery>, splitter: &WordSplitter) {
        let translated = german.map(|german| german.glosses(text)).unwrap_or_default();
        for gloss in glossary::chinese(text).iter().chain(&translated) {
            self.add_gloss(gloss, splitter);
        }
        let neighbours: Vec<(String, Place)> = self
            .own
            .iter()
            .flat_map(|(term, _)| {
                let place = Place { parts: 0, clauses: term.clauses };
                synonyms::of(&term.word, splitter).into_iter().map(move |word| (word, place))
            })
            .collect();
        let abbreviated: Vec<(&str, Place)> = self
            .own
            .iter()
            .flat_map(|(term, _)| {
                let place = Place { parts: term.parts, clauses: term.clauses };
                synonyms::spelled_out(&term.word).iter().map(move |word| (*word, place))
            })
            .collect();
        for (word, place) in abbreviated {
            self.add_other(&splitter.stem(word), ABBREVIATION_WEIGHT, place);
        }
        for (word, place) in neighbours {
            self.add_other(&word, SYNONYM_WEIGHT, place);
        }
    }

    /// Adds the words of a gloss: those of the most usual meaning weigh most.
    fn add_gloss(&mut self, gloss: &Gloss, splitter: &WordSplitter) {
        let place = self.place_of(&gloss.source, splitter);
        for (sense, word) in gloss.words() {
            let stem = splitter.stem(word);
            let verb = Verb::of_stem(&stem, false);
            self.verb = self.verb.or(verb.filter(|_| sense == 0));
            let weight = GLOSS_WEIGHT * SENSE_DECAY.powi(i32::try_from(sense).unwrap_or(i32::MAX));
            self.add_other(&stem, weight, place);
        }
    }

    /// The places of the words of `source`, which stands in the query.
    fn place_of(&self, source: &str, splitter: &WordSplitter) -> Place {
        let mut place = Place { parts: 0, clauses: 0 };
        pieces(source, |piece| {
            if let Some(known) = self.known.get(&*splitter.stem(piece)) {
                place.parts |= self.own[*known].0.parts;
                place.clauses |= self.own[*known].0.clauses;
            }
        });
        place
    }

    /// The words, each once. A repeated word weighs `1 + ln(count)` times as much.
    fn finish(self) -> Vec<Term> {
        let Self { own, other, known, .. } = self;
        let mut terms: Vec<Term> =
            own.into_iter().map(|(term, count)| Term { weight: term.weight * (1.0 + count.ln()), ..term }).collect();
        terms.extend(other.into_iter().filter(|term| !known.contains_key(&term.word)));
        terms
    }
}

/// Whether a clause ends behind `part`.
fn ends_clause(part: &str) -> bool {
    part.ends_with(['.', ',', ';', '?', '!', '。', '，', '；', '、']) && part.len() > 2
}

/// Whether `part` joins a clause to the one before.
fn begins_clause(part: &str) -> bool {
    ["and", "then", "und", "dann", "also"].iter().any(|word| part.eq_ignore_ascii_case(word))
}

fn cut(text: &str, length: usize) -> &str {
    &text[..text.floor_char_boundary(length)]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<(String, f64)> {
        Query::new(text)
            .terms
            .into_iter()
            .filter(|term| term.weight > 0.26)
            .map(|term| (term.word, term.weight))
            .collect()
    }

    #[test]
    fn a_literal_counts_as_its_kind() {
        assert_eq!(
            words("open /tmp/a/b.pdf"),
            [("open".to_owned(), 1.0), ("file".to_owned(), 0.5), ("pdf".to_owned(), 0.5), ("document".to_owned(), 0.5),]
        );
    }

    #[test]
    fn a_number_weighs_less_than_a_word_and_a_repeated_word_more() {
        let weights = words("12 mails, mails");
        assert_eq!(weights[0], ("12".to_owned(), 0.3));
        assert!(weights[1].1 > 1.6 && weights[1].1 < 1.7);
    }

    #[test]
    fn a_request_with_several_needs_has_several_clauses() {
        assert_eq!(Query::new("check the weather in Berlin and book a hotel").clauses, 2);
        assert_eq!(Query::new("and then").clauses, 1);
        assert_eq!(Query::new(&"go, ".repeat(100)).clauses, MAX_CLAUSES);
    }

    #[test]
    fn a_few_words_without_a_verb_only_name_things() {
        for nouns in ["orders", "shop orders", "pull request labels"] {
            assert_eq!(Query::new(nouns).wish, Some(Wish::Nouns), "{nouns}");
        }
        for other in ["cancel order", "orders and customers", "Bestellungen im Laden", "the orders of this customer"] {
            assert_eq!(Query::new(other).wish, None, "{other}");
        }
        assert_eq!(Query::new("orders /tmp/a.csv").wish, None);
        assert_eq!(Query::new("list shop orders").wish, Some(Wish::ShortRead));
        assert_eq!(Query::new("which orders").wish, Some(Wish::Verb(Verb::Read)));
        assert_eq!(Query::new("list the orders that came in today").wish, Some(Wish::Verb(Verb::Read)));
        assert_eq!(Query::new("create order").wish, Some(Wish::Verb(Verb::Create)));
    }

    #[test]
    fn a_long_query_is_read_to_a_bound() {
        let long: Vec<_> = (0..100_000).map(|number| format!("w{number}")).collect();
        assert!(Query::new(&long.join(" ")).terms.len() <= 2 * MAX_TERMS);
    }
}
