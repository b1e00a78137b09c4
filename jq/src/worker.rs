//! The process that evaluates jq expressions, and what is said between it and its parent.
//!
//! An expression can run forever or exhaust the memory. In this process, which limits itself for each job, that ends
//! only the process: the kernel kills it. It reads jobs from standard input and writes one reply for each to standard
//! output, and ends when its input does. `ground/src/base/jq_pool.rs` is the executor's side; [`outputs_in`] is for commands.

use std::io::{self, Read, Write};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

use nix::sys::resource::{Resource, UsageWho, getrlimit, getrusage, setrlimit};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::select::{Compiled, SelectError};

/// The hidden command that runs [`serve`].
pub const COMMAND: &str = "jq-worker";

/// The least processor time of a job. The kernel counts whole seconds, so a job gets up to one more.
const MIN_CPU_SECONDS: u64 = 1;
/// This much input gets one more second: ten times what an ordinary expression takes in a debug build.
const BYTES_PER_CPU_SECOND: u64 = 2 << 20;
/// The memory that a job may use apart from its input, with the program itself.
const MIN_MEMORY_BYTES: u64 = 384 << 20;
/// How much more memory than its input a job may use: ten times is usual.
const MEMORY_PER_INPUT: u64 = 16;
/// A worker ends after a job with more input or output than this, since it would not return the memory otherwise.
const MAX_KEPT_BYTES: usize = 1 << 20;
/// How many compiled expressions a worker keeps.
const MAX_COMPILED: usize = 32;

/// How the reason begins if an expression exceeded a limit.
const STOPPED: &str = "it was stopped";

/// Whether the expression was stopped because it exceeded a limit.
pub fn is_stopped(error: &SelectError) -> bool {
    matches!(error, SelectError::Failed { reason, .. } if reason.starts_with(STOPPED))
}

/// What a worker is asked for: every value that an expression produces on JSON text.
#[derive(Debug)]
pub struct Job<'a> {
    pub expression: &'a str,
    /// The names of variables, which begin with `$`, and their values.
    pub variables: &'a [(&'a str, &'a Value)],
    pub data: &'a [u8],
    /// The most bytes of output.
    pub max_bytes: u64,
    /// Whether to find what the expression asks for and the data does not have. The reply is then `[outputs, findings]`.
    pub is_checked: bool,
}

/// What an expression evaluated to for a caller.
#[derive(Debug, Default)]
pub struct CheckedOutputs {
    pub values: Vec<Value>,
    /// What the expression asks for and the data does not have, in a sentence each.
    pub missing: Vec<String>,
}

