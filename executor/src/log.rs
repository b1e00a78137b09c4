//! The log: who ran what, with which input, how it ended and how long it took. Never a secret.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, IsTerminal as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::Mutex;

use tracing::{Event, Level, Subscriber};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::{Format, Full, Writer};
use tracing_subscriber::fmt::writer::BoxMakeWriter;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

use crate::config::LogFormat;

/// A log that has grown beyond this is put aside when the executor starts; the one before is dropped.
const LARGEST: u64 = 16 << 20;

#[derive(Debug, thiserror::Error)]
pub enum LogError {
    #[error("the log `{path}` cannot be written")]
    File { path: String, source: io::Error },
    #[error("the setting `executor.log` is wrong: {0}")]
    Filter(String),
}

/// Where it is written.
#[derive(Debug, Clone, Copy)]
pub enum To<'a> {
    /// For a person who looks on, or for the journal of a service.
    Stderr {
        is_journal: bool,
    },
    File(&'a Path),
}

/// Starts logging what `filter` lets through, in the syntax of `RUST_LOG`. Once for each process.
pub fn start(to: To<'_>, filter: &str, format: LogFormat) -> Result<(), LogError> {
    let filter = EnvFilter::try_new(filter).map_err(|error| LogError::Filter(error.to_string()))?;
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_target(false);
    let format = match (format, to) {
        (LogFormat::Auto, To::File(_)) => LogFormat::Json,
        (LogFormat::Auto, To::Stderr { is_journal: true }) => LogFormat::Journald,
        (LogFormat::Auto, To::Stderr { is_journal: false }) => LogFormat::Plain,
        (format, _) => format,
    };
    let to_stderr = io::stderr;
    let colours = matches!(to, To::Stderr { .. }) && to_stderr().is_terminal();
    let writer = match to {
        To::Stderr { .. } => BoxMakeWriter::new(to_stderr),
        To::File(path) => {
            let file = open(path).map_err(|source| LogError::File { path: path.display().to_string(), source })?;
            std::panic::set_hook(Box::new(|panic| tracing::error!(%panic, "the executor failed")));
            BoxMakeWriter::new(Mutex::new(file))
        }
    };
    let log = log.with_writer(writer).with_ansi(colours);
    match format {
        LogFormat::Json => log.json().flatten_event(true).init(),
        LogFormat::Journald => {
            log.event_format(Journal(Format::default().with_target(false).with_level(false).without_time())).init();
        }
        LogFormat::Plain | LogFormat::Auto => log.init(),
    }
    Ok(())
}

/// A line as systemd's journal reads it: its priority first, as in `sd-daemon(3)`.
struct Journal(Format<Full, ()>);

impl<S, N> FormatEvent<S, N> for Journal
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

fn open(path: &Path) -> io::Result<File> {
    fs::create_dir_all(path.parent().unwrap_or(Path::new("/")))?;
    if fs::metadata(path).is_ok_and(|found| found.len() > LARGEST) {
        fs::rename(path, path.with_extension("log.1"))?;
    }
    fs::OpenOptions::new().append(true).create(true).mode(0o600).open(path)
}
