//! Telling a human that something waits: now and then, beside everything else, and waiting for nobody.

use std::sync::Arc;

use jiff::Timestamp;
use protocol::paths::Paths;
use protocol::task::State;

use super::Daemon;
use crate::config;
use crate::notify::notice::send::{NoticeChannels, send};
use crate::notify::notice::{Notice, NoticeSchedule};

pub(super) struct DesktopNotifier {
    notices: NoticeSchedule,
    ways: Arc<NoticeChannels>,
    /// The page's address, while it is served.
    page: Option<String>,
}

impl DesktopNotifier {
    pub(super) fn new(config: &config::ConfirmSettings, paths: &Paths) -> Self {
        let desktop = if config.notify { paths.desktop() } else { None };
        let ways = NoticeChannels { command: config.on_confirmation.clone(), desktop };
        Self { notices: NoticeSchedule::default(), ways: Arc::new(ways), page: None }
    }

    pub(super) fn page_is_at(&mut self, origin: String) {
        self.page = Some(origin);
    }

    pub(super) fn page(&self) -> Option<&str> {
        self.page.as_deref()
    }
}

impl Daemon {
    /// When a human is to be told something without anything happening before.
    pub(super) fn next_notice_at(&self) -> Option<Timestamp> {
        self.notifier.notices.next(self.dispatcher.confirmations_asked()).filter(|_| !self.notifier.ways.is_empty())
    }

    /// Tells a human of what waits, if it is time to.
    pub(super) fn send_notice(&mut self) {
        let now = self.clock.now();
        if self.next_notice_at().is_none_or(|at| at > now) {
            return;
        }
        let asked = self.dispatcher.confirmations_asked();
        if !self.notifier.notices.take(asked, self.dispatcher.confirmations_pending() > 0, now) {
            return;
        }
        let waiting = self.dispatcher.confirmable().filter(|task| task.state == State::AwaitingConfirmation);
        let notice = Notice::of(waiting, self.notifier.page.clone());
        let (ways, runner_context, cancel) =
            (Arc::clone(&self.notifier.ways), Arc::clone(&self.runner_context), self.ended.child_token());
        self.tracker
            .spawn_on(async move { send(&notice, &ways, &runner_context, &cancel).await }, self.runtime.handle());
    }
}
