//! `setup`: connects an agent of another maker: the instruction that its model reads, the hook that wakes it.
//!
//! Every change is shown before it is made, made only with a human's yes or `--yes`, and remembered in the
//! state folder, so that `--undo` brings back what was there, byte for byte; where others have edited the
//! same file since, only what is ours is taken out. What a client reads where is said by the file of its name.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, BufRead as _, IsTerminal as _};
use std::path::{Path, PathBuf};

use executor::config::Config;
use protocol::code::{Code, Exit};
use protocol::digest;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::context::Context;
use crate::error::Error;
use crate::launch;

mod agents_md;
mod aider;
mod change;
mod claude_code;
pub(crate) mod client;
mod codex;
mod cursor;
mod edit;
mod gemini_cli;
mod goose;
mod instruction;
mod json_file;
mod opencode;
mod plan;
mod section;

use change::Change;
use client::Client;
use plan::{SetupPlan, SetupTarget};

#[derive(Debug, clap::Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a word of the command line")]
pub(crate) struct Args {
    /// The agent to connect
    #[arg(value_name = "CLIENT")]
    client: Client,
    /// For this folder alone, in files that can be shared with others
    #[arg(long, conflicts_with = "user")]
    project: bool,
    /// For all that you do with this client [default, where it has files for that]
    #[arg(long)]
    user: bool,
    /// Show what would be changed, and change nothing
    #[arg(long)]
    dry_run: bool,
    /// Change it without asking
    #[arg(long, short)]
    yes: bool,
    /// Take out again what was put in
    #[arg(long)]
    undo: bool,
}

/// What was done, for whoever undoes it.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SetupRecord {
    changes: Vec<Change>,
    /// Folders that were made.
    folders: BTreeSet<PathBuf>,
}

pub(crate) fn run(args: &Args, context: &Context) -> Result<Exit, Error> {
    let site = site(args, context)?;
    let plan = plan(args.client, &site);
    let record_file = record_file(&site);
    let mut record = read_record(&record_file)?;
    let (changes, by_hand) = if args.undo { (undo(&plan, &record)?, Vec::new()) } else { install(&plan)? };
    let is_wanted = !changes.is_empty() && !args.dry_run;
    let is_applied = is_wanted && (args.yes || agreed(&changes, context)?);
    if is_applied {
        apply(&changes, &mut record)?;
    }
    if is_applied && args.undo {
        forget(&record, &record_file)?;
    } else if is_applied {
        remember(&plan, &changes, record, &record_file, context)?;
    }
    let scope = if site.project.is_some() { "project" } else { "user" };
    let mut answer = json!({
        "client": args.client,
        "scope": scope,
        "changes": changes.iter().map(Change::show).collect::<Vec<_>>(),
        "applied": is_applied,
    });
    if !by_hand.is_empty() {
        answer["by_hand"] = by_hand.into();
    }
    answer["next"] = next(args, &plan, is_wanted && !is_applied).into();
    context.output.json(&answer)?;
    Ok(Exit::Ok)
}

fn site(args: &Args, context: &Context) -> Result<SetupTarget, Error> {
    let paths = context.paths.clone();
    let is_project = args.project || !args.user && !args.client.has_user_files();
    if args.user && !args.client.has_user_files() {
        return Err(Error::usage(format!("{} reads no such files of its user", args.client))
            .hint(format!("in each project: agent-magic-tool setup {} --project", args.client)));
    }
    let unknown = |error| Error::io("this program's path cannot be found", &error);
    let program = if is_project {
        "agent-magic-tool".to_owned()
    } else {
        plan::quoted(&launch::program().map_err(unknown)?.display().to_string())
    };
    let here = || std::env::current_dir().map_err(|error| Error::io("the current folder cannot be found", &error));
    Ok(SetupTarget {
        client: args.client,
        home: paths.home()?,
        project: is_project.then(here).transpose()?,
        wait: args.client.wait(&Config::read(&paths)?.wake),
        program,
        paths,
    })
}

/// What has to change for everything of the plan to be there, and what only its user can change.
fn install(plan: &SetupPlan) -> Result<(Vec<Change>, Vec<Value>), Error> {
    let (mut changes, mut by_hand) = (Vec::new(), Vec::new());
    for piece in &plan.pieces {
        let before = read(&piece.path)?;
        match piece.edit.with(before.as_deref()) {
            Ok(after) if before.as_deref() == Some(&after) => {}
            Ok(after) => changes.push(Change { path: piece.path.clone(), before, after: Some(after) }),
            Err(what) => by_hand.push(json!({"file": piece.path, "do": what})),
        }
    }
    Ok((changes, by_hand))
}

