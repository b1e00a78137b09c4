//! What worked before: past requests by the subtool that they led to. They are not part of the index, but change a
//! search as if they were a field of their own.

use std::collections::{BTreeMap, HashMap};

use crate::Index;
use crate::fields::{LEARNED_WEIGHT, weighted};
use crate::index::Unusable;
use crate::literals::{Literal, literal};
use crate::words::WordSplitter;

/// More than this is not read: a search must stay fast, whatever was recorded.
const MAX_REQUESTS: usize = 4_000;

/// The words of a past request in the form in which [`LearnedRequests`] reads them: record this, not the request.
///
/// Only plain words are kept. What may be a name, an address, a number or a key says nothing about the subtool, and may be
/// private.
pub fn words_of_request(text: &str) -> String {
    let plain: Vec<_> = text.split_whitespace().filter(|part| is_plain(part)).collect();
    let mut words = WordSplitter::new().split(&plain.join(" "));
    words.sort_unstable();
    words.join(" ")
}

/// Whether a part of a request, between spaces, is made of words alone.
fn is_plain(part: &str) -> bool {
    let ends = |character: char| !character.is_alphanumeric();
    let inner = part.trim_matches(ends);
    let is_word =
        |character: char| character.is_alphabetic() || matches!(character, '-' | '\'' | '’' | '，' | '、' | '。');
    matches!(literal(part), Literal::Text) && !inner.is_empty() && inner.chars().all(is_word)
}

/// Past requests, each as the name of the subtool it led to and its words as [`words_of_request`] gives them.
#[derive(Debug, Clone, Default)]
pub struct LearnedRequests<'a>(Vec<(&'a str, &'a str)>);

impl<'a> LearnedRequests<'a> {
    pub fn new(requests: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        Self(requests.into_iter().take(MAX_REQUESTS).collect())
    }

    /// What a query finds in them: for each of its terms, the documents and what the term weighs there, in the order of
    /// the documents.
    pub(crate) fn matches(&self, terms: &[String], index: &Index) -> Result<Vec<Vec<(u32, f64)>>, Unusable> {
        let mut found = vec![Vec::new(); terms.len()];
        if self.0.is_empty() {
            return Ok(found);
        }
        let numbers: HashMap<&str, usize> = terms.iter().map(String::as_str).zip(0..).collect();
        // Most words are not in the query, which their first byte and their length already tell.
        let shape = |word: &str| (usize::from(word.as_bytes()[0]), 1_u64 << (word.len() % 64));
        let mut shapes = [0_u64; 256];
        for (first, length) in terms.iter().filter(|term| !term.is_empty()).map(|term| shape(term)) {
            shapes[first] |= length;
        }
        let mut documents: BTreeMap<&str, RequestCounts> = BTreeMap::new();
        for (name, words) in &self.0 {
            let RequestCounts { length, counts } = documents.entry(name).or_default();
            for word in words.split_ascii_whitespace() {
                *length += 1.0;
                let (first, own_length) = shape(word);
                if shapes[first] & own_length == 0 {
                    continue;
                }
                let Some(number) = numbers.get(word) else { continue };
                match counts.iter_mut().find(|(known, _)| known == number) {
                    Some((_, count)) => *count += 1.0,
                    None => counts.push((*number, 1.0)),
                }
            }
        }
        #[expect(clippy::cast_precision_loss, reason = "a count of requests is far below 2^52")]
        let mean = documents.values().map(|requests| requests.length).sum::<f64>() / documents.len() as f64;
        for (name, requests) in documents.iter().filter(|(_, requests)| !requests.counts.is_empty()) {
            let Some(document) = index.find(name)? else { continue };
            for (number, count) in &requests.counts {
                found[*number].push((document, weighted(&LEARNED_WEIGHT, *count, requests.length, mean)));
            }
        }
        for documents in &mut found {
            documents.sort_unstable_by_key(|(document, _)| *document);
        }
        Ok(found)
    }
}

/// The past requests of one document.
#[derive(Default)]
struct RequestCounts {
    length: f64,
    /// How often each term of the query, by its number, is in them.
    counts: Vec<(usize, f64)>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_may_be_private_is_kept() {
        let secrets = "ghp_abcdefghijklmnopqrstuvwxyz0123456789 ann.lee@example.com hunter2 +49-30-1234 /home/ann/x.pdf \
                       https://a.example/?token=abc key=value 4711 a1b2 AKIAIOSFODNN7EXAMPLE #12 x:y";
        assert_eq!(words_of_request(secrets), "");
        assert_eq!(words_of_request(&format!("tuning {secrets} the engine")), "engin tune");
        assert_eq!(words_of_request("who wrote this?"), words_of_request("who wrote this"));
        assert!(!words_of_request("看看未读邮件").is_empty());
        assert!(!words_of_request("Überweisung prüfen").is_empty());
    }
}
