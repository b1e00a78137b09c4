//! The log: who ran what, how it ended and how long it took. Never a secret.
//!
//! Every line goes through [`credential::mask`]: what is logged often quotes another program or server.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, IsTerminal as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use protocol::paths::create_private;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::{Format, Full, Writer};
use tracing_subscriber::fmt::writer::BoxMakeWriter;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

use crate::base::credential;
use crate::config::{self, LogFormat};

#[derive(Debug, thiserror::Error)]
pub enum LogError {
    #[error("failed to open the log `{path}`")]
    File { path: String, source: io::Error },
    #[error("`executor.log` is not a valid log filter: {0}")]
    Filter(String),
}

/// Where log lines are written.
#[derive(Debug, Clone, Copy)]
pub enum LogTarget<'a> {
    /// Standard error: a terminal, or the journal of a service.
    Stderr {
        is_journal: bool,
    },
    File(&'a Path),
}

/// Starts logging as configured. Must be called at most once per process.
pub fn start(to: LogTarget<'_>, config: &config::ExecutorSettings) -> Result<(), LogError> {
    // The SDK tells each message of MCP servers, unless it is told otherwise.
    let quiet = if config.log.contains("rmcp") { "" } else { ",rmcp=warn" };
    let filter = EnvFilter::try_new(format!("{}{quiet}", config.log));
    let filter = filter.map_err(|error| LogError::Filter(error.to_string()))?;
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_target(false);
    let format = match (config.log_format, to) {
        (LogFormat::Auto, LogTarget::File(_)) => LogFormat::Json,
        (LogFormat::Auto, LogTarget::Stderr { is_journal: true }) => LogFormat::Journald,
        (LogFormat::Auto, LogTarget::Stderr { is_journal: false }) => LogFormat::Plain,
        (format, _) => format,
    };
    let stderr = io::stderr;
    let colors = matches!(to, LogTarget::Stderr { .. }) && stderr().is_terminal();
    let writer = match to {
        LogTarget::Stderr { .. } => BoxMakeWriter::new(move || MaskedLines(stderr())),
        LogTarget::File(path) => {
            let file = RotatingFile::open(path, config.log_bytes)
                .map_err(|source| LogError::File { path: path.display().to_string(), source })?;
            std::panic::set_hook(Box::new(|panic| tracing::error!(%panic, "the executor panicked")));
            BoxMakeWriter::new(Mutex::new(MaskedLines(file)))
        }
    };
    let log = log.with_writer(writer).with_ansi(colors);
    match format {
        LogFormat::Json => log.json().flatten_event(true).init(),
        LogFormat::Journald => {
            log.event_format(JournaldFormat(Format::default().with_target(false).with_level(false).without_time()))
                .init();
        }
        LogFormat::Plain | LogFormat::Auto => log.init(),
    }
    Ok(())
}

/// Lines for the systemd journal, with the priority first as in `sd-daemon(3)`.
struct JournaldFormat(Format<Full, ()>);

impl<S, N> FormatEvent<S, N> for JournaldFormat
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(&self, context: &FmtContext<'_, S, N>, mut to: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let priority = match *event.metadata().level() {
            Level::ERROR => 3,
            Level::WARN => 4,
            Level::INFO => 6,
            Level::DEBUG | Level::TRACE => 7,
        };
        write!(to, "<{priority}>")?;
        self.0.format_event(context, to, event)
    }
}

/// Masks what looks like a credential in each line.
struct MaskedLines<W>(W);

impl<W: io::Write> io::Write for MaskedLines<W> {
    /// Called once for each line.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        match std::str::from_utf8(line) {
            Ok(text) => self.0.write_all(credential::mask(text).as_bytes())?,
            Err(_) => self.0.write_all(line)?,
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// A log file that is rotated at its size limit; one old file is kept.
struct RotatingFile {
    path: PathBuf,
    file: File,
    bytes: u64,
    limit: u64,
}

impl RotatingFile {
    fn open(path: &Path, limit: u64) -> io::Result<Self> {
        create_private(path.parent().unwrap_or(Path::new("/")))?;
        let file = append(path)?;
        let bytes = file.metadata()?.len();
        Ok(Self { path: path.to_owned(), file, bytes, limit })
    }

    fn rotate(&mut self) -> io::Result<()> {
        fs::rename(&self.path, self.path.with_extension("log.1"))?;
        self.file = append(&self.path)?;
        self.bytes = 0;
        Ok(())
    }
}

impl io::Write for RotatingFile {
    /// Called once for each line.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let is_full = self.bytes > 0 && self.bytes + line.len() as u64 > self.limit;
        if is_full && self.rotate().is_err() {
            // Keep writing to this file, and try to rotate again after another `limit` bytes.
            self.bytes = 0;
        }
        let written = self.file.write(line)?;
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

fn append(path: &Path) -> io::Result<File> {
    fs::OpenOptions::new().append(true).create(true).mode(0o600).open(path)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn a_credential_in_a_line_is_masked_and_the_line_stays_json() {
        let mut written = MaskedLines(Vec::new());
        let line = serde_json::json!({"level": "WARN", "reason": "GET http://u:hunter2@h answered: password=\"x1\"\n"});
        written.write_all(format!("{line}\n").as_bytes()).expect("written");
        let read: serde_json::Value = serde_json::from_slice(&written.0).expect("still JSON");
        assert_eq!(read["reason"], "GET http://u:[hidden]@h answered: password=\"[hidden]\"\n");
    }

    #[test]
    fn a_log_is_rotated_between_lines_and_both_files_stay_within_the_limit() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("executor.log");
        fs::write(&path, "from an earlier executor\n").expect("written");
        let mut log = RotatingFile::open(&path, 60).expect("opened");
        for number in 0..20 {
            log.write_all(format!("line {number:02}\n").as_bytes()).expect("written");
        }
        let read = |path: &Path| fs::read_to_string(path).expect("readable");
        let (before, now) = (read(&path.with_extension("log.1")), read(&path));
        assert!(before.len() <= 60 && now.len() <= 60, "{before}{now}");
        assert!(now.ends_with("line 19\n") && (before + &now).lines().all(|line| line.starts_with("line ")));
    }
}
