//! Pairs of subtools that a model cannot tell apart.

use std::collections::BTreeSet;

use serde_json::Map;

use super::{Finding, LintScope, warning};
use crate::catalog::listing::ListingEntry;
use crate::catalog::{Catalog, Subtool, search};

/// Two subtools tie if the lower score is at least this share of the higher one.
const MIN_TIE_RATIO: f64 = 0.98;

/// Warns about two subtools that the description of one finds equally well, if neither says how it differs.
pub(super) fn check(catalog: &Catalog, scope: &LintScope, findings: &mut Vec<Finding>) {
    let subtools: Vec<_> = catalog.subtools().collect();
    let entries: Vec<_> = subtools
        .iter()
        .map(|subtool| ListingEntry::new(subtool.name.as_str(), &subtool.definition.description, &Map::new(), &[]))
        .collect();
    let mut reported = BTreeSet::new();
    for (index, entry) in entries.iter().enumerate() {
        let hits = search::search(&entry.description, &entries);
        let Some(own) = hits.iter().find(|hit| hit.index == index).map(|hit| hit.score) else { continue };
        for rival in hits.iter().filter(|hit| hit.index != index && hit.score >= own * MIN_TIE_RATIO) {
            let (described, found) = (&*subtools[index], &*subtools[rival.index]);
            let pair = (index.min(rival.index), index.max(rival.index));
            if contrasts(described, found) || contrasts(found, described) || !reported.insert(pair) {
                continue;
            }
            let (one, other) = if scope.covers_subtool(described) { (described, found) } else { (found, described) };
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
}

fn contrasts(one: &Subtool, other: &Subtool) -> bool {
    one.definition.description.contains(&format!("NOT {}", other.name))
}
