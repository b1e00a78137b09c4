//! Search over the shipped packs: what people would ask for finds the right subtool.

use std::collections::BTreeMap;
use std::path::Path;

use executor::catalog::listing::Listing;
use search::{LearnedRequests, Unusable};
use serde::Deserialize;

use crate::packs::shipped_sources;

/// The names that each of `queries` finds, best first.
fn found<T: AsRef<str>>(queries: &[T]) -> Vec<Vec<String>> {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let read = |listing: &Listing| -> Result<Vec<Vec<String>>, Unusable> {
        let names = |query: &T| {
            let hits = listing.search(query.as_ref(), &LearnedRequests::default())?;
            hits.iter().map(|hit| listing.name(hit.document)).collect()
        };
        queries.iter().map(names).collect()
    };
    Listing::read(&shipped_sources().0, &folder.path().join("cache"), read).expect("a listing")
}

#[test]
fn a_natural_query_finds_the_right_subtool_first() {
    let queries = [
        ("search text in files", "files_search"),
        ("where is this function defined", "files_search"),
        ("send an email", "gmail_send_message"),
        ("reply to an email", "gmail_send_message"),
        ("find emails about the invoice", "gmail_search_messages"),
        ("archive a message", "gmail_modify_labels"),
        ("what changed in git", "git_diff"),
        ("who wrote this line", "git_blame"),
        ("commits of last week", "git_log"),
        ("how many open issues", "github_list_issues"),
        ("create an issue", "github_create_issue"),
        ("look something up on the internet", "web_search"),
        ("download a web page", "fetch_url"),
        ("read a file", "files_read"),
        ("which files are in this folder", "files_list"),
    ];
    let found = found(&queries.map(|(query, _)| query));
    let is_wrong =
        |((_, best), names): &(&(&str, &str), &Vec<String>)| names.first().map(String::as_str) != Some(*best);
    let wrong: Vec<_> = queries.iter().zip(&found).filter(is_wrong).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn a_name_finds_its_whole_family() {
    let names = &found(&["gmail"])[0];
    assert!(names.len() == 7 && names.iter().all(|name| name.starts_with("gmail_")), "{names:?}");
}

/// What one person would ask for, and which subtools do it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Request {
    query: String,
    language: String,
    subtools: Vec<String>,
}

/// The share of the requests whose first hit is right, at least.
const MIN_FIRST: f64 = 0.9;

#[test]
fn the_requests_of_people_in_three_languages_find_the_right_subtool_first() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/routing.jsonl");
    let text = std::fs::read_to_string(file).expect("the requests");
    let requests: Vec<Request> = text.lines().map(|line| serde_json::from_str(line).expect("a request")).collect();
    let found = found(&requests.iter().map(|request| &request.query).collect::<Vec<_>>());
    let mut rates: BTreeMap<&str, (f64, f64)> = BTreeMap::new();
    let mut wrong = Vec::new();
    for (request, names) in requests.iter().zip(&found) {
        let is_right = names.first().is_some_and(|name| request.subtools.contains(name));
        for key in [request.language.as_str(), "all"] {
            let (right, all) = rates.entry(key).or_default();
            *right += f64::from(u8::from(is_right));
            *all += 1.0;
        }
        if !is_right {
            wrong.push(format!(
                "{}: {:?}, wanted {:?}",
                request.query,
                names.iter().take(3).collect::<Vec<_>>(),
                request.subtools
            ));
        }
    }
    let (right, all) = rates["all"];
    assert!(requests.len() >= 150 && right / all >= MIN_FIRST, "{rates:?}\n{wrong:#?}");
}
