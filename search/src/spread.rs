//! Spreading the best hits over the clauses of a query: a request with several needs wants a subtool for each, not five
//! for the one whose words are the rarest.
//!
//! Greedy, like maximal marginal relevance (Carbonell and Goldstein 1998): the best hit is taken, and what the others
//! have of their scores from its clauses then counts a little less.

use crate::Hit;

/// What a clause weighs less once the hit that is best for it was taken; half as much for one that is half as good.
const TAKEN_LOSS: f64 = 0.1;
/// How many hits are spread.
const MAX_SPREAD: usize = 20;

/// Lowers the scores of those of the best hits whose clauses have better hits. `clauses` gives what each clause adds to a
/// document. The hits are in their order, and have to be sorted again.
pub(crate) fn spread<'a>(hits: &mut [Hit], clauses: impl Fn(u32) -> &'a [f32]) {
    let count = hits.len().min(MAX_SPREAD);
    let (hits, rest) = hits.split_at_mut(count);
    let sums: Vec<&[f32]> = hits.iter().map(|hit| clauses(hit.document)).collect();
    let columns = sums.first().map_or(0, |sums| sums.len());
    let best: Vec<f32> =
        (0..columns).map(|clause| sums.iter().map(|sums| sums[clause]).fold(f32::EPSILON, f32::max)).collect();
    let mut weights = vec![1.0; columns];
    let mut left: Vec<usize> = (0..count).collect();
    while !left.is_empty() {
        let mut taken = (0, f64::MIN);
        for (place, number) in left.iter().enumerate() {
            let score = hits[*number].score * kept(sums[*number], &weights);
            if score > taken.1 {
                taken = (place, score);
            }
        }
        let number = left.remove(taken.0);
        hits[number].score = taken.1;
        for ((weight, sum), best) in weights.iter_mut().zip(sums[number]).zip(&best) {
            *weight *= 1.0 - TAKEN_LOSS * f64::from(sum / best);
        }
    }
    // As if they had been compared, too, so that none of them comes before its betters.
    for hit in rest {
        hit.score *= kept(clauses(hit.document), &weights);
    }
}

/// The share of a document's sums that is left with these weights of the clauses.
fn kept(sums: &[f32], weights: &[f64]) -> f64 {
    let all: f64 = sums.iter().copied().map(f64::from).sum();
    let weighted: f64 = sums.iter().zip(weights).map(|(sum, weight)| f64::from(*sum) * weight).sum();
    if all > 0.0 { weighted / all } else { 1.0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Fields;

    #[test]
    fn a_hit_for_another_clause_comes_before_the_second_one_for_the_same() {
        let hit = |document, score| Hit { document, score, fit: 0.0, matched_in: Fields::default() };
        let mut hits = [hit(0, 10.0), hit(1, 9.5), hit(2, 9.0), hit(3, 1.0)];
        let sums: [&[f32]; 4] = [&[4.0, 0.0], &[4.0, 0.0], &[0.0, 3.0], &[0.0, 0.0]];
        spread(&mut hits, |document| sums[document as usize]);
        assert_eq!(hits.map(|hit| format!("{:.2}", hit.score)), ["10.00", "8.55", "9.00", "1.00"]);
        spread(&mut [], |document| sums[document as usize]);
    }
}
