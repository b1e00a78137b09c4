//! `import`: writes discovery JSON for an API, a program, a database or an MCP server, from its description.
//!
//! This file has the arguments and what is printed. [`reading`] gets the description, the crate `import` makes
//! definitions of it, [`checking`] asks the catalog whether they load, and [`writing`] puts them into files, without
//! overwriting what was edited there.

use std::collections::BTreeMap;
use std::path::PathBuf;

use agent_side::context::Context;
use agent_side::error::Error;
use catalog::Sources;
use clap::Parser;
use ground::base::suspicion;
use ground::config::Config;
use ground::config::secret::SecretPlace;
use import::Imported;
use import::document::Document;
use import::kinds::{self, Kind, Reading};
use protocol::code::Exit;
use protocol::invisible;
use protocol::wording::{at_most, counted, in_backticks, inflected};
use serde_json::{Map, Value, json};

use drafting::DraftingArgs;
use hosts::Allowance;
use selection::Selection;
use servers::ServerArgs;
use writing::{NameConflict, Pack, WrittenFile};

mod agents;
mod checking;
mod databases;
mod drafting;
pub(in crate::commands) mod hosts;
mod programs;
mod reading;
mod refresh;
mod selection;
mod servers;
mod uses;
mod writing;

pub(crate) use hosts::{check_draft as check_hosts_of_draft, in_use as hosts_in_use};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Files or URLs, optionally after a word for their kind; `mcp NAME -- COMMAND...` or `mcp [NAME] URL` for an MCP
    /// server; `sql NAME [URL]` for a database; `cli PROGRAM [SUBCOMMAND...]`; `curl 'curl LINE'`; or `agents` to list the MCP servers of other agents;
    /// with --refresh, files or packs
    #[arg(required_unless_present_any = ["refresh", "command"], value_name = "[KIND] SOURCE")]
    sources: Vec<String>,
    /// The name of the pack: of its file and its secret, and the first part of each name [default: from the source]
    #[arg(long, value_name = "PACK")]
    name: Option<String>,
    /// The folder to write to [default: the first folder of definitions]
    #[arg(long, value_name = "FOLDER")]
    into: Option<PathBuf>,
    #[command(flatten)]
    selection: Selection,
    /// Report what would be written, and write nothing
    #[arg(long)]
    dry_run: bool,
    /// Read what was imported again, show what changed, and keep what was edited here
    #[arg(long, conflicts_with_all = ["name"])]
    refresh: bool,
    /// Let requests and secrets of the pack go to this host, though they went elsewhere before: HOST, HOST:PORT or
    /// *.DOMAIN; or let a program have the secrets: 'program:COMMAND LINE'
    #[arg(long, value_name = "HOST")]
    allow_host: Vec<SecretPlace>,
    #[command(flatten)]
    drafting: DraftingArgs,
    #[command(flatten)]
    server: ServerArgs,
}

impl Args {
    /// What a human's command line allows.
    fn allowance<'a>(&'a self, config: &'a Config, context: &'a Context) -> Allowance<'a> {
        Allowance { allowed: &self.allow_host, is_dry_run: self.dry_run, config, context }
    }
}

/// The options of an earlier import, as `$source` has them.
#[derive(Debug, Parser)]
#[command(no_binary_name = true)]
struct StoredOptions {
    #[command(flatten)]
    selection: Selection,
}

/// One description, with what was made of it.
struct ImportedSource {
    document: Document,
    kind: &'static Kind,
    imported: Imported,
    /// The operations that the options do not select.
    unselected: Vec<String>,
    /// The options that match none of its operations.
    idle: Vec<String>,
}