/// A worker's reply: the outputs as one JSON array, or an error.
#[derive(Debug)]
pub struct Reply {
    kind: ReplyKind,
    /// Whether the worker ends now.
    pub is_last: bool,
    /// How many bytes the content has.
    length: u64,
    content: Vec<u8>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ReplyKind {
    Outputs = 0,
    Syntax = 1,
    Failed = 2,
}

/// Returns this program, even if its file was replaced or removed since it was started.
pub fn own_program() -> PathBuf {
    // A new version might speak another protocol.
    let same = PathBuf::from("/proc/self/exe");
    if same.exists() { same } else { std::env::current_exe().unwrap_or_else(|_| "agent-magic-tool".into()) }
}

/// Does the jobs that arrive at `jobs` until it ends.
pub fn serve(mut jobs: impl Read, mut replies: impl Write) -> io::Result<()> {
    setrlimit(Resource::RLIMIT_CORE, 0, 0)?;
    let mut compiled: Vec<Compiled> = Vec::new();
    while let Some(ReadJob { expression, names, values, max_bytes, is_checked, data }) = read_job(&mut jobs)? {
        limit(data.len() as u64)?;
        let outputs = match compiled.iter().position(|compiled| compiled.is_of(&expression, &names)) {
            Some(known) => Ok(known),
            None => Compiled::new(&expression, names).map(|new| {
                if compiled.len() == MAX_COMPILED {
                    compiled.remove(0);
                }
                compiled.push(new);
                compiled.len() - 1
            }),
        }
        .and_then(|at| {
            if is_checked {
                compiled[at].checked_outputs(&data, &values, max_bytes).map(with_findings)
            } else {
                compiled[at].json_outputs(&data, &values, max_bytes)
            }
        });
        let (kind, content) = match outputs {
            Ok(outputs) => (ReplyKind::Outputs, outputs),
            Err(SelectError::Syntax { reason, .. }) => (ReplyKind::Syntax, reason.into_bytes()),
            Err(SelectError::Failed { reason, .. }) => (ReplyKind::Failed, reason.into_bytes()),
            Err(SelectError::Stopped) => unreachable!("a worker is stopped by a signal"),
        };
        let is_last = data.len() > MAX_KEPT_BYTES || content.len() > MAX_KEPT_BYTES;
        Reply { kind, is_last, length: content.len() as u64, content }.write(&mut replies)?;
        if is_last {
            break;
        }
    }
    Ok(())
}

/// `[outputs, findings]` as JSON.
fn with_findings((outputs, findings): (Vec<u8>, Vec<String>)) -> Vec<u8> {
    let findings = Value::from(findings).to_string();
    [b"[".as_slice(), &outputs, b",", findings.as_bytes(), b"]"].concat()
}

/// Limits what this process may use from now on, for one job with this much input.
fn limit(input_bytes: u64) -> io::Result<()> {
    let usage = getrusage(UsageWho::RUSAGE_SELF)?;
    let used = usage.user_time().tv_sec() + usage.system_time().tv_sec();
    let seconds = u64::try_from(used).unwrap_or_default() + 1 + cpu_seconds(input_bytes);
    let memory = MIN_MEMORY_BYTES + MEMORY_PER_INPUT * input_bytes;
    for (resource, limit) in [(Resource::RLIMIT_CPU, seconds), (Resource::RLIMIT_AS, memory)] {
        // The hard limit stays, so that the next job can have more.
        let (_, hard) = getrlimit(resource)?;
        setrlimit(resource, limit.min(hard), hard)?;
    }
    Ok(())
}

/// How much processor time an expression over this much input gets, in seconds.
pub fn cpu_seconds(input_bytes: u64) -> u64 {
    MIN_CPU_SECONDS + input_bytes / BYTES_PER_CPU_SECOND
}

/// Evaluates `expression` on JSON text in a process of its own, and waits for it. Returns every value that it
/// produces, and what it asks for in vain.
pub fn outputs_in(
    program: &Path,
    expression: &str,
    variables: &[(&str, &Value)],
    data: &[u8],
) -> Result<CheckedOutputs, SelectError> {
    let job = Job { expression, variables, data, max_bytes: u64::MAX, is_checked: true };
    let failed = |error: io::Error| job.failed(format!("failed to start a process for it: {error}"));
    let mut child = Command::new(program)
        .arg(COMMAND)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(failed)?;
    let (mut stdin, mut stdout) = (child.stdin.take().expect("a pipe"), child.stdout.take().expect("a pipe"));
    let sent = stdin.write_all(&job.header()).and_then(|()| stdin.write_all(data));
    drop(stdin);
    let mut header = [0; Reply::HEADER_BYTES];
    let replied = sent.and_then(|()| stdout.read_exact(&mut header)).and_then(|()| {
        let mut reply = Reply::of_header(header)?;
        stdout.read_to_end(&mut reply.content).map(|_| reply)
    });
    let status = child.wait().map_err(failed)?;
    match replied {
        Ok(reply) => reply.into_checked(&job),
        Err(_) => Err(job.exhausted(Some(status))),
    }
}

impl Job<'_> {
    /// What precedes the data.
    pub fn header(&self) -> Vec<u8> {
        let expression = self.expression.as_bytes();
        let variables: Value = self.variables.iter().map(|(name, value)| json!([name, value])).collect();
        let variables = variables.to_string();
        let (is_checked, data) = (u64::from(self.is_checked), self.data.len() as u64);
        let lengths = [self.max_bytes, is_checked, expression.len() as u64, variables.len() as u64, data];
        let header = lengths.iter().flat_map(|length| length.to_le_bytes());
        header.chain(expression.iter().copied()).chain(variables.into_bytes()).collect()
    }

    pub fn failed(&self, reason: String) -> SelectError {
        SelectError::Failed { expression: self.expression.to_owned(), reason }
    }

