//! Starts a program for its helps: without a shell, without input, in an empty folder, bounded in time and size.

use std::io::Read;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use agent_side::error::Error;
use import::document::Document;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use protocol::code::Code;

use super::reading::failed;

/// The longest help; those of compilers have 200 KB.
const MAX_HELP_BYTES: u64 = 1 << 20;
/// How long one help may take: programs in Java and Python need seconds.
const MAX_HELP_TIME: Duration = Duration::from_secs(15);
/// How long all of them may take.
const MAX_TIME: Duration = Duration::from_mins(5);
/// Settings that keep programs from opening a pager, and from coloring.
const ENVIRONMENT: [(&str, &str); 7] = [
    ("PAGER", "cat"),
    ("GIT_PAGER", "cat"),
    ("MANPAGER", "cat"),
    ("NO_COLOR", "1"),
    ("TERM", "dumb"),
    ("COLUMNS", "100"),
    ("LC_ALL", "C.UTF-8"),
];

/// Reads the helps of the program and the command that `words` name.
pub(super) fn transcript(words: &[String]) -> Result<Document, Error> {
    let mut words = words.to_vec();
    let program = words.first_mut().ok_or_else(|| Error::usage("no program is named"))?;
    if program.contains('/') {
        let real = Path::new(program.as_str()).canonicalize();
        let real = real.map_err(|error| Error::io(&format!("failed to find `{program}`"), &error))?;
        *program = real.display().to_string();
    }
    let program = PathBuf::from(program.as_str());
    let folder = tempfile::tempdir().map_err(|error| Error::io("failed to make a folder for the program", &error))?;
    let started = Instant::now();
    let mut missing = false;
    let read = import::program::transcript(&words, &mut |arguments| {
        if started.elapsed() > MAX_TIME {
            return Err(format!("the helps take more than {} seconds", MAX_TIME.as_secs()));
        }
        help(&program, arguments, folder.path()).map_err(|error| {
            missing |= error.kind() == std::io::ErrorKind::NotFound;
            error.to_string()
        })
    });
    read.map_err(|error| {
        if missing {
            return Error::new(Code::NotFound, format!("no program `{}`", program.display()))
                .hint("install it, or name it with its path");
        }
        failed(&words.join(" "), error)
    })
}

/// Returns what the program prints: to standard output or, if that is empty, to standard error.
fn help(program: &Path, arguments: &[String], folder: &Path) -> std::io::Result<String> {
    let mut command = Command::new(program);
    command.args(arguments).current_dir(folder).envs(ENVIRONMENT).process_group(0);
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let group = Pid::from_raw(i32::try_from(child.id()).map_err(std::io::Error::other)?);
    let (sender, receiver) = mpsc::channel();
    let streams: [Option<Box<dyn Read + Send>>; 2] = [
        child.stdout.take().map(|stream| Box::new(stream) as Box<dyn Read + Send>),
        child.stderr.take().map(|stream| Box::new(stream) as Box<dyn Read + Send>),
    ];
    for (index, stream) in streams.into_iter().enumerate() {
        let Some(stream) = stream else { continue };
        let sender = sender.clone();
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            // What was read before an error is all there is.
            let _read = stream.take(MAX_HELP_BYTES).read_to_end(&mut bytes);
            // Nothing receives it any more after the time is over.
            let _sent = sender.send((index, bytes));
        });
    }
    drop(sender);
    let end = Instant::now() + MAX_HELP_TIME;
    let mut printed = [Vec::new(), Vec::new()];
    let mut is_late = false;
    for _ in 0..printed.len() {
        match receiver.recv_timeout(end.saturating_duration_since(Instant::now())) {
            Ok((index, bytes)) => printed[index] = bytes,
            Err(_) => is_late = true,
        }
    }
    // Whatever it has started ends with it; the group is gone already if nothing is left.
    let _killed = killpg(group, Signal::SIGKILL);
    child.wait()?;
    if is_late {
        return Err(std::io::Error::other(format!("it did not end within {} seconds", MAX_HELP_TIME.as_secs())));
    }
    let [output, errors] = printed.map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    Ok(if output.trim().is_empty() { errors } else { output })
}
