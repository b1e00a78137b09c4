//! Tests of what a client is told while a turn goes on, and of the words of version 0.3.

use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::time::Duration;

use agent_loop::model::conversation::StopReason;
use ground::config::Config;
use ground::config::api_keys::ApiKeys;
use ground::page_client::api_client::PageApi;
use http_body_util::BodyExt as _;
use protocol::caller::Caller;
use protocol::code::Code;
use protocol::error::ErrorBody;
use protocol::paths::Paths;
use protocol::shell::ProgramShell;
use protocol::task::{State as TaskState, TaskId};
use protocol::tool_scope::ToolScope;
use serde_json::from_str;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::desk::{TurnEnd, bring, lost};
use super::record::{TaskOwner, TaskRecord, TurnPlace};
use super::store::{StoredTask, TaskStore};
use super::wire::{A2aMessage, A2aPart, A2aState};
use super::*;
use crate::http::HistoryKeeper;
use crate::service::turn::{
    Asker, EventId, LoggedEvent, SessionEvent, TaskNews, TurnOutcome, TurnStream, TurnUsage, WaitingNews,
};
use crate::service::{ApproverWindows, ServiceContext, SessionService};

const TASK: &str = "0190a0b0c0d07e0f8a0b0c0d0e0f0a0b";

fn message(text: &str) -> A2aMessage {
    A2aMessage {
        message_id: "m1".to_owned(),
        role: "ROLE_USER".to_owned(),
        parts: vec![A2aPart::of_text(text)],
        ..A2aMessage::default()
    }
}

fn owner() -> TaskOwner {
    TaskOwner::Key("phone".to_owned())
}

/// A task that cannot be stored, since its folder is gone.
fn record() -> Arc<TaskRecord> {
    record_in(tempfile::tempdir().expect("a folder").path())
}

fn record_in(folder: &Path) -> Arc<TaskRecord> {
    let (store, _) = TaskStore::open(folder).expect("a store");
    Arc::new(TaskRecord::new(owner(), Asker::default(), "c1".to_owned(), message("hello"), Arc::new(store)))
}

/// What is stored in the folder of one task.
fn stored(folder: &Path) -> StoredTask {
    let (_, mut tasks) = TaskStore::open(folder).expect("a store");
    let task = tasks.next().expect("one task");
    assert!(tasks.next().is_none());
    task
}

/// Calls of a client whose tasks are stored in `folder`.
fn calls(key: Option<&str>, folder: &Path) -> CallDesk {
    let client = HttpClient {
        address: IpAddr::V4(Ipv4Addr::LOCALHOST),
        key: key.map(str::to_owned),
        history: HistoryKeeper::Server,
        model: None,
        tool_scope: ToolScope::default(),
        read_only: false,
        may_read: true,
        has_no_commands: false,
        bearer: None,
        depth: 0,
    };
    let (service, paths) = stopped_service();
    let (keys, page) = (ApiKeys::of(&paths), PageApi::new(&paths));
    let state = Arc::new(ServeState::new(service, keys, page, Config::default().serve));
    CallDesk { state, desk: Arc::new(TaskDesk::open(folder).expect("a desk")), client }
}

/// A service that takes no question anymore.
pub(crate) fn stopped_service() -> (Arc<SessionService>, Paths) {
    let folder = tempfile::tempdir().expect("a folder");
    let stopping = CancellationToken::new();
    stopping.cancel();
    let paths = Paths::below(folder.path(), &folder.path().join("mailbox"));
    let context = ServiceContext {
        paths: paths.clone(),
        config: Config::default(),
        shell: Arc::new(ProgramShell::new("agent-magic-tool")),
        caller: Caller::default(),
        forget_results: Box::new(|_| Ok(Vec::new())),
        windows: ApproverWindows { until_there: Duration::ZERO, of_key: None },
        idle: Duration::ZERO,
    };
    (SessionService::open(context, stopping).expect("a service"), paths)
}

fn text(text: &str) -> SessionEvent {
    SessionEvent::Text { text: text.to_owned() }
}

