//! What each request from the mailbox leads to: an event for the dispatcher, or an answer.

use dispatcher::{Event, RateLimitKey, ResolveRequest};
use protocol::caller::Caller;
use protocol::code::Code;
use protocol::error::ErrorBody;
use protocol::fault;
use protocol::mailbox::TakenRequest;
use protocol::mailbox::for_callers::ListingAnswer;
use protocol::mailbox::request::{Answer, Operation, Request};
use protocol::task::TaskId;
use store::StoreError;

use super::inbox::JudgedRun;
use super::record::disk_full;
use super::{Daemon, DaemonError, status, task_log};
use crate::intake;

impl Daemon {
    /// Answers requests in one commit with `events`.
    pub(super) fn answer_requests(
        &mut self,
        requests: Vec<TakenRequest>,
        mut events: Vec<Event>,
    ) -> Result<(), DaemonError> {
        // After the requests were taken: a request that was written after an edit is judged by that edit.
        if !requests.is_empty()
            && let Some(changed) = self.refresh_rules(true)
        {
            // Before anything else, but after an earlier change.
            let earlier = events.iter().take_while(|event| matches!(event, Event::RulesChanged(_))).count();
            events.insert(earlier, changed);
        }
        let read: Result<_, DaemonError> = requests.iter().try_for_each(|request| {
            events.extend(self.read_request(request)?);
            Ok(())
        });
        // Even if a request cannot be read: finished attempts must be recorded.
        self.tasks.turn(events)?;
        read?;
        for request in requests {
            // A request without an answer stays taken: if this executor ends first, the next one answers it.
            if !self.tasks.is_answered(request.id) {
                continue;
            }
            if let Some(telemetry) = &self.tasks.telemetry {
                telemetry.answer_written(request.written_at);
            }
            self.remove_answered(request.id)?;
        }
        self.tasks.answered_dry_runs().into_iter().try_for_each(|id| self.remove_answered(id))
    }

    fn remove_answered(&self, request: TaskId) -> Result<(), DaemonError> {
        fault::point("request", "answered");
        self.mailbox.remove_taken(request)?;
        fault::point("request", "done");
        Ok(())
    }

    /// Returns the event that a request leads to; `None` if its dry run was started, or if it was accepted before a crash, and
    /// its caller was not answered: then the result file is the answer.
    fn read_request(&mut self, request: &TakenRequest) -> Result<Option<Event>, DaemonError> {
        if let Some(known) = self.tasks.record.store().task(request.id)? {
            self.tasks.publish(&known);
            return Ok(None);
        }
        match intake::parse(request) {
            Ok(Request { operation, caller, .. }) => self.event_of(request.id, operation, caller),
            Err(error) => {
                task_log::log_refusal(request.id, "", request.uid, &error);
                Ok(Some(Event::refusal(request.id, error)))
            }
        }
    }

    fn event_of(
        &mut self,
        request: TaskId,
        operation: Operation,
        caller: Caller,
    ) -> Result<Option<Event>, DaemonError> {
        let now = self.tasks.clock.now();
        let answered = |answer| Event::Answer(request, Box::new(answer));
        Ok(Some(match operation {
            Operation::Run(run) => match self.inbox.run(request, caller, *run, &self.tasks.record, now)? {
                JudgedRun::Event(event) => event,
                JudgedRun::DryRun(order, plan) => {
                    // It is performed like a call.
                    let (tool, caller) = (&order.task.tool, &order.task.caller);
                    let mut limits = self.inbox.intake.rate_limits(tool, caller);
                    if let Some(shows) = order.definition.dry_run.as_ref().and_then(|dry_run| dry_run.subtool.as_ref())
                    {
                        let of_subtool = self.inbox.intake.rate_limits(shows, caller).into_iter();
                        limits.extend(
                            of_subtool.filter(|it| matches!(it.key, RateLimitKey::Tool(_) | RateLimitKey::Tag(_))),
                        );
                    }
                    return Ok(match self.tasks.dispatcher.count_call(caller, &limits, now) {
                        Ok(()) => self.tasks.start_dry_run(*order, plan),
                        Err(error) => Some(Event::refusal(request, error)),
                    });
                }
            },
            Operation::Cancel { id, reason } => Event::Cancel { request, id, caller: Box::new(caller), reason },
            Operation::Abandon { session } => Event::Abandon { request, caller: Box::new(caller), session },
            Operation::Resolve { id, happened, note } => {
                let (task, caller) = (self.tasks.record.store().task(id)?, Box::new(caller));
                Event::Resolve(Box::new(ResolveRequest { request, id, caller, task, happened, note }))
            }
            Operation::Forget { session } if caller.owner().is_some() && caller.session.as_ref() != Some(&session) => {
                let error = ErrorBody::new(Code::HumansOnly, "the session belongs to another caller")
                    .hint("if it is to be deleted, ask the user to do so in a terminal");
                Event::refusal(request, error)
            }
            Operation::Forget { session } => answered(self.forget_session(caller.uid, &session)?),
            Operation::Listing(question) if question.wants_rules => {
                match self.inbox.intake.settings().sources.profiles().rules_of(&caller.tool_scope) {
                    Ok(rules) => answered(Answer::Listing(ListingAnswer { rules, ..ListingAnswer::default() })),
                    Err(error) => Event::refusal(request, error),
                }
            }
            Operation::Listing(question) => {
                let (catalog, settings) = (self.inbox.intake.catalog(), self.inbox.intake.settings());
                answered(Answer::Listing(self.listings.answer(&question, &catalog.borrow(), &settings)))
            }
            Operation::Status => {
                let (mailbox, config) = (self.mailbox.root(), self.config_file.path());
                answered(status::status(&self.identity, mailbox, config, &self.tasks, now))
            }
        }))
    }

    /// Forgets the ended tasks of a user's session. Open tasks stay, and so do tasks whose end is not recorded or
    /// published yet.
    fn forget_session(&mut self, uid: u32, session: &str) -> Result<Answer, StoreError> {
        let mut ids = self.tasks.record.store().ended_in_session(uid, session)?;
        ids.retain(|id| !self.tasks.publisher.is_late(*id));
        if !self.sweeper.forget(&ids, &mut self.tasks.record)? {
            return Ok(Answer::Refused(disk_full()));
        }
        self.tasks.learner.forget(session);
        if let Err(error) = self.mailbox.forget_query(Some(session)) {
            tracing::warn!(%error, "failed to remove the last search of a session");
        }
        let open = self.tasks.dispatcher.open_in_session(uid, session);
        let session = self.tasks.settings.runner_context().secrets.redact(session).into_owned();
        tracing::info!(uid, %session, forgotten = ids.len(), open = open.len(), "session forgotten");
        Ok(Answer::Forgotten { forgotten: ids.len(), open })
    }
}
