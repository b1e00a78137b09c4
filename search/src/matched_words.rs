//! Which words of a query a document contains: what to tell a caller whose best hit is a poor one.

use crate::Index;
use crate::fields::Fields;
use crate::index::Unusable;
use crate::query::Query;

/// How well a document fits a query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MatchedWords {
    /// The words of the query that the document contains, or their translations, and those that it lacks, as the user
    /// wrote them.
    pub found: Vec<String>,
    pub missing: Vec<String>,
    /// Whether all of them stand only in the schema, such as in the description of a parameter.
    pub is_only_in_schema: bool,
}

impl MatchedWords {
    /// Whether the document probably is not what the user wants: it lacks most of the words, or merely mentions them.
    pub fn is_weak(&self) -> bool {
        self.missing.len() > self.found.len() || self.is_only_in_schema
    }
}

impl Index {
    /// Compares `query` with a document.
    pub fn matched_words(&self, query: &str, document: u32) -> Result<MatchedWords, Unusable> {
        let query = Query::new(query);
        let mut parts: Vec<(bool, Fields)> = vec![(false, Fields::default()); query.parts.len()];
        for term in query.terms.iter().filter(|term| term.parts != 0) {
            let mut fields = Fields::default();
            if let Some(entry) = self.word(&term.word)? {
                self.postings(&entry, |posting| {
                    if posting.document == document {
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
        let mut matched = MatchedWords { found: Vec::new(), missing: Vec::new(), is_only_in_schema: true };
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