fn done(answer: &str, stop_reason: StopReason) -> SessionEvent {
    let (model, usage) = ("m".to_owned(), TurnUsage { requests: 2, ..TurnUsage::default() });
    SessionEvent::Done(TurnOutcome { model, usage, ..TurnOutcome::of(101, answer.to_owned(), stop_reason) })
}

fn waiting(id: TaskId) -> SessionEvent {
    SessionEvent::Waiting(WaitingNews {
        id,
        subtool: "mail_send".to_owned(),
        message: "mail_send waits for you".to_owned(),
    })
}

fn news(id: TaskId, state: TaskState) -> SessionEvent {
    SessionEvent::Task(TaskNews { id, subtool: "mail_send".to_owned(), state, preview: None })
}

fn id() -> TaskId {
    TASK.parse().expect("a task id")
}

/// The events of a stream, each as the JSON of its `data`.
async fn events(response: Response) -> Vec<Value> {
    let body = response.into_body().collect().await.expect("a body").to_bytes();
    let body = String::from_utf8(body.to_vec()).expect("text");
    body.lines().filter_map(|line| line.strip_prefix("data: ")).map(|data| from_str(data).expect("JSON")).collect()
}

#[tokio::test]
async fn a_task_is_delivered_if_its_client_reads_it_over_any_binding() {
    for streams in [false, true] {
        for reads in [true, false] {
            let record = record();
            play(&record, vec![done(&"word ".repeat(100), StopReason::Completed)]).await;
            let response = if streams {
                event_stream(Arc::clone(&record), record.feed(), |update| update)
            } else {
                let answer = TaskAnswer { task: record.task(), record: Arc::clone(&record) };
                delivered("application/json", &json!(answer.task), &answer)
            };
            assert!(!record.is_delivered(), "nothing was sent");
            crate::delivery::tests::send(response, reads).await;
            assert_eq!(record.is_delivered(), reads, "streamed: {streams}, read: {reads}");
        }
    }
}

/// Brings the events to a task, as a turn does.
async fn play(record: &Arc<TaskRecord>, played: Vec<SessionEvent>) -> Vec<Value> {
    let response = event_stream(Arc::clone(record), record.feed(), |update| update);
    let (sender, receiver) = mpsc::unbounded_channel();
    for (number, event) in (1..).zip(played) {
        let id = EventId { turn: 1, load: 1, number, is_over: false };
        sender.send(Arc::new(LoggedEvent { id, event })).expect("it is read");
    }
    drop(sender);
    match bring(record, TurnStream::of(receiver, 101)).await {
        TurnEnd::Over => {}
        TurnEnd::CutOff => record.on_lost(&lost()),
        TurnEnd::Unwanted(_) => panic!("no one wanted to stop it"),
    }
    events(response).await
}

#[tokio::test]
async fn a_turn_is_a_task_that_ends_with_its_answer() {
    let record = record();
    let told = play(&record, vec![text("Hel"), text("lo"), done("Hello", StopReason::Completed)]).await;
    assert_eq!(told[0]["task"]["status"]["state"], "TASK_STATE_SUBMITTED");
    assert_eq!(told[0]["task"]["history"][0]["parts"], json!([{"text": "hello"}]));
    assert_eq!(told[1]["statusUpdate"]["status"]["state"], "TASK_STATE_WORKING");
    let pieces: Vec<_> = told[2..4].iter().map(|piece| &piece["artifactUpdate"]).collect();
    assert_eq!((&pieces[0]["artifact"]["parts"][0]["text"], &pieces[0]["append"]), (&json!("Hel"), &json!(false)));
    assert_eq!((&pieces[1]["artifact"]["parts"][0]["text"], &pieces[1]["append"]), (&json!("lo"), &json!(true)));
    assert_eq!(told[4]["statusUpdate"]["status"]["state"], "TASK_STATE_COMPLETED");
    assert_eq!(told[4]["statusUpdate"]["metadata"]["agent-magic-tool"]["usage"]["requests"], 2);
    assert_eq!(told.len(), 5);
    let task = json!(record.task());
    assert_eq!(task["artifacts"][0]["parts"], json!([{"text": "Hello"}]));
}

