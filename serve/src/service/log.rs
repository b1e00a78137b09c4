//! The events of one session: who gets them as they happen, and what is kept for those who come later.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use agent_loop::driver::{LoopEvent, LoopObserver};
use agent_loop::machine::Spending;
use agent_loop::model::conversation::{StopReason, ToolCall};
use agent_loop::model::provider::ModelFailure;
use agent_loop::outcome;
use ground::results::shown;
use protocol::command_executor::OpenedTask;
use protocol::error::ErrorBody;
use protocol::mailbox::Mailbox;
use protocol::task::{State, TaskId};
use serde_json::Value;
use tokio::sync::{mpsc, watch};

use super::ledger::QuestionLedger;
use super::quotas::TurnPermit;
use crate::service::turn::{EventId, LoggedEvent, SessionEvent, TaskNews, TurnOutcome, WaitingNews};

/// How much text of past events is kept for a client that comes back, in bytes. The current turn is always kept whole.
const MAX_KEPT_BYTES: usize = 1 << 20;
/// Of how many turns only the ends are kept.
const MAX_EARLIER_TURNS: usize = 16;
/// Why work was stopped whose deadline has passed.
const DEADLINE_EXCEEDED: &str = "deadline_exceeded";

/// A receiver of events.
pub(crate) type EventSender = mpsc::UnboundedSender<Arc<LoggedEvent>>;

/// What a session is doing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Activity {
    #[default]
    Idle,
    /// A request or a call is running.
    Working,
    /// Nothing is done until a task ends.
    Sleeping,
}

/// How a turn ended whose events are not kept.
#[derive(Debug)]
pub(crate) struct EarlierTurn {
    pub(crate) answer: String,
    pub(crate) reason: StopReason,
}

/// The events of one loaded session.
#[derive(Debug)]
pub(crate) struct EventLog {
    shared: Mutex<LogState>,
    activity: watch::Sender<Activity>,
    /// How many tasks are open.
    open: watch::Sender<usize>,
    /// The number of the current turn.
    turns: watch::Sender<u64>,
    /// Whether text is shown only once it is known not to be a call: the model writes its calls as text.
    holds_text: AtomicBool,
    /// Where results are read.
    mailbox: Mailbox,
    /// How many characters of a result are shown; 0 shows all.
    preview: AtomicUsize,
    /// Where answers are recorded for which no client waits; a conversation that is not kept has none.
    ledger: Option<Arc<QuestionLedger>>,
}

#[derive(Debug, Default)]
struct LogState {
    session: u32,
    model: String,
    turn: u64,
    load: u64,
    number: u64,
    kept: VecDeque<Arc<LoggedEvent>>,
    kept_bytes: usize,
    /// Those who asked questions that the loop has not begun yet, in their order.
    asking: VecDeque<EventSender>,
    /// Those who get the events of the current turn.
    answered: Vec<EventSender>,
    /// Those who get all events.
    followers: Vec<EventSender>,
    open: Vec<(OpenedTask, State)>,
    /// The tasks that this turn started.
    started: Vec<TaskId>,
    /// Those of the current turn, until it ends.
    permits: Vec<TurnPermit>,
    /// Whether the turn has ended, so that what follows is about tasks of earlier ones.
    is_over: bool,
    /// How turns ended whose events are not kept: those from before the session was loaded, and the oldest since.
    earlier: BTreeMap<u64, EarlierTurn>,
    /// The model's last answer in this turn, without calls that it wrote as text.
    last_answer: String,
    /// What the running request has shown.
    shown_text: String,
    /// The work is stopped because its time is over.
    is_overdue: bool,
    /// The text of the request that is running, if it is not shown yet.
    held_text: String,
    /// Whether the turn has shown text before the running request.
    had_text: bool,
    failure: Option<ModelFailure>,
    question_spending: Spending,
    session_spending: Spending,
    /// The questions that the model still knows.
    known_questions: usize,
    /// The calls of the last answer.
    calls: Vec<ToolCall>,
}

