//! The event loop: waits for the next event or the earliest deadline, then takes one step.
//!
//! A step turns what arrived into events for the dispatcher, takes requests out of the inbox, and does what is due.
//! Stopping is a mode of the same loop: it starts nothing, and ends when no attempt runs.

use std::sync::Arc;
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

use dispatcher::Event;
use ground::task::Task;
use protocol::clock;
use protocol::error::chain;
use protocol::mailbox;
use protocol::mailbox::presence::ExecutorPhase;
use protocol::paths::Paths;
use store::StoreError;

use super::background::DaemonEvent;
use super::hooks::DeliveryReport;
use super::live::warn_if_failed;
use super::reload::MAX_WRITE_PAUSE;
use super::signals::Watchdog;
use super::stop::Stop;
use super::{Daemon, DaemonError, ExitReason, recover};

/// How long the runtime may take to shut down. Whatever still runs at that point has stopped reporting.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_millis(100);
/// How long MCP servers may take to end: one second each after their input is closed and two after SIGTERM.
const SERVERS_TIMEOUT: Duration = Duration::from_secs(6);
/// How far back to look for recorded results that are missing in a mailbox that was complete before. A power failure
/// undoes at most the last seconds of writes, so this is generous.
const RECENT: Duration = Duration::from_hours(1);

enum Mode {
    /// Takes requests and starts attempts.
    Serving,
    /// Starts nothing, and waits until no attempt runs.
    Stopping(Stop),
}

/// What arrived during a wait, while serving.
#[derive(Default)]
struct Batch {
    /// What must be handled first: nothing starts or is decided by rules that were replaced.
    rules: Vec<Event>,
    events: Vec<Event>,
    deliveries: Vec<DeliveryReport>,
    stop_requested: bool,
}

impl Daemon {
    /// Recovers the `open` tasks, then runs the loop until the executor stops or fails.
    pub(super) fn run(mut self, paths: &Paths, open: Vec<Task>) -> Result<ExitReason, DaemonError> {
        let outcome = self.run_loop(paths, open);
        if let Err(error) = &outcome {
            tracing::error!(error = chain(error), "the executor failed");
        }
        if let Some(telemetry) = self.tasks.telemetry.take() {
            telemetry.finish(&self.runtime);
        }
        self.background.close();
        self.runtime.shutdown_timeout(SHUTDOWN_TIMEOUT);
        if let Some(watchdog) = &self.watchdog {
            watchdog.on_end();
        }
        outcome
    }

    fn run_loop(&mut self, paths: &Paths, open: Vec<Task>) -> Result<ExitReason, DaemonError> {
        let started = self.start(paths, open).map(|()| None);
        let mut mode = self.mode_after(started)?;
        loop {
            if let Mode::Stopping(stop) = &mode
                && (self.tasks.dispatcher.running() == 0 || stop.has_timed_out())
            {
                return self.finish(stop.reason());
            }
            let arrived = self.wait(&mode);
            mode = match mode {
                Mode::Serving => {
                    let outcome = self.serve(arrived);
                    self.mode_after(outcome)?
                }
                Mode::Stopping(stop) => Mode::Stopping(self.stop(stop, arrived)?),
            };
        }
    }

    /// Takes over what earlier executors left, then starts to listen.
    fn start(&mut self, paths: &Paths, open: Vec<Task>) -> Result<(), DaemonError> {
        self.publish_problem(self.inbox.intake.settings().problem.as_ref());
        warn_if_failed("failed to tell callers about the disk", self.mailbox.publish_disk_problem(None));
        self.tasks.dispatcher.restore_key_counters(self.tasks.record.store().key_counters()?);
        self.tasks.dispatcher.restore_decide_scopes(self.tasks.record.store().decide_scopes()?);
        self.keys.load(&mut self.tasks.dispatcher);
        self.refresh_api_keys();
        recover::recover(&mut self.tasks, &self.inbox.intake, &self.mailbox, open)?;
        let requests = self.inbox.unanswered()?;
        self.answer_requests(requests, Vec::new())?;
        self.watchdog = Some(Watchdog::start(&self.background)?);
        self.tasks.page.serve(paths, &self.inbox.intake, self.keys.view())?;
        let origin = self.tasks.page.origin().unwrap_or_default();
        self.tasks.dispatcher.set_page(self.tasks.page.instance().to_owned(), origin);
        if unless_exhausted(self.look(Vec::new()))?.is_none() {
            self.inbox.retry_soon();
        }
        self.restore_mailbox_once()?;
        self.inbox.note_activity();
        self.idle.restart();
        self.identity.phase = ExecutorPhase::Serving;
        self.publish_settings();
        let announced = self.mailbox.remove_failure().and_then(|()| self.mailbox.update_identity(&self.identity));
        if let Err(error) = announced {
            tracing::warn!(%error, "failed to announce that the executor serves its mailbox");
        }
        Ok(())
    }

