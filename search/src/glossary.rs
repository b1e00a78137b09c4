//! The glossary: English words for Chinese ones.

/// English for a word of the query.
pub(crate) struct Gloss {
    /// The word as it stands in the query.
    pub(crate) source: String,
    pub(crate) english: &'static str,
    pub(crate) weight: f64,
}

pub(crate) fn of_query(_text: &str) -> Vec<Gloss> {
    Vec::new()
}

pub(crate) fn of_document(_texts: &[Vec<&str>]) -> Vec<String> {
    Vec::new()
}
