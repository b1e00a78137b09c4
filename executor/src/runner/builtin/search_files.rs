//! Finds the lines of files that match a regular expression.
//!
//! The engine's time is linear in what it reads, whatever the expression; a search ends at the
//! fifty-first hit, or when it is cancelled.

use std::fs::File;
use std::io;

use grep_matcher::Matcher as _;
use grep_regex::{RegexMatcher, RegexMatcherBuilder};
use grep_searcher::{BinaryDetection, MmapChoice, Searcher, SearcherBuilder, Sink, SinkMatch};
use protocol::code::Code;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::interrupt::{Interruptible, cancelled};
use super::roots::{Roots, within_roots};
use super::walk::{self, Pattern};
use super::whole;
use crate::runner::{Invocation, RunnerContext, RunnerOutput};
use crate::task::failure::Failure;

/// The most hits that are returned.
const MAX_HITS: usize = 50;

/// The most that is returned of one line, beginning a little before the hit.
const MAX_TEXT: usize = 300;
const BEFORE_HIT: usize = 80;

/// A file with a longer line than this is passed over: it is no text that a person wrote.
const MAX_LINE: usize = 8 << 20;

/// How large a compiled expression may be.
const MAX_REGEX: usize = 1 << 20;

/// Finds lines that match a regular expression. Templates.
#[derive(Debug, Clone, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SearchFiles {
    /// The regular expression.
    pub pattern: Value,
    /// The folder or the file to search. Absent: the caller's folder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<Value>,
    /// Only files whose name matches, or whose path from `path` if it has a `/`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub glob: Option<Value>,
    /// Whether upper and lower case are the same. Absent: false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ignore_case: Option<Value>,
    /// How many hits; at most 50. Absent: 50.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<Value>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SearchFilesArguments {
    pattern: String,
    path: Option<String>,
    glob: Option<String>,
    #[serde(default)]
    ignore_case: bool,
    #[serde(default, deserialize_with = "whole")]
    limit: Option<u64>,
}

pub(super) async fn perform(
    arguments: SearchFilesArguments,
    invocation: &Invocation,
    context: &RunnerContext,
    cancel: &CancellationToken,
) -> Result<RunnerOutput, Failure> {
    within_roots(invocation, context, cancel, move |roots, cancel| search(&arguments, roots, cancel)).await
}

fn search(arguments: &SearchFilesArguments, roots: &Roots, cancel: &CancellationToken) -> Result<Value, Failure> {
    let matcher = matcher(arguments)?;
    let pattern = arguments.glob.as_deref().map(Pattern::new).transpose()?;
    let start = roots.find(arguments.path.as_deref().unwrap_or("."))?;
    let base = start.path();
    let limit = arguments.limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(MAX_HITS).clamp(1, MAX_HITS);
    let mut searcher = SearcherBuilder::new()
        .line_number(true)
        .memory_map(MmapChoice::never())
        .heap_limit(Some(MAX_LINE))
        .binary_detection(BinaryDetection::quit(0))
        .build();
    let mut hits = Hits { matcher: &matcher, path: String::new(), found: Vec::new(), limit, more: false };
    let (mut files, mut unreadable) = (0_u64, 0_u64);
    for entry in walk::below(&start) {
        if cancel.is_cancelled() {
            return Err(cancelled());
        }
        let path = entry.path();
        let relative = path.strip_prefix(&base).unwrap_or(path);
        let wanted = |pattern: &Pattern| pattern.matches(if relative.as_os_str().is_empty() { path } else { relative });
        if entry.file_type().is_none_or(|kind| !kind.is_file()) || !pattern.as_ref().is_none_or(wanted) {
            continue;
        }
        hits.path = roots.shown(path);
        match start.file_at(path).map(|file| hits.collect(&mut searcher, file, cancel)) {
            Some(Ok(())) => files += 1,
            Some(Err(_)) | None => unreadable += 1,
        }
        if hits.more {
            break;
        }
    }
    let mut data = json!({ "matches": hits.found, "files_searched": files, "more": hits.more });
    if unreadable > 0 {
        data["files_unreadable"] = unreadable.into();
    }
    Ok(data)
}

fn matcher(arguments: &SearchFilesArguments) -> Result<RegexMatcher, Failure> {
    RegexMatcherBuilder::new()
        .case_insensitive(arguments.ignore_case)
        .line_terminator(Some(b'\n'))
        .size_limit(MAX_REGEX)
        .build(&arguments.pattern)
        .map_err(|error| {
            Failure::new(Code::Rejected, format!("`{}` is no regular expression: {error}", arguments.pattern)).hint(
                "the syntax is that of RE2 and Rust: no look-around, no back-references; lines are matched singly",
            )
        })
}

/// The hits so far.
struct Hits<'a> {
    matcher: &'a RegexMatcher,
    /// The file that is being searched.
    path: String,
    found: Vec<Value>,
    limit: usize,
    /// There was one beyond the limit.
    more: bool,
}

impl Hits<'_> {
    fn collect(&mut self, searcher: &mut Searcher, file: File, cancel: &CancellationToken) -> io::Result<()> {
        let matcher = self.matcher;
        searcher.search_reader(matcher, Interruptible { inner: file, cancel }, self)
    }
}

impl Sink for &mut Hits<'_> {
    type Error = io::Error;

    fn matched(&mut self, _: &Searcher, hit: &SinkMatch<'_>) -> io::Result<bool> {
        if self.found.len() == self.limit {
            self.more = true;
            return Ok(false);
        }
        let text = excerpt(self.matcher, hit.bytes());
        self.found.push(json!({ "path": self.path, "line": hit.line_number(), "text": text }));
        Ok(true)
    }
}

/// The line, or the part of a long one that has the hit.
fn excerpt(matcher: &RegexMatcher, line: &[u8]) -> String {
    let text = String::from_utf8_lossy(line);
    let text = text.trim_end_matches(['\r', '\n']);
    if text.len() <= MAX_TEXT {
        return text.to_owned();
    }
    let hit = matcher.find(text.as_bytes()).ok().flatten().map_or(0, |hit| hit.start());
    let from = text.floor_char_boundary(hit.saturating_sub(BEFORE_HIT));
    let to = text.floor_char_boundary(from + MAX_TEXT);
    let (before, after) = (if from > 0 { "…" } else { "" }, if to < text.len() { "…" } else { "" });
    format!("{before}{}{after}", &text[from..to])
}
