//! Search: finds the right subtool among any number of them.
//!
//! An index is one file, written once for each state of the definitions and read in place: a query reads the words it
//! asks for and nothing else. Knows documents and their words; what a definition is, and who may use it, is up to the
//! catalog. How the ranking works is in `ranking.rs`; what makes it good is measured by `examples/evaluate/main.rs`.
//!
//! ```
//! use search::{Document, Index, IndexWriter, LearnedRequests};
//!
//! let input = serde_json::Map::new();
//! let mut writer = IndexWriter::new(Vec::new())?;
//! for (name, description) in [
//!     ("gmail_search_messages", "Searches for messages in Gmail."),
//!     ("weather_now", "Tells the current weather of a place: temperature, wind, rain."),
//! ] {
//!     let document = Document { name, description, phrases: &[], tags: &[], verb: None, input: &input };
//!     writer.add(&document, b"")?;
//! }
//! let index = Index::from_bytes(writer.finish(b"")?)?;
//! let hits = index.search("how windy is it", &LearnedRequests::default())?;
//! assert_eq!(index.name(hits[0].document)?, "weather_now");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod document;
mod fields;
mod glossary;
mod index;
mod learned;
mod likeness;
mod literals;
mod matched_words;
mod mistakes;
mod query;
mod ranking;
mod silent_words;
mod spread;
mod synonyms;
mod verbs;
mod words;

pub use document::Document;
pub use fields::Fields;
pub use index::writer::{IndexWriter, PreviousIndex};
pub use index::{Index, Unusable};
pub use learned::{LearnedRequests, words_of_request};
pub use matched_words::MatchedWords;
pub use ranking::Hit;
pub use verbs::Verb;
