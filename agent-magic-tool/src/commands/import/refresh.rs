//! `import --refresh`: reads again what was imported, and merges what changed into the files.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use agent_side::context::Context;
use agent_side::error::Error;
use catalog::Sources;
use clap::Parser as _;
use ground::config::Config;
use import::file::SourceRecord;
use import::kinds::{self, Reading};
use protocol::code::{Code, Exit};
use protocol::wording::counted;
use serde_json::{Value, json};

use super::drafting::DraftingArgs;
use super::servers::{self, NamedServer};
use super::writing::{self, ImportedFile, Pack, PackFolder};
use super::{Args, StoredOptions, checking, databases, flagged, hosts, reading};

/// An import that is in the folder.
struct Earlier {
    /// The first of its files.
    path: PathBuf,
    record: SourceRecord,
    namespace: Option<String>,
}

pub(super) fn run(args: &Args, folder: &Path, config: &Config, context: &Context) -> Result<Exit, Error> {
    let mut packs: BTreeMap<String, Earlier> = BTreeMap::new();
    let mut unknown = args.sources.clone();
    let folder = PackFolder::read(folder, true);
    for ImportedFile { path, namespace, record } in &folder.imported {
        let is_named = |name: &String| {
            *name == record.pack || Path::new(name).file_name() == path.file_name() || *name == record.from
        };
        if args.sources.is_empty() || args.sources.iter().any(is_named) {
            unknown.retain(|name| !is_named(name));
            let earlier = || Earlier { path: path.clone(), record: record.clone(), namespace: namespace.clone() };
            packs.entry(record.pack.clone()).or_insert_with(earlier);
        }
    }
    if let Some(name) = unknown.first() {
        return Err(Error::new(
            Code::NotFound,
            format!("nothing in `{}` was imported as `{name}`", folder.path.display()),
        )
        .hint("name a pack or a file that `import` wrote; without one, all of them are refreshed"));
    }
    let mut reports = Vec::new();
    let mut has_failed = false;
    for (name, earlier) in packs {
        match refresh(&earlier, &folder, args, config, context) {
            Ok(report) => {
                has_failed |= DraftingArgs::has_failed(&report);
                reports.push(report);
            }
            Err(error) => {
                has_failed = true;
                reports.push(json!({"pack": name, "source": earlier.record.from, "error": error.body()}));
            }
        }
    }
    context.output.json(&json!({"packs": reports}))?;
    Ok(if has_failed { Exit::Failed } else { Exit::Ok })
}

fn refresh(
    earlier: &Earlier,
    folder: &PackFolder,
    args: &Args,
    config: &Config,
    context: &Context,
) -> Result<Value, Error> {
    let Earlier { path, record, namespace } = earlier;
    let is_dry_run = args.dry_run;
    let kind =
        kinds::named(&record.kind).ok_or_else(|| Error::usage(format!("the kind `{}` is unknown", record.kind)))?;
    let words: Vec<_> = match kind.reading {
        Reading::Program => record.from.split_whitespace().map(str::to_owned).collect(),
        Reading::CurlLine => {
            return Err(Error::usage("a `curl` line is not kept, so it cannot be read again")
                .hint("import the line again under the same --name"));
        }
        Reading::FileOrUrl | Reading::FileOrGraphql(_) | Reading::McpServer | Reading::Database => {
            vec![record.from.clone()]
        }
    };
    let document = if kind.reading == Reading::McpServer {
        let server = servers::of_file(&writing::content(path).unwrap_or_default())?;
        servers::ask(&NamedServer { name: record.pack.clone(), server }, &args.allowance(config, context))?
    } else if kind.reading == Reading::Database {
        databases::document(&record.from, config, context)?
    } else {
        reading::document(&words, Some(kind), config)?
    };
    let sha256 = document.sha256();
    let stored = StoredOptions::try_parse_from(&record.options)
        .map_err(|_| Error::usage(format!("the options in `$source` of `{}` are wrong", record.pack)))?;
    let pack = namespace.as_ref().and_then(|namespace| record.pack.strip_suffix(&format!("-{namespace}")));
    let mut options = stored.selection.options(Some(pack.unwrap_or(&record.pack)));
    options.max_name_chars = namespace.as_ref().map(|it| import::names::MAX_NAME_CHARS - it.len() - 1);
    let mut imported = kind.import(&document, &options).map_err(|error| reading::failed(&record.from, error))?;
    let idle = stored.selection.idle(&imported)?;
    stored.selection.apply(&mut imported)?;
    checking::remove_what_does_not_load(kind, &mut imported);
    let before = record.sha256.clone();
    let mut record = record.clone();
    record.version.clone_from(&imported.version);
    record.sha256.clone_from(&sha256);
    record.from.clone_from(&document.from);
    record.about.clone_from(&imported.about);
    let pack = Pack::with_record(&record, record.pack.clone(), namespace.clone(), folder, &imported);
    let sources = Sources::of(&context.paths, config);
    hosts::confirm(&pack, &args.allow_host, is_dry_run, &sources, config, context)?;
    let files = writing::write(&pack, is_dry_run)?;
    let mut report = json!({
        "pack": record.pack,
        "source": record.from,
        "source_changed": sha256 != before,
        "version": record.version,
        "imported": imported.subtools.len(),
        "files": files.iter().map(|file| file.to_json(is_dry_run)).collect::<Vec<_>>(),
    });
    if let Some(phrases) = args.drafting.run(&files, is_dry_run, config, context) {
        report["phrases"] = phrases;
    }
    if !idle.is_empty() {
        context.output.note(&format!("`{}`: {} matches nothing anymore", record.pack, idle.join(", ")));
        report["matched_nothing"] = json!(idle);
    }
    let flagged = flagged(kind, &imported);
    if !flagged.is_empty() {
        report["flagged"] = json!(flagged);
    }
    if !imported.left_out.is_empty() && kind.reading == Reading::McpServer {
        let left_out = imported.left_out.iter().map(|left| (left.what.as_str(), left.reason.as_str()));
        report["left_out"] = json!(left_out.collect::<BTreeMap<_, _>>());
    }
    let changed: usize = files.iter().filter_map(|file| file.merge.as_ref()).map(|merge| merge.differences.len()).sum();
    if changed > 0 {
        context.output.note(&format!(
            "{} of {} {} something else than before: read `differences` before you use them. What you approved in advance \
             no longer applies to them",
            counted(changed, "tool"),
            record.pack,
            if changed == 1 { "says" } else { "say" }
        ));
    }
    Ok(report)
}
