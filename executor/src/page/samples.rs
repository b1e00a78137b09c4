//! Tests that the server and the templates agree on names, through the sample data in `web/samples`.
//!
//! Each template renders each of its samples without an undefined name, and the server gives each template the same
//! names as its samples, no more and no fewer.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path as FilePath;

use axum::Extension;
use axum::body::Body;
use axum::extract::{Path, Query, State as Context};
use axum::http::StatusCode;
use catalog::Sources;
use ground::base::webauthn::{Base64Url, PublicKey};
use ground::config::Config;
use ground::config::api_keys::{ApiKeyOptions, ApiScopes};
use ground::config::secret::Secrets;
use ground::task::api_key::ApiKeyRef;
use ground::task::approver_key::{ApproverKey, ApproverKeys, EnrolledBy};
use ground::task::confirmation::{
    Confirmation, ConfirmationRequest, DecidedBy, Decision, ReplacedValues, TriedCascade, TriedChange, Verdict,
    WouldChange,
};
use ground::task::decide_scope::DecideScope;
use ground::task::fingerprint::{FileRole, Fingerprint};
use ground::task::grant::{FieldCoverage, Grant, GrantScope};
use ground::task::{End, Outcome, Task};
use http_body_util::BodyExt as _;
use minijinja::{State as Rendering, UndefinedBehavior};
use protocol::caller::Caller;
use protocol::clock;
use protocol::code::Code;
use protocol::error::ErrorBody;
use protocol::task::{State, Step, TaskId};
use serde_json::{Map, Value};
use store::sqlite::SqliteStore;
use store::{Change, Store as _, Transition};

use super::door::SessionName;
use super::session::BrowserKind;
use super::*;
use crate::intake::settings::{LiveSettings, Settings};
use crate::soft_key::SoftKey;

const VIEWS: [&str; 13] = [
    "api-keys", "card", "grants", "history", "keys", "login", "message", "sessions", "subtool", "subtools", "task",
    "tasks", "waiting",
];

/// The file name, the template name and the contents of each sample.
fn samples() -> Vec<(String, String, Value)> {
    let folder = FilePath::new(env!("CARGO_MANIFEST_DIR")).join("web/samples");
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).expect("the folder of samples").flatten() {
        let file = entry.file_name().to_string_lossy().into_owned();
        let view = VIEWS.into_iter().filter(|view| file.starts_with(view)).max_by_key(|view| view.len());
        let view = view.unwrap_or_else(|| panic!("{file} is a sample of no view")).to_owned();
        let text = std::fs::read(entry.path()).expect("a readable sample");
        found.push((file, view, serde_json::from_slice(&text).expect("JSON")));
    }
    let views: BTreeSet<_> = found.iter().map(|(_, view, _)| view.as_str()).collect();
    assert_eq!(views, BTreeSet::from(VIEWS), "each view has a sample");
    found
}

#[test]
fn no_template_uses_a_name_that_its_sample_lacks() {
    let mut templates = environment();
    templates.set_undefined_behavior(UndefinedBehavior::Strict);
    for (file, view, sample) in samples() {
        let template = templates.get_template(&format!("{view}.html")).expect("a template");
        let text = template.render(Serde(&sample)).unwrap_or_else(|error| panic!("{file}: {error:#}"));
        assert!(
            text.trim_end().ends_with("</html>") || view == "card" && text.contains("</article>"),
            "{file}: {text}"
        );
    }
}

/// The names of the objects at each place; all items of a list are one place.
type Names = BTreeMap<String, BTreeSet<String>>;

/// Collects the names of a view. A single card counts as a card of the waiting view.
fn collect(view: &str, value: &Value, found: &mut Names) {
    match view {
        "card" => collect_names(&value["card"], "waiting.cards[]", found),
        _ => collect_names(value, view, found),
    }
}