/// Back to what was there; where it is not any more what we left, only our own part goes.
fn undo(plan: &SetupPlan, record: &SetupRecord) -> Result<Vec<Change>, Error> {
    let mut changes = Vec::new();
    for piece in &plan.pieces {
        let Some(now) = read(&piece.path)? else { continue };
        let recorded = record.changes.iter().find(|change| change.path == piece.path);
        let after = match recorded {
            Some(made) if made.after.as_ref() == Some(&now) => made.before.clone(),
            _ => piece.edit.without(&now),
        };
        if after.as_ref() != Some(&now) {
            changes.push(Change { path: piece.path.clone(), before: Some(now), after });
        }
    }
    Ok(changes)
}

/// Asks whoever looks at the terminal; nobody there says no.
fn agreed(changes: &[Change], context: &Context) -> Result<bool, Error> {
    if !io::stdin().is_terminal() || !context.output.is_terminal() {
        return Ok(false);
    }
    for change in changes {
        let shown = change.show();
        let word = |key: &str| shown[key].as_str().unwrap_or_default().to_owned();
        context.output.prompt(&format!("{} {}\n{}\n\n", word("action"), word("file"), word("diff")));
    }
    context.output.prompt("Change this? [y/N] ");
    let mut answer = String::new();
    let read = io::stdin().lock().read_line(&mut answer);
    read.map_err(|error| Error::io("failed to read standard input", &error))?;
    Ok(["y", "yes"].contains(&answer.trim().to_ascii_lowercase().as_str()))
}

fn apply(changes: &[Change], record: &mut SetupRecord) -> Result<(), Error> {
    for change in changes {
        let made = change.make().map_err(|error| {
            let what = format!("`{}` cannot be changed", change.path.display());
            Error::io(&what, &error).hint("what stands before it in the list was changed; --undo takes it back")
        })?;
        record.folders.extend(made);
    }
    Ok(())
}

/// For `--undo`: the oldest text that is known, as long as nobody else wrote to the file in between.
fn remember(
    plan: &SetupPlan,
    changes: &[Change],
    mut record: SetupRecord,
    file: &Path,
    context: &Context,
) -> Result<(), Error> {
    for change in changes {
        let mut change = change.clone();
        let known = record.changes.iter().position(|known| known.path == change.path);
        if let Some(known) = known.map(|place| record.changes.swap_remove(place)) {
            let edit = plan.pieces.iter().find(|piece| piece.path == change.path).map(|piece| &piece.edit);
            change.before = if known.after == change.before {
                known.before
            } else {
                change.before.and_then(|before| edit.map_or(Some(before.clone()), |edit| edit.without(&before)))
            };
        }
        record.changes.push(change);
    }
    let unwritten = |error| Error::io("what was changed cannot be remembered", &error);
    context.paths.create_state().map_err(unwritten)?;
    fs::create_dir_all(file.parent().unwrap_or(Path::new("/"))).map_err(unwritten)?;
    let text = serde_json::to_vec_pretty(&record).expect("texts and paths are plain JSON");
    fs::write(file, text).map_err(unwritten)
}

fn forget(record: &SetupRecord, file: &Path) -> Result<(), Error> {
    // The deepest first; one that others put something into is theirs now.
    for folder in record.folders.iter().rev() {
        drop(fs::remove_dir(folder));
    }
    match fs::remove_file(file) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(Error::io("what was changed cannot be forgotten", &error))
        }
        _ => Ok(()),
    }
}

fn next(args: &Args, plan: &SetupPlan, is_open: bool) -> Vec<String> {
    let again = is_open.then(|| "nothing was changed: repeat it with --yes".to_owned());
    let after = if args.undo { &[][..] } else { &plan.next };
    again.into_iter().chain(after.iter().cloned()).collect()
}

/// In the state folder, which nobody else may enter: what stood in a client's settings may be secret.
fn record_file(site: &SetupTarget) -> PathBuf {
    let project = site.project.as_ref().map(|project| {
        let digest = digest::hex(&Sha256::digest(project.as_os_str().as_encoded_bytes()));
        format!("-{}", &digest[..16])
    });
    site.paths.state.join("setup").join(format!("{}{}.json", site.client, project.unwrap_or_default()))
}

fn read_record(file: &Path) -> Result<SetupRecord, Error> {
    let Some(text) = read(file)? else { return Ok(SetupRecord::default()) };
    serde_json::from_str(&text).map_err(|error| {
        Error::new(Code::Io, format!("what was changed before cannot be understood: {error}"))
            .hint(format!("without it, `--undo` takes out what is ours: remove {}", file.display()))
    })
}

fn read(path: &Path) -> Result<Option<String>, Error> {
    change::read(path).map_err(|error| Error::io(&format!("`{}` cannot be read", path.display()), &error))
}

/// What is to be installed for a client.
fn plan(client: Client, site: &SetupTarget) -> SetupPlan {
    match client {
        Client::ClaudeCode => claude_code::plan(site),
        Client::Codex => codex::plan(site),
        Client::GeminiCli => gemini_cli::plan(site),
        Client::Opencode => opencode::plan(site),
        Client::Cursor => cursor::plan(site),
        Client::Goose => goose::plan(site),
        Client::Aider => aider::plan(site),
        Client::AgentsMd => agents_md::plan(site),
    }
}
