//! Turns a program's exit status and output into the outcome of the invocation.

use std::borrow::Cow;
use std::io;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;

use definition::run::process::{Process, ProcessOutput};
use encoding_rs::Encoding;
use futures_util::{StreamExt as _, stream};
use ground::base::credential;
use ground::config::secret::{Secret, Secrets};
use ground::task::failure::{Failure, Retry};
use nix::sys::signal::Signal;
use protocol::code::Code;
use protocol::json::parse_answer;
use protocol::{excerpt, regular_file};
use serde_json::{Map, Value};
use tokio_util::io::ReaderStream;

use super::group::{ProgramExit, StopCause};
use crate::spool::{self, Spool};
use crate::{OutputData, RunnerOutput};

/// The most of each stream in a failure: enough for the first and the last errors of a compiler.
const MAX_FAILURE_BYTES: usize = 16 * 1024;

/// The most of stderr in `_meta` of a success.
const MAX_META_BYTES: usize = 4 * 1024;

/// The most of a program's output in an error message.
const MAX_MESSAGE_BYTES: usize = 500;

/// Reads the exit status and the output of one program.
pub(super) struct OutputReader<'a> {
    pub(super) process: &'a Process,
    pub(super) program: &'a Path,
    pub(super) all_secrets: &'a Secrets,
    /// The secrets in the program's environment.
    pub(super) passed_secrets: &'a [Secret],
    /// The file that the program was to write.
    pub(super) written: Option<PathBuf>,
    pub(super) spool: Spool<'a>,
}

