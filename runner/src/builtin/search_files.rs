//! Finds the lines of files that match a regular expression.
//!
//! The time of a search is linear in the size of the files, whatever the expression. A search ends at the first hit
//! beyond the limit, or when it is cancelled.

use std::fs::File;
use std::io;

use definition::run::builtin::MAX_HITS;
use grep_matcher::Matcher as _;
use grep_regex::{RegexMatcher, RegexMatcherBuilder};
use grep_searcher::{BinaryDetection, MmapChoice, Searcher, SearcherBuilder, Sink, SinkMatch};
use ground::task::failure::Failure;
use protocol::code::Code;
use protocol::extent::DataExtent;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::interrupt::{Interruptible, cancelled};
use super::roots::{Roots, within_roots};
use super::walk::{self, Pattern};
use super::{Limit, missing, whole_number};
use crate::{Invocation, RunnerContext, RunnerOutput};

/// The most bytes of one line that are returned.
const MAX_TEXT_BYTES: usize = 300;
/// How many bytes before the hit are returned of a longer line.
const BYTES_BEFORE_HIT: usize = 80;

/// Files with a longer line are skipped: they are not text that a person wrote.
const MAX_LINE_BYTES: usize = 8 << 20;

/// The largest compiled expression.
const MAX_REGEX_BYTES: usize = 1 << 20;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SearchFilesArguments {
    pattern: String,
    path: Option<String>,
    glob: Option<String>,
    #[serde(default)]
    ignore_case: bool,
    #[serde(default, deserialize_with = "whole_number")]
    limit: Option<u64>,
    #[serde(default, deserialize_with = "whole_number")]
    page: Option<u64>,
    #[serde(default)]
    count: bool,
}

pub(super) async fn perform(
    arguments: SearchFilesArguments,
    invocation: &Invocation,
    context: &RunnerContext,
    cancel: &CancellationToken,
) -> Result<RunnerOutput, Failure> {
    within_roots(invocation, context, cancel, move |roots, cancel| search(&arguments, roots, cancel)).await
}

fn search(
    arguments: &SearchFilesArguments,
    roots: &Roots,
    cancel: &CancellationToken,
) -> Result<RunnerOutput, Failure> {
    let matcher = matcher(arguments)?;
    let pattern = arguments.glob.as_deref().map(Pattern::new).transpose()?;
    let start = roots.find(arguments.path.as_deref().unwrap_or("."))?;
    let base = start.path();
    let limit = Limit::of(arguments.limit, MAX_HITS, MAX_HITS);
    let mut searcher = SearcherBuilder::new()
        .line_number(true)
        .memory_map(MmapChoice::never())
        .heap_limit(Some(MAX_LINE_BYTES))
        .binary_detection(BinaryDetection::quit(0))
        .build();
    let passed_over = arguments.page.unwrap_or(1).saturating_sub(1).saturating_mul(limit.most);
    let mut hits = Hits {
        matcher: &matcher,
        path: String::new(),
        found: Vec::new(),
        counts_only: arguments.count,
        passed_over,
        count: 0,
        limit: limit.count(),
        more: false,
        cut: 0,
    };
    let (mut files, mut unreadable, mut by_file) = (0_u64, 0_u64, Vec::new());
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
        let before = hits.count;
        match start.file_at(path).map(|file| hits.collect(&mut searcher, file, cancel)) {
            Some(Ok(())) => files += 1,
            Some(Err(_)) | None => unreadable += 1,
        }
        if hits.more {
            break;
        }
        if hits.count > before {
            by_file.push((hits.count - before, hits.path.clone()));
        }
    }
    let mut data = if arguments.count {
        by_file.sort_by(|one, other| other.0.cmp(&one.0).then_with(|| one.1.cmp(&other.1)));
        let first = usize::try_from(passed_over).unwrap_or(usize::MAX);
        hits.more = by_file.len() > first.saturating_add(limit.count());
        let most = by_file.iter().skip(first).take(limit.count());
        let most: Vec<_> = most.map(|(lines, path)| json!({ "path": path, "lines": lines })).collect();
        json!({ "lines": hits.count, "files": by_file.len(), "most": most, "files_searched": files, "more": hits.more })
    } else {
        json!({ "matches": hits.found, "files_searched": files, "more": hits.more })
    };
    if unreadable > 0 {
        data["files_unreadable"] = unreadable.into();
    }
    let missing = missing([(unreadable, "file", "could not be read"), (hits.cut, "long line", "shown in part")]);
    Ok(RunnerOutput::json(data).with_extent(DataExtent { truncated: missing, ..limit.extent(hits.more) }))
}

fn matcher(arguments: &SearchFilesArguments) -> Result<RegexMatcher, Failure> {
    RegexMatcherBuilder::new()
        .case_insensitive(arguments.ignore_case)
        .line_terminator(Some(b'\n'))
        .size_limit(MAX_REGEX_BYTES)
        .build(&arguments.pattern)
        .map_err(|error| {
            let message = format!("`{}` is not a valid regular expression: {error}", arguments.pattern);
            Failure::new(Code::Rejected, message).hint(
                "use the syntax of RE2 and Rust: no look-around and no back-references; each line is matched alone",
            )
        })
}

/// The hits so far.
struct Hits<'a> {
    matcher: &'a RegexMatcher,
    /// The file that is being searched.
    path: String,
    found: Vec<Value>,
    /// Whether they are only counted.
    counts_only: bool,
    /// How many hits are on the pages before.
    passed_over: u64,
    /// How many were found, also of those that are not returned.
    count: u64,
    limit: usize,
    /// Whether there are more hits than the limit.
    more: bool,
    /// How many of their lines are too long and shown in part.
    cut: u64,
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
        self.count += 1;
        if self.counts_only || self.count <= self.passed_over {
            return Ok(true);
        }
        if self.found.len() == self.limit {
            self.more = true;
            return Ok(false);
        }
        let (text, is_cut) = excerpt(self.matcher, hit.bytes());
        self.cut += u64::from(is_cut);
        self.found.push(json!({ "path": self.path, "line": hit.line_number(), "text": text }));
        Ok(true)
    }
}

/// Returns the line or, if it is long, the part with the hit, and whether it is a part.
fn excerpt(matcher: &RegexMatcher, line: &[u8]) -> (String, bool) {
    let text = String::from_utf8_lossy(line);
    let text = text.trim_end_matches(['\r', '\n']);
    if text.len() <= MAX_TEXT_BYTES {
        return (text.to_owned(), false);
    }
    let hit = matcher.find(text.as_bytes()).ok().flatten().map_or(0, |hit| hit.start());
    let from = text.floor_char_boundary(hit.saturating_sub(BYTES_BEFORE_HIT));
    let to = text.floor_char_boundary(from + MAX_TEXT_BYTES);
    let (before, after) = (if from > 0 { "…" } else { "" }, if to < text.len() { "…" } else { "" });
    (format!("{before}{}{after}", &text[from..to]), true)
}
