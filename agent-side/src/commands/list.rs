//! `list`: lists subtools, best match first, with all that a model needs to call one.

use globset::{Glob, GlobMatcher};
use listing::learned::{self, LearnedRequest};
use listing::rights::Rights;
use listing::{Listing, ListingEntry};
use protocol::caller::Caller;
use protocol::code::{Code, Exit};
use protocol::command_names;
use protocol::mailbox::Mailbox;
use protocol::mailbox::for_callers::Lacking;
use protocol::mailbox::queries::LastQuery;
use protocol::nearest::{did_you_mean, nearest};
use protocol::sentences::first_sentences;
use search::{Hit, LearnedRequests, MatchedWords, Unusable};

use self::format::Format;
use crate::context::Context;
use crate::error::Error;
use crate::launch;
use crate::listing_source::{ListFailure, ListingSource};
use crate::option_value::count;

mod format;
mod notes;
mod packs;
mod parameters;
mod shorten;
mod signature;
mod typescript;

/// The default limits: enough to choose from, few enough to read.
const LIMIT_WITH_QUERY: usize = 10;
const LIMIT: usize = 20;
/// How many names that are near to a wrong one are looked at for one that the caller may use.
const MAX_NEAR: usize = 12;
/// Those of `--format=hits`, which is for programs that ask for the schemas of what they choose.
const LIMIT_OF_HITS: usize = 3;
const MAX_HITS: usize = 20;
/// How many of the hits of a query are listed with what they take, unless `--full` is given: the best one with its schema,
/// the others with a signature. A schema is most of what an entry costs, and that of the second is rarely read.
const MAX_WITH_INPUT: usize = 3;
/// The share of the best score that a hit needs for that: what scores less is rarely the one that is wanted.
const MIN_SCORE_OF_INPUTS: f64 = 0.8;
/// How many of the hits of a query are described; the others are named.
const MAX_DESCRIBED: usize = 5;
/// How long the description of the best hit is, and those of the others, in characters.
const MAX_DESCRIPTION_CHARS: usize = 420;
const MAX_SENTENCE_CHARS: usize = 100;
/// How many subtools are listed with their schemas without a query.
const MAX_FULL: usize = 3;
/// How many of the best hits are looked at as a whole, whatever the limit: a page with a lower one begins alike.
const MAX_ORDERED: usize = LIMIT_WITH_QUERY;
/// A hit that cannot run comes after those that can and have at least this share of its score: they may do instead. What
/// scores less does something else.
const MIN_SCORE_OF_OTHERS: f64 = 0.85;
/// Of how many of the best hits one must be close to the query.
const MAX_JUDGED: usize = 3;
/// How many hits are listed of a query that none is close to, unless the caller asks for more.
const LIMIT_WITHOUT_CLOSE: usize = 5;
/// What people also call them.
const TOOLS: [&str; 3] = ["tools", "tool", "subtools"];
/// What groups of them are called.
const PACKS: [&str; 3] = ["packs", "pack", "groups"];

#[derive(Debug, clap::Args)]
pub struct Args {
    /// `tools`; with names after it, only those subtools. Or `packs`: what there is, in groups
    #[arg(value_name = "tools [NAME] | packs")]
    what: Vec<String>,
    /// What the subtool should do: some words of what you want, in English, German or Chinese
    #[arg(long, short, value_name = "WORDS")]
    query: Option<String>,
    /// Only subtools of this pack, or of the packs that match a glob like `github*`
    #[arg(long = "in", value_name = "PACK")]
    pack: Option<String>,
    /// List at most this many [default: 10 with a query, 20 without]
    #[arg(long, short, value_name = "N", value_parser = count)]
    limit: Option<usize>,
    /// The whole schemas, also of large ones, and with a query of all hits, not only of the best one
    #[arg(long)]
    full: bool,
    #[arg(long, value_enum, default_value_t = Format::Json)]
    format: Format,
}

/// One line of the listing.
struct Line {
    entry: ListingEntry,
    hit: Option<Hit>,
    detail: Detail,
    /// Why it cannot run now.
    needs: Option<Need>,
}

/// How much is said of a subtool.
#[derive(Debug, PartialEq, Eq)]
enum Detail {
    /// Its description and schema.
    Schema,
    /// A sentence and the signature of its input.
    Signature(String),
    Sentence,
    Name,
}

/// What a subtool lacks.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Need {
    Server,
    Secret(String),
    Program(String),
}