impl EventLog {
    pub(crate) fn new(
        session: u32,
        load: u64,
        mailbox: Mailbox,
        preview: usize,
        ledger: Option<Arc<QuestionLedger>>,
    ) -> Self {
        Self {
            ledger,
            shared: Mutex::new(LogState { session, load, ..LogState::default() }),
            activity: watch::Sender::new(Activity::Idle),
            open: watch::Sender::new(0),
            turns: watch::Sender::new(0),
            holds_text: AtomicBool::new(false),
            mailbox,
            preview: preview.into(),
        }
    }

    pub(crate) fn preview(&self) -> usize {
        self.preview.load(Ordering::Relaxed)
    }

    pub(crate) fn set_preview(&self, chars: usize) {
        self.preview.store(chars, Ordering::Relaxed);
    }

    fn lock(&self) -> MutexGuard<'_, LogState> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn activity(&self) -> watch::Receiver<Activity> {
        self.activity.subscribe()
    }

    pub(crate) fn turns(&self) -> watch::Receiver<u64> {
        self.turns.subscribe()
    }

    pub(crate) fn open_count(&self) -> watch::Receiver<usize> {
        self.open.subscribe()
    }

    /// Sets what the session is when it is opened; `started` are the open tasks of its last question.
    pub(crate) fn resume(
        &self,
        turn: u64,
        activity: Activity,
        open: Vec<OpenedTask>,
        started: Vec<TaskId>,
        answer: Option<&str>,
    ) {
        let mut state = self.lock();
        state.turn = turn;
        state.is_over = is_over(activity, &started);
        answer.unwrap_or_default().clone_into(&mut state.last_answer);
        state.started = started;
        state.open = open.into_iter().map(|task| (task, State::Accepted)).collect();
        let count = state.open.len();
        drop(state);
        self.turns.send_replace(turn);
        self.activity.send_replace(activity);
        self.open.send_replace(count);
    }

    /// Sets the answers of turns that ended before the session was loaded.
    pub(crate) fn recall(&self, answers: BTreeMap<u64, EarlierTurn>) {
        self.lock().earlier = answers;
    }

    /// Sets how many questions the model knows.
    pub(crate) fn set_known_questions(&self, count: usize) {
        self.lock().known_questions = count;
    }

    /// Counts the last question as taken back; `false` if there is no question.
    pub(crate) fn take_back(&self) -> bool {
        let mut state = self.lock();
        state.last_answer.clear();
        let is_there = state.known_questions > 0;
        state.known_questions = state.known_questions.saturating_sub(1);
        is_there
    }

    /// The conversation starts over.
    pub(crate) fn start_over(&self) {
        let mut state = self.lock();
        state.known_questions = 0;
        state.last_answer.clear();
    }

    /// Sets the model that answers, and whether it writes its calls as text.
    pub(crate) fn set_model(&self, model: &str, writes_calls: bool) {
        model.clone_into(&mut self.lock().model);
        self.holds_text.store(writes_calls, Ordering::Relaxed);
    }

    pub(crate) fn model(&self) -> String {
        self.lock().model.clone()
    }

    /// What the last question and the whole session spent.
    pub(crate) fn spending(&self) -> (Spending, Spending) {
        let state = self.lock();
        (state.question_spending, state.session_spending)
    }

    pub(crate) fn open_tasks(&self) -> Vec<(OpenedTask, State)> {
        self.lock().open.clone()
    }

    /// The number of receivers that still listen.
    pub(crate) fn listeners(&self) -> usize {
        let state = self.lock();
        let all = state.followers.iter().chain(&state.answered).chain(&state.asking);
        all.filter(|sender| !sender.is_closed()).count()
    }

    /// Registers who asks the next question, before the question is sent to the loop.
    pub(crate) fn expect_question(&self, asking: EventSender) {
        self.lock().asking.push_back(asking);
    }

    /// Keeps the permit until this turn ends, also if no client listens.
    pub(crate) fn hold(&self, turn: u64, permit: TurnPermit) {
        let mut state = self.lock();
        if state.turn == turn && !state.is_over {
            state.permits.push(permit);
        }
    }

    /// Sends the events of a turn that has begun, and those that follow until it ends; to a client that has those up to
    /// `after`, the others. Of a turn that ended before the session was loaded, only the answer is at hand; of one whose
    /// answer is not kept any more, nothing.
    pub(crate) fn join_turn(&self, turn: u64, after: Option<EventId>, joining: EventSender) {
        let mut state = self.lock();
        let is_idle = *self.activity.borrow() == Activity::Idle;
        let after = after.filter(|after| after.turn == turn);
        let mut events = match after {
            Some(after) if after.is_over => return,
            Some(after) => state.missed(after, !is_idle),
            None => state.kept.iter().cloned().collect(),
        };
        events.retain(|logged| logged.id.turn == turn);
        for logged in events {
            let is_last = logged.event.is_last();
            drop(joining.send(logged));
            if is_last {
                return;
            }
        }
        if turn == state.turn && !is_idle {
            state.answered.push(joining);
        } else if let Some(earlier) = state.earlier.get(&turn).filter(|_| after.is_none()) {
            for event in state.told_again(turn, earlier) {
                drop(joining.send(event));
            }
        }
    }

    /// The model's last answer in this turn.
    pub(crate) fn last_answer(&self) -> Option<String> {
        Some(self.lock().last_answer.clone()).filter(|answer| !answer.is_empty())
    }

    /// How a turn ended, if it has.
    pub(crate) fn end_of(&self, turn: u64) -> Option<Result<TurnOutcome, ErrorBody>> {
        let state = self.lock();
        let events = state.kept.iter().rev().filter(|logged| logged.id.turn == turn);
        let end = events.map(|logged| &logged.event).find(|event| event.is_last());
        match end {
            Some(SessionEvent::Done(outcome)) => Some(Ok(outcome.clone())),
            Some(SessionEvent::Error { error }) => Some(Err(error.clone())),
            _ => state.earlier.get(&turn).map(|earlier| Ok(state.told(earlier))),
        }
    }

    /// Whether the turn has ended.
    pub(crate) fn is_turn_over(&self) -> bool {
        self.lock().is_over
    }

    /// Stops counting the end of this turn as the client's wish: its time is over.
    pub(crate) fn overdue(&self) {
        self.lock().is_overdue = true;
    }

    /// Sends all events after `after`, and all that follow. Of a turn whose events are not kept, the answer is sent again.
    pub(crate) fn follow(&self, after: Option<EventId>, following: EventSender) {
        let mut state = self.lock();
        if let Some(after) = after {
            let is_running = *self.activity.borrow() != Activity::Idle;
            for missed in state.missed(after, is_running) {
                drop(following.send(missed));
            }
        }
        state.followers.push(following);
    }

    /// Adds an event of the current turn.
    pub(crate) fn add(&self, event: SessionEvent) {
        self.lock().add(event);
    }

    /// Records what state an open task is in.
    pub(crate) fn task_is(&self, id: TaskId, is: State) {
        let mut state = self.lock();
        let Some(known) = state.open.iter_mut().find(|(task, _)| task.id == id) else { return };
        if std::mem::replace(&mut known.1, is) == is {
            return;
        }
        let subtool = known.0.tool.clone();
        state.add(SessionEvent::Task(TaskNews { id, subtool: subtool.clone(), state: is, preview: None }));
        if is == State::AwaitingConfirmation {
            let message = format!("`{subtool}` waits for your decision on the page: agent-magic-tool executor page");
            state.add(SessionEvent::Waiting(WaitingNews { id, subtool, message }));
        }
    }

    /// Ends the streams of everyone, because the session cannot go on.
    pub(crate) fn fail(&self, error: ErrorBody) {
        let mut state = self.lock();
        let asking: Vec<_> = state.asking.drain(..).collect();
        state.answered.extend(asking);
        state.add(SessionEvent::Error { error });
        state.is_over = true;
        drop(state);
        self.activity.send_replace(Activity::Idle);
    }

    /// Removes tasks whose end the model knows.
    fn close_tasks(&self, ended: impl IntoIterator<Item = TaskId>) {
        for id in ended {
            let file = self.mailbox.read_result(id).ok().and_then(|bytes| serde_json::from_slice::<Value>(&bytes).ok());
            let mut state = self.lock();
            let Some(place) = state.open.iter().position(|(task, _)| task.id == id) else { continue };
            let (task, _) = state.open.remove(place);
            let Some(file) = file else { continue };
            let end = file["state"].as_str().or(file["status"].as_str()).and_then(|word| word.parse().ok());
            let preview = Some(shown::preview(&shown::result_text(&file), self.preview()));
            if let Some(end) = end {
                state.add(SessionEvent::Task(TaskNews { id, subtool: task.tool, state: end, preview }));
            }
        }
        let count = self.lock().open.len();
        self.open.send_replace(count);
    }

    /// Adds a task, unless it is known as open.
    fn open_task(&self, task: &OpenedTask) {
        let mut state = self.lock();
        if state.open.iter().any(|(open, _)| open.id == task.id) {
            return;
        }
        let (id, subtool) = (task.id, task.tool.clone());
        state.open.push((task.clone(), State::Accepted));
        state.started.push(id);
        state.add(SessionEvent::Task(TaskNews { id, subtool, state: State::Accepted, preview: None }));
        let count = state.open.len();
        drop(state);
        self.open.send_replace(count);
    }
}

