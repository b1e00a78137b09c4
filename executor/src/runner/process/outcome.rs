//! What a program's end means: its status, and what it printed.

use std::borrow::Cow;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::ExitStatus;

use nix::sys::signal::Signal;
use protocol::code::Code;
use protocol::excerpt;
use serde_json::{Map, Value};

use super::group::{Ended, Stopped};
use super::{Process, ProcessOutput};
use crate::config::secret::{Secret, Secrets};
use crate::runner::RunnerOutput;
use crate::task::failure::{Failure, Retry};

/// How much of each stream a failure shows: enough for a compiler's first and last words.
const SHOWN_BYTES: usize = 16 * 1024;

/// How much of stderr goes into `_meta` of a success.
const NOTED_BYTES: usize = 4 * 1024;

/// How long the part of a message may be that a program wrote.
const MESSAGE_BYTES: usize = 500;

/// Reads what one program left.
pub(super) struct OutputReader<'a> {
    pub(super) process: &'a Process,
    pub(super) program: &'a Path,
    pub(super) known: &'a Secrets,
    /// The secrets that the program had.
    pub(super) given: &'a [Secret],
}

impl OutputReader<'_> {
    pub(super) fn outcome(&self, ended: &Ended) -> Result<RunnerOutput, Failure> {
        let cut = ended.stopped.is_some();
        let (stdout, stderr) = (self.clean(&ended.stdout, cut), self.clean(&ended.stderr, cut));
        let end = ended.status.map_or_else(Map::new, end_of);
        let name = self.program.file_name().unwrap_or_default().to_string_lossy();
        let failure = match (ended.stopped, ended.status) {
            (Some(Stopped::Cancelled), _) => {
                Failure::new(Code::Cancelled, format!("`{name}` was cancelled while it ran"))
            }
            (Some(Stopped::TooMuch(stream)), _) => {
                let limit = self.process.max_bytes;
                Failure::new(Code::ResponseTooLarge, format!("`{name}` printed more than {limit} bytes to {stream}"))
                    .hint("it was stopped; ask for less")
            }
            (None, Some(status)) if self.is_ok(status) => match self.data(&stdout) {
                Ok(data) => return Ok(self.success(data, end, &stderr)),
                Err(reason) => Failure::new(Code::BadResponse, format!("`{name}` printed no JSON: {reason}")),
            },
            (None, Some(status)) => {
                let said = telling_lines(if stderr.trim().is_empty() { &stdout } else { &stderr });
                let separator = if said.is_empty() { "" } else { ": " };
                // The definition knows whether a repetition can help: it names `retries`, or none.
                Failure::new(Code::ProcessFailed, format!("`{name}` ended with {}{separator}{said}", words(status)))
                    .retry(Retry::Later)
            }
            (None, None) => Failure::new(Code::ProcessFailed, format!("`{name}` ended in a way that cannot be told")),
        };
        let mut failure = failure.effect_possible();
        failure.error.details.extend(end);
        Err(failure
            .detail("stdout", shortened(&stdout, SHOWN_BYTES).into_owned())
            .detail("stderr", shortened(&stderr, SHOWN_BYTES).into_owned()))
    }

    fn is_ok(&self, status: ExitStatus) -> bool {
        status
            .code()
            .and_then(|code| u8::try_from(code).ok())
            .is_some_and(|code| self.process.ok_statuses.contains(&code))
    }

    fn data(&self, stdout: &str) -> serde_json::Result<Value> {
        Ok(match self.process.output {
            ProcessOutput::Text => Value::String(stdout.trim_end_matches(['\r', '\n']).to_owned()),
            ProcessOutput::Json => serde_json::from_str(stdout)?,
            ProcessOutput::Lines => stdout.lines().map(|line| Value::String(line.to_owned())).collect(),
        })
    }

    fn success(&self, data: Value, end: Map<String, Value>, stderr: &str) -> RunnerOutput {
        let mut success = RunnerOutput::json(data).with_meta("program", self.program.to_string_lossy());
        success.meta.extend(end);
        if stderr.trim().is_empty() {
            return success;
        }
        success.with_meta("stderr", shortened(stderr, NOTED_BYTES))
    }

    /// Text without escape sequences and without secrets.
    fn clean(&self, printed: &[u8], cut: bool) -> String {
        let plain = plain(printed);
        let mut text = self.known.redact(&plain).into_owned();
        if cut {
            for secret in self.given {
                let kept = text.len() - cut_secret(&text, secret.expose());
                text.truncate(kept);
            }
        }
        text
    }
}

