//! The ranking: which documents match a query, and how well.
//!
//! BM25F (Robertson and Zaragoza 2009, "The Probabilistic Relevance Framework: BM25 and Beyond"). For a word `w` of the
//! query, the *impact* on document `d` is the sum of its counts in all fields, each weighted and divided by what the
//! field's length takes away:
//!
//! ```text
//! impact(w, d)  = Σ_field  weight · count / (1 - b + b · length / mean length)
//! rarity(w)     = ln(1 + (N - n + 0.5) / (n + 0.5))        of N documents, n have the word
//! score(d)      = Σ_w  weight(w) · rarity(w) · impact · (k1 + 1) / (k1 + impact)
//! ```
//!
//! The sum is multiplied by `1 + 0.8 · coverage`: the share of the document's name, weighted by rarity, that the query
//! contains. With phrases it is the square of the share, since a part of a name says little beside them. If a request
//! has several clauses, four tenths of the score are that of its best clause, and `spread.rs` spreads the best hits over
//! the clauses. What the phrases of the best hits add and take is up to `likeness.rs`: a phrase weighs little by its
//! single words, and much if it is like the query.

use crate::Index;
use crate::fields::{DESCRIPTION, Fields, LEARNED, NAME, PHRASES};
use crate::index::Unusable;
use crate::learned::LearnedRequests;
use crate::likeness::{ComparedQuery, QueryWord};
use crate::query::{MAX_CLAUSES, Query, Term};
use crate::spread::spread;
use crate::verbs;

/// BM25's saturation: how much more a word says that is found often, or in several fields.
const K1: f64 = 4.0;
/// How much a query gains that contains the whole name.
const NAME_COVERAGE: f64 = 0.8;
/// The share of the best clause in the score of a request with several.
const CLAUSE_SHARE: f64 = 0.4;
/// What a word weighs in the comparison with phrases which says nothing on its own: about as much as one that most documents have.
const OTHER_WORD_WEIGHT: f64 = 0.5;
/// How many hits are compared phrase by phrase.
const MAX_COMPARED: usize = 50;
/// How many of the best hits are looked at by name, and what is left of the score of one of another version.
const MAX_NAMED: usize = 20;
const OTHER_VERSION: f64 = 0.85;
/// Hits below this share of the best score are dropped, because they merely mention a word of the query. In the queries
/// of the shipped packs every relevant hit scores at least 0.4 of the best; half of that leaves room for longer queries,
/// in which each word weighs less.
const MIN_SCORE_SHARE: f64 = 0.2;
/// Those below this share are dropped before phrases are compared, which may make up for the other half.
const MIN_SHARE_OF_WORDS: f64 = 0.1;

/// A document that matches a query.
#[derive(Debug, Clone, PartialEq)]
pub struct Hit {
    /// The number of the document in the index.
    pub document: u32,
    pub score: f64,
    /// The score as a share of what a document would have that contains every word of the query as often as counts: how
    /// sure it is that this is meant. A name or a phrase that is the query makes it more than 1.
    pub fit: f64,
    /// Where the words of the query were found.
    pub matched_in: Fields,
}

/// How rare a word is that `matching` of `count` documents have.
#[expect(clippy::cast_precision_loss, reason = "a count of documents is far below 2^52")]
pub(crate) fn rarity(count: usize, matching: usize) -> f64 {
    let (count, matching) = (count as f64, matching as f64);
    (1.0 + ((count - matching).max(0.0) + 0.5) / (matching + 0.5)).ln()
}

