//! Search: ranks subtools by relevance to a query.
//!
//! BM25F (Robertson and Zaragoza 2009) over four fields: the name, the description, the names of the parameters, and
//! the text in their schemas. Names are split at case changes, digits and punctuation; words are stemmed (Snowball
//! English), and stop words are dropped from the query. Chinese, Japanese and Korean text is matched by single
//! characters and pairs, which needs no dictionary. A subtool scores higher the more of its name the query matches.
//! Subtools with equal scores are ordered by name.

use std::collections::HashMap;

use rust_stemmers::{Algorithm, Stemmer};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::listing::ListingEntry;

/// BM25's term frequency saturation.
const K1: f64 = 1.2;

/// The weight of a word in each field, and how strongly the field's length reduces it (BM25's `b`).
const FIELDS: [SearchField; 4] = [
    SearchField { weight: 10.0, length: 0.3 },
    SearchField { weight: 5.0, length: 0.6 },
    SearchField { weight: 4.0, length: 0.3 },
    SearchField { weight: 3.0, length: 0.3 },
];

struct SearchField {
    weight: f64,
    length: f64,
}

/// Hits below this share of the best score are dropped, because they merely mention a word of the query. In the
/// queries of `tests/catalog/search.rs` every relevant hit scores at least 0.4 of the best; half of that leaves room
/// for longer queries, in which each word weighs less.
const MIN_SCORE_SHARE: f64 = 0.2;

/// An entry that matches a query.
#[derive(Debug, PartialEq)]
pub struct Hit {
    /// The index in the searched entries.
    pub index: usize,
    pub score: f64,
}

/// Returns the entries that match `query`, best first.
pub fn search(query: &str, entries: &[ListingEntry]) -> Vec<Hit> {
    let mut words = WordSplitter::new();
    let mut wanted: HashMap<String, f64> = HashMap::new();
    for word in words.split(query, WordFilter::NoStopWords) {
        *wanted.entry(word).or_default() += 1.0;
    }
    if wanted.is_empty() {
        return Vec::new();
    }
    let documents: Vec<_> = entries.iter().map(|entry| Document::of(&entry.terms, &wanted)).collect();
    #[expect(clippy::cast_precision_loss, reason = "counts of documents and words are far below 2^52")]
    let (count, mean_lengths) = {
        let count = documents.len() as f64;
        (count, [0, 1, 2, 3].map(|f| documents.iter().map(|d| d.lengths[f]).sum::<f64>().max(1.0) / count.max(1.0)))
    };
    let rarity: HashMap<&str, f64> = wanted
        .keys()
        .map(|word| {
            #[expect(clippy::cast_precision_loss, reason = "a count of documents is far below 2^52")]
            let matching = documents.iter().filter(|document| document.hits.contains_key(word.as_str())).count() as f64;
            (word.as_str(), (1.0 + (count - matching + 0.5) / (matching + 0.5)).ln())
        })
        .collect();
    let mut hits: Vec<Hit> = documents
        .iter()
        .enumerate()
        .map(|(index, document)| Hit { index, score: document.score(&wanted, &rarity, &mean_lengths) })
        .filter(|hit| hit.score > 0.0)
        .collect();
    let best = hits.iter().map(|hit| hit.score).fold(0.0, f64::max);
    hits.retain(|hit| hit.score >= best * MIN_SCORE_SHARE);
    hits.sort_by(|a, b| b.score.total_cmp(&a.score).then_with(|| entries[a.index].name.cmp(&entries[b.index].name)));
    hits
}

/// How well the best hit fits the query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueryMatch {
    /// The words of the query that the hit contains, and those that it lacks, as the caller wrote them.
    pub found: Vec<String>,
    pub missing: Vec<String>,
    /// Whether all of them stand only in the schema, such as in the description of a parameter.
    pub is_only_in_schema: bool,
}

impl QueryMatch {
    /// Compares `query` with `entry`.
    pub fn of(query: &str, entry: &ListingEntry) -> Self {
        let mut splitter = WordSplitter::new();
        let (mut found, mut missing, mut is_only_in_schema) = (Vec::new(), Vec::new(), true);
        for word in query.split_whitespace() {
            let stems = splitter.split(word, WordFilter::NoStopWords);
            let fields = |stem: &String| (0..FIELDS.len()).find(|f| entry.terms.field(*f).any(|term| term == stem));
            // Ideograms are matched by single characters and pairs, so a part of them is a match.
            match stems.iter().filter_map(fields).min() {
                Some(field) => {
                    is_only_in_schema &= field > 1;
                    found.push(word.to_owned());
                }
                None if !stems.is_empty() => missing.push(word.to_owned()),
                None => {}
            }
        }
        Self { found, missing, is_only_in_schema }
    }

    /// Whether the hit probably is not what the caller wants: it lacks most of the words, or merely mentions them.
    pub fn is_weak(&self) -> bool {
        self.missing.len() > self.found.len() || self.is_only_in_schema
    }
}

/// The search terms of an entry: for each field its split and stemmed words, joined by spaces. Computed once, when the
/// catalog is loaded.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct SearchTerms([String; 4]);

