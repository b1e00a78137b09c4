//! Reads lines of a text file, however large the file is.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read as _};

use definition::run::builtin::MAX_LINES;
use ground::task::failure::Failure;
use protocol::code::Code;
use protocol::extent::DataExtent;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::interrupt::Interruptible;
use super::roots::{Roots, within_roots};
use super::{Limit, missing, whole_number};
use crate::input_file;
use crate::{Invocation, RunnerContext, RunnerOutput};

/// The most bytes of text that are returned at once: about 25,000 tokens.
const MAX_TEXT_BYTES: usize = 100_000;

/// The most bytes of one line that are returned; longer lines are data or minified code.
const MAX_LINE_BYTES: usize = 2_000;

/// A NUL byte in this many bytes at the beginning marks a binary file; git uses the same limit.
const SNIFFED_BYTES: usize = 8_000;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ReadFileArguments {
    pub(super) path: String,
    #[serde(default, deserialize_with = "whole_number")]
    start: Option<u64>,
    #[serde(default, deserialize_with = "whole_number")]
    lines: Option<u64>,
}

pub(super) async fn perform(
    arguments: ReadFileArguments,
    invocation: &Invocation,
    context: &RunnerContext,
    cancel: &CancellationToken,
) -> Result<RunnerOutput, Failure> {
    let approved = match &invocation.approved {
        Some(_) => Some(input_file::private(&arguments.path, invocation, context).await?.file),
        None => None,
    };
    within_roots(invocation, context, cancel, move |roots, cancel| read(&arguments, approved, roots, cancel)).await
}

/// `approved` is the file that a human was shown, if one was.
fn read(
    arguments: &ReadFileArguments,
    approved: Option<File>,
    roots: &Roots,
    cancel: &CancellationToken,
) -> Result<RunnerOutput, Failure> {
    let found = roots.find(&arguments.path)?;
    let start = arguments.start.unwrap_or(1).max(1);
    let limit = Limit::of(arguments.lines, MAX_LINES, MAX_LINES);
    let shown = roots.shown(&found.path());
    let file = approved.map_or_else(|| found.file(), Ok)?;
    let excerpt = match excerpt(file, start, limit.most, cancel) {
        Ok(excerpt) => excerpt,
        Err(error) => return Err(Failure::new(Code::Io, format!("failed to read `{shown}`: {error}"))),
    };
    if excerpt.binary {
        return Err(Failure::new(Code::Rejected, format!("`{shown}` is not a text file"))
            .detail("bytes", found.metadata.len())
            .hint("only text files can be read"));
    }
    let part = DataExtent {
        truncated: missing([(excerpt.truncated, "long line", "cut")]),
        ..limit.extent(start.saturating_add(excerpt.lines) <= excerpt.total_lines)
    };
    Ok(RunnerOutput::json(excerpt.describe(&shown, start)).with_extent(part))
}

#[derive(Debug, Default)]
struct Excerpt {
    binary: bool,
    text: String,
    lines: u64,
    /// How many of these lines are too long and were cut.
    truncated: u64,
    total_lines: u64,
}

impl Excerpt {
    fn describe(self, path: &str, start: u64) -> Value {
        let next = start.saturating_add(self.lines);
        let mut data = json!({
            "path": path,
            "start": start,
            "lines": self.lines,
            "total_lines": self.total_lines,
            "text": self.text,
        });
        if self.truncated > 0 {
            data["truncated_lines"] = self.truncated.into();
        }
        if self.lines > 0 && next <= self.total_lines {
            data["next_start"] = next.into();
        }
        data
    }
}

/// Reads lines `start` to `start + count - 1`, and counts the remaining lines without keeping them.
fn excerpt(file: File, start: u64, count: u64, cancel: &CancellationToken) -> io::Result<Excerpt> {
    let mut reader = BufReader::with_capacity(64 * 1024, Interruptible { inner: file, cancel });
    let beginning = reader.fill_buf()?;
    let mut excerpt = Excerpt::default();
    if beginning[..beginning.len().min(SNIFFED_BYTES)].contains(&0) {
        excerpt.binary = true;
        return Ok(excerpt);
    }
    let mut wanted = true;
    let mut line = Vec::new();
    loop {
        let number = excerpt.total_lines + 1;
        wanted = wanted && number < start.saturating_add(count);
        if number < start || !wanted {
            if reader.skip_until(b'\n')? == 0 {
                return Ok(excerpt);
            }
        } else {
            line.clear();
            // One more byte for the line break.
            (&mut reader).take(MAX_LINE_BYTES as u64 + 1).read_until(b'\n', &mut line)?;
            if line.is_empty() {
                return Ok(excerpt);
            }
            let is_whole = line.ends_with(b"\n") || line.len() <= MAX_LINE_BYTES;
            let text = if is_whole {
                String::from_utf8_lossy(&line).into_owned()
            } else {
                reader.skip_until(b'\n')?;
                beginning_of(&line[..MAX_LINE_BYTES])
            };
            if excerpt.text.len() + text.len() > MAX_TEXT_BYTES {
                wanted = false;
            } else {
                excerpt.text.push_str(&text);
                excerpt.lines += 1;
                excerpt.truncated += u64::from(!is_whole);
            }
        }
        excerpt.total_lines += 1;
    }
}

/// The beginning of a long line, without an incomplete character at its end.
fn beginning_of(line: &[u8]) -> String {
    let valid = match str::from_utf8(line) {
        Err(error) if error.error_len().is_none() => &line[..error.valid_up_to()],
        _ => line,
    };
    format!("{} [… line truncated]\n", String::from_utf8_lossy(valid))
}
