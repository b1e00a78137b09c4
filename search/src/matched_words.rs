//! Which words of a query a hit contains, and whether it is close to the query: what to tell a caller whose best hits are
//! poor ones.

use crate::fields::Fields;
use crate::index::Unusable;
use crate::query::Query;
use crate::{Hit, Index};

/// A hit with this fit is close, whatever words it lacks: one of its phrases is much like the query.
const CLOSE_FIT: f64 = 0.4;
/// A hit with less fit is not close, whatever words it has: they are those that most documents have. On the requests for
/// the packs that ship, these three keep 91 % of the right hits. docs/search.md has what they let through.
const MIN_FIT: f64 = 0.2;
/// A hit that has only half of the words has at least this many.
const MIN_HALF: usize = 2;

/// How well a hit fits a query.
#[derive(Debug, Clone, PartialEq)]
pub struct MatchedWords {
    /// The words of the query that the document contains, or their translations, and those that it lacks, as the user
    /// wrote them.
    pub found: Vec<String>,
    pub missing: Vec<String>,
    /// Whether all of them stand only in the schema, such as in the description of a parameter.
    pub is_only_in_schema: bool,
    /// [`Hit::fit`].
    pub fit: f64,
}

impl MatchedWords {
    /// Whether the hit probably is not what the user wants: it lacks most of the words, or merely mentions them.
    pub fn is_weak(&self) -> bool {
        let (found, missing) = (self.found.len(), self.missing.len());
        // One word of two is what `book flight` has in common with looking up flights.
        let has_half = missing < found || missing == found && found >= MIN_HALF;
        let has_words = has_half && !self.is_only_in_schema;
        !(self.fit >= CLOSE_FIT || has_words && self.fit >= MIN_FIT)
    }
}

impl Index {
    /// Compares `query` with a hit that it found.
    pub fn matched_words(&self, query: &str, hit: &Hit) -> Result<MatchedWords, Unusable> {
        let mut query = Query::new(query);
        self.correct(&mut query)?;
        let mut parts: Vec<(bool, Fields)> = vec![(false, Fields::default()); query.parts.len()];
        for term in query.terms.iter().filter(|term| term.parts != 0) {
            let mut fields = Fields::default();
            if let Some(entry) = self.word(&term.word)? {
                self.postings(&entry, |posting| {
                    if posting.document == hit.document {
                        fields = posting.fields;
                    }
                })?;
            }
            for (number, (has_words, found)) in parts.iter_mut().enumerate() {
                if term.parts & (1 << number) != 0 {
                    *has_words = true;
                    *found = found.with(fields);
                }
            }
        }
        let mut matched =
            MatchedWords { found: Vec::new(), missing: Vec::new(), is_only_in_schema: true, fit: hit.fit };
        for (part, (_, fields)) in query.parts.iter().zip(&parts).filter(|(_, (has_words, _))| *has_words) {
            if fields.is_empty() {
                matched.missing.push((*part).to_owned());
            } else {
                matched.is_only_in_schema &= fields.is_only_schema();
                matched.found.push((*part).to_owned());
            }
        }
        Ok(matched)
    }
}