fn collect_names(value: &Value, place: &str, found: &mut Names) {
    match value {
        // A text may lack one of the two kinds of spans, so spans are not compared.
        Value::Object(span) if span.contains_key("t") || span.contains_key("n") && span.contains_key("c") => {}
        Value::Object(fields) => {
            found.entry(place.to_owned()).or_default().extend(fields.keys().cloned());
            // Not every text holds JSON, and a decoded value has the same names as any other.
            for (name, field) in fields.iter().filter(|(name, _)| *name != "decoded") {
                collect_names(field, &format!("{place}.{name}"), found);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| collect_names(item, &format!("{place}[]"), found)),
        _ => {}
    }
}

#[tokio::test]
async fn the_server_gives_the_names_that_the_samples_have() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (page, tasks) = page(folder.path());
    let mut actual = Names::new();
    let context = || Context(Arc::clone(&page));
    let of = |id: TaskId| Path(id.to_string());
    let secret = ground::page_client::link::make_link(folder.path()).expect("a link");
    page.context.sessions.log_in(&secret, BrowserKind::of("Firefox/1 Linux")).expect("the link is valid");
    let session = || Extension(SessionName("another".to_owned()));
    let search = || Query(serde_json::from_value(json!({})).expect("an empty query"));
    let answers = [
        ("waiting", views::waiting(context()).await.ok()),
        ("card", views::card(context(), of(tasks.confirm)).await.ok()),
        ("card", views::card(context(), of(tasks.question)).await.ok()),
        ("tasks", views::tasks(context()).await.ok()),
        ("history", views::history(context(), session(), search()).await.ok()),
        ("task", views::task(context(), session(), of(tasks.failed)).await.ok()),
        ("task", views::task(context(), session(), of(tasks.edited)).await.ok()),
        ("grants", views::grants(context()).await.ok()),
        ("subtools", views::subtools(context(), search()).await.ok()),
        ("subtool", views::subtool(context(), session(), Path("gmail_send_message".to_owned())).await.ok()),
        ("message", Some(views::not_found(context(), Some(session())).await)),
        ("login", Some(page.login())),
        ("sessions", views::sessions(context(), session()).await.ok()),
        ("keys", keys::view(context()).await.ok()),
        ("api-keys", api_keys::view(context()).await.ok()),
    ];
    for (view, answer) in answers {
        let answer: Response<Body> = answer.unwrap_or_else(|| panic!("{view} cannot be shown"));
        let is_expected = matches!(answer.status(), StatusCode::OK | StatusCode::NOT_FOUND | StatusCode::UNAUTHORIZED);
        assert!(is_expected, "{view}: {}", answer.status());
        let body = answer.into_body().collect().await.expect("a body").to_bytes();
        let value: Value = serde_json::from_slice(&body).unwrap_or_else(|error| panic!("{view}: {error}"));
        collect(view, &value, &mut actual);
    }
    let mut expected = Names::new();
    for (_, view, sample) in samples() {
        collect(&view, &sample, &mut expected);
    }
    let places: BTreeSet<_> = actual.keys().chain(expected.keys()).collect();
    let differ = places.into_iter().filter(|place| actual.get(*place) != expected.get(*place));
    let differences: Vec<_> = differ
        .map(|place| format!("{place}: {:?}, but the samples have {:?}", actual.get(place), expected.get(place)))
        .collect();
    assert_eq!(differences, [] as [String; 0]);
}

/// The ids of tasks in the test's record.
struct SampleTasks {
    confirm: TaskId,
    question: TaskId,
    failed: TaskId,
    edited: TaskId,
}