#[tokio::test]
async fn what_a_restart_made_void_is_replaced() {
    let record = record();
    let told =
        play(&record, vec![text("Wro"), SessionEvent::Restart, text("Right"), done("Right", StopReason::Completed)])
            .await;
    let pieces: Vec<_> = told.iter().filter_map(|event| event.get("artifactUpdate")).collect();
    let shown: Vec<_> = pieces.iter().map(|piece| (&piece["artifact"]["parts"][0]["text"], &piece["append"])).collect();
    assert_eq!(shown, [(&json!("Wro"), &json!(false)), (&json!(""), &json!(false)), (&json!("Right"), &json!(true))]);
    // The words of a step that was not the last one are no part of the answer.
    let record = self::record();
    let told = play(&record, vec![text("Let me see. "), text("Two."), done("Two.", StopReason::Completed)]).await;
    let last = told.iter().rev().find_map(|event| event.get("artifactUpdate")).expect("the answer");
    assert_eq!((&last["artifact"]["parts"][0]["text"], &last["append"]), (&json!("Two."), &json!(false)));
}

#[tokio::test]
async fn what_waits_is_input_required_until_it_is_decided() {
    let record = record();
    let played = vec![
        waiting(id()),
        SessionEvent::Note { text: "still here".to_owned() },
        news(id(), TaskState::Queued),
        done("Sent.", StopReason::Completed),
    ];
    let told = play(&record, played).await;
    let states: Vec<_> = told
        .iter()
        .filter_map(|event| event.get("statusUpdate"))
        .map(|update| update["status"]["state"].as_str().expect("a state").trim_start_matches("TASK_STATE_"))
        .collect();
    assert_eq!(states, ["WORKING", "INPUT_REQUIRED", "INPUT_REQUIRED", "WORKING", "COMPLETED"]);
    assert_eq!(told[2]["statusUpdate"]["status"]["message"]["parts"][0]["text"], "mail_send waits for you");
    assert_eq!(told[2]["statusUpdate"]["metadata"]["agent-magic-tool"]["waits_for"], "human");
    assert_eq!(told[4]["statusUpdate"]["metadata"], Value::Null);
}

#[tokio::test]
async fn each_end_of_a_turn_is_a_state() {
    for (reason, state) in [
        (StopReason::Completed, A2aState::Completed),
        (StopReason::BudgetExhausted, A2aState::Completed),
        (StopReason::Refused, A2aState::Rejected),
        (StopReason::ApprovalDenied, A2aState::Rejected),
        (StopReason::ProviderFailed, A2aState::Failed),
        (StopReason::Cancelled, A2aState::Canceled),
    ] {
        let record = record();
        play(&record, vec![done("", reason)]).await;
        assert_eq!(record.state(), state, "{reason:?}");
    }
    let record = record();
    let error = ErrorBody::new(Code::ModelFailed, "no model").hint("start one");
    let told = play(&record, vec![SessionEvent::Error { error }]).await;
    let status = &told.last().expect("an event")["statusUpdate"]["status"];
    assert_eq!(status["message"]["parts"][0]["text"], "no model; start one");
    assert_eq!(record.state(), A2aState::Failed);
    // A turn whose events stop is not left open.
    let record = self::record();
    play(&record, vec![text("Hel")]).await;
    assert_eq!(record.state(), A2aState::Failed);
}

