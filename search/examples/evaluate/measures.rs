//! How good a ranking is: the measures of information retrieval, as means over queries, in percent.

use std::fmt;
use std::time::Duration;

/// How many hits are looked at.
pub(crate) const DEPTH: usize = 10;

#[derive(Debug, Default)]
pub(crate) struct Measures {
    ndcg_at_5: Vec<f64>,
    /// At which place, from 0, the first relevant one is.
    first_places: Vec<Option<usize>>,
    recall_at_1: Vec<f64>,
    recall_at_5: Vec<f64>,
    recall_at_10: Vec<f64>,
    seconds: Vec<f64>,
}

impl Measures {
    pub(crate) fn add(&mut self, found: &[String], relevant: &[String], took: Duration) {
        self.ndcg_at_5.push(ndcg(found, relevant, 5));
        self.first_places.push(found.iter().position(|name| relevant.contains(name)));
        self.recall_at_1.push(recall(found, relevant, 1));
        self.recall_at_5.push(recall(found, relevant, 5));
        self.recall_at_10.push(recall(found, relevant, 10));
        self.seconds.push(took.as_secs_f64());
    }

    /// How many queries were asked.
    pub(crate) fn count(&self) -> usize {
        self.seconds.len()
    }

    /// How many queries have a relevant tool among the best `depth`.
    pub(crate) fn any_in(&self, depth: usize) -> usize {
        self.first_places.iter().flatten().filter(|place| **place < depth).count()
    }

    pub(crate) fn ndcg_at_5(&self) -> f64 {
        100.0 * mean(&self.ndcg_at_5)
    }
}

impl fmt::Display for Measures {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:.1}", self.ndcg_at_5())?;
        for values in [&self.recall_at_1, &self.recall_at_5, &self.recall_at_10] {
            write!(formatter, " | {:.1}", 100.0 * mean(values))?;
        }
        write!(formatter, " | {:.3}", 1000.0 * mean(&self.seconds))
    }
}

#[expect(clippy::cast_precision_loss, reason = "a count of queries is far below 2^52")]
pub(crate) fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

/// Normalized discounted cumulative gain with binary relevance (Järvelin and Kekäläinen 2002).
fn ndcg(found: &[String], relevant: &[String], depth: usize) -> f64 {
    let gain = |place: usize| 1.0 / f64::from(u32::try_from(place + 2).expect("a place among ten")).log2();
    let found = found.iter().take(depth).enumerate().filter(|(_, name)| relevant.contains(name));
    let ideal: f64 = (0..relevant.len().min(depth)).map(gain).sum();
    if ideal == 0.0 { 0.0 } else { found.map(|(place, _)| gain(place)).sum::<f64>() / ideal }
}

#[expect(clippy::cast_precision_loss, reason = "a count of tools is far below 2^52")]
fn recall(found: &[String], relevant: &[String], depth: usize) -> f64 {
    let hits = found.iter().take(depth).filter(|name| relevant.contains(name)).count();
    hits as f64 / relevant.len().max(1) as f64
}