impl LogState {
    fn add(&mut self, event: SessionEvent) {
        self.number += 1;
        let is_last = event.is_last();
        let is_over = is_last && !event.is_stopping() || self.is_over;
        let id = EventId { turn: self.turn, load: self.load, number: self.number, is_over };
        let logged = Arc::new(LoggedEvent { id, event });
        self.answered.retain(|sender| sender.send(Arc::clone(&logged)).is_ok());
        self.followers.retain(|sender| sender.send(Arc::clone(&logged)).is_ok());
        if is_last {
            self.answered.clear();
            self.permits.clear();
        }
        self.kept_bytes += logged.weight();
        self.kept.push_back(logged);
        while self.kept_bytes > MAX_KEPT_BYTES && self.kept.front().is_some_and(|oldest| oldest.id.turn < self.turn) {
            self.forget_oldest_turn();
        }
    }

    /// Keeps only the end of the oldest turn.
    fn forget_oldest_turn(&mut self) {
        let Some(turn) = self.kept.front().map(|oldest| oldest.id.turn) else { return };
        while let Some(oldest) = self.kept.pop_front_if(|oldest| oldest.id.turn == turn) {
            self.kept_bytes -= oldest.weight();
            let (answer, reason) = match &oldest.event {
                SessionEvent::Done(TurnOutcome { answer, stop_reason, .. }) => (answer.clone(), *stop_reason),
                SessionEvent::Error { .. } => (String::new(), StopReason::ProviderFailed),
                _ => continue,
            };
            self.earlier.insert(turn, EarlierTurn { answer, reason });
        }
        while self.earlier.len() > MAX_EARLIER_TURNS {
            self.earlier.pop_first();
        }
    }

