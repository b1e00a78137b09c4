//! Lists the entries of a folder.

use std::path::{Path, PathBuf};

use cap_std::fs::Metadata;
use definition::run::builtin::MAX_ENTRIES;
use ground::task::failure::Failure;
use protocol::code::Code;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::interrupt::cancelled;
use super::roots::{FoundPath, Roots, within_roots};
use super::walk::{self, Pattern};
use super::{Limit, whole_number};
use crate::{Invocation, RunnerContext, RunnerOutput};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ListFilesArguments {
    path: Option<String>,
    glob: Option<String>,
    #[serde(default, deserialize_with = "whole_number")]
    limit: Option<u64>,
}

pub(super) async fn perform(
    arguments: ListFilesArguments,
    invocation: &Invocation,
    context: &RunnerContext,
    cancel: &CancellationToken,
) -> Result<RunnerOutput, Failure> {
    within_roots(invocation, context, cancel, move |roots, cancel| list(&arguments, roots, cancel)).await
}

fn list(arguments: &ListFilesArguments, roots: &Roots, cancel: &CancellationToken) -> Result<RunnerOutput, Failure> {
    let pattern = arguments.glob.as_deref().map(Pattern::new).transpose()?;
    let start = roots.find(arguments.path.as_deref().unwrap_or("."))?;
    let shown = roots.shown(&start.path());
    if !start.metadata.is_dir() {
        return Err(Failure::new(Code::Rejected, format!("`{shown}` is not a folder")));
    }
    let limit = Limit::of(arguments.limit, MAX_ENTRIES, MAX_ENTRIES);
    let mut entries = Vec::new();
    let mut more = false;
    for path in paths(&start, pattern.as_ref(), &shown)? {
        if cancel.is_cancelled() {
            return Err(cancelled());
        }
        if !pattern.as_ref().is_none_or(|pattern| pattern.matches(&path)) {
            continue;
        }
        let Some(metadata) = start.metadata_at(&start.path().join(&path)) else { continue };
        if entries.len() == limit.count() {
            more = true;
            break;
        }
        entries.push(describe(&path, &metadata));
    }
    let data = json!({ "path": shown, "entries": entries, "more": more });
    Ok(RunnerOutput::json(data).with_extent(limit.extent(more)))
}

/// Returns the paths relative to the folder: its direct entries, sorted, or all that a walk finds below it.
fn paths<'a>(
    start: &'a FoundPath<'_>,
    pattern: Option<&Pattern>,
    shown: &str,
) -> Result<Box<dyn Iterator<Item = PathBuf> + 'a>, Failure> {
    if pattern.is_none_or(Pattern::by_name) {
        let mut names = start
            .names()
            .map_err(|error| Failure::new(Code::NotFound, format!("failed to list `{shown}`: {error}")))?;
        names.sort_unstable();
        return Ok(Box::new(names.into_iter().map(PathBuf::from)));
    }
    let base = start.path();
    Ok(Box::new(walk::below(start).filter_map(move |entry| {
        let relative = entry.path().strip_prefix(&base).ok()?;
        (!relative.as_os_str().is_empty()).then(|| relative.to_owned())
    })))
}

fn describe(path: &Path, metadata: &Metadata) -> Value {
    let path = path.to_string_lossy();
    if metadata.is_dir() {
        json!({ "path": path, "type": "folder" })
    } else if metadata.is_symlink() {
        json!({ "path": path, "type": "link" })
    } else if metadata.is_file() {
        json!({ "path": path, "type": "file", "bytes": metadata.len() })
    } else {
        json!({ "path": path, "type": "other" })
    }
}