    /// Restores the mailbox unless it was restored; if descriptors run out, the next step tries again.
    fn restore_mailbox_once(&mut self) -> Result<(), DaemonError> {
        if !self.is_restored {
            self.is_restored = unless_exhausted(self.restore_mailbox())?.is_some();
        }
        if !self.is_restored {
            self.inbox.retry_soon();
        }
        Ok(())
    }

    /// Publishes the results that the mailbox lacks, and removes data that no result refers to.
    fn restore_mailbox(&mut self) -> Result<(), DaemonError> {
        let age = if self.locks.executor.is_restored() { RECENT } else { self.sweeper.max_age() };
        let since = clock::now().checked_sub(age).unwrap_or(jiff::Timestamp::MIN);
        recover::publish_missing(&mut self.tasks.publisher, self.tasks.record.store(), &self.mailbox, since)?;
        // Without the mark, the next executor publishes every result again.
        if !self.tasks.publisher.is_behind()
            && let Err(error) = self.locks.executor.mark_restored()
        {
            tracing::warn!(%error, "failed to mark the mailbox as restored");
        }
        self.sweeper.remove_unused_data(self.tasks.record.store())
    }

    /// Returns the mode that follows the start or a step of serving, which may ask to stop for a reason.
    fn mode_after(&mut self, outcome: Result<Option<ExitReason>, DaemonError>) -> Result<Mode, DaemonError> {
        match outcome {
            Ok(None) => Ok(Mode::Serving),
            Ok(Some(reason)) => self.begin_stop(reason),
            Err(DaemonError::Io(_) | DaemonError::Mailbox(_)) if !self.owns_mailbox() => {
                self.begin_stop(ExitReason::Evicted)
            }
            Err(error) => Err(error),
        }
    }

    /// Waits for an event until the earliest deadline. Returns all events that have arrived.
    fn wait(&self, mode: &Mode) -> Vec<DaemonEvent> {
        let first = match self.events.recv_timeout(self.time_to_wait(mode)) {
            Ok(event) => Some(event),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => unreachable!("the daemon holds a sender itself"),
        };
        first.into_iter().chain(self.events.try_iter()).collect()
    }

    fn time_to_wait(&self, mode: &Mode) -> Duration {
        if self.config_file.was_settling() {
            return MAX_WRITE_PAUSE;
        }
        let (deadlines, timestamps) = match mode {
            Mode::Stopping(stop) => ([Some(stop.next_deadline()), self.tasks.next_retry(), None, None], [None, None]),
            Mode::Serving => {
                let idle = self.is_unused().then(|| self.idle.deadline());
                let deadlines = [
                    Some(self.inbox.next_deadline()),
                    Some(self.sweeper.next_deadline()),
                    self.tasks.next_retry(),
                    idle,
                ];
                (deadlines, [self.tasks.next_deadline(), self.notifier.next_deadline(&self.tasks.dispatcher)])
            }
        };
        let now = Instant::now();
        let deadlines = deadlines.into_iter().flatten().map(|at| at.saturating_duration_since(now));
        let timestamps = timestamps.into_iter().flatten().map(|at| self.tasks.clock.time_until(at));
        deadlines.chain(timestamps).min().unwrap_or_default()
    }