pub(crate) fn run(args: &Args, context: &Context) -> Result<Exit, Error> {
    if let ([agents::WORD], false) =
        (args.sources.iter().map(String::as_str).collect::<Vec<_>>().as_slice(), args.refresh)
    {
        return agents::run(context);
    }
    let config = Config::in_force(&context.paths)?;
    let sources = Sources::of(&context.paths, &config);
    let folder = match &args.into {
        Some(folder) => folder.clone(),
        None => sources.folders().first().cloned().unwrap_or_else(|| context.paths.config.join("subtools")),
    };
    if args.refresh {
        return refresh::run(args, &folder, &config, context);
    }
    args.name.as_deref().map_or(Ok(()), servers::check_name)?;
    let word = args.sources.first().map(String::as_str);
    let is_server = word == Some(servers::WORD);
    let (documents, mut failed) = match word {
        Some(servers::WORD) => read_servers(args, &config, context)?,
        Some(databases::WORD) => (vec![read_database(args, &config, context)?], Vec::new()),
        _ => read_descriptions(args, &config)?,
    };
    let mut taken = writing::TakenNames::of(&sources, &folder);
    let folder = writing::PackFolder::read(&folder, args.name.is_some() || is_server);
    let mut reports = Vec::new();
    let is_only = documents.len() == 1;
    let mut idle: Option<Vec<String>> = None;
    for SourceToImport { document, kind, name } in documents {
        let from = document.from.clone();
        let outcome = pack(document, kind, name.as_deref(), (&args.selection, is_only), &folder, &mut taken).and_then(
            |(source, pack)| {
                hosts::confirm(&pack, &args.allow_host, args.dry_run, &sources, &config, context)?;
                Ok((writing::write(&pack, args.dry_run)?, source, pack))
            },
        );
        match outcome {
            Ok((files, source, pack)) => {
                source.imported.notes.iter().for_each(|note| context.output.note(note));
                match &mut idle {
                    Some(idle) => idle.retain(|option| source.idle.contains(option)),
                    None => idle = Some(source.idle.clone()),
                }
                let removed: Vec<_> =
                    files.iter().filter_map(|file| file.merge.as_ref()).flat_map(|merge| &merge.removed).collect();
                if !removed.is_empty() {
                    let names: Vec<_> = removed.iter().map(|name| name.as_str()).collect();
                    context
                        .output
                        .note(&format!("removed, since this import does not select them: {}", names.join(", ")));
                }
                let mut report = report(&source, &pack, &files, args.dry_run);
                if let Some(phrases) = args.drafting.run(&files, args.dry_run, &config, context) {
                    report["phrases"] = phrases;
                }
                reports.push(report);
            }
            Err(error) => failed.push((from, error)),
        }
    }
    if let ([(_, error)], true) = (failed.as_slice(), reports.is_empty()) {
        return Err(error.clone());
    }
    print(&reports, &failed, args.dry_run, context)?;
    if let Some(idle) = idle.filter(|idle| !idle.is_empty()) {
        context.output.note(&format!("{} matched nothing in any of the sources", idle.join(", ")));
    }
    let is_whole = failed.is_empty() && !reports.iter().any(DraftingArgs::has_failed);
    Ok(if is_whole { Exit::Ok } else { Exit::Failed })
}

/// A description that was read, and the name that its pack must have.
struct SourceToImport {
    document: Document,
    kind: &'static Kind,
    name: Option<String>,
}

/// What was read, and what could not be read, with the reason.
type SourcesRead = (Vec<SourceToImport>, Vec<(String, Error)>);

/// Reads the descriptions that the words name.
fn read_descriptions(args: &Args, config: &Config) -> Result<SourcesRead, Error> {
    if args.server.is_used() {
        return Err(Error::usage("these options are for an MCP server")
            .hint("agent-magic-tool import mcp NAME -- COMMAND ARGS, or: agent-magic-tool import mcp NAME URL"));
    }
    let words: Vec<String> = args.sources.iter().chain(&args.server.command).cloned().collect();
    let (kind, names) = match words.split_first() {
        Some((word, rest)) if !rest.is_empty() && kinds::named(word).is_some() => (kinds::named(word), rest),
        _ => (None, words.as_slice()),
    };
    // A program's words are one source.
    let names: Vec<Vec<String>> = match kind.map(|kind| kind.reading) {
        Some(Reading::Program) => vec![names.to_vec()],
        _ => names.iter().map(|name| vec![name.clone()]).collect(),
    };
    if args.name.is_some() && names.len() > 1 {
        return Err(
            Error::usage("`--name` names one pack, and there are several sources").hint("import them one by one")
        );
    }
    let (mut documents, mut failed) = (Vec::new(), Vec::new());
    for name in names {
        match read(&name, kind, config) {
            Ok((document, kind)) => documents.push(SourceToImport { document, kind, name: args.name.clone() }),
            Err(error) => failed.push((name.join(" "), error)),
        }
    }
    // Of several versions of one API, the newest stable one gets the plain names.
    documents.sort_by_cached_key(|source| std::cmp::Reverse(reading::stability(&source.document)));
    Ok((documents, failed))
}

