//! Suggests known names for a name that was not found.

use crate::wording::in_backticks;
use std::fmt::Display;

/// Returns the hint "did you mean ...?" for the suggested `names`; `None` without any.
pub fn did_you_mean(names: impl IntoIterator<Item = impl Display>) -> Option<String> {
    let names: Vec<_> = names.into_iter().map(in_backticks).collect();
    (!names.is_empty()).then(|| format!("did you mean {}?", names.join(" or ")))
}

/// Returns at most `count` of `names` that resemble `wanted`, best match first.
pub fn nearest<'a>(wanted: &str, names: impl Iterator<Item = &'a str>, count: usize) -> Vec<String> {
    /// A name with a lower Jaro-Winkler similarity is a different word rather than a typo.
    const MIN_SIMILARITY: f64 = 0.75;
    /// What all words of `wanted` in a name add.
    const SHARED_WORDS: f64 = 0.2;
    /// What a single edit adds to a name that is not short: `list_issue` means `list_issues` rather than `list_issue_comments`.
    const ONE_EDIT: f64 = 0.3;
    const MIN_EDITED_CHARS: usize = 5;
    /// What is longer is no misspelled name, and comparing it would take long.
    const MAX_BYTES: usize = 256;
    if wanted.len() > MAX_BYTES {
        return Vec::new();
    }
    let wanted = wanted.to_lowercase();
    let wanted_sorted = words_sorted(&wanted);
    let mut scored: Vec<_> = names
        .map(|name| {
            let lower = name.to_lowercase();
            let within = if lower.contains(&wanted) || wanted.contains(&lower) { 0.2 } else { 0.0 };
            // `line_start` means `start` rather than `lines`.
            let whole = if words(&lower).all(|word| words(&wanted).any(|known| known == word)) { 0.4 } else { 0.0 };
            // `shop_change` means one of `shop_…`.
            let shared = SHARED_WORDS * share(words(&wanted).map(|word| words(&lower).any(|known| known == word)));
            let as_written = strsim::jaro_winkler(&wanted, &lower);
            // `search_files` means `files_search`.
            let in_any_order = strsim::jaro_winkler(&wanted_sorted, &words_sorted(&lower));
            let is_edited = wanted.len() >= MIN_EDITED_CHARS && strsim::osa_distance(&wanted, &lower) == 1;
            let edited = if is_edited { ONE_EDIT } else { 0.0 };
            (as_written.max(in_any_order) + within + whole + shared + edited, name)
        })
        .filter(|(score, _)| *score >= MIN_SIMILARITY)
        .collect();
    scored.sort_by(|(a, a_name), (b, b_name)| b.total_cmp(a).then(a_name.cmp(b_name)));
    scored.into_iter().take(count).map(|(_, name)| name.to_owned()).collect()
}

fn words(name: &str) -> impl Iterator<Item = &str> {
    name.split(['_', '-'])
}

/// How many of these are true, from 0 to 1.
fn share(found: impl Iterator<Item = bool>) -> f64 {
    let (count, all) = found.fold((0_u32, 0_u32), |(count, all), found| (count + u32::from(found), all + 1));
    f64::from(count) / f64::from(all.max(1))
}

fn words_sorted(name: &str) -> String {
    let mut words: Vec<_> = words(name).collect();
    words.sort_unstable();
    words.join("_")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn typos_find_the_intended_name() {
        let names = ["gmail_search_messages", "gmail_send_message", "git_log", "web_search"];
        assert_eq!(nearest("gmial_search_mesages", names.into_iter(), 1), ["gmail_search_messages"]);
        assert_eq!(nearest("search", names.into_iter(), 1), ["web_search"]);
        assert_eq!(nearest("search_web", names.into_iter(), 1), ["web_search"]);
        assert_eq!(nearest("gitlog", names.into_iter(), 1), ["git_log"]);
        assert_eq!(nearest("line_start", ["path", "start", "lines"].into_iter(), 1), ["start"]);
        let databases = ["drive_channels_stop", "shop_query", "shop_list_tables"];
        assert_eq!(nearest("shop_change", databases.into_iter(), 1), ["shop_query"]);
        let issues = ["github_list_issue_comments", "github_list_issues", "github_list_issue_types"];
        assert_eq!(nearest("github_list_issue", issues.into_iter(), 1), ["github_list_issues"]);
        assert!(nearest("zzz", names.into_iter(), 3).is_empty());
    }

    #[test]
    fn a_hint_names_every_suggestion() {
        assert_eq!(did_you_mean(["a", "b"]).as_deref(), Some("did you mean `a` or `b`?"));
        assert_eq!(did_you_mean(None::<&str>), None);
    }
}
