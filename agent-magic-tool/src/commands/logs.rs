//! `logs`: prints a log of the executor, `serve` or `agent` in a form that people read, and follows it.
//!
//! The log itself is JSON lines; a line in another format is printed as it is.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Seek as _, SeekFrom};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::Duration;

use agent_side::backoff::Backoff;
use agent_side::context::Context;
use agent_side::error::Error;
use agent_side::output::MAX_DOCUMENT_BYTES;
use protocol::code::{Code, Exit};
use protocol::excerpt;
use serde_json::{Map, Value};

/// The longest pause before the log is looked at again; a person does not notice it.
const MAX_PAUSE: Duration = Duration::from_millis(200);
/// How much of one line is printed, unless all is asked for.
const MAX_LINE_CHARS: usize = 4_000;
/// The fields that begin a line.
const LEADING: [&str; 3] = ["timestamp", "level", "message"];

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Whose log
    #[arg(value_name = "LOG", default_value = "executor")]
    of: LogName,
    /// Print new lines as they are written, until interrupted
    #[arg(long, short)]
    follow: bool,
    /// How many of the last lines to print
    #[arg(long, short = 'n', value_name = "NUMBER", default_value_t = 50)]
    lines: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum LogName {
    Executor,
    Serve,
    Agent,
}

pub(crate) fn run(args: &Args, context: &Context) -> Result<Exit, Error> {
    let (path, writer) = match args.of {
        LogName::Executor => (context.paths.log(), "an executor writes it: agent-magic-tool executor start"),
        LogName::Serve => (context.paths.serve_log(), "it is written by: agent-magic-tool serve"),
        LogName::Agent => (context.paths.agent_log(), "it is written by: agent-magic-tool agent"),
    };
    let mut log = match Log::open(&path) {
        Ok(log) => log,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Err(Error::new(Code::NotFound, format!("there is no log at `{}` yet", path.display())).hint(writer));
        }
        Err(error) => return Err(failed(&path, &error)),
    };
    let mut last = Vec::new();
    while let Some(line) = log.next_line().map_err(|error| failed(&path, &error))? {
        last.push(line);
        if last.len() > args.lines.max(1) * 2 {
            last.drain(..last.len() - args.lines);
        }
    }
    let shown = last.split_off(last.len().saturating_sub(args.lines));
    let shown: Vec<_> = shown.iter().map(|line| readable(line)).collect();
    print_last(&shown, context)?;
    if args.follow { follow(log, &path, context) } else { Ok(Exit::Ok) }
}

/// Prints the last of `lines`, as many as fit, and says how many do not.
fn print_last(lines: &[String], context: &Context) -> Result<(), Error> {
    if context.output.is_whole() {
        return context.output.lines(&lines.concat());
    }
    let mut room = MAX_DOCUMENT_BYTES;
    let mut shown: Vec<_> = lines
        .iter()
        .rev()
        .map(|line| {
            if line.len() > MAX_LINE_CHARS {
                format!("{}\n", excerpt::chars(line, MAX_LINE_CHARS))
            } else {
                line.clone()
            }
        })
        .take_while(|line| {
            let fits = line.len() <= room;
            room = room.saturating_sub(line.len());
            fits
        })
        .collect();
    shown.reverse();
    context.output.lines(&shown.concat())?;
    let left_out = lines.len() - shown.len();
    let cut = lines.iter().filter(|line| line.len() > MAX_LINE_CHARS).count();
    if left_out + cut > 0 {
        context.output.note(&format!(
            "the output is cut: {left_out} older lines are left out and {cut} long lines are cut; all of it into a pipe or file: add --whole"
        ));
    }
    Ok(())
}

fn follow(mut log: Log, path: &Path, context: &Context) -> Result<Exit, Error> {
    let mut backoff = Backoff::new(MAX_PAUSE);
    loop {
        while let Some(line) = log.next_line().map_err(|error| failed(path, &error))? {
            context.output.lines(&readable(&line))?;
            backoff = Backoff::new(MAX_PAUSE);
        }
        if log.is_rotated(path)
            && let Ok(new) = Log::open(path)
        {
            log = new;
            continue;
        }
        backoff.pause(None);
    }
}

fn failed(path: &Path, error: &std::io::Error) -> Error {
    Error::io(&format!("failed to read the log `{}`", path.display()), error)
}

/// The log file, read line by line while it grows.
struct Log {
    reader: BufReader<File>,
    inode: u64,
}

impl Log {
    fn open(path: &Path) -> std::io::Result<Self> {
        let file = File::open(path)?;
        let inode = file.metadata()?.ino();
        Ok(Self { reader: BufReader::new(file), inode })
    }

    /// Returns the next whole line; `None` if there is no more yet.
    fn next_line(&mut self) -> std::io::Result<Option<String>> {
        let mut line = Vec::new();
        let read = self.reader.read_until(b'\n', &mut line)?;
        if line.last() == Some(&b'\n') {
            line.pop();
            return Ok(Some(String::from_utf8_lossy(&line).into_owned()));
        }
        // Half a line: read it again when the rest is there.
        self.reader.seek(SeekFrom::Current(-i64::try_from(read).unwrap_or_default()))?;
        Ok(None)
    }

    fn is_rotated(&self, path: &Path) -> bool {
        std::fs::metadata(path).is_ok_and(|now| now.ino() != self.inode)
    }
}

/// `12:30:01  INFO  task ended  id=01a1… status=failed`
fn readable(line: &str) -> String {
    let Ok(Value::Object(fields)) = serde_json::from_str::<Value>(line) else { return format!("{line}\n") };
    let text = |key: &str| fields.get(key).and_then(Value::as_str).unwrap_or_default();
    let time = text("timestamp").split('.').next().unwrap_or_default().replace('T', " ");
    let rest: Vec<_> = fields.iter().filter(|(key, _)| !LEADING.contains(&key.as_str())).map(shown).collect();
    format!("{time} {:>5} {}  {}\n", text("level"), text("message"), rest.join(" ")).replace("  \n", "\n")
}

fn shown((key, value): (&String, &Value)) -> String {
    match value {
        Value::String(text) if text.contains([' ', '"', '\n']) => format!("{key}={text:?}"),
        Value::String(text) => format!("{key}={text}"),
        Value::Object(fields) => fields_of(fields),
        other => format!("{key}={other}"),
    }
}

fn fields_of(fields: &Map<String, Value>) -> String {
    fields.iter().map(shown).collect::<Vec<_>>().join(" ")
}
