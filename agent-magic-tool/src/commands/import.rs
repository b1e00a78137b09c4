//! `import`: writes discovery JSON for an API or a program, from its description.
//!
//! This file has the arguments and what is printed. [`reading`] gets the description, the crate `import` makes
//! definitions of it, [`checking`] asks the catalog whether they load, and [`writing`] puts them into files, without
//! overwriting what was edited there.

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::Parser;
use executor::catalog::Sources;
use executor::config::Config;
use import::Imported;
use import::document::Document;
use import::kinds::{self, Kind, Reading};
use protocol::code::Exit;
use serde_json::{Value, json};

use crate::context::Context;
use crate::error::Error;
use selection::Selection;
use writing::{Pack, WrittenFile};

mod agents;
mod checking;
mod programs;
mod reading;
mod refresh;
mod selection;
mod writing;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Files or URLs, optionally after a word for their kind; `cli PROGRAM [SUBCOMMAND...]`, `curl 'curl LINE'`, or
    /// `agents` to list the MCP servers of other agents; with --refresh, files or packs
    #[arg(required_unless_present = "refresh", value_name = "[KIND] SOURCE")]
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
}

pub(crate) fn run(args: &Args, context: &Context) -> Result<Exit, Error> {
    if let ([agents::WORD], false) =
        (args.sources.iter().map(String::as_str).collect::<Vec<_>>().as_slice(), args.refresh)
    {
        return agents::run(context);
    }
    let config = Config::read(&context.paths)?;
    let sources = Sources::of(&context.paths, &config);
    let folder = match &args.into {
        Some(folder) => folder.clone(),
        None => sources.folders().first().cloned().unwrap_or_else(|| context.paths.config.join("subtools")),
    };
    if args.refresh {
        return refresh::run(args, &folder, &config, context);
    }
    let (kind, names) = match args.sources.split_first() {
        Some((word, rest)) if !rest.is_empty() && kinds::named(word).is_some() => (kinds::named(word), rest),
        _ => (None, args.sources.as_slice()),
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
    if let Some(name) = &args.name {
        let is_name = |it: char| it.is_ascii_alphanumeric() || matches!(it, '_' | '-');
        if name.is_empty() || name.len() > 24 || !name.chars().all(is_name) {
            return Err(Error::usage(format!("`{name}` is not a name for a pack"))
                .hint("a name has 1 to 24 of the characters a-z A-Z 0-9 _ -"));
        }
    }
    let mut taken = writing::TakenNames::of(&sources, &folder);
    let folder = writing::PackFolder::read(&folder, args.name.is_some());
    let mut reports = Vec::new();
    let mut failed: Vec<(String, Error)> = Vec::new();
    let mut documents = Vec::new();
    for name in names {
        match read(&name, kind, &config) {
            Ok(read) => documents.push(read),
            Err(error) => failed.push((name.join(" "), error)),
        }
    }
    // Of several versions of one API, the newest stable one gets the plain names.
    documents.sort_by_cached_key(|(document, _)| std::cmp::Reverse(reading::stability(document)));
    for (document, kind) in documents {
        let from = document.from.clone();
        let outcome = pack(document, kind, args.name.as_deref(), &args.selection, &folder, &mut taken)
            .and_then(|(source, pack)| Ok((writing::write(&pack, args.dry_run)?, source, pack)));
        match outcome {
            Ok((files, source, pack)) => {
                source.imported.notes.iter().for_each(|note| context.output.note(note));
                reports.push(report(&source, &pack, &files, args.dry_run));
            }
            Err(error) => failed.push((from, error)),
        }
    }
    if let ([(_, error)], true) = (failed.as_slice(), reports.is_empty()) {
        return Err(error.clone());
    }
    print(&reports, &failed, args.dry_run, context)?;
    Ok(if failed.is_empty() { Exit::Ok } else { Exit::Failed })
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
    selection: &Selection,
    folder: &writing::PackFolder,
    taken: &mut writing::TakenNames,
) -> Result<(ImportedSource, Pack), Error> {
    let mut namespace = None;
    for attempt in 0..20 {
        let mut options = selection.options(name);
        options.max_name_chars = namespace.as_ref().map(|it: &String| import::names::MAX_NAME_CHARS - it.len() - 1);
        let mut imported =
            (kind.import)(&document, &options).map_err(|error| reading::failed(&document.from, error))?;
        let unselected = selection.apply(&mut imported)?;
        checking::remove_what_does_not_load(&mut imported);
        let word = name.map_or_else(|| imported.word.clone(), str::to_owned);
        let candidate = Pack::new(&word, namespace.as_deref(), folder, &document, kind, &imported, selection);
        match taken.conflict(&candidate) {
            None => {
                taken.add(&candidate);
                return Ok((ImportedSource { document, kind, imported, unselected }, candidate));
            }
            Some(conflict) if name.is_some() => return Err(conflict.error()),
            Some(_) => namespace = Some(writing::namespace(&document, attempt)),
        }
    }
    Err(Error::usage(format!("every name for `{}` is taken", document.from)).hint("choose one with --name"))
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
    if !source.unselected.is_empty() {
        report["not_selected"] = source.unselected.len().into();
    }
    report
}

fn print(reports: &[Value], failed: &[(String, Error)], is_dry_run: bool, context: &Context) -> Result<(), Error> {
    let sum = |key: &str| reports.iter().filter_map(|report| report[key].as_u64()).sum::<u64>();
    let (found, imported) = (sum("found"), sum("imported"));
    let failures: Vec<_> = failed.iter().map(|(name, error)| json!({"source": name, "error": error.body()})).collect();
    let document = match reports {
        [only] if failures.is_empty() => only.clone(),
        _ => json!({"found": found, "imported": imported, "sources": reports, "failed": failures}),
    };
    context.output.json(&document)?;
    let unselected = sum("not_selected");
    let selected = if unselected == 0 { String::new() } else { format!(" ({unselected} were not selected)") };
    let verb = if is_dry_run { "would be imported" } else { "imported" };
    context.output.note(&format!("{imported} of {found} operations {verb}{selected}"));
    if !is_dry_run && imported > 0 {
        context.output.note(
            "judge them: agent-magic-tool lint FILE; after changes of the source: agent-magic-tool import --refresh",
        );
    }
    Ok(())
}
