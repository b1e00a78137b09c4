//! Search over the shipped packs: a natural query finds the right subtool first.

use executor::catalog::listing::{Listing, ListingEntry};
use executor::catalog::search::search;

use crate::packs::shipped_sources;

/// The names that `query` finds, best first.
fn found<'a>(query: &str, entries: &'a [ListingEntry]) -> Vec<&'a str> {
    search(query, entries).into_iter().map(|hit| entries[hit.index].name.as_str()).collect()
}

#[test]
fn a_natural_query_finds_the_right_subtool_first() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let entries = Listing::of(&shipped_sources().0, &folder.path().join("cache")).entries;
    let mut wrong = Vec::new();
    for (query, best) in [
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
    ] {
        let names = found(query, &entries);
        if names.first() != Some(&best) {
            wrong.push(format!("{query}: found {names:?}, expected {best} first"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    let names = found("gmail", &entries);
    assert!(names.len() == 7 && names.iter().all(|name| name.starts_with("gmail_")), "{names:?}");
}