    /// What a client does not have that has the events up to `after`.
    fn missed(&self, after: EventId, is_running: bool) -> Vec<Arc<LoggedEvent>> {
        let is_kept = |turn: u64| self.kept.iter().any(|logged| logged.id.turn == turn);
        let earlier = self.earlier.range(after.turn..).filter(|(turn, _)| !is_kept(**turn));
        let earlier = earlier.filter(|(turn, _)| **turn != after.turn || !after.is_over);
        let again = earlier.flat_map(|(turn, earlier)| self.told_again(*turn, earlier));
        let kept = self.kept.iter().filter(|logged| logged.id > after).map(Arc::clone);
        let mut missed: Vec<_> = again.chain(kept).collect();
        missed.sort_by_key(|logged| logged.id);
        // A turn that is told again, or that a restart interrupted, begins anew.
        let is_again = self.earlier.contains_key(&after.turn) && !is_kept(after.turn);
        let goes_on = is_running && self.turn == after.turn || is_kept(after.turn);
        let is_resumed = self.load != after.load && goes_on;
        if !after.is_over && (is_again || is_resumed) {
            let id = EventId { turn: after.turn, load: self.load, number: 0, is_over: false };
            missed.insert(0, Arc::new(LoggedEvent { id, event: SessionEvent::Restart }));
        }
        missed
    }