/// Asks the database that the words name.
fn read_database(args: &Args, config: &Config, context: &Context) -> Result<SourceToImport, Error> {
    let kind = kinds::named(databases::WORD).expect("the table has this kind");
    let (name, document) = databases::read(args, config, context)?;
    Ok(SourceToImport { document, kind, name: Some(args.name.clone().unwrap_or(name)) })
}

/// Asks the MCP servers that the words name, or those of another client.
fn read_servers(args: &Args, config: &Config, context: &Context) -> Result<SourcesRead, Error> {
    let kind = kinds::named(servers::WORD).expect("the table has this kind");
    let words = &args.sources[1..];
    let allowance = args.allowance(config, context);
    let (named, mut failed) = match &args.server.from {
        Some(client) => agents::take_over(client, words, &allowance)?,
        None => (vec![args.server.server(words, args.name.as_deref())?], Vec::new()),
    };
    let mut documents = Vec::new();
    for server in named {
        if let Some(word) = servers::misplaced(&server.server) {
            context.output.note(&format!(
                "the server `{}` runs in `/`, where it does not find `{word}`: write ./{word}, or --folder .",
                server.name
            ));
        }
        match servers::ask(&server, &allowance) {
            Ok(document) => {
                if let Some(uncovered) = runner::mcp::uncovered(&server.server, &config.programs) {
                    let (name, why, advice) = (&server.name, invisible::escaped(&uncovered.why), uncovered.advice);
                    context.output.note(&format!("the server `{name}`: {why}; {advice}"));
                }
                documents.push(SourceToImport { document, kind, name: Some(server.name) });
            }
            Err(error) => failed.push((server.name, error)),
        }
    }
    Ok((documents, failed))
}

fn read(words: &[String], kind: Option<&'static Kind>, config: &Config) -> Result<(Document, &'static Kind), Error> {
    let document = reading::document(words, kind, config)?;
    let kind = match kind {
        Some(kind) => kind,
        None => kinds::of(&document).map_err(|error| reading::failed(&words.join(" "), error))?,
    };
    Ok((document, kind))
}

/// Imports `document` under names that no other definition has.
fn pack(
    document: Document,
    kind: &'static Kind,
    name: Option<&str>,
    (selection, is_only): (&Selection, bool),
    folder: &writing::PackFolder,
    taken: &mut writing::TakenNames,
) -> Result<(ImportedSource, Pack), Error> {
    let mut namespace = None;
    let mut selection = selection.clone();
    let is_server = kind.reading == Reading::McpServer;
    if is_server && name.is_some_and(|name| folder.has_prefix(kind.word, name)) {
        selection.add_prefix();
    }
    for attempt in 0..20 {
        let mut options = selection.options(name);
        options.max_name_chars = namespace.as_ref().map(|it: &String| import::names::MAX_NAME_CHARS - it.len() - 1);
        let mut imported = kind.import(&document, &options).map_err(|error| reading::failed(&document.from, error))?;
        let idle = selection.idle(&imported)?;
        // Of several sources, an option may mean only one.
        if is_only && !idle.is_empty() {
            return Err(matches_nothing(&idle, &imported));
        }
        let unselected = selection.apply(&mut imported)?;
        checking::remove_what_does_not_load(kind, &mut imported);
        let word = name.map_or_else(|| imported.word.clone(), str::to_owned);
        let candidate = Pack::new(&word, namespace.as_deref(), folder, &document, kind, &imported, &selection);
        match taken.conflict(&candidate) {
            None => {
                taken.add(&candidate);
                return Ok((ImportedSource { document, kind, imported, unselected, idle }, candidate));
            }
            Some(NameConflict::Name(..)) if is_server && selection.add_prefix() => {}
            Some(conflict) if name.is_some() => return Err(conflict.error()),
            Some(_) => namespace = Some(writing::namespace(&document, attempt)),
        }
    }
    Err(Error::usage(format!("every name for `{}` is taken", document.from)).hint("choose one with --name"))
}