    /// One step of serving. Returns a reason to stop, if there is one.
    fn serve(&mut self, arrived: Vec<DaemonEvent>) -> Result<Option<ExitReason>, DaemonError> {
        let Some(arrived) = self.unless_settling(arrived) else { return Ok(None) };
        let Batch { rules, mut events, deliveries, stop_requested } = self.batch(arrived)?;
        events.splice(..0, rules);
        self.tasks.on_deliveries(deliveries)?;
        if stop_requested || !self.owns_mailbox() {
            self.tasks.turn(events)?;
            return Ok(Some(if stop_requested { ExitReason::Asked } else { ExitReason::Evicted }));
        }
        match unless_exhausted(self.look(events))? {
            Some(true) => {
                self.inbox.note_activity();
                self.idle.restart();
            }
            Some(false) => {}
            None => self.inbox.retry_soon(),
        }
        self.restore_mailbox_once()?;
        self.tasks.retry_record()?;
        let (record, hooks) = (&mut self.tasks.record, self.tasks.hooks.names());
        unless_exhausted(self.sweeper.sweep_due(record, &mut self.tasks.dispatcher, &hooks))?;
        unless_exhausted(self.sweeper.forget_some(record))?;
        self.tasks.do_due()?;
        self.publish_disk_problem();
        self.notifier.notify_due(&self.tasks.dispatcher, self.tasks.page.origin(), self.tasks.clock.now());
        let is_busy = self.tasks.dispatcher.running() > 0 || self.tasks.record.is_behind();
        if !is_busy && self.tasks.dry_runs.is_empty() && self.program.was_replaced() {
            return Ok(Some(ExitReason::Upgraded));
        }
        if !self.is_unused() {
            self.idle.restart();
        } else if self.idle.is_over() {
            return Ok(Some(ExitReason::Idle));
        }
        Ok(None)
    }

    fn batch(&mut self, arrived: Vec<DaemonEvent>) -> Result<Batch, StoreError> {
        let (mut batch, mut messages) = (Batch::default(), Vec::new());
        for event in arrived {
            match event {
                DaemonEvent::AttemptFinished(report) => {
                    if report.result.is_ok() {
                        self.inbox.intake.note_success(report.id, self.tasks.clock.now());
                    }
                    batch.events.push(Event::AttemptFinished(report));
                }
                DaemonEvent::DryRunFinished(finished) => batch.events.push(self.on_dry_run(*finished)),
                DaemonEvent::AttemptTold { id, attempt, news } => {
                    batch.events.push(Event::AttemptTold { id, attempt, news });
                }
                DaemonEvent::HookDelivered(report) => batch.deliveries.push(*report),
                DaemonEvent::PageMessage(message) => messages.push(*message),
                DaemonEvent::Previewed(preview) => batch.events.extend(self.tasks.page.on_preview(*preview)),
                DaemonEvent::StopRequested => batch.stop_requested = true,
                DaemonEvent::InboxChanged | DaemonEvent::ConfigChanged => {}
            }
        }
        // A task may be decided and started only by the definition that the human was shown.
        let needs_definitions = !messages.is_empty() || self.tasks.dispatcher.has_approved();
        batch.rules.extend(self.refresh_rules(needs_definitions));
        for message in messages {
            batch.events.extend(self.on_page_message(message)?);
        }
        batch.events.extend(self.tasks.clock_events());
        if batch.stop_requested {
            // First, so that nothing starts in the slots of finished attempts.
            batch.events.insert(0, Event::Drain);
        }
        Ok(batch)
    }

    /// Takes the requests out of the inbox and answers them in one commit with `events`. Returns whether there was
    /// anything to do.
    fn look(&mut self, events: Vec<Event>) -> Result<bool, DaemonError> {
        let requests = match self.inbox.take() {
            Ok(requests) => requests,
            Err(error) => {
                // Finished attempts must be recorded, whatever happened to the mailbox.
                self.tasks.turn(events)?;
                return Err(error.into());
            }
        };
        if requests.is_empty() && events.is_empty() {
            return Ok(false);
        }
        self.answer_requests(requests, events)?;
        Ok(true)
    }