#[tokio::test]
async fn a_refused_question_is_a_rejected_task_and_belongs_to_its_client_alone() {
    let folder = tempfile::tempdir().expect("a folder");
    let calls = calls(Some("phone"), folder.path());
    let params = |parts: Value| serde_json::from_value(json!({"message": {"messageId": "m1", "parts": parts}}));
    let answer = calls.send(params(json!([{"text": "hello"}])).expect("params")).await.expect("a task");
    assert_eq!(answer.task.status.state, A2aState::Rejected);
    let again = calls.send(params(json!([{"text": "hello"}])).expect("params")).await.expect("a task");
    assert_eq!(again.task.id, answer.task.id, "the same message is the same task");
    let other = CallDesk { client: HttpClient { key: None, ..calls.client.clone() }, ..calls.clone() };
    assert_eq!(other.find(&answer.task.id).expect_err("not theirs").kind, A2aErrorKind::TaskNotFound);
    assert_eq!(calls.list(&super::params(Value::Null).expect("params")).expect("a list")["totalSize"], 1);
    assert_eq!(other.list(&super::params(Value::Null).expect("params")).expect("a list")["totalSize"], 0);
    for (parts, kind) in [
        (json!([{"url": "https://a.example/x.pdf"}]), A2aErrorKind::ContentTypeNotSupported),
        (json!([{"raw": "AAAA"}]), A2aErrorKind::ContentTypeNotSupported),
        (json!([]), A2aErrorKind::InvalidParams),
    ] {
        let error = calls.send(params(parts).expect("params")).await.expect_err("refused");
        assert_eq!(error.kind, kind);
    }
}

#[tokio::test]
async fn a_task_is_stored_before_it_is_told_and_its_answer_too() {
    let folder = tempfile::tempdir().expect("a folder");
    let record = record_in(folder.path());
    record.save().expect("stored");
    let place = TurnPlace { session: 101, question: uuid::Uuid::now_v7() };
    record.set_place(place);
    let asked = stored(folder.path());
    assert_eq!((asked.id.as_str(), asked.place, asked.state), (record.id.as_str(), Some(place), A2aState::Submitted));
    let mode = std::os::unix::fs::MetadataExt::mode(
        &std::fs::metadata(folder.path().join(format!("{}.json", record.id))).expect("a file"),
    );
    assert_eq!(mode & 0o777, 0o600);
    record.on_event(&text("Hel"));
    assert_eq!((stored(folder.path()).state, stored(folder.path()).text), (A2aState::Working, None));
    play(&record, vec![waiting(id()), done("Hello", StopReason::Completed)]).await;
    record.delivered();
    let ended = stored(folder.path());
    assert!(ended.is_delivered);
    let (store, _) = TaskStore::open(folder.path()).expect("a store");
    let again = TaskRecord::of(ended, Arc::new(store));
    let (told, told_again) = (record.task(), again.task());
    assert_eq!(json!(told_again), json!(told), "the client reads the same");
    assert!(again.is_of(&owner(), &message("hello")) && !again.is_of(&TaskOwner::Key("b".into()), &message("hello")));
    // The half of a file that a crash left behind goes, and so does a forgotten task.
    std::fs::write(folder.path().join(".tmpabc"), "{").expect("written");
    again.forget();
    again.delivered();
    let (_, left) = TaskStore::open(folder.path()).expect("a store");
    assert_eq!((left.count(), std::fs::read_dir(folder.path()).expect("read").count()), (0, 0));
}

#[tokio::test]
async fn a_server_that_stops_ends_no_task_and_a_cancelled_one_stays_cancelled() {
    let folder = tempfile::tempdir().expect("a folder");
    let record = record_in(folder.path());
    record.set_place(TurnPlace { session: 101, question: uuid::Uuid::now_v7() });
    let stopping = SessionEvent::Error { error: ErrorBody::new(Code::NoExecutor, "the server is stopping") };
    let told = play(&record, vec![text("Hel"), stopping]).await;
    assert_eq!(told.last().expect("an event")["artifactUpdate"]["artifact"]["parts"][0]["text"], "Hel");
    assert_eq!((record.state(), stored(folder.path()).state), (A2aState::Working, A2aState::Working));
    assert!(record.want_cancel());
    let (store, _) = TaskStore::open(folder.path()).expect("a store");
    let again = Arc::new(TaskRecord::of(stored(folder.path()), Arc::new(store)));
    assert!(again.awaits_cancel() && !again.is_followed.initialized());
    play(&again, vec![done("", StopReason::Cancelled)]).await;
    assert_eq!(stored(folder.path()).state, A2aState::Canceled);
}

