//! What `list` says beside the listing: what was left out, and what to do about a poor match.

use listing::Listing;
use listing::problem::left_out;
use protocol::mailbox::Mailbox;
use protocol::wording::quoted;
use search::{MatchedWords, Unusable};

use super::{Detail, Line, ListQuery, ListingPage, packs};
use crate::context::Context;

/// The subtool that asks the user.
const ASK_USER: &str = "ask_user";
const REMIND: [&str; 5] = ["remind", "reminder", "reminders", "erinnern", "erinnerung"];

pub(super) fn of(listed: &ListingPage, selection: &ListQuery<'_>, listing: &Listing) -> Result<Vec<String>, Unusable> {
    let mut notes = Vec::new();
    let lines = &listed.lines;
    if let Some(best) = &listed.best_of_none {
        notes.push(no_close_match(best));
    }
    let (is_read, is_query) = (selection.format.is_read(), selection.query.is_some());
    let is_brief = |line: &Line| line.detail != Detail::Schema;
    let mut to_see_more = Vec::new();
    if is_read && listed.is_cut && !is_query {
        to_see_more.push("large inputs are shortened; whole: agent-magic-tool list tools NAME --full".to_owned());
    } else if is_read && (listed.is_cut || lines.iter().any(is_brief)) {
        to_see_more.push("all parameters: list tools NAME".to_owned());
    }
    let more = listed.total - lines.len();
    if more > 0 && listed.best_of_none.is_none() {
        to_see_more.push(format!("{more} more: --limit N{}", if is_query { ", or other words" } else { "" }));
    }
    if !to_see_more.is_empty() {
        notes.push(to_see_more.join("; "));
    }
    if is_read && is_query && !lines.is_empty() && is_new(selection.context) {
        notes.push("to run one: agent-magic-tool run NAME key=value --wait".to_owned());
    }
    if more > 0 && !is_query && selection.pack.is_none() && listing.groups().len() > 1 {
        notes.push("what there is, in groups: agent-magic-tool list packs".to_owned());
    }
    if let Some(query) = selection.query.filter(|query| asks_for_later(query)) {
        let can_ask = selection.rights.cover_name(listing, ASK_USER)?;
        notes.push(if can_ask && has_word(query, &REMIND) {
            format!("to remind the user: agent-magic-tool run {ASK_USER} question=\"...\" --at=09:00, or --in=2h")
        } else {
            "any subtool can be started later: agent-magic-tool run NAME key=value --at=09:00, or --in=2h".to_owned()
        });
    }
    if selection.query.is_some_and(asks_for_history) {
        notes.push("what was run: agent-magic-tool tasks".to_owned());
    }
    if listed.writers > 0 {
        notes.push(format!(
            "left out {} that change something: this session is read-only (AGENT_MAGIC_TOOL_READ_ONLY)",
            listed.writers
        ));
    } else if lines.is_empty()
        && let Some((pattern, _)) = &selection.pack
        && packs::usable(listing, &selection.rights, selection.caller())?
            .iter()
            .all(|group| !selection.is_of_pack(&group.name))
    {
        notes.push(format!("there is no pack `{pattern}`; see: agent-magic-tool list packs"));
    } else if let Some(query) = selection.query.filter(|_| lines.is_empty()) {
        notes.push(no_match(query, selection, listing)?);
    }
    // Who may use a part is told nothing of the rest.
    let problems = if selection.rights.are_all() { listing.problems() } else { &[] };
    notes.extend(left_out(problems).map(|left_out| format!("{left_out}; see: agent-magic-tool lint")));
    Ok(notes)
}

/// Whether nothing was run yet, by someone who does not know how from the description of the one tool.
fn is_new(context: &Context) -> bool {
    let has_run = || Mailbox::open(&context.paths.mailbox).is_ok_and(|mailbox| mailbox.has_results());
    !context.stdin.is_of_model() && !has_run()
}

/// Whether the query is about starting something at a later time, which is an option of `run` and not a subtool.
fn asks_for_later(query: &str) -> bool {
    const WORDS: [&str; 8] = ["schedule", "scheduled", "scheduling", "later", "delay", "delayed", "timer", "cron"];
    has_word(query, &WORDS) || has_word(query, &REMIND)
}

/// Whether the query is about what was run before, which is a command and not a subtool.
fn asks_for_history(query: &str) -> bool {
    let has = |words: &[&str]| has_word(query, words);
    has(&["ran", "runs", "executions", "executed"])
        || (has(&["history", "list", "past"]) && has(&["task", "tasks", "run", "call", "calls"]))
}

fn has_word(query: &str, words: &[&str]) -> bool {
    let mut of_query = query.split(|it: char| !it.is_alphanumeric());
    of_query.any(|word| words.contains(&word.to_lowercase().as_str()))
}

/// Says that even the best hit, which has these words, probably is not what was wanted.
fn no_close_match(matched: &MatchedWords) -> String {
    let lacks = if matched.missing.is_empty() { String::new() } else { format!(", not {}", quoted(&matched.missing)) };
    let found = if matched.found.is_empty() { "a part of a word".to_owned() } else { quoted(&matched.found) };
    let place = if matched.is_only_in_schema { " in the description of a parameter" } else { "" };
    format!("no close match: the best one has only {found}{place}{lacks}; perhaps there is no such subtool")
}

/// Says what there is instead.
fn no_match(query: &str, selection: &ListQuery<'_>, listing: &Listing) -> Result<String, Unusable> {
    /// More would be a listing of their own.
    const MAX_NAMED: usize = 12;
    let groups = packs::usable(listing, &selection.rights, selection.caller())?;
    let mut named: Vec<_> = groups.iter().take(MAX_NAMED).map(|group| packs::title(&group.name)).collect();
    named.sort_unstable();
    let more = match groups.len().saturating_sub(MAX_NAMED) {
        0 => String::new(),
        more => format!(" and {more} more (agent-magic-tool list packs)"),
    };
    // A caller who writes in a script that no word list knows cannot know that the words must be English ones.
    let language = match (listing.is_english() && !groups.is_empty(), query.is_ascii()) {
        (true, true) => "",
        (true, false) => " Their descriptions are in English, so search in English.",
        (false, _) => " Search in the language of their descriptions.",
    };
    Ok(format!("no close match. There are subtools for: {}{more}.{language}", named.join(", ")))
}