/// The error of options that select nothing and leave out nothing: what was to be left out would be imported.
fn matches_nothing(idle: &[String], imported: &Imported) -> Error {
    const MAX_SHOWN: usize = 10;
    let names = at_most(MAX_SHOWN, imported.subtools.iter().map(|it| in_backticks(&it.name)));
    Error::usage(format!("{} matches nothing, so nothing was imported", idle.join(", ")))
        .hint(format!("globs are matched with names, and with methods and paths; there is {names}"))
}

/// What came of one source.
fn report(source: &ImportedSource, pack: &Pack, files: &[WrittenFile], is_dry_run: bool) -> Value {
    let imported = &source.imported;
    let mut left_out: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for left in &imported.left_out {
        left_out.entry(&left.reason).or_default().push(&left.what);
    }
    let mut simplified: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for one in &imported.simplified {
        simplified.entry(&one.reason).or_default().push(&one.what);
    }
    let mut report = json!({
        "source": source.document.from,
        "kind": source.kind.word,
        "pack": pack.name(),
        "found": imported.found,
        "imported": imported.subtools.len(),
        "share": import::file::share(imported),
        "files": files.iter().map(|file| file.to_json(is_dry_run)).collect::<Vec<_>>(),
        "left_out": left_out,
    });
    if !simplified.is_empty() {
        report["simplified"] = json!(simplified);
    }
    let flagged = flagged(source.kind, imported);
    if !flagged.is_empty() {
        report["flagged"] = json!(flagged);
    }
    if !source.unselected.is_empty() {
        report["not_selected"] = source.unselected.len().into();
    }
    report
}

/// What is suspicious about the words of a server's tools, by the name of the subtool. `lint` looks at those of every
/// kind.
fn flagged<'a>(kind: &Kind, imported: &'a Imported) -> BTreeMap<&'a str, Vec<String>> {
    let mut flagged = BTreeMap::new();
    for subtool in imported.subtools.iter().filter(|_| kind.reading == Reading::McpServer) {
        let definition = &subtool.definition;
        let description = definition.get("description").and_then(Value::as_str).unwrap_or_default();
        let none = Map::new();
        let input = definition.get("input").and_then(Value::as_object).unwrap_or(&none);
        let found = suspicion::of_definition(description, input);
        if !found.is_empty() {
            let lines = found.into_iter().map(|found| format!("{}: {}", found.place, found.message)).collect();
            flagged.insert(subtool.name.as_str(), lines);
        }
    }
    flagged
}

fn print(reports: &[Value], failed: &[(String, Error)], is_dry_run: bool, context: &Context) -> Result<(), Error> {
    let sum = |key: &str| reports.iter().filter_map(|report| report[key].as_u64()).sum::<u64>();
    let (found, imported) = (sum("found"), sum("imported"));
    let failures: Vec<_> = failed.iter().map(|(name, error)| json!({"source": name, "error": error.body()})).collect();
    let document = match reports {
        [only] if failures.is_empty() => only.clone(),
        _ => json!({"found": found, "imported": imported, "sources": reports, "failed": failures}),
    };
    context.output.whole_json(&document)?;
    let flagged: usize = reports.iter().filter_map(|report| report["flagged"].as_object()).map(Map::len).sum();
    if flagged > 0 {
        context.output.note(&format!(
            "{} suspicious words: read `flagged` before you use them",
            inflected(flagged, "tool has", "tools have")
        ));
    }
    let unselected = sum("not_selected");
    let selected = if unselected == 0 { String::new() } else { format!(" ({unselected} were not selected)") };
    let verb = if is_dry_run { "would be imported" } else { "imported" };
    context.output.note(&format!("{imported} of {} {verb}{selected}", counted(found, "operation")));
    if !is_dry_run && imported > 0 {
        context.output.note(
            "judge them: agent-magic-tool lint FILE; after changes of the source: agent-magic-tool import --refresh",
        );
    }
    Ok(())
}