#[tokio::test]
async fn a_message_that_no_session_took_is_asked_in_its_own_context_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let before = calls(Some("phone"), folder.path());
    let record = before.desk.task(owner(), Asker::default(), "c1".to_owned(), message("hello"));
    assert!(before.desk.add(&Arc::new(record)).expect("stored"));
    let after = calls(Some("phone"), folder.path());
    after.desk.resume(&after.state.service);
    let listed = after.desk.list(&owner());
    assert_eq!((listed.len(), listed[0].state(), listed[0].is_lost()), (1, A2aState::Failed, true));
    let words = listed[0].task().status.message.expect("words").parts[0].text.clone().expect("text");
    assert_eq!(words, "the server stopped before it took the message; send the message again");
    let params = serde_json::from_value(json!({"message": message("hello")})).expect("params");
    let answer = after.send(params).await.expect("a task");
    assert_eq!((answer.task.id == listed[0].id, answer.task.context_id.as_str()), (false, "c1"));
    let refused = calls(Some("phone"), folder.path()).desk.list(&owner());
    assert_eq!(refused[0].state(), A2aState::Rejected, "stored as well");
}

#[test]
fn ended_tasks_are_forgotten_when_there_are_too_many_or_after_a_week() {
    let folder = tempfile::tempdir().expect("a folder");
    let calls = calls(Some("phone"), folder.path());
    let add = || {
        let record = Arc::new(calls.desk.task(owner(), Asker::default(), "c1".to_owned(), message("hello")));
        calls.desk.add(&record).expect("stored").then_some(record)
    };
    let first = add().expect("added");
    first.on_refused(&lost());
    let others: Vec<_> = (1..200).map(|_| add().expect("added")).collect();
    assert!(add().is_some(), "the first one has ended");
    assert!(calls.desk.find(&owner(), &first.id).is_none() && add().is_none(), "and all others are open");
    let (_, stored) = TaskStore::open(folder.path()).expect("a store");
    let stored: Vec<_> = stored.collect();
    assert_eq!((stored.len(), stored[0].id == others[0].id), (200, true));
    let (store, _) = TaskStore::open(folder.path()).expect("a store");
    for (task, hours) in stored.into_iter().zip([8 * 24, 6 * 24]) {
        let at = protocol::clock::now() - jiff::SignedDuration::from_hours(hours);
        store.write(&StoredTask { state: A2aState::Completed, at, ..task }).expect("stored");
    }
    let desk = TaskDesk::open(folder.path()).expect("a desk");
    assert!(desk.find(&owner(), &others[0].id).is_none() && desk.find(&owner(), &others[1].id).is_some());
    assert_eq!(std::fs::read_dir(folder.path()).expect("read").count(), 199);
}

#[test]
fn an_ended_task_lies_on_the_disk_alone_and_the_oldest_large_ones_are_forgotten() {
    let folder = tempfile::tempdir().expect("a folder");
    let calls = calls(Some("phone"), folder.path());
    let large = "x".repeat(3 << 20);
    let add = |answer: &str| {
        let record = Arc::new(calls.desk.task(owner(), Asker::default(), "c1".to_owned(), message(&large)));
        assert!(calls.desk.add(&record).expect("stored"));
        record.on_event(&done(answer, StopReason::Completed));
        record.id.clone()
    };
    let ids: Vec<_> = (0..12).map(|_| add(&large)).collect();
    let find = |id: &String| calls.desk.find(&owner(), id);
    let last = find(&ids[11]).expect("kept");
    assert!(!last.has_texts(), "its file alone has them");
    last.delivered();
    let task = json!(last.task());
    assert_eq!(task["artifacts"][0]["parts"][0]["text"], large.as_str(), "it is read from there");
    assert_eq!(task["history"][0]["parts"][0]["text"], large.as_str());
    assert!(last.is_of(&owner(), &message(&large)) && !last.is_of(&owner(), &message("x")));
    // Each takes 6 MiB.
    assert!(find(&ids[0]).is_none() && find(&ids[1]).is_some());
    let page = |token: &str| {
        let asked = json!({"includeArtifacts": true, "pageToken": token});
        json!(calls.list(&params(asked).expect("params")).expect("a list"))
    };
    let first = page("");
    assert_eq!((first["tasks"].as_array().map(Vec::len), &first["totalSize"]), (Some(2), &json!(11)));
    let next = page(first["nextPageToken"].as_str().expect("a token"));
    assert_eq!((next["tasks"].as_array().map(Vec::len), &next["tasks"][0]["id"]), (Some(2), &json!(ids[9])));
    // A single one is kept and shown, whatever it takes.
    let mut records = [last].into();
    desk::forget_large(&mut records, &owner(), 1);
    assert_eq!(records.len(), 1);
    // After a restart the same is read.
    let again = TaskDesk::open(folder.path()).expect("a desk").find(&owner(), &ids[11]).expect("kept");
    assert!(!again.has_texts() && again.is_delivered() && json!(again.task()) == task);
}

