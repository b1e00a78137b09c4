//! Output that is kept as a file: what is not text, or too large for memory.

use std::fmt::Display;
use std::path::Path;
use std::pin::pin;

use futures_util::{Stream, StreamExt as _};
use ground::config::ExecutorSettings;
use ground::config::secret::{HiddenTexts, Secrets};
use ground::task::failure::Failure;
use net::clients::too_large;
use protocol::code::Code;
use tokio::io::AsyncWriteExt as _;

use super::result_space::ResultSpace;
use super::{Invocation, OutputData, RunnerContext};

/// The content type of bytes of which nothing is known.
pub(super) const BYTES: &str = "application/octet-stream";

/// Where the output of one attempt is kept, and what must not appear in it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Spool<'a> {
    folder: &'a Path,
    secrets: &'a Secrets,
    hidden: &'a HiddenTexts,
    max_bytes: u64,
    invocation: &'a Invocation,
    results: &'a ResultSpace,
    settings: &'a ExecutorSettings,
}

impl<'a> Spool<'a> {
    pub(super) fn of(context: &'a RunnerContext, invocation: &'a Invocation, max_bytes: u64) -> Self {
        Self {
            folder: &context.spool,
            secrets: &context.secrets,
            hidden: &invocation.hidden,
            max_bytes,
            invocation,
            results: &context.results,
            settings: &context.config.executor,
        }
    }

    /// Writes `chunks`, without secrets, to a file; deletes the file if any chunk fails or exceeds what the caller may keep.
    pub(super) async fn store<B: AsRef<[u8]>>(
        self,
        chunks: impl Stream<Item = Result<B, Failure>>,
        content_type: String,
    ) -> Result<OutputData, Failure> {
        let unwritable = |error: &dyn Display| {
            Failure::new(Code::Io, format!("failed to write `{}`: {error}", self.folder.display()))
        };
        tokio::fs::create_dir_all(self.folder).await.map_err(|error| unwritable(&error))?;
        let file = tempfile::Builder::new().prefix("output-").tempfile_in(self.folder);
        let (file, path) = file.map_err(|error| unwritable(&error))?.into_parts();
        let mut file = tokio::fs::File::from_std(file);
        let mut redaction = self.secrets.stream_redaction(self.hidden);
        let (mut received, mut written) = (0, 0);
        let mut chunks = pin!(chunks);
        while let Some(chunk) = chunks.next().await {
            let chunk = chunk?;
            received += chunk.as_ref().len() as u64;
            let redacted = redaction.push(chunk.as_ref());
            written += redacted.len() as u64;
            if received.max(written) > self.max_bytes {
                return Err(too_large(self.max_bytes));
            }
            self.count(redacted.len())?;
            file.write_all(&redacted).await.map_err(|error| unwritable(&error))?;
        }
        let rest = redaction.finish();
        written += rest.len() as u64;
        self.count(rest.len())?;
        file.write_all(&rest).await.map_err(|error| unwritable(&error))?;
        file.flush().await.map_err(|error| unwritable(&error))?;
        let path = path.keep().map_err(|error| unwritable(&error))?;
        Ok(OutputData::File { path, content_type, bytes: written })
    }

    fn count(&self, bytes: usize) -> Result<(), Failure> {
        self.results.add(&self.invocation.id, &self.invocation.caller, bytes as u64, self.settings)
    }
}