    fn text(&mut self, text: &str) {
        if text.is_empty() {
            return;
        }
        let is_first = self.shown_text.is_empty();
        self.shown_text.push_str(text);
        let gap = if is_first && self.had_text { "\n\n" } else { "" };
        self.add(SessionEvent::Text { text: format!("{gap}{text}") });
    }

    /// Ends the turn, if it has not ended, because another question came while tasks were open.
    fn supersede(&mut self) {
        if self.turn > 0 && !self.is_over {
            let outcome = self.outcome(StopReason::Cancelled);
            self.add(SessionEvent::Done(outcome));
        }
    }

    /// The outcome of a turn whose events are not kept; what it used is not known.
    fn told(&self, EarlierTurn { answer, reason }: &EarlierTurn) -> TurnOutcome {
        TurnOutcome { model: self.model.clone(), ..TurnOutcome::of(self.session, answer.clone(), *reason) }
    }

    /// The answer of a turn whose events are not kept, and its end.
    fn told_again(&self, turn: u64, earlier: &EarlierTurn) -> impl Iterator<Item = Arc<LoggedEvent>> {
        let answer = Some(earlier.answer.clone()).filter(|answer| !answer.is_empty());
        let text = answer.map(|text| SessionEvent::Text { text });
        let events = text.into_iter().chain([SessionEvent::Done(self.told(earlier))]);
        let load = self.load;
        events.map(move |event| {
            let id = EventId { turn, load, number: 0, is_over: event.is_last() };
            Arc::new(LoggedEvent { id, event })
        })
    }

    fn outcome(&self, reason: StopReason) -> TurnOutcome {
        let failure = self.failure.as_ref();
        let open = self.open.len();
        let is_overdue = self.is_overdue && reason == StopReason::Cancelled;
        let answer = match [self.last_answer.as_str(), &self.shown_text] {
            // What was written until it was stopped.
            [last, shown] if reason == StopReason::Cancelled && !shown.is_empty() => {
                [last, shown].join("\n\n").trim_start().to_owned()
            }
            [last, _] => outcome::answer_text(last, reason, self.question_spending, failure, open),
        };
        let (model, usage) = (self.model.clone(), self.question_spending.into());
        let calls = if reason == StopReason::CallsClient { self.calls.clone() } else { Vec::new() };
        let outcome = TurnOutcome { model, usage, calls, ..TurnOutcome::of(self.session, answer, reason) };
        if is_overdue { TurnOutcome { termination: DEADLINE_EXCEEDED, truncated: true, ..outcome } } else { outcome }
    }
}