    /// Starts nothing from here on. Running attempts may finish within the grace period.
    fn begin_stop(&mut self, reason: ExitReason) -> Result<Mode, DaemonError> {
        tracing::info!(?reason, "the executor is stopping");
        if reason == ExitReason::Evicted {
            self.tasks.publisher.silence();
        }
        self.tasks.turn(vec![Event::Drain])?;
        let grace = self.tasks.settings.current().config().executor.grace.get();
        if let Some(watchdog) = &self.watchdog {
            watchdog.on_stopping(grace);
        }
        Ok(Mode::Stopping(Stop::new(reason, grace)))
    }

    /// One step of stopping. A second request to stop ends the grace period.
    fn stop(&mut self, mut stop: Stop, arrived: Vec<DaemonEvent>) -> Result<Stop, DaemonError> {
        let (mut events, mut deliveries) = (Vec::new(), Vec::new());
        for event in arrived {
            match event {
                DaemonEvent::AttemptFinished(report) => events.push(Event::AttemptFinished(report)),
                DaemonEvent::AttemptTold { id, attempt, news } => events.push(Event::AttemptTold { id, attempt, news }),
                DaemonEvent::HookDelivered(report) => deliveries.push(*report),
                DaemonEvent::StopRequested => stop.end_grace(Instant::now()),
                // Requests stay for the next executor, also those for a dry run, and the page reports that this one is stopping.
                DaemonEvent::InboxChanged
                | DaemonEvent::ConfigChanged
                | DaemonEvent::PageMessage(_)
                | DaemonEvent::DryRunFinished(_)
                | DaemonEvent::Previewed(_) => {}
            }
        }
        self.tasks.retry_record()?;
        self.tasks.retry_late()?;
        self.tasks.on_deliveries(deliveries)?;
        if !events.is_empty() {
            self.tasks.turn(events)?;
        }
        let running = self.tasks.dispatcher.running();
        if running > 0 && stop.interrupts_at(Instant::now()) {
            self.tasks.turn(vec![Event::Interrupt])?;
        }
        if stop.has_timed_out() {
            tracing::warn!(running, "interrupted attempts did not report their ends in time");
        }
        Ok(stop)
    }

    /// Ends the MCP servers and the connections to databases that are kept, while there is time to do it politely.
    fn end_servers(&self) {
        let context = self.tasks.settings.runner_context();
        let (servers, databases) = (Arc::clone(&context.mcp), Arc::clone(&context.databases));
        let all = async { tokio::join!(servers.end_all(), databases.close()) };
        let ended = self.runtime.block_on(async { tokio::time::timeout(SERVERS_TIMEOUT, all).await });
        if ended.is_err() {
            tracing::warn!("MCP servers or databases did not end in time");
        }
    }

    fn finish(&mut self, reason: ExitReason) -> Result<ExitReason, DaemonError> {
        self.tasks.retry_last()?;
        self.end_servers();
        if self.is_idle() && reason != ExitReason::Evicted {
            self.mailbox.remove_identity()?;
        }
        Ok(reason)
    }

    /// Whether the executor is not needed now. It does not end while a browser is signed in: the page's address ends with
    /// it, and another program could take the port.
    fn is_unused(&self) -> bool {
        self.is_idle() && !self.tasks.page.is_used()
    }

    /// Whether nothing is open, and no hook delivery is in flight or due soon.
    fn is_idle(&self) -> bool {
        self.tasks.is_idle() && !self.tasks.hooks.is_busy(self.tasks.clock.now(), self.idle.limit())
    }

    /// Whether the mailbox still exists and this is its executor.
    fn owns_mailbox(&self) -> bool {
        self.locks.executor.is_current() && self.mailbox.has_all_folders()
    }
}

/// Returns `None` if descriptors or memory ran out, which is logged: it passes, and the step is tried again later.
fn unless_exhausted<T>(outcome: Result<T, DaemonError>) -> Result<Option<T>, DaemonError> {
    match outcome {
        Ok(done) => Ok(Some(done)),
        Err(DaemonError::Io(error)) if mailbox::is_resource_exhaustion(&error) => {
            tracing::warn!(%error, "descriptors or memory ran out; it is tried again");
            Ok(None)
        }
        Err(error) => Err(error),
    }
}
