//! Likeness: what the phrases of a hit say about a query.
//!
//! A subtool may have twenty phrases, and a word that one of them shares with a query by accident says little. So phrases
//! are compared one by one, and each counts by how like it is to the query: the geometric mean of the share of the
//! phrase's words that the query has, and of the share of the query's words, weighted, that the phrase has. The silent
//! words are compared, too: `what branch am I on`. A subtool whose phrases share words with the query, and none of which is
//! like it, loses a part of its score to those that have no phrases.
//!
//! A query is compared as a whole, and clause by clause, because a phrase is never like a request with several needs. It
//! is compared with and without the words that stand for the user's own, since translations would make a phrase in the
//! user's own language look like a part of the query.

use crate::query::MAX_CLAUSES;

/// A phrase that is less like the query says nothing.
const MIN_LIKENESS: f64 = 0.25;
/// A phrase that is at least this like the query leaves its subtool the whole score.
const CLOSE_LIKENESS: f64 = 0.5;
/// What a subtool loses at most that shares words with the query, but has no phrase like it. Each of its phrases is
/// another chance to share a word, which a subtool without phrases does not have.
const UNLIKE_LOSS: f64 = 0.5;
/// What the words of a phrase weigh that is the query, in the unit of the ranking: two or three times as much as in a
/// name.
const PHRASE_WEIGHT: f64 = 8.0;
/// How much of that a phrase adds that is like one clause of several.
const CLAUSE_SHARE: f64 = 0.6;

/// One word of the query that the index knows.
#[derive(Debug, Clone, Copy)]
pub(crate) struct QueryWord {
    /// Its number in the index.
    pub(crate) number: u32,
    pub(crate) weight: f64,
    /// As how much of a word of a phrase it counts: a neighbour in meaning is not what the user said.
    pub(crate) share: f64,
    /// The clauses of the query that it is from, as bits.
    pub(crate) clauses: u8,
    /// Whether the user wrote it.
    pub(crate) is_own: bool,
}

/// The query, as phrases are compared with it.
pub(crate) struct ComparedQuery {
    /// Ordered by number.
    words: Vec<QueryWord>,
    scopes: Vec<Scope>,
}

/// A part of the query that is compared on its own.
struct Scope {
    clauses: u8,
    is_own: bool,
    /// What its words weigh together.
    weight: f64,
}

impl Scope {
    fn covers(&self, word: &QueryWord) -> bool {
        word.clauses & self.clauses != 0 && (word.is_own || !self.is_own)
    }
}

/// What the phrases of a subtool say about the query.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Support {
    /// What the best of them adds to the score.
    added: f64,
    /// How like the query the one is that is most like it.
    likeness: f64,
}

impl Support {
    /// The score of a subtool that has `score` by its words. How far its name and description agree with the query says as
    /// much as a phrase.
    pub(crate) fn applied(self, score: f64, agreement: f64) -> f64 {
        let closeness = (self.likeness / CLOSE_LIKENESS).max(agreement).min(1.0);
        score * (1.0 - UNLIKE_LOSS * (1.0 - closeness)) + self.added
    }
}

impl ComparedQuery {
    pub(crate) fn new(mut words: Vec<QueryWord>, clauses: usize) -> Self {
        words.sort_by_key(|word| word.number);
        words.dedup_by_key(|word| word.number);
        let parts = (0..clauses.min(MAX_CLAUSES)).map(|clause| 1_u8 << clause).filter(|_| clauses > 1);
        let mut scopes = Vec::new();
        for clauses in std::iter::once(u8::MAX).chain(parts) {
            for is_own in [false, true] {
                let mut scope = Scope { clauses, is_own, weight: 0.0 };
                scope.weight = words.iter().filter(|word| scope.covers(word)).map(|word| word.weight).sum();
                scopes.push(scope);
            }
        }
        Self { words, scopes }
    }

    /// What `phrases` say of their subtool. Each phrase is the numbers of its words.
    pub(crate) fn support(&self, phrases: &[Vec<u32>]) -> Support {
        let mut best = Support::default();
        let mut shared = Vec::new();
        for phrase in phrases {
            shared.clear();
            let places = phrase.iter().map(|number| self.words.binary_search_by_key(number, |word| word.number));
            shared.extend(places.flatten().map(|place| self.words[place]));
            if !shared.is_empty() {
                for support in self.scopes.iter().map(|scope| support(scope, &shared, phrase.len())) {
                    best.added = best.added.max(support.added);
                    best.likeness = best.likeness.max(support.likeness);
                }
            }
        }
        best
    }
}