/// `exit_code` or `signal`.
fn end_of(status: ExitStatus) -> Map<String, Value> {
    let mut end = Map::new();
    match (status.code(), status.signal()) {
        (Some(code), _) => end.insert("exit_code".to_owned(), code.into()),
        (None, Some(signal)) => end.insert("signal".to_owned(), signal_name(signal).into()),
        (None, None) => None,
    };
    end
}

fn words(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("status {code}"),
        (None, Some(signal)) => format!("signal {}", signal_name(signal)),
        (None, None) => status.to_string(),
    }
}

fn signal_name(signal: i32) -> Cow<'static, str> {
    Signal::try_from(signal).map_or_else(|_| Cow::Owned(signal.to_string()), |signal| Cow::Borrowed(signal.as_str()))
}

/// UTF-8 without ANSI escape sequences.
///
/// The stripping is done from one control character to the next, because the stripper takes all of
/// them away but line feeds, and a tab or a separator is data.
fn plain(printed: &[u8]) -> String {
    let is_separator = |byte: &u8| byte.is_ascii_control() && !matches!(byte, 0x1b | 0x07 | 0x7f);
    let mut kept = Vec::with_capacity(printed.len());
    for piece in printed.split_inclusive(is_separator) {
        let (text, separator) = match piece.split_last() {
            Some((last, text)) if is_separator(last) => (text, Some(*last)),
            _ => (piece, None),
        };
        if text.contains(&0x1b) {
            kept.extend(strip_ansi_escapes::strip(text));
        } else {
            kept.extend_from_slice(text);
        }
        kept.extend(separator);
    }
    String::from_utf8_lossy(&kept).into_owned()
}

/// How many bytes at the end of `text` are the beginning of `secret`, where the output was cut off.
fn cut_secret(text: &str, secret: &str) -> usize {
    (1..secret.len())
        .rev()
        .find(|&length| secret.is_char_boundary(length) && text.ends_with(&secret[..length]))
        .unwrap_or(0)
}

/// The beginning and the end of a text that is longer than `limit`.
fn shortened(text: &str, limit: usize) -> Cow<'_, str> {
    if text.len() <= limit {
        return Cow::Borrowed(text);
    }
    let head = text.floor_char_boundary(limit / 2);
    let tail = text.ceil_char_boundary(text.len() - limit / 2);
    Cow::Owned(format!("{}\n[… {} bytes left out …]\n{}", &text[..head], tail - head, &text[tail..]))
}

/// The lines that say most: the last ones of a trace, the first of an explanation of the usage.
fn telling_lines(text: &str) -> String {
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let said = match lines.as_slice() {
        [first, _, _, .., before, last] => [first, "…", before, last].join("; "),
        few => few.join("; "),
    };
    match excerpt::bytes(&said, MESSAGE_BYTES) {
        (_, 0) => said,
        (shown, _) => format!("{shown}…"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_go_and_tabs_stay() {
        assert_eq!(plain(b"\x1b[1;31mred\x1b[0m\tx\x1fy\r\n\x1b]0;title\x07z\xff"), "red\tx\x1fy\r\nz\u{fffd}");
    }

    #[test]
    fn a_secret_that_the_limit_cut_in_half_is_taken_away() {
        assert_eq!(cut_secret("token=abcd", "abcdefgh"), 4);
        assert_eq!(cut_secret("token=abcdefg", "hunter2"), 0);
    }

    #[test]
    fn a_message_has_the_first_and_the_last_lines() {
        assert_eq!(telling_lines("a\n\n b\nc\nd\n"), "a; b; c; d");
        assert_eq!(telling_lines("usage: x\na\nb\nc\nd"), "usage: x; …; c; d");
    }

    #[test]
    fn a_long_text_keeps_its_ends() {
        assert_eq!(shortened("äääääääääää", 8), "ää\n[… 14 bytes left out …]\nää");
    }
}
