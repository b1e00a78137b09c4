//! What the users of well-known APIs say: phrases for their operations, which no description has.
//!
//! A search finds an operation by everyday words only if they were written down. The files of `phrases/` have them for a
//! few large APIs, by what identifies the description and by what it calls each operation. They were written without sight
//! of the requests that measure them, see `docs/search.md`.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;

use crate::Imported;

pub mod drafting;

/// One object each, as [`KnownApi`].
const KNOWN: [&str; 3] = [
    include_str!("../phrases/github.json"),
    include_str!("../phrases/google.json"),
    include_str!("../phrases/magento.json"),
];

/// What is known of an API.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct KnownApi {
    /// How its descriptions are called: [`Imported::id`].
    ids: BTreeSet<String>,
    /// By [`crate::ImportedSubtool::what`].
    operations: BTreeMap<String, Vec<String>>,
}

/// Gives the operations of a well-known API their phrases, except those that have some.
pub(crate) fn add(imported: &mut Imported) {
    for known in KNOWN {
        let known: KnownApi = serde_json::from_str(known).expect("the phrases are checked by a test");
        if !known.ids.contains(&imported.id) {
            continue;
        }
        for subtool in &mut imported.subtools {
            if let Some(phrases) = known.operations.get(&subtool.what) {
                subtool.definition.entry("phrases").or_insert_with(|| phrases.as_slice().into());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_phrase_is_short_and_leads_to_one_operation() {
        for text in KNOWN {
            let known: KnownApi = serde_json::from_str(text).expect("a known API");
            let mut seen = BTreeSet::new();
            for (operation, phrases) in &known.operations {
                assert!((5..=10).contains(&phrases.len()), "{operation}: {} phrases", phrases.len());
                for phrase in phrases {
                    assert!((2..=8).contains(&phrase.split(' ').count()), "{operation}: `{phrase}`");
                    assert!(!phrase.contains("{{") && !phrase.contains("$vars"), "{operation}: `{phrase}`");
                    assert!(seen.insert(phrase), "{operation}: `{phrase}` is said of another operation too");
                }
            }
        }
    }
}