/// A page with its own record, whose templates print what they were given as JSON.
fn page(folder: &FilePath) -> (Arc<Page>, SampleTasks) {
    let config = Config::default();
    let catalog = Arc::new(Catalog::load(&Sources::new(&config, folder, None)));
    let mut store = SqliteStore::open(&folder.join("tasks.db")).expect("it opens");
    let api_keys = api_keys_in(folder);
    let tasks = fill(&mut store, &catalog, &api_keys);
    let mut templates = Environment::new();
    templates.set_auto_escape_callback(|_| AutoEscape::None);
    templates.add_function("given", |rendering: &Rendering<'_, '_>| {
        let names = rendering.known_variables();
        let values = names.iter().filter_map(|name| Some((name.to_string(), rendering.lookup(name)?)));
        let values: Map<_, _> =
            values.filter_map(|(name, value)| Some((name, serde_json::to_value(value).ok()?))).collect();
        let globals = ["debug", "dict", "given", "lipsum", "namespace", "range"];
        let context = values.into_iter().filter(|(name, _)| !globals.contains(&name.as_str())).collect::<Map<_, _>>();
        Value::Object(context).to_string()
    });
    for (name, _) in TEMPLATES {
        templates.add_template(name, "{{ given() }}").expect("a template");
    }
    let sources = Sources::new(&config, folder, None);
    let secrets = Secrets::new(folder.join("secrets"), BTreeMap::new());
    let runner_context = RunnerContext::new(config, secrets, folder.to_owned()).expect("clients");
    let settings = Settings::new(1, sources, runner_context).expect("no rules");
    let context = PageContext {
        listing: folder.join("listing"),
        site: PageSite::load_or_create(folder).expect("an address"),
        records: Mutex::new(RecordReader::open(&folder.join("tasks.db")).expect("it opens")),
        catalog: watch::channel(catalog).1,
        approver: Arc::default(),
        sessions: Arc::new(PageSessions::new(folder)),
        task_changes: broadcast::channel(1).0,
        send: Box::new(|_| false),
        mailbox: Mailbox::open(&folder.join("mailbox")).expect("it opens"),
        settings: LiveSettings::fixed(settings),
        keys: watch::channel(keys()).1,
        api_keys,
    };
    let preferences = PreferenceStore::load(folder);
    let page = Page {
        context,
        preferences,
        registrations: PendingRegistrations::default(),
        wrong_keys: WrongKeys::default(),
        templates: templates.into(),
    };
    (Arc::new(page), tasks)
}

/// One API key.
fn api_keys_in(folder: &FilePath) -> ApiKeys {
    let keys = ApiKeys::at(folder.join("serve").join("keys.json"));
    let expires_at = Some(clock::now() + jiff::SignedDuration::from_hours(1));
    let options = ApiKeyOptions { expires_at, ..ApiKeyOptions::default() };
    keys.create("phone", ApiScopes { ask: true, read: true }, options).expect("it is made");
    keys
}

/// That the first of the API keys may decide, and has.
fn scope_of(api_keys: &ApiKeys) -> DecideScope {
    DecideScope {
        key: ApiKeyRef { name: "phone".to_owned(), hash: api_keys.list().expect("read")[0].hash.clone() },
        gift: 1,
        given_at: clock::now(),
        given_by: "s".to_owned(),
        expires_at: None,
        taken_back_at: None,
        decisions: 1,
        last_decision: Some(clock::now()),
        proof: None,
    }
}

/// One enrolled key.
fn keys() -> KeysView {
    let soft = SoftKey::es256("a");
    let key = ApproverKey {
        name: "laptop".to_owned(),
        credential: Base64Url(soft.credential.clone()),
        public_key: PublicKey::parse(&soft.cose()).expect("a key"),
        counter: 0,
        enrolled_at: clock::now(),
        enrolled_by: EnrolledBy::FirstRun,
    };
    KeysView { keys: ApproverKeys { keys: vec![key], reset_at: None }, standing: KeyStanding::Enrolled }
}

fn sample_caller() -> Caller {
    Caller { uid: 0, session: Some("s".to_owned()), folder: Some("/home/ann".into()), ..Caller::default() }
}