    /// The error of a job whose worker ended with `status` instead of a reply.
    pub fn exhausted(&self, status: Option<ExitStatus>) -> SelectError {
        let signal = status.and_then(|status| status.signal());
        let seconds = cpu_seconds(self.data.len() as u64);
        self.failed(if status.is_none() {
            format!("{STOPPED}: it took too long")
        } else if signal == Some(Signal::SIGXCPU as i32) {
            format!("{STOPPED} after {seconds}s of processor time; perhaps it never ends")
        } else {
            format!("{STOPPED}: it needs too much memory, or recurses too deeply")
        })
    }
}

struct ReadJob {
    expression: String,
    names: Vec<String>,
    values: Vec<Value>,
    max_bytes: u64,
    is_checked: bool,
    data: Vec<u8>,
}

/// Reads the next job; `None` at the end.
fn read_job(jobs: &mut impl Read) -> io::Result<Option<ReadJob>> {
    let mut lengths = [[0; 8]; 5];
    for (index, length) in lengths.iter_mut().enumerate() {
        match jobs.read_exact(length) {
            Err(error) if index == 0 && error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            read => read?,
        }
    }
    let [max_bytes, is_checked, expression, variables, data] = lengths.map(u64::from_le_bytes);
    let mut exactly = |bytes| {
        let mut content = Vec::new();
        jobs.by_ref().take(bytes).read_to_end(&mut content)?;
        if content.len() as u64 == bytes { Ok(content) } else { Err(io::Error::from(io::ErrorKind::UnexpectedEof)) }
    };
    let expression = String::from_utf8(exactly(expression)?).map_err(io::Error::other)?;
    let variables: Vec<(String, Value)> = serde_json::from_slice(&exactly(variables)?)?;
    let (names, values) = variables.into_iter().unzip();
    Ok(Some(ReadJob { expression, names, values, max_bytes, is_checked: is_checked != 0, data: exactly(data)? }))
}

impl Reply {
    pub const HEADER_BYTES: usize = 10;

    /// A reply without its content.
    pub fn of_header(header: [u8; Self::HEADER_BYTES]) -> io::Result<Self> {
        let [kind, is_last, length @ ..] = header;
        let kind = match kind {
            0 => ReplyKind::Outputs,
            1 => ReplyKind::Syntax,
            2 => ReplyKind::Failed,
            _ => return Err(io::Error::other("a worker wrote an unknown reply")),
        };
        Ok(Self { kind, is_last: is_last != 0, length: u64::from_le_bytes(length), content: Vec::new() })
    }

    /// How many bytes of content follow the header, and where they belong.
    pub fn content(&mut self) -> (u64, &mut Vec<u8>) {
        (self.length, &mut self.content)
    }

    /// The outputs of a job that is checked, with its findings.
    pub fn into_checked(self, job: &Job<'_>) -> Result<CheckedOutputs, SelectError> {
        let outputs = self.into_outputs(job)?;
        let [Value::Array(values), Value::Array(missing)] = <[Value; 2]>::try_from(outputs).unwrap_or_default() else {
            return Err(job.failed("its worker wrote an unknown reply".to_owned()));
        };
        let missing = missing.iter().filter_map(Value::as_str).map(str::to_owned).collect();
        Ok(CheckedOutputs { values, missing })
    }

    pub fn into_outputs(self, job: &Job<'_>) -> Result<Vec<Value>, SelectError> {
        let text = |content: &[u8]| String::from_utf8_lossy(content).into_owned();
        match self.kind {
            ReplyKind::Outputs => serde_json::from_slice(&self.content)
                .map_err(|error| job.failed(format!("its output is not JSON: {error}"))),
            ReplyKind::Syntax => {
                Err(SelectError::Syntax { expression: job.expression.to_owned(), reason: text(&self.content) })
            }
            ReplyKind::Failed => Err(job.failed(text(&self.content))),
        }
    }

    fn write(&self, replies: &mut impl Write) -> io::Result<()> {
        replies.write_all(&[self.kind as u8, u8::from(self.is_last)])?;
        replies.write_all(&self.length.to_le_bytes())?;
        replies.write_all(&self.content)?;
        replies.flush()
    }
}
