//! Notices: tells a human now and then that tasks wait for a decision. Nothing waits for a notice.

use std::ffi::OsString;
use std::sync::Arc;

use dispatcher::Dispatcher;
use jiff::Timestamp;
use protocol::paths::Paths;
use protocol::task::State;

use super::background::Background;
use crate::intake::settings::LiveSettings;
use crate::notify::notice::send::{NoticeChannels, send};
use crate::notify::notice::{Notice, NoticeSchedule};

pub(super) struct DesktopNotifier {
    schedule: NoticeSchedule,
    channels: Arc<NoticeChannels>,
    /// The environment variables of the desktop, if there is one.
    desktop: Option<Vec<(&'static str, OsString)>>,
    background: Background,
    settings: LiveSettings,
}

impl DesktopNotifier {
    pub(super) fn new(paths: &Paths, background: Background, settings: LiveSettings) -> Self {
        let (schedule, channels) = (NoticeSchedule::default(), Arc::default());
        let mut notifier = Self { schedule, channels, desktop: paths.desktop(), background, settings };
        notifier.apply_settings();
        notifier
    }

    /// Takes over the channels of the settings in force.
    pub(super) fn apply_settings(&mut self) {
        let settings = self.settings.current();
        let confirm = &settings.config().confirm;
        let desktop = self.desktop.clone().filter(|_| confirm.notify);
        self.channels = Arc::new(NoticeChannels { command: confirm.on_confirmation.clone(), desktop });
    }

    /// When to call [`Self::notify_due`].
    pub(super) fn next_deadline(&self, dispatcher: &Dispatcher) -> Option<Timestamp> {
        self.schedule.next(dispatcher.confirmations_asked()).filter(|_| !self.channels.is_empty())
    }

    /// Sends a notice about the waiting tasks if one is due. `page` is the address of the page while it is served.
    pub(super) fn notify_due(&mut self, dispatcher: &Dispatcher, page: Option<String>, now: Timestamp) {
        if self.next_deadline(dispatcher).is_none_or(|at| at > now)
            || !self.schedule.take(dispatcher.confirmations_asked(), dispatcher.confirmations_pending() > 0, now)
        {
            return;
        }
        let waiting = dispatcher.approvable().filter(|task| task.state == State::AwaitingConfirmation);
        let notice = Notice::of(waiting, page);
        let (channels, runner_context) = (Arc::clone(&self.channels), self.settings.runner_context());
        let cancel = self.background.executor_ended().child_token();
        self.background.spawn(async move { send(&notice, &channels, &runner_context, &cancel).await });
    }
}