impl Need {
    /// Why a subtool cannot run now, if these are lacking.
    fn of(entry: &ListingEntry, lacking: &Lacking) -> Option<Self> {
        if entry.lacks_server {
            return Some(Self::Server);
        }
        if let Some(missing) = entry.secrets.iter().find(|name| lacking.secrets.contains(name)) {
            return Some(Self::Secret(missing.clone()));
        }
        let program = entry.program.as_ref().filter(|program| lacking.programs.contains(program))?;
        Some(Self::Program(program.display().to_string()))
    }

    /// With who can change that.
    fn explained(&self) -> String {
        match self {
            Self::Server => {
                "the address of its server, which only the user can set: `base_url` in `$defaults` of its file"
                    .to_owned()
            }
            Self::Secret(name) => format!("a secret that only the user can set: agent-magic-tool secret set {name}"),
            Self::Program(name) => format!("the program `{name}`, which is not installed"),
        }
    }

    /// For who has read the explanation already.
    fn named(&self) -> String {
        match self {
            Self::Server => "the address of its server".to_owned(),
            Self::Secret(name) => format!("the secret {name}"),
            Self::Program(name) => format!("the program {name}"),
        }
    }
}

impl Line {
    fn score(&self) -> f64 {
        self.hit.as_ref().map_or(0.0, |hit| hit.score)
    }

    /// Shortens what is large of its description and schema, for a query if it is the best hit of one. Returns whether
    /// something was cut.
    fn shorten(&mut self, query: Option<&str>) -> bool {
        let Some(query) = query else {
            let shortened = shorten::shorten(&self.entry.input);
            self.entry.input = shortened.schema;
            return shortened.is_cut;
        };
        let shortened = shorten::shorten_for(&self.entry.input, query);
        let description = first_sentences(&self.entry.description, MAX_DESCRIPTION_CHARS);
        let is_cut = shortened.is_cut || description.len() < self.entry.description.len();
        (self.entry.input, self.entry.description) = (shortened.schema, description);
        is_cut
    }
}

/// What is listed, and what the notes say of the rest.
struct ListingPage {
    lines: Vec<Line>,
    /// How many subtools match, of those that the caller may use.
    total: usize,
    /// How many match that change something, in a session that only reads.
    writers: usize,
    /// Whether a schema or a description was shortened.
    is_cut: bool,
    /// The words of the best hit, if no hit is close to the query.
    best_of_none: Option<MatchedWords>,
}

/// Lists from `source`.
pub fn run(args: &Args, source: &impl ListingSource, context: &Context) -> Result<Exit, ListFailure> {
    let names: Vec<&str> = match what(args)? {
        What::Tools(names) => names,
        What::Packs => {
            let rights = source.rights()?;
            let groups = source.read(|listing| {
                source.lacking(&[])?;
                Ok(packs::usable(listing, &rights, &context.caller)?)
            })?;
            packs::print(&groups, args.format, context)?;
            return Ok(Exit::Ok);
        }
    };
    // An empty query is no query.
    let query = args.query.as_deref().filter(|query| !query.trim().is_empty());
    let learned = if source.learns() {
        learned::read(&context.paths.learned(), context.caller.session.as_deref())
    } else {
        Vec::new()
    };
    let selection = ListQuery {
        names: &names,
        rights: source.rights()?,
        query,
        pack: args.pack.as_deref().map(pack_matcher).transpose()?,
        limit: limit(args, &names, query),
        has_limit: args.limit.is_some(),
        is_full: args.full,
        format: args.format,
        learned,
        context,
    };
    let (listed, notes) = source.read(|listing| {
        selection.check_names(listing, source)?;
        let listed = selection.list(listing, source)?;
        let notes = notes::of(&listed, &selection, listing)?;
        Ok((listed, notes))
    })?;
    format::print(&listed.lines, listed.total, args.format, args.limit.is_some(), context)?;
    for note in notes {
        context.output.note(&note);
    }
    if let Ok(mailbox) = Mailbox::open(&context.paths.mailbox) {
        if source.learns() {
            selection.remember(&listed, &mailbox);
        }
        launch::revive(context, &mailbox);
    }
    Ok(Exit::Ok)
}

/// What is to be listed.
enum What<'a> {
    /// All subtools, or those with these names.
    Tools(Vec<&'a str>),
    Packs,
}

fn what(args: &Args) -> Result<What<'_>, Error> {
    match args.what.split_first() {
        None => Ok(What::Tools(Vec::new())),
        Some((what, names)) if TOOLS.contains(&what.as_str()) => {
            Ok(What::Tools(names.iter().map(String::as_str).collect()))
        }
        Some((what, [])) if PACKS.contains(&what.as_str()) => Ok(What::Packs),
        Some((what, _)) => Err(Error::usage(format!("`list` lists `tools` or `packs`, not `{what}`"))
            .hint(command_names::search(&args.what))),
    }
}

