//! `list`: lists subtools, best match first, with all that a model needs to call one.

use clap::ValueEnum;
use executor::catalog::listing::{Listing, ListingEntry};
use executor::catalog::search::QueryMatch;
use executor::catalog::{Sources, left_out, search};
use executor::config::Config;
use executor::config::secret::Secrets;
use protocol::caller::Caller;
use protocol::code::{Code, Exit};
use protocol::command_names;
use protocol::mailbox::Mailbox;
use protocol::nearest::{did_you_mean, nearest};
use serde::Serialize;
use serde::ser::{SerializeMap as _, Serializer};
use serde_json::json;
use serde_json::value::RawValue;

use crate::context::Context;
use crate::error::Error;
use crate::launch;
use crate::option_value::count;

/// The default limits: enough to choose from, few enough to read.
const LIMIT_WITH_QUERY: usize = 10;
const LIMIT: usize = 20;
/// How many of the hits of a query are listed with their schemas, unless `--full` is given. The others take a line each:
/// a schema is most of what an entry costs.
const MAX_FULL: usize = 3;
/// How many of the subtools beyond the limit the note names.
const MAX_NAMED_BEYOND_LIMIT: usize = 10;
/// What people also call them.
const TOOLS: [&str; 3] = ["tools", "tool", "subtools"];

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// `tools`; with names after it, only those subtools
    #[arg(value_name = "tools [NAME]")]
    what: Vec<String>,
    /// What the subtool should do: two or three words, in the language of the descriptions, usually English
    #[arg(long, short, value_name = "WORDS")]
    query: Option<String>,
    /// List at most this many [default: 10 with a query, 20 without]
    #[arg(long, short, value_name = "N", value_parser = count)]
    limit: Option<usize>,
    /// With a query: the schemas of all hits, not only of the best three
    #[arg(long)]
    full: bool,
    #[arg(long, value_enum, default_value_t = Format::Json)]
    format: Format,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// {name: {description, input}}
    Json,
    /// [name, ...]
    Names,
    /// `OpenAI`'s function-calling format
    Openai,
    /// For reading in a terminal
    Table,
}

/// One line of the listing.
struct Line<'a> {
    entry: &'a ListingEntry,
    has_schema: bool,
    /// Why it cannot run now, and who can change that.
    needs: Option<String>,
}

pub(crate) fn run(args: &Args, context: &Context) -> Result<Exit, Error> {
    let names = names(args)?;
    let config = Config::read(&context.paths)?;
    let listing = Listing::of(&Sources::of(&context.paths, &config), &context.paths.listing());
    let caller = &context.caller;
    let is_hidden = |entry: &ListingEntry| caller.read_only && !entry.is_read_only;
    // An empty query is no query.
    let query = args.query.as_deref().filter(|query| !query.trim().is_empty());
    let mut found: Vec<&ListingEntry> = match query {
        _ if !names.is_empty() => named(&names, &listing, caller)?,
        Some(query) => search::search(query, &listing.entries).iter().map(|hit| &listing.entries[hit.index]).collect(),
        None => listing.entries.iter().collect(),
    };
    found.retain(|entry| caller.tool_scope.covers(&entry.name));
    let matching = found.len();
    found.retain(|entry| !is_hidden(entry));
    let limit = match args.limit {
        Some(limit) => limit,
        None if !names.is_empty() => names.len(),
        None if query.is_some() => LIMIT_WITH_QUERY,
        None => LIMIT,
    };
    let (shown, rest) = found.split_at(limit.min(found.len()));
    let secrets = Secrets::of(&context.paths, &config);
    let full = if args.full || query.is_none() { usize::MAX } else { MAX_FULL };
    let lines: Vec<_> = (0..)
        .zip(shown)
        .map(|(place, entry)| Line { entry, has_schema: place < full, needs: missing_secret(entry, &secrets) })
        .collect();
    print(&lines, args.format, context)?;
    if lines.len() > full && args.format == Format::Json {
        context.output.note("the others' inputs: agent-magic-tool list tools NAME");
    }
    if !rest.is_empty() {
        let names: Vec<_> = rest.iter().take(MAX_NAMED_BEYOND_LIMIT).map(|entry| entry.name.as_str()).collect();
        let more = rest.len() - names.len();
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        context.output.note(&format!("left out by --limit: {}{more}", names.join(", ")));
    }
    if let (Some(query), Some(best)) = (query, found.first()) {
        note_weak_match(&QueryMatch::of(query, best), context);
    }
    if query.is_some_and(asks_for_later) {
        context
            .output
            .note("any subtool can be started later: agent-magic-tool run NAME key=value --at=09:00, or --in=2h");
    }
    if matching > found.len() {
        context.output.note(&format!(
            "left out {} that change something: this session is read-only (AGENT_MAGIC_TOOL_READ_ONLY)",
            matching - found.len()
        ));
    } else if let Some(query) = query.filter(|_| found.is_empty()) {
        note_no_match(query, &listing, caller, context);
    }
    if let Some(left_out) = left_out(&listing.problems) {
        context.output.note(&format!("{left_out}; see: agent-magic-tool lint"));
    }
    if let Ok(mailbox) = Mailbox::open(&context.paths.mailbox) {
        launch::revive(context, &mailbox);
    }
    Ok(Exit::Ok)
}