#[test]
fn no_context_leads_to_the_session_of_another_client() {
    let folder = tempfile::tempdir().expect("a folder");
    let calls = |key| calls(key, folder.path());
    let ours = "0123456789abcdef0123456789abcdef";
    assert_eq!(calls(Some("a")).session(ours), format!("a2a-a-{ours}"));
    let foreign = calls(Some("a")).session(&format!("b-{ours}"));
    assert_ne!(foreign, calls(Some("a-b")).session(ours));
    assert_eq!(foreign.len(), "a2a-a-".len() + 32);
    assert_eq!(foreign, calls(Some("a")).session(&format!("b-{ours}")), "it is the same each time");
    assert_eq!(calls(None).session(ours), format!("a2a-127.0.0.1-{ours}"));
}

#[test]
fn version_0_3_is_translated_both_ways() {
    let params = legacy::to_current_params(json!({
        "message": {"kind": "message", "messageId": "m", "role": "user", "parts": [
            {"kind": "text", "text": "hello"},
            {"kind": "file", "file": {"uri": "https://a.example/x"}},
        ]},
        "configuration": {"blocking": false},
    }));
    assert_eq!(params["message"]["parts"][1]["url"], "https://a.example/x");
    assert_eq!(params["configuration"]["returnImmediately"], true);
    let record = record();
    record.on_event(&waiting(id()));
    let task = legacy::to_legacy_result(json!({"task": record.task()}));
    assert_eq!((&task["kind"], &task["status"]["state"]), (&json!("task"), &json!("input-required")));
    assert_eq!(task["status"]["message"]["role"], "agent");
    assert_eq!(task["history"][0]["parts"][0], json!({"kind": "text", "text": "hello"}));
    assert_eq!(legacy::to_legacy_result(json!(record.task()))["kind"], "task");
}

#[test]
fn a_wrong_call_has_the_error_of_the_protocol() {
    let kind = |body: &str| rpc_call(body.as_bytes(), &mut Value::Null).err().map(|error| error.kind);
    assert_eq!(kind("{"), Some(A2aErrorKind::Parse));
    assert_eq!(kind("[]"), Some(A2aErrorKind::InvalidRequest));
    assert_eq!(kind(r#"{"jsonrpc": "1.0", "method": "GetTask"}"#), Some(A2aErrorKind::InvalidRequest));
    assert_eq!(kind(r#"{"jsonrpc": "2.0", "id": true, "method": "GetTask"}"#), Some(A2aErrorKind::InvalidRequest));
    assert_eq!(kind(r#"{"jsonrpc": "2.0", "method": "DoIt"}"#), Some(A2aErrorKind::MethodNotFound));
    assert_eq!(kind(r#"{"jsonrpc": "2.0", "id": 1, "method": "message/send"}"#), None);
    let version = |version: &'static str| {
        check_version(&HeaderMap::from_iter([(
            axum::http::HeaderName::from_static(VERSION_HEADER),
            axum::http::HeaderValue::from_static(version),
        )]))
        .is_ok()
    };
    assert!(version("1.0") && version("1.0.1") && version("0.3") && version(""));
    assert!(!version("2.0") && !version("0.2") && !version("10.0"));
}
