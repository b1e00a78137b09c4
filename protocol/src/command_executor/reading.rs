//! The programs with which a model reads results: our own versions, whatever is installed.
//!
//! `cat`, `head`, `tail`, `grep`, `jq`, `wc`, `ls`, `echo` and `true` with their most common options. They
//! read only standard input and the files in the mailbox's results folder. The error for anything else
//! names what is supported.

use std::ffi::OsStr;
use std::fs;
use std::io::{self, BufRead, BufReader, Cursor, Read as _};
use std::path::Path;

use serde_json::Value;

use crate::caller::Caller;
use crate::extent;
use crate::mailbox::Mailbox;
use crate::shell::Shell;
use crate::task::TaskId;

mod grep;
mod jq;
mod options;
mod text;

pub use jq::JqCall;

/// The supported programs.
pub(super) const PROGRAMS: [&str; 9] = ["cat", "echo", "grep", "head", "jq", "ls", "tail", "true", "wc"];

/// The largest file that a program reads into memory; larger files must be read in parts.
const MAX_BYTES: u64 = 64 << 20;

/// The output of a program.
#[derive(Debug, Default)]
pub(super) struct ProgramOutput {
    pub status: u8,
    pub stdout: Vec<u8>,
    pub stderr: String,
}

/// The exit status and error message of a program that failed.
#[derive(Debug)]
struct ProgramFailure(u8, String);

impl From<String> for ProgramFailure {
    fn from(message: String) -> Self {
        Self(2, message)
    }
}

/// Runs the programs over the result files and records which of them were read.
#[derive(Debug)]
pub(super) struct ResultReader<'a> {
    mailbox: &'a Mailbox,
    shell: &'a dyn Shell,
    caller: &'a Caller,
    stdin: Vec<u8>,
    /// The tasks whose final results were opened.
    pub collected: Vec<TaskId>,
}

impl<'a> ResultReader<'a> {
    pub(super) fn new(mailbox: &'a Mailbox, shell: &'a dyn Shell, caller: &'a Caller) -> Self {
        Self { mailbox, shell, caller, stdin: Vec::new(), collected: Vec::new() }
    }

    fn may_see(&self, task: TaskId) -> bool {
        self.shell.may_see(task) && self.mailbox.may_see(self.caller, task)
    }

    /// Runs one of [`PROGRAMS`].
    pub(super) fn run(&mut self, words: &[String], stdin: Vec<u8>) -> ProgramOutput {
        self.stdin = stdin;
        let Some((name, arguments)) = words.split_first() else { return ProgramOutput::default() };
        let done = match name.as_str() {
            "cat" => text::cat(arguments, self),
            "head" => text::head(arguments, self),
            "tail" => text::tail(arguments, self),
            "wc" => text::wc(arguments, self),
            "ls" => self.list(arguments),
            "grep" => grep::grep(arguments, self),
            "jq" => jq::jq(arguments, self),
            "echo" => Ok(text::echo(arguments)),
            _ => Ok(ProgramOutput::default()),
        };
        done.unwrap_or_else(|ProgramFailure(status, message)| ProgramOutput {
            status,
            stdout: Vec::new(),
            stderr: format!("{name}: {message}\n"),
        })
    }

    /// Opens a result file, or standard input for `-`.
    fn open(&mut self, name: &str) -> Result<Box<dyn BufRead>, ProgramFailure> {
        if name == "-" {
            return Ok(Box::new(Cursor::new(std::mem::take(&mut self.stdin))));
        }
        let file_name = self.file_name(name)?;
        let task = Mailbox::task_of_file(file_name).filter(|id| self.may_see(*id));
        let opened = task.map_or_else(|| Err(io::ErrorKind::NotFound.into()), |_| self.mailbox.open_result(file_name));
        let file = opened.map_err(|error| {
            ProgramFailure(
                1,
                match error.kind() {
                    io::ErrorKind::NotFound => {
                        format!("{name}: no such file; to list the tasks: agent-magic-tool tasks")
                    }
                    _ => format!("{name}: failed to read the file: {error}"),
                },
            )
        })?;
        self.collected.extend(task.filter(|id| self.mailbox.is_final(*id)));
        Ok(Box::new(BufReader::with_capacity(1 << 16, file)))
    }

    /// Reads a whole file, up to [`MAX_BYTES`].
    fn read(&mut self, name: &str) -> Result<Vec<u8>, ProgramFailure> {
        let mut bytes = Vec::new();
        let read = self.open(name)?.take(MAX_BYTES + 1).read_to_end(&mut bytes);
        read.map_err(|error| ProgramFailure(1, format!("{name}: failed to read the file: {error}")))?;
        if bytes.len() as u64 > MAX_BYTES {
            let id = task_in(name).map_or_else(|| "ID".to_owned(), |id| id.to_string());
            let message =
                format!("{name}: more than {MAX_BYTES} bytes; read a part: agent-magic-tool read {id} --lines 1-100");
            return Err(ProgramFailure(1, message));
        }
        Ok(bytes)
    }

