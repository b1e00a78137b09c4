//! What all clients share.

use std::sync::{Arc, OnceLock};

use tokio_util::task::TaskTracker;

use super::ServerSettings;
use super::exposed::ExposedTools;
use super::turns::Turns;
use super::watch::{FolderEvents, FolderWatch, Watched};

#[derive(Debug)]
pub(super) struct Server {
    pub(super) settings: ServerSettings,
    pub(super) turns: Turns,
    pub(super) exposed: ExposedTools,
    /// What follows files on behalf of clients. It ends with the runtime.
    pub(super) background: TaskTracker,
    results: OnceLock<FolderWatch>,
}

impl Server {
    pub(super) fn new(settings: ServerSettings) -> Arc<Self> {
        let (turns, exposed, background) = (Turns::default(), ExposedTools::default(), TaskTracker::new());
        Arc::new(Self { settings, turns, exposed, background, results: OnceLock::new() })
    }

    /// Events of the result files from now on.
    pub(super) fn result_events(&self) -> FolderEvents {
        self.results.get_or_init(|| FolderWatch::new(&[self.settings.mailbox.results()], Watched::Arrivals)).events()
    }
}