impl Index {
    /// The documents that match `query`, best first; those with equal scores are ordered by name.
    pub fn search(&self, query: &str, learned: &LearnedRequests<'_>) -> Result<Vec<Hit>, Unusable> {
        let mut query = Query::new(query);
        self.correct(&mut query)?;
        let words: Vec<String> = query.terms.iter().map(|term| term.word.clone()).collect();
        let learned = learned.matches(&words, self)?;
        let clauses = query.clauses;
        let mut scores = Scores::new(self.document_count(), clauses);
        let mut query_words = Vec::new();
        let mut most = 0.0;
        for (term, learned) in query.terms.iter().zip(&learned) {
            let entry = self.word(&term.word)?;
            let matching = entry.map_or(0, |entry| entry.documents) as usize;
            let mut learned_only = learned.len();
            let mut found = Vec::with_capacity(matching.min(self.document_count() as usize) + learned.len());
            if let Some(entry) = entry {
                let mut rest = learned.iter().peekable();
                self.postings(&entry, |mut posting| {
                    while let Some((document, impact)) = rest.next_if(|(document, _)| *document <= posting.document) {
                        if *document == posting.document {
                            posting.impact += impact;
                            posting.fields = posting.fields.with(Fields::of(LEARNED));
                            learned_only -= 1;
                        } else {
                            found.push(Contribution::learned(*document, *impact));
                        }
                    }
                    found.push(Contribution {
                        document: posting.document,
                        fields: posting.fields,
                        impact: posting.impact,
                        name_share: posting.name_share,
                    });
                })?;
                found.extend(rest.map(|(document, impact)| Contribution::learned(*document, *impact)));
            } else {
                found.extend(learned.iter().map(|(document, impact)| Contribution::learned(*document, *impact)));
            }
            let weight = term.weight * rarity(self.document_count() as usize, matching + learned_only);
            let (clauses, is_own) = (term.clauses, term.is_own);
            let share = if is_own { 1.0 } else { term.weight.min(1.0) };
            if is_own {
                most += weight * (K1 + 1.0);
            }
            query_words.extend(entry.map(|entry| QueryWord { number: entry.number, weight, share, clauses, is_own }));
            for contribution in &found {
                scores.add(contribution, weight, term);
            }
        }
        let mut hits = scores.hits();
        if hits.iter().take(MAX_COMPARED).any(|hit| hit.matched_in.contains(PHRASES)) {
            for other in &query.others {
                let (weight, share, clauses, is_own) = (OTHER_WORD_WEIGHT, 1.0, other.clauses, true);
                let entry = self.word(&other.word)?;
                query_words.extend(entry.map(|entry| QueryWord {
                    number: entry.number,
                    weight,
                    share,
                    clauses,
                    is_own,
                }));
            }
            self.compare_phrases(&mut hits, &scores, &ComparedQuery::new(query_words, clauses), most / (K1 + 1.0))?;
        }
        if let Some(wish) = query.wish {
            for hit in hits.iter_mut().take(MAX_COMPARED) {
                hit.score *= verbs::share(wish, self.verb(hit.document)?);
            }
        }
        for hit in hits.iter_mut().take(MAX_NAMED) {
            if is_of_other_version(&self.name(hit.document)?) {
                hit.score *= OTHER_VERSION;
            }
        }
        let best = hits.iter().map(|hit| hit.score).fold(0.0, f64::max);
        hits.retain(|hit| hit.score >= best * MIN_SCORE_SHARE);
        for hit in &mut hits {
            hit.fit = hit.score / f64::max(most, f64::EPSILON);
        }
        sort(&mut hits);
        if clauses > 1 {
            spread(&mut hits, |document| scores.of_clauses(document));
            sort(&mut hits);
        }
        Ok(hits)
    }

    /// Looks at the phrases of the best hits one by one: a phrase that is the query says more than one that shares a word.
    fn compare_phrases(
        &self,
        hits: &mut [Hit],
        scores: &Scores,
        query: &ComparedQuery,
        all: f64,
    ) -> Result<(), Unusable> {
        for hit in hits.iter_mut().take(MAX_COMPARED).filter(|hit| hit.matched_in.contains(PHRASES)) {
            let support = query.support(&self.phrases(hit.document)?);
            let explained = scores.explained(hit.document, all);
            hit.score = support.applied(hit.score, scores.coverage(hit.document as usize).max(explained));
        }
        Ok(())
    }
}

/// Whether a name says that another version of the same thing has it without these words: `v2-drive_files_list`.
fn is_of_other_version(name: &str) -> bool {
    let version = name.split_once('-').map(|(version, _)| version).and_then(|version| version.strip_prefix('v'));
    version.is_some_and(|version| version.starts_with(|first: char| first.is_ascii_digit()))
}

