//! What a client gets that comes back: nothing twice, and nothing left out.

use super::*;

/// A log of a session that was loaded at `load`, and the folder of its mailbox.
fn log(load: u64) -> (EventLog, tempfile::TempDir) {
    let folder = tempfile::tempdir().expect("a folder");
    let mailbox = Mailbox::open(&folder.path().join("mailbox")).expect("a mailbox");
    (EventLog::new(101, load, mailbox, 0, None), folder)
}

fn earlier(answer: &str) -> EarlierTurn {
    EarlierTurn { answer: answer.to_owned(), reason: StopReason::Completed }
}

fn ask_and_answer(log: &EventLog, pieces: &[&str]) {
    log.observe(LoopEvent::Asked("a question"));
    for piece in pieces {
        log.observe(LoopEvent::Text(piece));
    }
    log.observe(LoopEvent::Done { reason: StopReason::Completed, question: Spending::default() });
}

/// What a client gets that has the events up to `after`: the first characters of texts, other events by their name.
fn got(log: &EventLog, after: EventId) -> (Vec<String>, Option<EventId>) {
    let (sender, events) = mpsc::unbounded_channel();
    log.follow(Some(after), sender);
    told(events)
}

/// These events, as [`got`] gives them, and the id of the last one.
fn told(mut events: mpsc::UnboundedReceiver<Arc<LoggedEvent>>) -> (Vec<String>, Option<EventId>) {
    let (mut told, mut last) = (Vec::new(), None);
    while let Ok(logged) = events.try_recv() {
        last = Some(logged.id);
        told.push(match &logged.event {
            SessionEvent::Text { text } => text.chars().take(6).collect(),
            SessionEvent::Restart => "restart".to_owned(),
            SessionEvent::Done(_) => format!("done {}", logged.id.turn),
            other => panic!("{other:?}"),
        });
    }
    (told, last)
}

const fn after(turn: u64, load: u64, number: u64, is_over: bool) -> EventId {
    EventId { turn, load, number, is_over }
}

#[test]
fn a_client_that_was_away_while_a_session_was_loaded_anew_gets_the_answers_it_missed() {
    let (log, _folder) = log(7);
    log.resume(2, Activity::Idle, Vec::new(), Vec::new(), Some("second"));
    log.recall(BTreeMap::from([(1, earlier("first")), (2, earlier("second"))]));
    let (told, last) = got(&log, after(1, 5, 3, false));
    assert_eq!(told, ["restart", "first", "done 1", "second", "done 2"]);
    assert_eq!(got(&log, last.expect("events")).0, [""; 0], "it has them now");
    assert_eq!(got(&log, after(1, 5, 9, true)).0, ["second", "done 2"], "it had the first answer");
    ask_and_answer(&log, &["third"]);
    assert_eq!(got(&log, after(2, 5, 4, true)).0, ["third", "done 3"]);
    assert_eq!(got(&log, after(2, 7, 0, false)).0, ["restart", "second", "done 2", "third", "done 3"]);
}

#[test]
fn a_client_in_the_middle_of_a_turn_gets_the_rest_of_it_or_all_of_it_again() {
    let (log, _folder) = log(7);
    let large = "x".repeat(MAX_KEPT_BYTES);
    ask_and_answer(&log, &["one", &large]);
    assert_eq!(got(&log, after(1, 7, 1, false)).0, ["xxxxxx", "done 1"]);
    ask_and_answer(&log, &["two"]);
    assert_eq!(got(&log, after(1, 7, 3, true)).0, ["two", "done 2"]);
    // Only the answer of the first turn is kept now, which the loop did not give here.
    assert_eq!(got(&log, after(1, 7, 1, false)).0, ["restart", "done 1", "two", "done 2"]);
}

#[test]
fn a_client_that_comes_back_to_a_question_gets_no_part_of_it_twice() {
    let (log, _folder) = log(7);
    ask_and_answer(&log, &["one", "two"]);
    ask_and_answer(&log, &["three"]);
    let joined = |turn, after| {
        let (sender, events) = mpsc::unbounded_channel();
        log.join_turn(turn, after, sender);
        told(events).0
    };
    assert_eq!(joined(1, None), ["one", "two", "done 1"]);
    assert_eq!(joined(1, Some(after(1, 7, 1, false))), ["two", "done 1"]);
    assert_eq!(joined(1, Some(after(1, 7, 3, true))), [""; 0]);
    assert_eq!(joined(2, Some(after(1, 7, 3, true))), ["three", "done 2"], "an event of another turn");
    assert_eq!(joined(1, Some(after(1, 5, 1, false))), ["restart", "one", "two", "done 1"], "a load before this one");
}

#[test]
fn a_turn_that_a_restart_interrupted_begins_anew_unless_its_answer_is_there() {
    let (log, _folder) = log(7);
    log.resume(1, Activity::Working, Vec::new(), Vec::new(), None);
    log.observe(LoopEvent::Text("again"));
    assert_eq!(got(&log, after(1, 5, 2, false)).0, ["restart", "again"]);
    assert_eq!(got(&log, after(1, 5, 2, true)).0, ["again"]);
}
