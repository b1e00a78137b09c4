//! Notices: tells a human now and then that tasks wait for a decision. Nothing waits for a notice.

use std::sync::Arc;

use jiff::Timestamp;
use protocol::paths::Paths;
use protocol::task::State;

use super::background::Background;
use crate::dispatcher::Dispatcher;
use crate::notify::notice::send::{NoticeChannels, send};
use crate::notify::notice::{Notice, NoticeSchedule};
use crate::runner::RunnerContext;

pub(super) struct DesktopNotifier {
    schedule: NoticeSchedule,
    channels: Arc<NoticeChannels>,
    background: Background,
    runner_context: Arc<RunnerContext>,
}

impl DesktopNotifier {
    pub(super) fn new(paths: &Paths, background: Background, runner_context: Arc<RunnerContext>) -> Self {
        let config = &runner_context.config.confirm;
        let desktop = if config.notify { paths.desktop() } else { None };
        let channels = Arc::new(NoticeChannels { command: config.on_confirmation.clone(), desktop });
        Self { schedule: NoticeSchedule::default(), channels, background, runner_context }
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
        let waiting = dispatcher.confirmable().filter(|task| task.state == State::AwaitingConfirmation);
        let notice = Notice::of(waiting, page);
        let (channels, runner_context) = (Arc::clone(&self.channels), Arc::clone(&self.runner_context));
        let cancel = self.background.executor_ended().child_token();
        self.background.spawn(async move { send(&notice, &channels, &runner_context, &cancel).await });
    }
}
