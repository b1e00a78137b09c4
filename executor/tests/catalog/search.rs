//! Search over the packs that are on by default: what people would ask for finds the right subtool.

use std::path::Path;

use catalog::listing_cache;
use catalog::routing;
use listing::Listing;
use search::{LearnedRequests, Unusable};

use crate::packs::default_sources;

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
    listing_cache::read(&default_sources().0, &folder.path().join("cache"), read).expect("a listing")
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

/// The share of the requests whose first hit is right, at least.
const MIN_FIRST: f64 = 0.9;

#[test]
fn the_requests_of_people_in_three_languages_find_the_right_subtool_first() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/routing.jsonl");
    let requests = routing::parse(&std::fs::read_to_string(file).expect("the requests")).expect("requests");
    assert!(requests.len() >= 150);
    for language in ["en", "de", "zh"] {
        let own: Vec<_> =
            requests.iter().filter(|request| request.language.as_deref() == Some(language)).cloned().collect();
        let folder = tempfile::tempdir().expect("a temporary folder");
        let read = |listing: &Listing| routing::evaluate(listing, &own);
        let report = listing_cache::read(&default_sources().0, &folder.path().join("cache"), read).expect("a listing");
        #[expect(clippy::cast_precision_loss, reason = "a count of requests is small")]
        let share = report.first as f64 / report.requests as f64;
        assert!(share >= MIN_FIRST, "{language}: {share} {:#?}", report.wrong);
    }
}
