//! Our own search over the tools of a set, in memory.

use std::time::Instant;

use search::{Document, Index, IndexWriter, LearnedRequests};

use crate::measures::{DEPTH, Measures};
use crate::sets::{Question, Tool};

/// An index of `tools`.
pub(crate) fn index(tools: &[Tool], has_phrases: bool) -> Index {
    let mut writer = IndexWriter::new(Vec::new()).expect("memory");
    for tool in tools {
        let document = Document {
            name: &tool.name,
            description: &tool.description,
            phrases: if has_phrases || tool.is_shipped { &tool.phrases } else { &[] },
            tags: &tool.tags,
            verb: tool.verb(),
            input: &tool.input,
        };
        writer.add(&document, &[]).expect("memory");
    }
    Index::from_bytes(writer.finish(&[]).expect("memory")).expect("just written")
}

/// The names of the best hits, best first.
pub(crate) fn search(index: &Index, query: &str, learned: &LearnedRequests<'_>) -> Vec<String> {
    let hits = index.search(query, learned).expect("an index in memory");
    hits.iter().take(DEPTH).map(|hit| index.name(hit.document).expect("an index in memory")).collect()
}

/// Asks each question, and measures what `search` finds.
pub(crate) fn run(questions: &[Question], search: impl Fn(&str) -> Vec<String>) -> Measures {
    let mut measures = Measures::default();
    for question in questions {
        let begun = Instant::now();
        let found = search(&question.query);
        measures.add(&found, &question.relevant, begun.elapsed());
    }
    measures
}
