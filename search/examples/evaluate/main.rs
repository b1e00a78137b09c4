//! Evaluates the ranking on public retrieval sets, beside SQLite FTS5 in the same run: each set alone, and with the packs
//! that ship beside it, as a user has them.
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

use search::{Index, LearnedRequests, words_of_request};

use crate::fts5::Fts5;
use crate::measures::Measures;
use crate::sets::{Folder, Packs, Question, Requests, Role};

mod fts5;
mod measures;
mod own;
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
    println!("| set | role | search | queries | NDCG@5 alone | NDCG@5 beside packs | R@1 | R@5 | R@10 | ms a query |");
    println!("|---|---|---|---|---|---|---|---|---|---|");
    let mut means: HashMap<(&str, bool), [Vec<f64>; 2]> = HashMap::new();
    for folder in folders.iter().map(|folder| Folder::read(Path::new(folder))) {
        let catalogs = [folder.tools.clone(), folder.beside(&sets::shipped(Packs::Installed))];
        let plain = catalogs.each_ref().map(|tools| own::index(tools, false));
        let has_phrases = folder.tools.iter().any(|tool| !tool.phrases.is_empty());
        let with_phrases = has_phrases.then(|| catalogs.each_ref().map(|tools| own::index(tools, true)));
        let fts5 = (!is_own).then(|| catalogs.each_ref().map(|tools| Fts5::new(tools)));
        for set in &folder.sets {
            let mut show = |search: &'static str, [alone, beside]: [Measures; 2]| {
                let both = (alone.ndcg_at_5(), beside.ndcg_at_5());
                println!("| {} | {} | {search} | {} | {:.1} | {beside} |", set.name, set.role, beside.count(), both.0);
                let [mean_alone, mean_beside] = means.entry((search, set.role == Role::Tuning)).or_default();
                mean_alone.push(both.0);
                mean_beside.push(both.1);
            };
            let ask = |index| own::run(&set.questions, |query| own::search(index, query, &LearnedRequests::default()));
            show("own", plain.each_ref().map(ask));
            if let Some(indexes) = &with_phrases {
                show("own, phrases", indexes.each_ref().map(ask));
            }
            if let Some(indexes) = &fts5 {
                show("FTS5", indexes.each_ref().map(|fts5| own::run(&set.questions, |query| fts5.search(query))));
            }
            if set.name.ends_with("metatool/queries") {
                for requests in [0, 1, 3, 5] {
                    let (recorded, questions) = history(&set.questions, requests);
                    let learned = recorded.iter().map(|(name, words)| (name.as_str(), words.as_str()));
                    let learned = LearnedRequests::new(learned);
                    let [alone, beside] =
                        plain.each_ref().map(|index| own::run(&questions, |query| own::search(index, query, &learned)));
                    let (what, alone) = (format!("own, {requests} past requests a tool"), alone.ndcg_at_5());
                    println!("| {} | {} | {what} | {} | {alone:.1} | {beside} |", set.name, set.role, beside.count());
                }
            }
        }
    }
    let mut means: Vec<_> = means.into_iter().collect();
    means.sort_by_key(|((search, is_tuning), _)| (*is_tuning, *search));
    for ((search, is_tuning), [alone, beside]) in means {
        let role = if is_tuning { Role::Tuning } else { Role::Report };
        let (count, alone, beside) = (alone.len(), measures::mean(&alone), measures::mean(&beside));
        println!("mean NDCG@5 over {count} sets ({role}), {search}: {alone:.2} alone, {beside:.2} beside packs");
    }
    print_requests();
    for folder in folders {
        print_requests_beside(&folder);
    }
}

/// Prints how many of the requests for what ships find it.
fn print_requests() {
    println!();
    println!("| requests for what ships | catalog | language | requests | first | among three | among ten | NDCG@5 |");
    println!("|---|---|---|---|---|---|---|---|");
    for packs in [Packs::WithModels, Packs::All] {
        let shipped = sets::shipped(packs);
        let index = own::index(&shipped, true);
        for requests in sets::requests(packs) {
            print_row(&index, &requests, &packs.to_string());
        }
        let names = Requests { name: "names".to_owned(), language: "en", questions: sets::names_as_words(&shipped) };
        print_row(&index, &names, &packs.to_string());
    }
}

/// Prints the same beside the tools of a folder, which have no phrases: what the packs lose to them. Then how many of the
/// folder's own queries find a right tool that has phrases, such as those that are imported.
fn print_requests_beside(folder: &str) {
    let folder = Folder::read(Path::new(folder));
    let shipped = sets::shipped(Packs::WithModels);
    let has_phrases = folder.tools.iter().any(|tool| !tool.phrases.is_empty());
    let index = own::index(&folder.beside(&shipped), has_phrases);
    let beside = format!("with models, beside {} tools", folder.tools.len());
    for requests in sets::requests(Packs::WithModels) {
        print_row(&index, &requests, &beside);
    }
    if has_phrases {
        let index = own::index(&folder.beside(&sets::shipped(Packs::Installed)), true);
        let names =
            Requests { name: "names".to_owned(), language: "en", questions: sets::names_as_words(&folder.tools) };
        print_row(&index, &names, &beside);
        for set in folder.sets {
            let requests = Requests { name: set.name, language: "en", questions: set.questions };
            print_row(&index, &requests, "as installed, with phrases");
        }
    }
}

fn print_row(index: &Index, Requests { name, language, questions }: &Requests, catalog: &str) {
    let measured = own::run(questions, |query| own::search(index, query, &LearnedRequests::default()));
    let (count, places) = (questions.len(), [1, 3, 10].map(|depth| measured.any_in(depth).to_string()).join(" | "));
    println!("| {name} | {catalog} | {language} | {count} | {places} | {:.1} |", measured.ndcg_at_5());
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