fn limit(args: &Args, names: &[&str], query: Option<&str>) -> usize {
    let default = match args.format {
        Format::Hits => LIMIT_OF_HITS,
        _ if !names.is_empty() => names.len(),
        _ if query.is_some() => LIMIT_WITH_QUERY,
        _ => LIMIT,
    };
    let limit = args.limit.unwrap_or(default);
    if args.format == Format::Hits { limit.min(MAX_HITS) } else { limit }
}

/// A name of a pack also stands for itself, whatever characters it has.
fn pack_matcher(pattern: &str) -> Result<(String, GlobMatcher), Error> {
    let glob = Glob::new(pattern).map_err(|error| {
        Error::usage(format!("`{pattern}` is no pattern: {error}")).hint("see the packs: agent-magic-tool list packs")
    })?;
    Ok((pattern.to_owned(), glob.compile_matcher()))
}

/// What the caller wants to see.
struct ListQuery<'a> {
    names: &'a [&'a str],
    rights: Rights,
    query: Option<&'a str>,
    pack: Option<(String, GlobMatcher)>,
    limit: usize,
    /// Whether the caller chose the limit.
    has_limit: bool,
    is_full: bool,
    format: Format,
    learned: Vec<LearnedRequest>,
    context: &'a Context,
}

impl ListQuery<'_> {
    fn caller(&self) -> &Caller {
        &self.context.caller
    }

    /// Whether the caller asked for this pack.
    fn is_of_pack(&self, group: &str) -> bool {
        self.pack.as_ref().is_none_or(|(name, matcher)| group == name || matcher.is_match(group))
    }

    /// Fails for the first name that no subtool has, or that the caller may not use.
    fn check_names(&self, listing: &Listing, source: &impl ListingSource) -> Result<(), ListFailure> {
        for name in self.names {
            if self.rights.cover_name(listing, name)? {
                continue;
            }
            if let Some(explained) = source.why_absent(name, &self.caller().tool_scope, listing)? {
                return Err(Error::from(explained).into());
            }
            let words: Vec<_> = self.names.iter().map(|name| (*name).to_owned()).collect();
            let search = command_names::search(&words);
            let known = listing.names()?;
            let near =
                nearest(name, known.iter().map(String::as_str).filter(|name| self.rights.may_have(name)), MAX_NEAR);
            let mut usable = Vec::new();
            for near in near {
                if self.rights.cover_name(listing, &near)? {
                    usable.push(near);
                }
            }
            let hint = did_you_mean(usable.first())
                .map_or_else(|| search.clone(), |hint| format!("{hint} Or search: {search}"));
            return Err(Error::new(Code::UnknownSubtool, format!("no subtool named `{name}`")).hint(hint).into());
        }
        Ok(())
    }

    /// The numbers of what matches, best first, with the hits of a query.
    fn matching(&self, listing: &Listing) -> Result<Vec<(u32, Option<Hit>)>, Unusable> {
        if !self.names.is_empty() {
            let mut found = Vec::new();
            for name in self.names {
                found.extend(listing.find(name)?.map(|number| (number, None)));
            }
            return Ok(found);
        }
        let Some(query) = self.query else { return Ok((0..listing.count()).map(|number| (number, None)).collect()) };
        let learned = self.learned.iter().map(|request| (request.tool.as_str(), request.words.as_str()));
        let hits = listing.search(query, &LearnedRequests::new(learned))?;
        Ok(hits.into_iter().map(|hit| (hit.document, Some(hit))).collect())
    }

    fn list(&self, listing: &Listing, source: &impl ListingSource) -> Result<ListingPage, ListFailure> {
        let mut found = self.matching(listing)?;
        if self.pack.is_some() {
            let groups: Vec<_> = listing.groups().iter().map(|group| self.is_of_pack(&group.name)).collect();
            found.retain(|(number, _)| groups.get(listing.facts(*number).group).copied().unwrap_or(false));
        }
        if !self.rights.are_all() {
            let mut covered = Vec::with_capacity(found.len());
            for (number, hit) in found {
                if self.rights.cover(listing, number)? {
                    covered.push((number, hit));
                }
            }
            found = covered;
        }
        let matching = found.len();
        if self.caller().read_only {
            found.retain(|(number, _)| listing.facts(*number).is_read_only);
        }
        let total = found.len();
        let best_of_none = self.best_of_none(&found, listing)?;
        let limit = match best_of_none {
            Some(_) if !self.has_limit => self.limit.min(LIMIT_WITHOUT_CLOSE),
            _ => self.limit,
        };
        let shown = limit.min(total);
        let ordered = if self.query.is_some() { shown.max(MAX_ORDERED).min(total) } else { shown };
        let mut lines = Vec::with_capacity(ordered);
        for (number, hit) in &found[..ordered] {
            let entry = listing.entry(*number)?;
            lines.push(Line { entry, hit: hit.clone(), detail: Detail::Schema, needs: None });
        }
        let lacking = source.lacking(&lines.iter().map(|line| &line.entry).collect::<Vec<_>>())?;
        for line in &mut lines {
            line.needs = Need::of(&line.entry, &lacking);
        }
        self.put_unusable_last(&mut lines);
        lines.truncate(shown);
        let is_cut = self.choose_details(&mut lines, best_of_none.is_some());
        Ok(ListingPage { lines, total, writers: matching - total, is_cut, best_of_none })
    }

    /// Chooses how much is said of each line, and shortens that. Returns whether something was cut.
    fn choose_details(&self, lines: &mut [Line], is_none_close: bool) -> bool {
        // The other formats are for programs, which hand each hit on with its schema.
        let query = self.query.filter(|_| !self.is_full && self.names.is_empty() && self.format.is_read());
        let best = lines.iter().map(Line::score).fold(0.0, f64::max);
        // The first of all subtools are no better than the others.
        let is_overview = self.query.is_none() && !self.is_full && self.names.is_empty() && lines.len() > MAX_FULL;
        let mut is_cut = false;
        for (place, line) in lines.iter_mut().enumerate() {
            line.detail = match query {
                None if is_overview => Detail::Sentence,
                None => Detail::Schema,
                // A schema of something else tells nothing.
                Some(_) if is_none_close => Detail::Sentence,
                Some(_) if place == 0 => Detail::Schema,
                Some(query) if place < MAX_WITH_INPUT && line.score() >= best * MIN_SCORE_OF_INPUTS => {
                    let input = serde_json::from_str(line.entry.input.get()).unwrap_or_default();
                    signature::signature(&input, query).map_or(Detail::Sentence, Detail::Signature)
                }
                Some(_) if place < MAX_DESCRIBED => Detail::Sentence,
                Some(_) => Detail::Name,
            };
            if line.detail == Detail::Schema && !self.is_full && self.format.has_schemas() {
                is_cut |= line.shorten(query);
            }
        }
        is_cut
    }

    /// The words of the best hit, if none of the first ones is close to the query.
    fn best_of_none(&self, found: &[(u32, Option<Hit>)], listing: &Listing) -> Result<Option<MatchedWords>, Unusable> {
        let Some(query) = self.query else { return Ok(None) };
        let mut best = None;
        for hit in found.iter().take(MAX_JUDGED).filter_map(|(_, hit)| hit.as_ref()) {
            let matched = listing.matched_words(query, hit)?;
            // What led to it before is close, whatever its words are.
            if !matched.is_weak() || hit.matched_in.names().any(|field| field == "past requests") {
                return Ok(None);
            }
            best.get_or_insert(matched);
        }
        Ok(best)
    }

    /// Moves a hit that cannot run behind those that may do instead.
    fn put_unusable_last(&self, lines: &mut [Line]) {
        if self.query.is_none() {
            return;
        }
        // Whatever the limit, the first ones stay the first ones.
        let first = lines.len().min(MAX_ORDERED);
        let lines = &mut lines[..first];
        for place in (0..lines.len()).rev().filter(|place| lines[*place].needs.is_some()).collect::<Vec<_>>() {
            let least = lines[place].score() * MIN_SCORE_OF_OTHERS;
            let after = lines[place + 1..].iter().take_while(|other| other.needs.is_none() && other.score() >= least);
            let end = place + 1 + after.count();
            lines[place..end].rotate_left(1);
        }
    }

    /// Tells the `run` that may follow by which words its subtool was found.
    fn remember(&self, listed: &ListingPage, mailbox: &Mailbox) {
        let Some(query) = self.query.filter(|_| !listed.lines.is_empty()) else { return };
        let tools = listed.lines.iter().map(|line| line.entry.name.clone()).collect();
        let last = LastQuery { words: search::words_of_request(query), tools };
        match mailbox.keep_query(self.caller().session.as_deref(), &last) {
            // What cannot be kept is not learned from, which is no reason to fail.
            Ok(()) | Err(_) => {}
        }
    }
}