    /// A printed result with its whole data, as `jq` is to see every result, and what a reader of the data must know. Anything
    /// else stays as it is.
    pub(super) fn with_whole_data(&mut self, printed: Vec<u8>) -> (Vec<u8>, Option<String>) {
        let Ok(Value::Object(mut result)) = serde_json::from_slice(&printed) else { return (printed, None) };
        let id = result.get("id").and_then(Value::as_str).and_then(|id| id.parse::<TaskId>().ok());
        let Some(id) = id.filter(|_| result.get("status").is_some_and(|status| status == "succeeded")) else {
            return (printed, None);
        };
        let file = self.read(&self.mailbox.result_file(id).display().to_string()).ok();
        let file: Value = file.and_then(|file| serde_json::from_slice(&file).ok()).unwrap_or_default();
        let meta = &file["_meta"];
        let note = extent::note(meta).map(|note| [Some(note), extent::all_pages(meta)].into_iter().flatten());
        let note = note.map(|parts| parts.collect::<Vec<_>>().join("; "));
        if result.contains_key("data") {
            return (printed, note);
        }
        let Some(data) = file.get("data").cloned().or_else(|| self.data_in_file(meta["data_file"].as_str()?)) else {
            return (printed, note);
        };
        result.insert("data".to_owned(), data);
        (Value::Object(result).to_string().into_bytes(), note)
    }

    fn data_in_file(&mut self, path: &str) -> Option<Value> {
        let bytes = self.read(path).ok()?;
        let is_json = Path::new(path).extension() == Some(OsStr::new("json"));
        let as_json = serde_json::from_slice(&bytes).ok().filter(|_| is_json);
        Some(as_json.unwrap_or_else(|| String::from_utf8_lossy(&bytes).into()))
    }

    /// The name of the result file at `path`; a relative path starts in the results folder.
    fn file_name<'b>(&self, path: &'b str) -> Result<&'b OsStr, ProgramFailure> {
        let results = self.mailbox.results();
        let outside = || {
            let results = results.display();
            ProgramFailure(1, format!("{path}: only result files can be read here; they are in {results}"))
        };
        let full_path = results.join(path);
        let folder = full_path.parent().and_then(|folder| folder.canonicalize().ok());
        if folder.is_none() || folder != results.canonicalize().ok() {
            return Err(outside());
        }
        Path::new(path).file_name().ok_or_else(outside)
    }

    fn list(&mut self, arguments: &[String]) -> Result<ProgramOutput, ProgramFailure> {
        let options = options::read("ls", "-1, -a, -h, -l, -r, -t", "1ahlrt", "", &[], arguments)?;
        let results = self.mailbox.results();
        let mut named = Vec::new();
        for operand in &options.operands {
            let is_folder =
                results.join(operand).canonicalize().is_ok_and(|path| Some(path) == results.canonicalize().ok());
            if !is_folder {
                named.push(self.file_name(operand)?.to_owned());
            }
        }
        let entries = fs::read_dir(&results).map_err(|error| format!("{}: {error}", results.display()))?;
        let mut found: Vec<_> = entries
            .flatten()
            .filter_map(|entry| Some((entry.file_name().into_string().ok()?, entry.metadata().ok()?)))
            .filter(|(_, found)| found.is_file())
            .filter(|(name, _)| Mailbox::task_of_file(name.as_ref()).is_some_and(|id| self.may_see(id)))
            .filter(|(name, _)| named.is_empty() || named.iter().any(|wanted| wanted.to_str() == Some(name)))
            .collect();
        if let Some(missing) = named.iter().find(|wanted| found.iter().all(|(name, _)| wanted.to_str() != Some(name))) {
            return Err(ProgramFailure(2, format!("{}: no such file", missing.display())));
        }
        found.sort_by(|(one, _), (other, _)| one.cmp(other));
        // Ids, and so the names, sort by creation time.
        if options.has('t') != options.has('r') {
            found.reverse();
        }
        let line = |(name, metadata): &(String, fs::Metadata)| {
            let size = if options.has('l') { format!("{:>10} ", metadata.len()) } else { String::new() };
            format!("{size}{name}\n")
        };
        Ok(ProgramOutput {
            stdout: found.iter().map(line).collect::<String>().into_bytes(),
            ..ProgramOutput::default()
        })
    }
}

/// The task that a word names: an id, or the name or path of a file of the task.
pub fn task_in(word: &str) -> Option<TaskId> {
    let name = word.rsplit('/').next().unwrap_or(word);
    let name = name.strip_prefix("result-").and_then(|name| name.split('.').next()).unwrap_or(name);
    name.parse().ok()
}