impl OutputReader<'_> {
    pub(super) async fn outcome(&self, exit: ProgramExit) -> Result<RunnerOutput, Failure> {
        let truncated = exit.stopped.is_some();
        let (stdout, stderr) = (self.clean(&exit.stdout, truncated), self.clean(&exit.stderr, truncated));
        let status_fields = exit.status.map_or_else(Map::new, status_fields);
        let name = self.name();
        let failure = match (exit.stopped, exit.status) {
            (Some(StopCause::Cancelled), _) => {
                Failure::new(Code::Cancelled, format!("cancelled while `{name}` was running"))
            }
            (Some(StopCause::TooMuchOutput(stream)), _) => {
                let limit = self.process.max_bytes;
                Failure::new(Code::ResponseTooLarge, format!("`{name}` printed more than {limit} bytes to {stream}"))
                    .hint("the program was stopped; ask for less output")
            }
            (None, Some(status)) if self.is_ok(status) => match self.data(exit.stdout, &stdout).await {
                Ok(data) => return Ok(self.success(data, status_fields, &masked(&stderr))),
                Err(failure) => failure,
            },
            (None, Some(status)) => {
                let lines = significant_lines(&masked(if stderr.trim().is_empty() { &stdout } else { &stderr }));
                let separator = if lines.is_empty() { "" } else { ": " };
                let status = describe_status(status);
                // Whether a retry can help is up to the definition: it sets `retries` if so.
                Failure::new(Code::ProcessFailed, format!("`{name}` ended with {status}{separator}{lines}"))
                    .retry(Retry::Later)
            }
            (None, None) => Failure::new(Code::ProcessFailed, format!("the exit status of `{name}` is unknown")),
        };
        // A program that was stopped or killed did not say how far it came.
        let has_answered =
            exit.stopped.is_none() && exit.status.is_some_and(|status| status.code().is_some() && !self.is_ok(status));
        let mut failure = if has_answered { failure.answered() } else { failure.effect_possible() };
        failure.error.details.extend(status_fields);
        Err(failure
            .detail("stdout", shortened(&masked(&stdout), MAX_FAILURE_BYTES))
            .detail("stderr", shortened(&masked(&stderr), MAX_FAILURE_BYTES)))
    }

    fn is_ok(&self, status: ExitStatus) -> bool {
        status
            .code()
            .and_then(|code| u8::try_from(code).ok())
            .is_some_and(|code| self.process.ok_statuses.contains(&code))
    }

    /// Returns the data, which is what the program printed or the file that it wrote.
    async fn data(&self, printed: Vec<u8>, text: &str) -> Result<OutputData, Failure> {
        if let Some(path) = &self.written {
            return self.written_file(path).await;
        }
        Ok(OutputData::Json(match self.process.output {
            // A NUL byte is in no text.
            ProcessOutput::Text if self.process.encoding.is_none() && printed.contains(&0) => {
                return self.printed_file(printed).await;
            }
            ProcessOutput::File => return self.printed_file(printed).await,
            ProcessOutput::Text => Value::String(text.trim_end_matches(['\r', '\n']).to_owned()),
            ProcessOutput::Json => parse_answer(text).map_err(|reason| {
                let message = format!("the output of `{}` is not JSON: {reason}", self.name());
                Failure::new(Code::BadResponse, message)
            })?,
            ProcessOutput::Lines => text.lines().map(|line| Value::String(line.to_owned())).collect(),
        }))
    }

    async fn printed_file(&self, printed: Vec<u8>) -> Result<OutputData, Failure> {
        let content_type = self.process.content_type.clone().unwrap_or_else(|| spool::BYTES.to_owned());
        self.spool.store(stream::iter([Ok(printed)]), content_type).await
    }

    async fn written_file(&self, path: &Path) -> Result<OutputData, Failure> {
        let opened = path.to_owned();
        let opened = tokio::task::spawn_blocking(move || regular_file::open_itself(&opened)).await;
        let file = opened.map_err(io::Error::other).flatten().map_err(|error| {
            let file = path.file_name().unwrap_or_default().display();
            Failure::new(Code::BadResponse, format!("`{}` did not write `{file}`: {error}", self.name()))
                .hint("the path of the file is its argument; perhaps the program writes elsewhere")
        })?;
        let of_extension = || mime_guess::from_path(path).first_or_octet_stream().to_string();
        let content_type = self.process.content_type.clone().unwrap_or_else(of_extension);
        let chunks = ReaderStream::new(tokio::fs::File::from_std(file));
        let unreadable = |error| Failure::new(Code::Io, format!("failed to read the output file: {error}"));
        self.spool.store(chunks.map(|chunk| chunk.map_err(unreadable)), content_type).await
    }

    fn success(&self, data: OutputData, status_fields: Map<String, Value>, stderr: &str) -> RunnerOutput {
        let output = RunnerOutput { data, meta: Map::new(), facts: None };
        let mut output = output.with_meta("program", self.program.to_string_lossy());
        output.meta.extend(status_fields);
        if let Some(name) = self.written.as_ref().and_then(|path| path.file_name()) {
            output = output.with_meta("file_name", name.to_string_lossy());
        }
        if stderr.trim().is_empty() {
            return output;
        }
        output.with_meta("stderr", shortened(stderr, MAX_META_BYTES))
    }

    fn name(&self) -> Cow<'_, str> {
        self.program.file_name().unwrap_or_default().to_string_lossy()
    }

    /// Removes escape sequences and secrets, and the beginning of a secret where the output was truncated.
    fn clean(&self, bytes: &[u8], truncated: bool) -> String {
        let encoding = self.process.encoding.as_ref().and_then(|label| Encoding::for_label(label.as_bytes()));
        let decoded = encoding.map(|encoding| encoding.decode(bytes).0);
        let plain = plain(decoded.as_deref().map_or(bytes, str::as_bytes));
        let mut text = self.all_secrets.redact(&plain).into_owned();
        if truncated {
            for secret in self.passed_secrets {
                let length = text.len() - truncated_secret_length(&text, secret.expose());
                text.truncate(length);
            }
        }
        text
    }
}

/// The field `exit_code` or `signal`.
fn status_fields(status: ExitStatus) -> Map<String, Value> {
    let mut fields = Map::new();
    match (status.code(), status.signal()) {
        (Some(code), _) => fields.insert("exit_code".to_owned(), code.into()),
        (None, Some(signal)) => fields.insert("signal".to_owned(), signal_name(signal).into()),
        (None, None) => None,
    };
    fields
}

fn describe_status(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("status {code}"),
        (None, Some(signal)) => format!("signal {}", signal_name(signal)),
        (None, None) => status.to_string(),
    }
}

fn signal_name(signal: i32) -> Cow<'static, str> {
    Signal::try_from(signal).map_or_else(|_| Cow::Owned(signal.to_string()), |signal| Cow::Borrowed(signal.as_str()))
}