impl SearchTerms {
    pub fn of(name: &str, description: &str, input: &Map<String, Value>, tags: &[String]) -> Self {
        let mut words = WordSplitter::new();
        let (mut parameters, mut texts) = (Vec::new(), Vec::new());
        collect(input, &mut parameters, &mut texts);
        texts.extend_from_slice(tags);
        let fields = [name, description, &parameters.join(" "), &texts.join(" ")];
        Self(fields.map(|text| words.split(text, WordFilter::All).join(" ")))
    }

    fn field(&self, field: usize) -> impl Iterator<Item = &str> {
        self.0[field].split_ascii_whitespace()
    }
}

/// How often an entry contains each word of the query, by field.
struct Document<'a> {
    hits: HashMap<&'a str, [f64; 4]>,
    lengths: [f64; 4],
    terms: &'a SearchTerms,
}

impl<'a> Document<'a> {
    fn of(terms: &'a SearchTerms, wanted: &HashMap<String, f64>) -> Self {
        let mut document = Self { hits: HashMap::new(), lengths: [0.0; 4], terms };
        for field in 0..FIELDS.len() {
            for word in terms.field(field) {
                document.lengths[field] += 1.0;
                if wanted.contains_key(word) {
                    document.hits.entry(word).or_default()[field] += 1.0;
                }
            }
        }
        document
    }

    fn score(&self, wanted: &HashMap<String, f64>, rarity: &HashMap<&str, f64>, means: &[f64; 4]) -> f64 {
        let mut score = 0.0;
        for (word, counts) in &self.hits {
            let weighted: f64 = FIELDS
                .iter()
                .enumerate()
                .map(|(f, field)| {
                    let normalization = 1.0 - field.length + field.length * self.lengths[f] / means[f];
                    field.weight * counts[f] / normalization.max(f64::EPSILON)
                })
                .sum();
            let repeated = 1.0 + wanted[*word].ln();
            score += repeated * rarity[word] * weighted * (K1 + 1.0) / (K1 + weighted);
        }
        score * (1.0 + 0.5 * self.name_coverage())
    }

    /// The share of the name's words that the query contains.
    #[expect(clippy::cast_precision_loss, reason = "a name has at most 64 words")]
    fn name_coverage(&self) -> f64 {
        let hit = self.terms.field(0).filter(|word| self.hits.contains_key(word)).count();
        hit as f64 / self.terms.field(0).count().max(1) as f64
    }
}

/// Collects the names of all parameters, and the titles, descriptions and enum values in their schemas.
fn collect(schema: &Map<String, Value>, names: &mut Vec<String>, texts: &mut Vec<String>) {
    if let Some(Value::Object(properties)) = schema.get("properties") {
        for (name, property) in properties {
            names.push(name.clone());
            for key in ["title", "description"] {
                texts.extend(property[key].as_str().map(str::to_owned));
            }
            let choices = property["enum"].as_array().into_iter().flatten();
            texts.extend(choices.filter_map(Value::as_str).map(str::to_owned));
            if let Value::Object(property) = property {
                collect(property, names, texts);
            }
        }
    }
    if let Some(Value::Object(items)) = schema.get("items") {
        collect(items, names, texts);
    }
}

/// Which words of a text to keep.
#[derive(Clone, Copy, PartialEq, Eq)]
enum WordFilter {
    All,
    NoStopWords,
}

/// Splits text into stemmed words.
struct WordSplitter {
    stemmer: Stemmer,
}

impl WordSplitter {
    fn new() -> Self {
        Self { stemmer: Stemmer::create(Algorithm::English) }
    }

    fn split(&mut self, text: &str, filter: WordFilter) -> Vec<String> {
        let mut words = Vec::new();
        let mut word = String::new();
        let mut previous: Option<char> = None;
        let mut ideograms: Option<char> = None;
        for character in text.chars() {
            if is_ideogram(character) {
                self.finish(&mut word, filter, &mut words);
                words.push(character.to_string());
                words.extend(ideograms.map(|before| format!("{before}{character}")));
                ideograms = Some(character);
            } else {
                ideograms = None;
                if !character.is_alphanumeric() || previous.is_some_and(|before| is_boundary(before, character)) {
                    self.finish(&mut word, filter, &mut words);
                }
                if character.is_alphanumeric() {
                    word.extend(character.to_lowercase());
                }
            }
            previous = Some(character);
        }
        self.finish(&mut word, filter, &mut words);
        words
    }

    /// Adds the word, if it is not empty or filtered out, and clears it.
    fn finish(&mut self, word: &mut String, filter: WordFilter, words: &mut Vec<String>) {
        if word.is_empty() {
            return;
        }
        if filter == WordFilter::All || !is_stop_word(word) {
            words.push(self.stemmer.stem(word).into_owned());
        }
        word.clear();
    }
}

/// Whether a word ends between two characters, as in `camelCase42`.
fn is_boundary(before: char, after: char) -> bool {
    (before.is_lowercase() && after.is_uppercase()) || (before.is_numeric() != after.is_numeric())
}

