//! Phrases: what users say is what a search is asked, and descriptions rarely have those words.

use std::collections::{BTreeMap, BTreeSet};

use super::{Finding, Level};
use catalog::Subtool;

/// A file with more subtools without phrases gets one finding for all of them.
const MAX_SINGLE_FINDINGS: usize = 3;

const ADVICE: &str = "add what users say when they want it, in the languages that they speak, like \
                      \"phrases\": [\"who wrote this line\", \"wer hat das geschrieben\"]";

const DRAFT: &str = "for what was imported a model can draft them: agent-magic-tool import --refresh FILE --phrases";

/// The subtools without phrases, by file.
#[derive(Default)]
pub(super) struct MissingPhrases(BTreeMap<String, Vec<String>>);

impl MissingPhrases {
    pub(super) fn note(&mut self, subtool: &Subtool) {
        if subtool.definition.phrases.is_empty() {
            self.0.entry(subtool.origin.to_string()).or_default().push(subtool.name.as_str().to_owned());
        }
    }

    /// Asks for them, in files with no other finding: advice comes once nothing is wrong.
    pub(super) fn add_to(self, findings: &mut Vec<Finding>) {
        let busy: BTreeSet<String> = findings.iter().map(|finding| finding.file.clone()).collect();
        for (file, names) in self.0.into_iter().filter(|(file, _)| !busy.contains(file)) {
            let finding = |subtool: Option<String>, message: String| Finding {
                level: Level::Advice,
                code: "no-phrases",
                file: file.clone(),
                line: None,
                subtool,
                place: None,
                message,
            };
            if names.len() <= MAX_SINGLE_FINDINGS {
                let each = names.into_iter().map(|name| finding(Some(name), format!("it has no phrases; {ADVICE}")));
                findings.extend(each);
            } else {
                let message = format!("{} subtools of this file have no phrases; {ADVICE}; {DRAFT}", names.len());
                findings.push(finding(None, message));
            }
        }
    }
}
