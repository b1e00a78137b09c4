//! The log: who ran what, with which input, how it ended and how long it took. Never a secret.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::Mutex;

use tracing_subscriber::EnvFilter;

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
    /// For a person who looks on.
    Stderr,
    /// One JSON object a line.
    File(&'a Path),
}

/// Starts logging what `filter` lets through, in the syntax of `RUST_LOG`. Once for each process.
pub fn start(to: To<'_>, filter: &str) -> Result<(), LogError> {
    let filter = EnvFilter::try_new(filter).map_err(|error| LogError::Filter(error.to_string()))?;
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_target(false);
    match to {
        To::Stderr => log.with_writer(io::stderr).init(),
        To::File(path) => {
            let file = open(path).map_err(|source| LogError::File { path: path.display().to_string(), source })?;
            log.json().flatten_event(true).with_writer(Mutex::new(file)).init();
            std::panic::set_hook(Box::new(|panic| tracing::error!(%panic, "the executor failed")));
        }
    }
    Ok(())
}

/// An error and what caused it, on one line.
pub fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

fn open(path: &Path) -> io::Result<File> {
    fs::create_dir_all(path.parent().unwrap_or(Path::new("/")))?;
    if fs::metadata(path).is_ok_and(|found| found.len() > LARGEST) {
        fs::rename(path, path.with_extension("log.1"))?;
    }
    fs::OpenOptions::new().append(true).create(true).mode(0o600).open(path)
}