/// The names after `tools`.
fn names(args: &Args) -> Result<Vec<&str>, Error> {
    match args.what.split_first() {
        None => Ok(Vec::new()),
        Some((what, names)) if TOOLS.contains(&what.as_str()) => Ok(names.iter().map(String::as_str).collect()),
        Some((what, _)) => {
            Err(Error::usage(format!("`list` lists only `tools`, not `{what}`"))
                .hint(command_names::search(&args.what)))
        }
    }
}

/// The entries with these names.
fn named<'a>(names: &[&str], listing: &'a Listing, caller: &Caller) -> Result<Vec<&'a ListingEntry>, Error> {
    let known = || listing.entries.iter().filter(|entry| caller.tool_scope.covers(&entry.name));
    let entry = |name: &&str| {
        known().find(|entry| entry.name == *name).ok_or_else(|| {
            let words: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
            let search = command_names::search(&words);
            let near = nearest(name, known().map(|entry| entry.name.as_str()), 1);
            let hint = did_you_mean(near).map_or_else(|| search.clone(), |hint| format!("{hint} Or search: {search}"));
            Error::new(Code::UnknownSubtool, format!("no subtool named `{name}`")).hint(hint)
        })
    };
    names.iter().map(entry).collect()
}

/// Whether the query is about starting something at a later time, which is an option of `run` and not a subtool.
fn asks_for_later(query: &str) -> bool {
    const WORDS: [&str; 10] =
        ["schedule", "scheduled", "scheduling", "later", "delay", "delayed", "timer", "cron", "remind", "reminder"];
    query.split_whitespace().any(|word| WORDS.contains(&word.to_lowercase().as_str()))
}

fn missing_secret(entry: &ListingEntry, secrets: &Secrets) -> Option<String> {
    let missing = entry.secrets.iter().find(|name| !secrets.is_set(name))?;
    Some(format!("a secret that only the user can set: agent-magic-tool secret set {missing}"))
}

/// Says so if even the best hit probably is not what was wanted.
fn note_weak_match(matched: &QueryMatch, context: &Context) {
    if !matched.is_weak() {
        return;
    }
    let quoted = |words: &[String]| words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ");
    let lacks = if matched.missing.is_empty() { String::new() } else { format!(", not {}", quoted(&matched.missing)) };
    let found = if matched.found.is_empty() { "a part of a word".to_owned() } else { quoted(&matched.found) };
    let place = if matched.is_only_in_schema { " in the description of a parameter" } else { "" };
    context
        .output
        .note(&format!("weak matches: the best one has only {found}{place}{lacks}; perhaps there is no such subtool"));
}

/// Says what there is instead.
fn note_no_match(query: &str, listing: &Listing, caller: &Caller, context: &Context) {
    let usable: Vec<_> = listing
        .entries
        .iter()
        .filter(|entry| caller.tool_scope.covers(&entry.name) && (!caller.read_only || entry.is_read_only))
        .collect();
    let title = |entry: &&ListingEntry| listing.groups.get(entry.group).map(|group| group_title(group));
    let mut groups: Vec<_> = usable.iter().filter_map(title).collect();
    groups.sort_unstable();
    groups.dedup();
    // A caller who writes in another script cannot know that the words must be English ones.
    let is_english = !usable.is_empty() && usable.iter().all(|entry| entry.description.is_ascii());
    let language = match (is_english, query.is_ascii()) {
        (true, true) => "",
        (true, false) => " Their descriptions are in English, so search in English.",
        (false, _) => " Search in the language of their descriptions.",
    };
    context.output.note(&format!("no match. There are subtools for: {}.{language}", groups.join(", ")));
}

/// What the subtools of a pack or file are for.
fn group_title(group: &str) -> &str {
    match group {
        "human" => "asking the user",
        "models" => "asking other models",
        group => group,
    }
}

fn print(lines: &[Line<'_>], format: Format, context: &Context) -> Result<(), Error> {
    match format {
        Format::Json => context.output.json(&ByName(lines)),
        Format::Names => context.output.json(&lines.iter().map(|line| &line.entry.name).collect::<Vec<_>>()),
        Format::Openai => {
            let functions: Vec<_> = lines
                .iter()
                .map(|Line { entry, .. }| {
                    json!({"type": "function", "function": {
                    "name": entry.name, "description": entry.description, "parameters": entry.input}})
                })
                .collect();
            context.output.json(&functions)
        }
        Format::Table => {
            let widest = lines.iter().map(|line| line.entry.name.len()).max().unwrap_or(0);
            let text = |Line { entry, needs, .. }: &Line<'_>| {
                let needs = needs.as_ref().map(|needs| format!(" (needs {needs})")).unwrap_or_default();
                format!("{:widest$}  {}{needs}\n", entry.name, first_sentence(&entry.description))
            };
            context.output.text(&lines.iter().map(text).collect::<String>())
        }
    }
}

fn first_sentence(description: &str) -> &str {
    let line = description.lines().next().unwrap_or_default();
    line.split_once(". ").map_or(line, |(sentence, _)| sentence)
}

/// Serializes as one object keyed by name, in order of relevance.
struct ByName<'a>(&'a [Line<'a>]);

#[derive(Serialize)]
struct ListedTool<'a> {
    description: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    input: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    needs: Option<&'a str>,
}

impl Serialize for ByName<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for Line { entry, has_schema, needs } in self.0 {
            let (description, input) = if *has_schema {
                (&*entry.description, Some(&*entry.input))
            } else {
                (first_sentence(&entry.description), None)
            };
            map.serialize_entry(&entry.name, &ListedTool { description, input, needs: needs.as_deref() })?;
        }
        map.end()
    }
}
