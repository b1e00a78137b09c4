//! Pairs of subtools that a model cannot tell apart.

use std::collections::BTreeSet;

use search::{Document, Index, IndexWriter, LearnedRequests, Unusable};
use serde_json::Map;

use super::{Finding, LintScope, warning};
use crate::catalog::{Catalog, Subtool};

/// Two subtools tie if the lower score is at least this share of the higher one.
const MIN_TIE_RATIO: f64 = 0.98;

/// Warns about two subtools that the description of one finds equally well, if neither says how it differs.
pub(super) fn check(catalog: &Catalog, scope: &LintScope, findings: &mut Vec<Finding>) {
    if let Err(error) = find(catalog, scope, findings) {
        tracing::warn!(%error, "failed to compare the descriptions");
    }
}

fn find(catalog: &Catalog, scope: &LintScope, findings: &mut Vec<Finding>) -> Result<(), Unusable> {
    let subtools: Vec<_> = catalog.subtools().collect();
    let index = index(&subtools)?;
    let mut reported = BTreeSet::new();
    for (number, described) in (0_u32..).zip(&subtools) {
        let hits = index.search(&described.definition.description, &LearnedRequests::default())?;
        let Some(own) = hits.iter().find(|hit| hit.document == number).map(|hit| hit.score) else { continue };
        for rival in hits.iter().filter(|hit| hit.document != number && hit.score >= own * MIN_TIE_RATIO) {
            let found = subtools[rival.document as usize];
            let pair = (number.min(rival.document), number.max(rival.document));
            if contrasts(described, found) || contrasts(found, described) || !reported.insert(pair) {
                continue;
            }
            let (one, other) = if scope.covers_subtool(described) { (*described, found) } else { (found, *described) };
            if !scope.covers_subtool(one) {
                continue;
            }
            let message = format!(
                "the description of `{}` finds `{}` just as well; say in one of the two what it is not for, like \
                 `NOT {}`",
                described.name, found.name, other.name
            );
            findings.push(warning(one, "tie", "description", message));
        }
    }
    Ok(())
}

/// The names and descriptions alone: what a model chooses by.
fn index(subtools: &[&Subtool]) -> Result<Index, Unusable> {
    let mut writer = IndexWriter::new(Vec::new())?;
    let input = Map::new();
    for subtool in subtools {
        let (name, description) = (subtool.name.as_str(), subtool.definition.description.as_str());
        writer.add(&Document { name, description, phrases: &[], tags: &[], input: &input }, &[])?;
    }
    Index::from_bytes(writer.finish(&[])?)
}

fn contrasts(one: &Subtool, other: &Subtool) -> bool {
    one.definition.description.contains(&format!("NOT {}", other.name))
}
