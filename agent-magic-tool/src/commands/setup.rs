//! `setup`: connects a third-party agent: installs instructions for its model and the hook that wakes it.
//!
//! Every change is shown first, made only after a human agrees or with `--yes`, and recorded in the state
//! folder, so that `--undo` restores the original file byte for byte. If others have edited the file since,
//! `--undo` removes only our part. The file named after a client knows where that client reads what.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, BufRead as _, IsTerminal as _};
use std::path::{Path, PathBuf};

use agent_side::context::Context;
use agent_side::error::Error;
use agent_side::launch;
use ground::config::Config;
use protocol::code::{Code, Exit};
use protocol::digest;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

mod agents_md;
mod aider;
pub(super) mod change;
mod claude_code;
mod codex;
mod cursor;
mod edit;
mod gemini_cli;
mod goose;
mod instruction;
mod json_file;
mod mcp;
mod opencode;
mod plan;
mod section;
mod yaml_file;

use agent_side::client::Client;
use change::Change;
use plan::{SetupPlan, SetupTarget};

#[derive(Debug, clap::Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
pub(crate) struct Args {
    /// The agent to connect
    #[arg(value_name = "CLIENT")]
    client: Client,
    /// Only for this folder, in files that can be shared with others
    #[arg(long, conflicts_with = "user")]
    project: bool,
    /// For everything you do with this client [default, if it has files for that]
    #[arg(long)]
    user: bool,
    /// Add agent-magic-tool to its MCP servers instead, for a client without a shell
    #[arg(long)]
    mcp: bool,
    /// Show the changes without making them
    #[arg(long)]
    dry_run: bool,
    /// Make the changes without asking
    #[arg(long, short)]
    yes: bool,
    /// Remove what setup installed
    #[arg(long)]
    undo: bool,
}

/// The changes made so far, for `--undo`.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SetupRecord {
    changes: Vec<Change>,
    /// Folders that setup created.
    folders: BTreeSet<PathBuf>,
}

pub(crate) fn run(args: &Args, context: &Context) -> Result<Exit, Error> {
    let target = target(args, context)?;
    let plan = if args.mcp { mcp::plan(&target) } else { plan(args.client, &target) };
    let record_file = record_file(&target, args.mcp);
    let mut record = read_record(&record_file)?;
    let (changes, by_hand) = if args.undo { (undo(&plan, &record)?, Vec::new()) } else { install(&plan)? };
    let is_requested = !changes.is_empty() && !args.dry_run;
    let is_applied = is_requested && (args.yes || confirmed(&changes, context)?);
    if is_applied {
        apply(&changes, &mut record)?;
    }
    if is_applied && args.undo {
        delete_record(&record, &record_file)?;
    } else if is_applied {
        save_record(&plan, &changes, record, &record_file, context)?;
    }
    let scope = if target.project.is_some() { "project" } else { "user" };
    let mut answer = json!({
        "client": args.client,
        "scope": scope,
        "changes": changes.iter().map(Change::show).collect::<Vec<_>>(),
        "applied": is_applied,
    });
    if !by_hand.is_empty() {
        answer["by_hand"] = by_hand.into();
    }
    answer["next"] = next(args, &plan, is_requested && !is_applied).into();
    context.output.json(&answer)?;
    Ok(Exit::Ok)
}

fn target(args: &Args, context: &Context) -> Result<SetupTarget, Error> {
    let paths = context.paths.clone();
    if args.client.needs_mcp() && !args.mcp {
        return Err(Error::usage(format!("`{}` has no shell of its own in which agents call programs", args.client))
            .hint(format!("connect it over MCP: agent-magic-tool setup {} --mcp", args.client)));
    }
    if args.mcp && !args.client.has_user_servers() {
        return Err(Error::usage(format!("`{}` has no configuration of MCP servers", args.client))
            .hint(format!("connect it by its shell: agent-magic-tool setup {}", args.client)));
    }
    if args.mcp && args.project && !args.client.has_project_servers() {
        return Err(Error::usage(format!("`{}` has no MCP servers of a project", args.client))
            .hint(format!("agent-magic-tool setup {} --mcp", args.client)));
    }
    let has_user_files = if args.mcp { args.client.has_user_servers() } else { args.client.has_user_files() };
    let is_project = args.project || !args.user && !has_user_files;
    if args.user && !has_user_files {
        return Err(Error::usage(format!("`{}` has no files for all projects of a user", args.client))
            .hint(format!("run this in each project: agent-magic-tool setup {} --project", args.client)));
    }
    let failed = |error| Error::io("failed to find the path of this program", &error);
    let program = if is_project {
        "agent-magic-tool".to_owned()
    } else {
        launch::program().map_err(failed)?.display().to_string()
    };
    let here = || std::env::current_dir().map_err(|error| Error::io("failed to find the current folder", &error));
    Ok(SetupTarget {
        client: args.client,
        home: paths.home()?,
        project: is_project.then(here).transpose()?,
        wait: args.client.wait(&Config::read(&paths)?.for_callers()),
        program,
        paths,
    })
}

/// Returns the changes that install the plan, and those that the user has to make by hand.
fn install(plan: &SetupPlan) -> Result<(Vec<Change>, Vec<Value>), Error> {
    let (mut changes, mut by_hand) = (Vec::new(), Vec::new());
    for piece in &plan.pieces {
        let before = read(&piece.path)?;
        match piece.edit.with(before.as_deref()) {
            Ok(after) if before.as_deref() == Some(&after) => {}
            Ok(after) => changes.push(Change { path: piece.path.clone(), before, after: Some(after) }),
            Err(action) => by_hand.push(json!({"file": piece.path, "do": action})),
        }
    }
    Ok((changes, by_hand))
}

