//! Evaluates the ranking on public retrieval sets, beside SQLite FTS5 in the same run.
//!
//! ```text
//! cargo run --release -p agent-magic-tool-search --example evaluate -- FOLDER...
//! ```
//!
//! A folder has a `tools.jsonl` of `{name, description, input}`, one or more `queries*.jsonl` of `{id, query, relevant}`,
//! and perhaps a `phrases.jsonl` of `{name, phrases}`. The data is not part of this repository: docs/search.md says
//! where it is from. On the tuning sets constants were chosen; only the report sets say how good the ranking is.
#![expect(clippy::print_stdout, reason = "a program for developers, which prints a table")]

use std::collections::HashMap;
use std::path::Path;
use std::time::Instant;

use search::{Document, Index, IndexWriter, LearnedRequests, words_of_request};

use crate::fts5::Fts5;
use crate::measures::Measures;
use crate::sets::{Folder, Question, Role};

mod fts5;
mod measures;
mod sets;

fn main() {
    let (options, folders): (Vec<String>, Vec<String>) =
        std::env::args().skip(1).partition(|argument| argument.starts_with("--"));
    if folders.is_empty() {
        println!("usage: evaluate [--own] FOLDER...");
        return;
    }
    // Only our own search, which takes seconds where FTS5 takes minutes.
    let is_own = options.iter().any(|option| option == "--own");
    println!("| set | role | search | queries | NDCG@5 | NDCG@10 | R@1 | R@5 | R@10 | ms a query |");
    println!("|---|---|---|---|---|---|---|---|---|---|");
    let mut means: HashMap<(&str, bool), Vec<f64>> = HashMap::new();
    for folder in folders.iter().map(|folder| Folder::read(Path::new(folder))) {
        let plain = index(&folder, false);
        let with_phrases = folder.tools.iter().any(|tool| !tool.phrases.is_empty()).then(|| index(&folder, true));
        let fts5 = Fts5::new(&folder.tools);
        for set in &folder.sets {
            let mut show = |search: &'static str, measured: Measures| {
                println!("| {} | {} | {search} | {measured} |", set.name, set.role);
                means.entry((search, set.role == Role::Tuning)).or_default().push(measured.ndcg_at_5());
            };
            show("own", run(&set.questions, |query| own(&plain, query, &LearnedRequests::default())));
            if let Some(index) = &with_phrases {
                show("own, phrases", run(&set.questions, |query| own(index, query, &LearnedRequests::default())));
            }
            if !is_own {
                show("FTS5", run(&set.questions, |query| fts5.search(query)));
            }
            if set.name.ends_with("metatool/queries") {
                for requests in [0, 1, 3, 5] {
                    let (recorded, questions) = history(&set.questions, requests);
                    let learned = recorded.iter().map(|(name, words)| (name.as_str(), words.as_str()));
                    let learned = LearnedRequests::new(learned);
                    let measured = run(&questions, |query| own(&plain, query, &learned));
                    println!("| {} | {} | own, {requests} past requests a tool | {measured} |", set.name, set.role);
                }
            }
        }
    }
    let mut means: Vec<_> = means.into_iter().collect();
    means.sort_by_key(|((search, is_tuning), _)| (*is_tuning, *search));
    for ((search, is_tuning), values) in means {
        let role = if is_tuning { Role::Tuning } else { Role::Report };
        println!("mean NDCG@5 over {} sets ({role}), {search}: {:.2}", values.len(), measures::mean(&values));
    }
}

fn index(folder: &Folder, has_phrases: bool) -> Index {
    let mut writer = IndexWriter::new(Vec::new()).expect("memory");
    let begun = Instant::now();
    for tool in &folder.tools {
        let document = Document {
            name: &tool.name,
            description: &tool.description,
            phrases: if has_phrases { &tool.phrases } else { &[] },
            tags: &[],
            input: &tool.input,
        };
        writer.add(&document, &[]).expect("memory");
    }
    let bytes = writer.finish(&[]).expect("memory");
    eprintln_progress(&format!("{} tools: {} KiB in {:?}", folder.tools.len(), bytes.len() >> 10, begun.elapsed()));
    Index::from_bytes(bytes).expect("just written")
}

#[expect(clippy::print_stderr, reason = "keeps the table clean")]
fn eprintln_progress(text: &str) {
    eprintln!("{text}");
}

fn own(index: &Index, query: &str, learned: &LearnedRequests<'_>) -> Vec<String> {
    let hits = index.search(query, learned).expect("an index in memory");
    hits.iter().take(measures::DEPTH).map(|hit| index.name(hit.document).expect("an index in memory")).collect()
}

fn run(questions: &[Question], search: impl Fn(&str) -> Vec<String>) -> Measures {
    let mut measures = Measures::default();
    for question in questions {
        let begun = Instant::now();
        let found = search(&question.query);
        measures.add(&found, &question.relevant, begun.elapsed());
    }
    measures
}

/// Takes `requests` queries of each tool as its past, and asks the later half of all.
fn history(questions: &[Question], requests: usize) -> (Vec<(String, String)>, Vec<Question>) {
    let mut of_tool: HashMap<&str, Vec<&Question>> = HashMap::new();
    for question in questions.iter().filter(|question| question.relevant.len() == 1) {
        of_tool.entry(&question.relevant[0]).or_default().push(question);
    }
    let (mut recorded, mut asked) = (Vec::new(), Vec::new());
    for (tool, questions) in of_tool {
        let half = questions.len() / 2;
        let past = questions[..half].iter().take(requests);
        recorded.extend(past.map(|question| (tool.to_owned(), words_of_request(&question.query))));
        asked.extend(questions[half..].iter().map(|question| (*question).clone()));
    }
    (recorded, asked)
}