/// Decodes UTF-8 and removes ANSI escape sequences.
///
/// The stripper removes every control character except line feeds, but tabs and separators are data. So it only
/// gets the text between control characters.
fn plain(bytes: &[u8]) -> String {
    let is_separator = |byte: &u8| byte.is_ascii_control() && !matches!(byte, 0x1b | 0x07 | 0x7f);
    let mut kept = Vec::with_capacity(bytes.len());
    for piece in bytes.split_inclusive(is_separator) {
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

/// How many bytes at the end of a truncated `text` are the beginning of `secret`.
fn truncated_secret_length(text: &str, secret: &str) -> usize {
    (1..secret.len())
        .rev()
        .find(|&length| secret.is_char_boundary(length) && text.ends_with(&secret[..length]))
        .unwrap_or(0)
}

/// Masks the credentials of a text before it is shortened, because one that is cut in half is not recognized. What
/// is far from both ends is omitted anyway.
fn masked(text: &str) -> String {
    credential::mask(&shortened(text, 4 * MAX_FAILURE_BYTES)).into_owned()
}

/// The beginning and the end of a text that is longer than `limit`.
fn shortened(text: &str, limit: usize) -> Cow<'_, str> {
    if text.chars().map(written_bytes).sum::<usize>() <= limit {
        return Cow::Borrowed(text);
    }
    // How many bytes the first of `characters` have of which half the limit is written.
    let half = |characters: &mut dyn Iterator<Item = char>| -> usize {
        let mut written = 0;
        let fits = |character: &char| {
            written += written_bytes(*character);
            written <= limit / 2
        };
        characters.take_while(fits).map(char::len_utf8).sum()
    };
    let head = half(&mut text.chars());
    let tail = text.len() - half(&mut text.chars().rev());
    Cow::Owned(format!("{}\n[… {} bytes omitted …]\n{}", &text[..head], tail - head, &text[tail..]))
}

/// How many bytes a character takes in JSON, where most control characters take six.
fn written_bytes(character: char) -> usize {
    match character {
        '"' | '\\' | '\n' | '\r' | '\t' | '\u{8}' | '\u{c}' => 2,
        '\0'..'\u{20}' => 6,
        _ => character.len_utf8(),
    }
}

/// The most informative lines: the first, as in a usage message, and the last, as in a stack trace.
fn significant_lines(text: &str) -> String {
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let message = match lines.as_slice() {
        [first, _, _, .., before, last] => [first, "…", before, last].join("; "),
        few => few.join("; "),
    };
    match excerpt::bytes(&message, MAX_MESSAGE_BYTES) {
        (_, 0) => message,
        (shown, _) => format!("{shown}…"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is kept of an output is bounded as it is written, whatever its characters.
    #[test]
    fn an_output_is_shortened_by_its_size_in_json() {
        for character in ["\u{1}", "\n", "\"", "a", "年"] {
            let text = character.repeat(10_000);
            let kept = serde_json::to_string(&shortened(&text, 4_000)).expect("JSON");
            assert!((3_900..4_100).contains(&kept.len()), "{character:?}: {}", kept.len());
            let short = character.repeat(600);
            assert_eq!(shortened(&short, 4_000), short);
        }
    }

    #[test]
    fn colors_are_removed_and_tabs_are_kept() {
        assert_eq!(plain(b"\x1b[1;31mred\x1b[0m\tx\x1fy\r\n\x1b]0;title\x07z\xff"), "red\tx\x1fy\r\nz\u{fffd}");
    }

    #[test]
    fn a_truncated_secret_is_removed() {
        assert_eq!(truncated_secret_length("token=abcd", "abcdefgh"), 4);
        assert_eq!(truncated_secret_length("token=abcdefg", "hunter2"), 0);
    }

    #[test]
    fn a_message_has_the_first_and_the_last_lines() {
        assert_eq!(significant_lines("a\n\n b\nc\nd\n"), "a; b; c; d");
        assert_eq!(significant_lines("usage: x\na\nb\nc\nd"), "usage: x; …; c; d");
    }

    #[test]
    fn a_long_text_keeps_its_ends() {
        assert_eq!(shortened("äääääääääää", 8), "ää\n[… 14 bytes omitted …]\nää");
    }
}