/// What a phrase of `length` words says that shares these words with the query.
fn support(scope: &Scope, shared: &[QueryWord], length: usize) -> Support {
    let covered = shared.iter().filter(|word| scope.covers(word));
    let (count, weight) = covered.fold((0.0, 0.0), |(count, sum), word| (count + word.share, sum + word.weight));
    #[expect(clippy::cast_precision_loss, reason = "a phrase has a few words")]
    let of_phrase = count / length.max(1) as f64;
    let likeness = (of_phrase * weight / scope.weight.max(f64::EPSILON)).sqrt();
    let above = ((likeness - MIN_LIKENESS) / (1.0 - MIN_LIKENESS)).max(0.0);
    let share = if scope.clauses == u8::MAX { 1.0 } else { CLAUSE_SHARE };
    Support { added: PHRASE_WEIGHT * share * weight * above * above, likeness }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn word(number: u32, clauses: u8, is_own: bool) -> QueryWord {
        QueryWord { number, weight: 1.0, share: 1.0, clauses, is_own }
    }

    #[test]
    fn a_phrase_that_is_the_query_counts_and_one_that_shares_a_word_does_not() {
        let query = ComparedQuery::new((0..6).map(|number| word(number, 1, true)).collect(), 1);
        assert!((query.support(&[(0..6).collect()]).added - PHRASE_WEIGHT * 6.0).abs() < 1e-9);
        let one_of_six = query.support(&[vec![0, 11, 12, 13, 14, 15]]).added;
        assert!(one_of_six.abs() < 1e-9, "{one_of_six}");
        assert!(query.support(&[vec![0, 1, 2, 13]]).added > 0.0);
    }

    #[test]
    fn a_phrase_that_is_one_clause_of_several_counts_for_that_clause() {
        let words =
            |clauses: [u8; 2]| vec![word(0, clauses[0], true), word(1, clauses[0], true), word(2, clauses[1], true)];
        let alone = ComparedQuery::new(words([1, 1])[..2].to_vec(), 1).support(&[vec![0, 1]]);
        let several = ComparedQuery::new(words([1, 2]), 2).support(&[vec![0, 1]]);
        assert!((alone.likeness - several.likeness).abs() < 1e-9 && several.added >= alone.added * CLAUSE_SHARE);
        assert!(ComparedQuery::new(words([1, 1]), 1).support(&[vec![0, 1]]).likeness < alone.likeness);
    }

    #[test]
    fn words_weigh_less_in_a_subtool_that_has_no_phrase_like_the_query() {
        let query = ComparedQuery::new((0..6).map(|number| word(number, 1, true)).collect(), 1);
        let score = |phrases: &[Vec<u32>], agreement| query.support(phrases).applied(10.0, agreement);
        assert!((score(&[vec![10, 11]], 0.0) - 10.0 * (1.0 - UNLIKE_LOSS)).abs() < 1e-9);
        assert!((score(&[vec![10, 11]], 1.0) - 10.0).abs() < 1e-9);
        assert!(score(&[vec![0, 1, 2, 13]], 0.0) > 10.0);
    }

    #[test]
    fn a_neighbour_in_meaning_does_not_make_a_phrase_the_query() {
        // `weather`, whose neighbour is `forecast`, and the phrase `weather forecast`.
        let neighbour = QueryWord { share: 0.2, weight: 0.2, ..word(1, 1, false) };
        let query = ComparedQuery::new(vec![word(0, 1, true), neighbour], 1);
        assert!(query.support(&[vec![0, 1]]).added < query.support(&[vec![0]]).added * 0.7);
    }

    #[test]
    fn translations_take_nothing_from_a_phrase_in_the_language_of_the_user() {
        let own = ComparedQuery::new(vec![word(0, 1, true), word(1, 1, true)], 1);
        let translated = ComparedQuery::new(vec![word(0, 1, true), word(1, 1, true), word(2, 1, false)], 1);
        assert!((own.support(&[vec![0, 1]]).added - translated.support(&[vec![0, 1]]).added).abs() < 1e-9);
    }
}
