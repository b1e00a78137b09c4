//! `list`: lists subtools, best match first, with all that a model needs to call one.

use clap::ValueEnum;
use executor::catalog::listing::{Listing, ListingEntry};
use executor::catalog::{Sources, search};
use executor::config::Config;
use protocol::code::Exit;
use protocol::mailbox::Mailbox;
use serde::Serialize;
use serde::ser::{SerializeMap as _, Serializer};
use serde_json::json;
use serde_json::value::RawValue;

use crate::context::Context;
use crate::error::Error;
use crate::launch;

/// The default limits: enough to choose from, few enough to read.
const LIMIT_WITH_QUERY: usize = 10;
const LIMIT: usize = 20;
/// How many of the subtools beyond the limit the note names.
const MAX_NAMED_BEYOND_LIMIT: usize = 10;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// What to list: `tools`
    #[arg(value_name = "tools", default_value = "tools", hide_default_value = true)]
    what: String,
    /// What the subtool should do, in your own words
    #[arg(long, short, value_name = "WORDS")]
    query: Option<String>,
    /// List at most this many [default: 10 with a query, 20 without]
    #[arg(long, short, value_name = "N")]
    limit: Option<usize>,
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

pub(crate) fn run(args: &Args, context: &Context) -> Result<Exit, Error> {
    if args.what != "tools" {
        return Err(Error::usage(format!("`list` lists only `tools`, not `{}`", args.what))
            .hint(format!("agent-magic-tool list tools --query={:?}", args.what)));
    }
    let config = Config::read(&context.paths)?;
    let listing = Listing::of(&Sources::of(&context.paths, &config), &context.paths.listing());
    let mut found: Vec<&ListingEntry> = match &args.query {
        Some(query) => search::search(query, &listing.entries).iter().map(|hit| &listing.entries[hit.index]).collect(),
        None => listing.entries.iter().collect(),
    };
    let tool_scope = &context.caller.tool_scope;
    found.retain(|entry| tool_scope.covers(&entry.name));
    let limit = args.limit.unwrap_or(if args.query.is_some() { LIMIT_WITH_QUERY } else { LIMIT });
    let (shown, rest) = found.split_at(limit.min(found.len()));
    print(shown, args.format, context)?;
    if !rest.is_empty() {
        let names: Vec<_> = rest.iter().take(MAX_NAMED_BEYOND_LIMIT).map(|entry| entry.name.as_str()).collect();
        let more = rest.len() - names.len();
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        context.output.note(&format!("left out by --limit: {}{more}", names.join(", ")));
    }
    if found.is_empty() && args.query.is_some() {
        context.output.note(&format!(
            "none of the {} subtools matches; try other words, or list without --query",
            listing.entries.iter().filter(|entry| tool_scope.covers(&entry.name)).count()
        ));
    }
    if !listing.problems.is_empty() {
        context
            .output
            .note(&format!("failed to load {} definitions; see: agent-magic-tool lint", listing.problems.len()));
    }
    if let Ok(mailbox) = Mailbox::open(&context.paths.mailbox) {
        launch::revive(&context.paths, &mailbox);
    }
    Ok(Exit::Ok)
}

fn print(shown: &[&ListingEntry], format: Format, context: &Context) -> Result<(), Error> {
    match format {
        Format::Json => context.output.json(&ByName(shown)),
        Format::Names => context.output.json(&shown.iter().map(|entry| &entry.name).collect::<Vec<_>>()),
        Format::Openai => {
            let functions: Vec<_> = shown
                .iter()
                .map(|entry| {
                    json!({"type": "function", "function": {
                    "name": entry.name, "description": entry.description, "parameters": entry.input}})
                })
                .collect();
            context.output.json(&functions)
        }
        Format::Table => {
            let widest = shown.iter().map(|entry| entry.name.len()).max().unwrap_or(0);
            let line =
                |entry: &&ListingEntry| format!("{:widest$}  {}\n", entry.name, first_sentence(&entry.description));
            context.output.text(&shown.iter().map(line).collect::<String>())
        }
    }
}

fn first_sentence(description: &str) -> &str {
    let line = description.lines().next().unwrap_or_default();
    line.split_once(". ").map_or(line, |(sentence, _)| sentence)
}

/// Serializes as one object keyed by name, in order of relevance.
struct ByName<'a>(&'a [&'a ListingEntry]);

#[derive(Serialize)]
struct ListedTool<'a> {
    description: &'a str,
    input: &'a RawValue,
}

impl Serialize for ByName<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for entry in self.0 {
            map.serialize_entry(&entry.name, &ListedTool { description: &entry.description, input: &entry.input })?;
        }
        map.end()
    }
}
