//! Pairs of subtools that a model cannot tell apart.

use std::collections::BTreeSet;

use catalog::Catalog;
use catalog::listing_cache::verb_of;
use ground::task::name::SubtoolName;
use search::{Document, Index, IndexWriter, LearnedRequests, Unusable, Verb};
use serde_json::Map;

use super::{Finding, LintScope, warning};

/// Two subtools tie if the lower score is at least this share of the higher one.
const MIN_TIE_RATIO: f64 = 0.98;

/// Warns about two subtools that the description of one finds equally well, if neither says how it differs.
pub(super) fn check(catalog: &Catalog, scope: &LintScope, findings: &mut Vec<Finding>) {
    if let Err(error) = find(catalog, scope, findings) {
        tracing::warn!(%error, "failed to compare the descriptions");
    }
}

/// What is compared of a subtool. The others are not kept compiled: there may be tens of thousands.
struct Described {
    name: SubtoolName,
    description: String,
    verb: Option<Verb>,
    is_covered: bool,
}

fn find(catalog: &Catalog, scope: &LintScope, findings: &mut Vec<Finding>) -> Result<(), Unusable> {
    let described: Vec<_> = catalog
        .subtools()
        .map(|subtool| Described {
            name: subtool.name.clone(),
            description: subtool.definition.description.clone(),
            verb: verb_of(&subtool.definition),
            is_covered: scope.covers_subtool(&subtool),
        })
        .collect();
    let index = index(&described)?;
    let mut reported = BTreeSet::new();
    for (number, own) in (0_u32..).zip(&described) {
        let hits = index.search(&own.description, &LearnedRequests::default())?;
        let Some(best) = hits.iter().find(|hit| hit.document == number).map(|hit| hit.score) else { continue };
        for rival in hits.iter().filter(|hit| hit.document != number && hit.score >= best * MIN_TIE_RATIO) {
            let found = &described[rival.document as usize];
            let pair = (number.min(rival.document), number.max(rival.document));
            if contrasts(own, found) || contrasts(found, own) || !reported.insert(pair) {
                continue;
            }
            let (one, other) = if own.is_covered { (own, found) } else { (found, own) };
            let Some(subtool) = catalog.get(one.name.as_str()).filter(|_| one.is_covered) else { continue };
            let message = format!(
                "the description of `{}` finds `{}` just as well; say in one of the two what it is not for, like \
                 `NOT {}`",
                own.name, found.name, other.name
            );
            findings.push(warning(&subtool, "tie", "description", message));
        }
    }
    Ok(())
}

/// The names and descriptions alone: what a model chooses by.
fn index(described: &[Described]) -> Result<Index, Unusable> {
    let mut writer = IndexWriter::new(Vec::new())?;
    let input = Map::new();
    for Described { name, description, verb, .. } in described {
        let name = name.as_str();
        writer.add(&Document { name, description, phrases: &[], tags: &[], verb: *verb, input: &input }, &[])?;
    }
    Index::from_bytes(writer.finish(&[])?)
}

fn contrasts(one: &Described, other: &Described) -> bool {
    one.description.contains(&format!("NOT {}", other.name))
}