fn is_ideogram(character: char) -> bool {
    matches!(character,
        '\u{3040}'..='\u{30ff}'      // kana
        | '\u{3400}'..='\u{4dbf}' | '\u{4e00}'..='\u{9fff}' | '\u{f900}'..='\u{faff}' // ideographs
        | '\u{ac00}'..='\u{d7af}'    // hangul
        | '\u{20000}'..='\u{3ffff}') // ideographs beyond the basic plane
}

/// Words that say nothing about what a query is for, sorted.
const STOP_WORDS: &[&str] = &[
    "a", "about", "all", "am", "an", "and", "any", "are", "as", "at", "be", "been", "but", "by", "can", "could", "did",
    "do", "does", "for", "from", "give", "had", "has", "have", "help", "her", "his", "how", "i", "if", "im", "in",
    "into", "is", "it", "its", "just", "know", "let", "like", "ll", "looking", "may", "me", "might", "much", "must",
    "my", "need", "of", "on", "or", "our", "please", "s", "should", "so", "some", "t", "tell", "than", "thanks",
    "that", "the", "their", "them", "then", "there", "these", "they", "this", "those", "to", "too", "tool", "tools",
    "up", "us", "use", "using", "very", "want", "was", "way", "we", "were", "what", "when", "where", "which", "while",
    "who", "whose", "why", "will", "with", "would", "you", "your",
];

fn is_stop_word(word: &str) -> bool {
    STOP_WORDS.binary_search(&word).is_ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn entry(name: &str, description: &str, input: &Value) -> ListingEntry {
        ListingEntry::new(name, description, input.as_object().expect("an object"), &[])
    }

    fn found(query: &str) -> Vec<String> {
        let query_input = json!({"properties": {"search_query": {"type": "string", "description": "The words"}}});
        let entries = [
            entry("gmail_search_messages", "Searches for messages in Gmail based on a query.", &query_input),
            entry("gmail_send_message", "Sends an email.", &json!({"properties": {"recipient": {"type": "string"}}})),
            entry("countProducts", "Counts and sums records. For questions like: how many products.", &json!({})),
            entry("search_products", "Searches products by name.", &json!({})),
            entry("report_zh", "生成年度报告并发送", &json!({})),
        ];
        search(query, &entries).into_iter().map(|hit| entries[hit.index].name.clone()).collect()
    }

    #[test]
    fn a_query_in_the_words_of_a_user_finds_the_subtool() {
        assert_eq!(found("gmail"), ["gmail_search_messages", "gmail_send_message"]);
        assert_eq!(found("send email")[0], "gmail_send_message");
        assert_eq!(found("how many products are there?")[0], "countProducts");
        assert_eq!(found("please search the messages for me")[0], "gmail_search_messages");
        assert_eq!(found("recipients"), ["gmail_send_message"]);
    }

    #[test]
    fn a_subtool_that_merely_mentions_a_word_is_not_found() {
        let input = json!({"properties": {"level": {"type": "string", "description": "Which messages are kept"}}});
        let entries = [
            entry("gmail_search_messages", "Searches for messages in Gmail based on a query.", &json!({})),
            entry("rotate_logs", "Rotates the logs of a program each day.", &input),
            entry("read_message", "Reads one message.", &json!({})),
        ];
        let names = |query| search(query, &entries).into_iter().map(|hit| hit.index).collect::<Vec<_>>();
        assert_eq!(names("search messages in gmail"), [0]);
        assert_eq!(names("messages"), [2, 0, 1]);
    }

    #[test]
    fn a_match_says_which_words_it_lacks_and_where_it_found_the_others() {
        let input = json!({"properties": {"date": {"type": "string", "description": "The day of the flight"}}});
        let entry = entry("calendar_add", "Adds an event to the calendar.", &input);
        let matched = |query| QueryMatch::of(query, &entry);
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        let flight = matched("book a flight");
        assert_eq!((flight.found.clone(), flight.missing.clone()), (words(&["flight"]), words(&["book"])));
        assert!(flight.is_weak(), "a parameter merely mentions it");
        assert!(!matched("add an event to my calendar").is_weak());
        assert!(!matched("calendar events next week").is_weak());
        assert!(matched("order pizza to the calendar").is_weak());
    }

    #[test]
    fn chinese_is_found_without_spaces() {
        assert_eq!(found("年度报告"), ["report_zh"]);
        assert_eq!(found("我想看报告"), ["report_zh"]);
    }

    #[test]
    fn a_query_without_relevant_words_finds_nothing() {
        assert!(found("").is_empty());
        assert!(found("the of and").is_empty());
        assert!(found("xylophone").is_empty());
        assert!(found("🙂 !!").is_empty());
    }

    #[test]
    fn names_are_split_at_case_digits_and_punctuation() {
        let split = WordSplitter::new().split("getUser_by-id42 HTTPServer", WordFilter::All);
        assert_eq!(split, ["get", "user", "by", "id", "42", "httpserver"]);
    }

    #[test]
    fn the_stop_words_are_sorted() {
        assert!(STOP_WORDS.is_sorted());
        assert!(is_stop_word("a") && is_stop_word("your") && is_stop_word("looking") && !is_stop_word("get"));
    }
}