/// Returns the changes that restore each file, or remove only our part if others have changed it.
fn undo(plan: &SetupPlan, record: &SetupRecord) -> Result<Vec<Change>, Error> {
    let mut changes = Vec::new();
    for piece in &plan.pieces {
        let Some(now) = read(&piece.path)? else { continue };
        let recorded = record.changes.iter().find(|change| change.path == piece.path);
        let after = match recorded {
            Some(recorded) if recorded.after.as_ref() == Some(&now) => recorded.before.clone(),
            _ => piece.edit.without(&now),
        };
        if after.as_ref() != Some(&now) {
            changes.push(Change { path: piece.path.clone(), before: Some(now), after });
        }
    }
    Ok(changes)
}

/// Asks the human at the terminal; false without a terminal.
fn confirmed(changes: &[Change], context: &Context) -> Result<bool, Error> {
    if !io::stdin().is_terminal() || !context.output.is_terminal() {
        return Ok(false);
    }
    for change in changes {
        let shown = change.show();
        let text = |key: &str| shown[key].as_str().unwrap_or_default().to_owned();
        context.output.prompt(&format!("{} {}\n{}\n\n", text("action"), text("file"), text("diff")));
    }
    context.output.prompt("Make these changes? [y/N] ");
    let mut answer = String::new();
    let read = io::stdin().lock().read_line(&mut answer);
    read.map_err(|error| Error::io("failed to read standard input", &error))?;
    Ok(["y", "yes"].contains(&answer.trim().to_ascii_lowercase().as_str()))
}

fn apply(changes: &[Change], record: &mut SetupRecord) -> Result<(), Error> {
    for change in changes {
        let folders = change.apply().map_err(|error| {
            let message = format!("failed to change `{}`", change.path.display());
            Error::io(&message, &error).hint("the changes before it in the list were made; --undo reverts them")
        })?;
        record.folders.extend(folders);
    }
    Ok(())
}

/// Records the changes for `--undo`. Keeps the oldest known text of a file, unless others have changed it since.
fn save_record(
    plan: &SetupPlan,
    changes: &[Change],
    mut record: SetupRecord,
    file: &Path,
    context: &Context,
) -> Result<(), Error> {
    for change in changes {
        let mut change = change.clone();
        let known = record.changes.iter().position(|known| known.path == change.path);
        if let Some(known) = known.map(|index| record.changes.swap_remove(index)) {
            let edit = plan.pieces.iter().find(|piece| piece.path == change.path).map(|piece| &piece.edit);
            change.before = if known.after == change.before {
                known.before
            } else {
                change.before.and_then(|before| edit.map_or(Some(before.clone()), |edit| edit.without(&before)))
            };
        }
        record.changes.push(change);
    }
    let failed = |error| Error::io("failed to record the changes for --undo", &error);
    context.paths.create_state().map_err(failed)?;
    fs::create_dir_all(file.parent().unwrap_or(Path::new("/"))).map_err(failed)?;
    let text = serde_json::to_vec_pretty(&record).expect("text and paths can be written as JSON");
    fs::write(file, text).map_err(failed)
}

fn delete_record(record: &SetupRecord, file: &Path) -> Result<(), Error> {
    // Deepest first. A folder that is not empty holds files of others and stays.
    for folder in record.folders.iter().rev() {
        drop(fs::remove_dir(folder));
    }
    match fs::remove_file(file) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(Error::io("failed to delete the record of the changes", &error))
        }
        _ => Ok(()),
    }
}

fn next(args: &Args, plan: &SetupPlan, needs_yes: bool) -> Vec<String> {
    let again = needs_yes.then(|| "nothing was changed; to make the changes, repeat this with --yes".to_owned());
    let after = if args.undo { &[][..] } else { &plan.next };
    again.into_iter().chain(after.iter().cloned()).collect()
}

/// The record's path. It is in the private state folder, since a client's settings may contain secrets.
fn record_file(target: &SetupTarget, is_mcp: bool) -> PathBuf {
    let project = target.project.as_ref().map(|project| {
        let digest = digest::hex(&Sha256::digest(project.as_os_str().as_encoded_bytes()));
        format!("-{}", &digest[..16])
    });
    let mcp = if is_mcp { "-mcp" } else { "" };
    target.paths.state.join("setup").join(format!("{}{mcp}{}.json", target.client, project.unwrap_or_default()))
}

fn read_record(file: &Path) -> Result<SetupRecord, Error> {
    let Some(text) = read(file)? else { return Ok(SetupRecord::default()) };
    serde_json::from_str(&text).map_err(|error| {
        Error::new(Code::Io, format!("the record of earlier changes is malformed: {error}"))
            .hint(format!("remove it, and `--undo` removes only our parts: {}", file.display()))
    })
}

fn read(path: &Path) -> Result<Option<String>, Error> {
    change::read(path).map_err(|error| Error::io(&format!("failed to read `{}`", path.display()), &error))
}

/// Returns what to install for a client.
fn plan(client: Client, target: &SetupTarget) -> SetupPlan {
    match client {
        Client::ClaudeCode => claude_code::plan(target),
        Client::Codex => codex::plan(target),
        Client::GeminiCli => gemini_cli::plan(target),
        Client::Opencode => opencode::plan(target),
        Client::Cursor => cursor::plan(target),
        Client::Goose => goose::plan(target),
        Client::Aider => aider::plan(target),
        Client::AgentsMd => agents_md::plan(target),
        // Only over MCP: refused before.
        Client::ClaudeDesktop | Client::VsCode | Client::Zed | Client::LmStudio => SetupPlan::default(),
    }
}
