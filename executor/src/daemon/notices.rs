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
    pub(super) fn new(config: &config::ConfirmSettings, places: &Paths) -> Self {
        let desktop = if config.notify { places.desktop() } else { None };
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
    pub(super) fn next_notice(&self) -> Option<Timestamp> {
        self.bell.notices.next(self.dispatcher.questions()).filter(|_| !self.bell.ways.are_none())
    }

    /// Tells a human of what waits, if it is time to.
    pub(super) fn give_notice(&mut self) {
        let now = self.clock.now();
        if self.next_notice().is_none_or(|at| at > now) {
            return;
        }
        let asked = self.dispatcher.questions();
        if !self.bell.notices.take(asked, self.dispatcher.waiting() > 0, now) {
            return;
        }
        let waiting = self.dispatcher.confirmable().filter(|task| task.state == State::AwaitingConfirmation);
        let notice = Notice::of(waiting, self.bell.page.clone());
        let (ways, equipment, cancel) =
            (Arc::clone(&self.bell.ways), Arc::clone(&self.equipment), self.ended.child_token());
        self.tracker.spawn_on(async move { send(&notice, &ways, &equipment, &cancel).await }, self.runtime.handle());
    }
}