/// Fills the record with something of everything that a view can show.
fn fill(store: &mut SqliteStore, catalog: &Catalog, api_keys: &ApiKeys) -> SampleTasks {
    let now = clock::now();
    let task = |tool: &str, input: Value, state: State| {
        let subtool = catalog.get(tool).expect("a built-in subtool");
        let Value::Object(input) = input else { unreachable!("the input is an object") };
        let mut task = Task {
            tool: subtool.name.clone(),
            input,
            definition_hash: subtool.hash.clone(),
            effect: subtool.definition.effect_class(),
            caller: sample_caller(),
            created_at: now,
            state,
            ..ground::task::sample::stored(None)
        };
        let asking = ConfirmationRequest {
            why: "it writes".to_owned(),
            reason: Some("asked for".to_owned()),
            files: vec![
                Fingerprint::of(FilePath::new("/bin/sh"), FileRole::Program, 0),
                Fingerprint::of(FilePath::new("/bin/sh"), FileRole::Input, 0),
            ],
            ..ConfirmationRequest::sample()
        };
        task.confirmation = Some(Box::new(Confirmation::ask(&task, asking, "n".to_owned(), now)));
        task
    };
    let mail = json!({"to": ["bob@example.com"], "subject": "{\"encoded\": true}", "body": "b\nc"});
    let mut to_eve = mail.clone();
    to_eve["to"] = json!(["eve@example.com"]);
    let mut confirm = task("gmail_send_message", to_eve, State::AwaitingConfirmation);
    confirm.confirmation.as_mut().expect("a confirmation").preview = Some(ReplacedValues::Fields(Map::from_iter([
        ("subject".to_owned(), json!("before")),
        ("body".to_owned(), json!("a\nc")),
    ])));
    confirm.confirmation.as_mut().expect("a confirmation").would_change =
        Some(WouldChange::Shown { data: json!({"recipients": 1}), is_cut: true });
    let form = json!({"type": "object", "properties": {"color": {"enum": ["red", "blue"]}}});
    let question = task("ask_user", json!({"question": "Which?", "form": form}), State::AwaitingConfirmation);
    let mut change = task("gmail_trash_message", json!({"message_id": "m"}), State::AwaitingConfirmation);
    change.run_at = Some(now + jiff::SignedDuration::from_hours(1));
    change.confirmation.as_mut().expect("a confirmation").preview = Some(ReplacedValues::Change(TriedChange {
        set_by_database: Vec::new(),
        rows_affected: 2,
        replaced: Some(1),
        sets_off: vec!["notes (insert)".to_owned(), "lines (delete)".to_owned()],
        cascades: vec![TriedCascade {
            table: "lines".to_owned(),
            deleted: 2,
            updated: 0,
            is_part: false,
            before: vec![json!({"id": 7, "order_id": 4})],
            after: Vec::new(),
        }],
        before: Some(vec![json!({"id": 4, "status": "pending"})]),
        after: Some(vec![json!({"id": 4, "status": "shipped"})]),
        digest: "d".to_owned(),
    }));
    let running = task("git_status", json!({}), State::Running);

    let mut failed = task("gmail_send_message", mail.clone(), State::Running);
    failed.confirmation = None;
    let mut edited = task("gmail_send_message", mail.clone(), State::Running);
    let mut decision = Decision::new(now, Verdict::Edited, DecidedBy::Page("s".to_owned()));
    decision.asked_input = mail.as_object().cloned();
    decision.reason = Some("as it should be".to_owned());
    edited.confirmation.as_mut().expect("a confirmation").decision = Some(decision);
    let error = ErrorBody::new(Code::ProcessFailed, "no").hint("look");
    let end = |task: &Task, step: Step, outcome: Outcome| {
        let meta = Map::from_iter([("duration_ms".to_owned(), json!(7))]);
        Change::Transition(Box::new(Transition {
            id: task.id,
            step,
            from: State::Running,
            attempt: 0,
            to: State::Running.after(step).expect("a legal step"),
            attempt_after: 0,
            not_before: None,
            at: now,
            confirmation: None,
            end: Some(End { at: now, outcome, meta }),
        }))
    };
    let ends =
        [end(&failed, Step::Fail, Outcome::Error(error)), end(&edited, Step::Succeed, Outcome::Data(json!("sent")))];
    let grant = Grant {
        scope: GrantScope { uid: 0, client: None, folder: None },
        fields: [("to".to_owned(), FieldCoverage::Anything)].into(),
        made_by: "s".to_owned(),
        expires_at: now,
        most_uses: Some(3),
        uses: 1,
        last_use: Some(now),
        ..Grant::sample(&confirm, now)
    };
    let tasks = SampleTasks { confirm: confirm.id, question: question.id, failed: failed.id, edited: edited.id };
    let accepted = [confirm, question, change, running, failed, edited].map(|task| Change::Accept(Box::new(task)));
    store.commit(&accepted).expect("the change is committed");
    store.commit(&ends).expect("the change is committed");
    store.commit(&[Change::Grant { grant: Box::new(grant), expected_uses: None }]).expect("the change is committed");
    store.commit(&[Change::DecideScope(Box::new(scope_of(api_keys)))]).expect("the change is committed");
    tasks
}