/// Best first, those with equal scores by their number, which is the order of their names.
fn sort(hits: &mut [Hit]) {
    hits.sort_by(|a, b| b.score.total_cmp(&a.score).then(a.document.cmp(&b.document)));
}

/// What one word of the query adds to one document.
struct Contribution {
    document: u32,
    fields: Fields,
    impact: f64,
    name_share: f64,
}

impl Contribution {
    fn learned(document: u32, impact: f64) -> Self {
        Self { document, fields: Fields::of(LEARNED), impact, name_share: 0.0 }
    }
}

/// The sums for all documents.
struct Scores {
    /// For each document: of the whole query, and of each clause if there are several.
    sums: Vec<f32>,
    columns: usize,
    coverage: Vec<f32>,
    explained: Vec<f32>,
    fields: Vec<u8>,
}

impl Scores {
    fn new(documents: u32, clauses: usize) -> Self {
        let columns = if clauses > 1 { 1 + clauses.min(MAX_CLAUSES) } else { 1 };
        let documents = documents as usize;
        Self {
            sums: vec![0.0; documents * columns],
            columns,
            coverage: vec![0.0; documents],
            explained: vec![0.0; documents],
            fields: vec![0; documents],
        }
    }

    #[expect(clippy::cast_possible_truncation, reason = "scores need no more than the digits of a 32-bit float")]
    fn add(&mut self, contribution: &Contribution, weight: f64, term: &Term) {
        let document = contribution.document as usize;
        let score = (weight * contribution.impact * (K1 + 1.0) / (K1 + contribution.impact)) as f32;
        let row = &mut self.sums[document * self.columns..(document + 1) * self.columns];
        row[0] += score;
        for (clause, sum) in row[1..].iter_mut().enumerate() {
            if term.clauses & (1 << clause) != 0 {
                *sum += score;
            }
        }
        if contribution.fields.contains(NAME) {
            self.coverage[document] += (contribution.name_share * term.weight.min(1.0)) as f32;
        }
        if term.is_own && (contribution.fields.contains(NAME) || contribution.fields.contains(DESCRIPTION)) {
            self.explained[document] += weight as f32;
        }
        self.fields[document] |= contribution.fields.bits();
    }

    /// The share of the query's own words, weighted, that the document's name and description have; `all` is what they weigh
    /// together.
    fn explained(&self, document: u32, all: f64) -> f64 {
        f64::from(self.explained[document as usize]) / all.max(f64::EPSILON)
    }

    /// What each clause adds to a document, if there are several.
    fn of_clauses(&self, document: u32) -> &[f32] {
        let document = document as usize;
        &self.sums[document * self.columns + 1..(document + 1) * self.columns]
    }

    /// The share of the document's name that the query contains.
    fn coverage(&self, document: usize) -> f64 {
        f64::from(self.coverage[document]).min(1.0)
    }

    fn hits(&self) -> Vec<Hit> {
        let score = |document: usize| {
            let row = &self.sums[document * self.columns..(document + 1) * self.columns];
            let best = row[1..].iter().copied().fold(0.0_f32, f32::max);
            let all = f64::from(row[0]);
            let sum = if self.columns > 1 { all * (1.0 - CLAUSE_SHARE) + f64::from(best) * CLAUSE_SHARE } else { all };
            let coverage = self.coverage(document);
            let has_phrase = Fields::from_bits(self.fields[document]).contains(PHRASES);
            sum * (1.0 + NAME_COVERAGE * if has_phrase { coverage.powi(2) } else { coverage })
        };
        let mut hits: Vec<Hit> = (0..)
            .zip(&self.fields)
            .filter(|(_, fields)| **fields != 0)
            .map(|(document, fields): (u32, _)| Hit {
                document,
                score: score(document as usize),
                fit: 0.0,
                matched_in: Fields::from_bits(*fields),
            })
            .filter(|hit| hit.score > 0.0)
            .collect();
        let best = hits.iter().map(|hit| hit.score).fold(0.0, f64::max);
        hits.retain(|hit| hit.score >= best * MIN_SHARE_OF_WORDS);
        sort(&mut hits);
        hits
    }
}