impl LoopObserver for EventLog {
    fn observe(&self, event: LoopEvent<'_>) {
        match event {
            LoopEvent::Asked(_) => {
                let mut state = self.lock();
                state.supersede();
                state.turn += 1;
                state.known_questions += 1;
                state.started.clear();
                state.permits.clear();
                state.is_over = false;
                (state.had_text, state.is_overdue) = (false, false);
                state.shown_text.clear();
                state.last_answer.clear();
                state.held_text.clear();
                state.failure = None;
                state.question_spending = Spending::default();
                let asking = state.asking.pop_front();
                state.answered.extend(asking);
                // Before another client can join the turn.
                self.activity.send_replace(Activity::Working);
                let turn = state.turn;
                drop(state);
                self.turns.send_replace(turn);
            }
            LoopEvent::Text(text) if self.holds_text.load(Ordering::Relaxed) => self.lock().held_text.push_str(text),
            LoopEvent::Text(text) => self.lock().text(text),
            LoopEvent::Turn { turn, question, session } => {
                let mut state = self.lock();
                (state.question_spending, state.session_spending) = (question, session);
                let held = std::mem::take(&mut state.held_text);
                state.calls.clone_from(&turn.calls);
                if !turn.in_text {
                    state.text(&held);
                    if !turn.text.trim().is_empty() {
                        state.last_answer.clone_from(&turn.text);
                    }
                } else if !state.shown_text.is_empty() {
                    state.add(SessionEvent::Restart);
                }
                state.had_text |= !std::mem::take(&mut state.shown_text).is_empty();
            }
            LoopEvent::Note(note) => self.add(SessionEvent::Note { text: note.to_owned() }),
            LoopEvent::Call(_) | LoopEvent::WaitsFor(_) => {}
            LoopEvent::Opened(task) => self.open_task(task),
            LoopEvent::Result(result) => self.close_tasks(result.collected.iter().copied()),
            LoopEvent::Woken(tasks) => {
                self.close_tasks(tasks.iter().map(|task| task.id));
                self.activity.send_replace(Activity::Working);
            }
            LoopEvent::Asleep(open) => {
                let mut state = self.lock();
                let waits_for_own = open.iter().any(|task| state.started.contains(&task.id));
                if !waits_for_own && !state.is_over {
                    // Only tasks of earlier questions are open: this one is answered.
                    let outcome = state.outcome(StopReason::Completed);
                    state.add(SessionEvent::Done(outcome));
                    state.is_over = true;
                }
                drop(state);
                self.activity.send_replace(Activity::Sleeping);
            }
            LoopEvent::Retry { failure, .. } => {
                let mut state = self.lock();
                state.held_text.clear();
                if !std::mem::take(&mut state.shown_text).is_empty() {
                    state.add(SessionEvent::Restart);
                }
                state.add(SessionEvent::Note { text: format!("{failure}; trying again") });
            }
            LoopEvent::GaveUp(failure) => self.lock().failure = Some(failure.clone()),
            LoopEvent::Done { reason, question } => {
                let mut state = self.lock();
                state.question_spending = question;
                let event = match (reason, &state.failure) {
                    (StopReason::ProviderFailed, Some(failure)) => {
                        SessionEvent::Error { error: failure.clone().into() }
                    }
                    _ => SessionEvent::Done(state.outcome(reason)),
                };
                let is_unheard = state.answered.is_empty() && state.followers.is_empty();
                let is_late = std::mem::replace(&mut state.is_over, true) && is_unheard;
                let late = Some(state.last_answer.clone()).filter(|answer| is_late && !answer.is_empty());
                state.add(event);
                let session = state.session;
                drop(state);
                if let (Some(late), Some(ledger)) = (late, &self.ledger)
                    && let Err(error) = ledger.change(session, |owed| owed.add_late(late))
                {
                    tracing::warn!(error = error.message, session, "failed to keep an answer");
                }
                self.activity.send_replace(Activity::Idle);
            }
        }
    }
}

/// Whether the last turn is over when a session is opened: nothing is done for it any more.
pub(super) fn is_over(activity: Activity, started: &[TaskId]) -> bool {
    activity == Activity::Idle || activity == Activity::Sleeping && started.is_empty()
}

#[cfg(test)]
mod tests;
