//! API keys: a human lets one decide on the page, what it then can decide, and how that ends.

use ground::config::api_keys::{ApiKeyOptions, ApiKeys, ApiScopes, NewApiKey};
use ground::page_client::api_client::{Gate, GateDecision, GateNeed, GateVerdict, PageApi, PageApiError};
use protocol::code::Code;
use protocol::paths::Paths;
use protocol::task::{State, TaskId};
use serde_json::{Value, json};

use super::hostile::{define_mark, written_marks};
use super::human::Human;
use super::touch::add_authenticator;
use crate::soft_key::SoftKey;
use crate::world::World;

impl World {
    /// The paths of the program in this world.
    pub(crate) fn paths(&self) -> Paths {
        Paths::below(&self.home(), &self.mailbox())
    }

    pub(super) fn api_keys(&self) -> ApiKeys {
        ApiKeys::of(&self.paths())
    }

    /// Makes an API key, which may not decide.
    pub(crate) fn make_api_key(&self, name: &str) -> NewApiKey {
        let scopes = ApiScopes { ask: true, read: true };
        self.api_keys().create(name, scopes, ApiKeyOptions::default()).expect("it is made")
    }

    /// What the page needs to know which key is meant.
    pub(super) fn shown_api_key(&self, name: &str) -> Value {
        let keys = self.api_keys().list().expect("readable");
        let key = keys.iter().find(|key| key.name == name).expect("a key of that name");
        json!({"name": key.name, "hash": key.hash})
    }

    /// Makes an API key, which a human then lets decide.
    pub(crate) fn make_deciding_key(&self, human: &Human, name: &str) -> String {
        let made = self.make_api_key(name);
        let given = human.post("/api-keys/give", &self.shown_api_key(name));
        assert_eq!(given.status, 200, "{}", given.body);
        made.key
    }
}

/// A client that shows one key.
struct Client {
    page: PageApi,
    key: String,
}

impl Client {
    fn of(world: &World, key: String) -> Self {
        Self { page: PageApi::new(&world.paths()), key }
    }

    async fn may_decide(&self) -> Result<bool, PageApiError> {
        self.page.standing(&self.key).await.map(|standing| standing.may_decide)
    }

    async fn gate(&self, id: &str) -> Gate {
        self.page.waiting_task(&self.key, task(id)).await.expect("a gate")
    }

    /// Approves what the gate shows now; `change` adds to the decision.
    async fn approve(&self, id: &str, change: impl FnOnce(&mut GateDecision)) -> Result<State, PageApiError> {
        let mut decision = approval(&self.gate(id).await);
        change(&mut decision);
        self.decide(id, decision).await
    }

    async fn decide(&self, id: &str, decision: GateDecision) -> Result<State, PageApiError> {
        self.page.decide(&self.key, task(id), decision).await
    }
}

fn task(id: &str) -> TaskId {
    id.parse().expect("the id of a task")
}

fn approval(gate: &Gate) -> GateDecision {
    let digest = gate.digest.clone();
    GateDecision { decision: GateVerdict::Approve, digest, word: None, note: None, answer: None }
}

/// The status and the code of a refusal.
fn refusal<T: std::fmt::Debug>(outcome: Result<T, PageApiError>) -> (u16, Code) {
    let error = outcome.expect_err("it is refused");
    (error.status, error.code)
}

#[tokio::test]
async fn a_key_decides_what_was_shown_once_after_a_human_let_it() {
    let world = World::new();
    define_mark(&world);
    let human = Human::of(&world);
    let client = Client::of(&world, world.make_api_key("phone").key);
    let id = world.start("mark", &json!({"name": "one"}));
    assert_eq!(client.may_decide().await, Ok(false));
    let refused = client.page.waiting(&client.key).await.expect_err("it may not");
    assert_eq!((refused.status, refused.code), (403, Code::NeedsScope));
    assert!(refused.message.contains("a human lets it, under API keys on the page"), "{refused}");
    let page = human.get("/api-keys").body;
    assert!(page.contains("It may not decide.") && page.contains("May decide…"), "{page}");

    assert_eq!(human.post("/api-keys/give", &world.shown_api_key("phone")).status, 200);
    assert_eq!(client.may_decide().await, Ok(true));
    let list = client.page.waiting(&client.key).await.expect("what waits");
    assert_eq!((list.gates.len(), list.more), (1, 0));
    let gate = client.gate(&id).await;
    assert_eq!(list.gates[0], gate);
    assert_eq!(gate.digest, human.pending_task(&id)["digest"].as_str().expect("a digest"), "what a human is shown");
    assert_eq!((gate.subtool.as_str(), &gate.needs), ("mark", &GateNeed::Click));
    assert!(gate.summary.starts_with("mark changes something"), "{}", gate.summary);
    assert_eq!((gate.fields[0].name.as_str(), gate.fields[0].value.text.as_str()), ("name", "one"));
    assert_eq!(gate.runs[0].role, "program");

    let stale = GateDecision { digest: "0".repeat(64), ..approval(&gate) };
    assert_eq!(refusal(client.decide(&id, stale).await), (409, Code::Stale));
    let approved = client.approve(&id, |decision| decision.note = Some(" go on ".to_owned())).await.expect("approved");
    assert!(matches!(approved, State::Queued | State::Running), "{approved}");
    let end = world.end_of(&id);
    assert_eq!((&end["status"], written_marks(&world).as_str()), (&json!("succeeded"), "one\n"));
    assert_eq!(refusal(client.decide(&id, approval(&gate)).await), (409, Code::AlreadyDecided), "it counts once");
    assert_eq!(end["_meta"]["confirmation"]["reason"], "go on", "{end}");
    assert_eq!(end["_meta"]["confirmation"]["by"], "an API key of the human");

    let other = world.start("mark", &json!({"name": "two"}));
    let denial = GateDecision {
        decision: GateVerdict::Deny,
        note: Some("not now".to_owned()),
        ..approval(&client.gate(&other).await)
    };
    assert_eq!(client.decide(&other, denial).await, Ok(State::Denied));
    assert_eq!(world.end_of(&other)["error"]["message"], "a human denied it: not now");
    assert_eq!(refusal(client.page.waiting_task(&client.key, task(&other)).await), (404, Code::NotFound));
    let unknown = GateDecision { decision: GateVerdict::Approve, ..approval(&gate) };
    assert_eq!(refusal(client.decide(&TaskId::new().to_string(), unknown).await), (404, Code::NotFound));

    let history = human.get("/history").body;
    assert!(history.contains("approved with API key phone") && history.contains("denied with API key phone"));
    assert!(human.get(&format!("/task/{id}")).body.contains("API key phone"));
    assert!(human.get("/history.jsonl").body.contains("\"decided_in\":\"key:phone\""));
    let page = human.get("/api-keys").body;
    assert!(page.contains("It may decide in your place.") && page.contains("<strong>2</strong> decisions"), "{page}");
}

#[tokio::test]
async fn the_scope_ends_when_it_is_taken_back_and_with_its_key_and_survives_a_kill() {
    let world = World::new();
    define_mark(&world);
    let human = Human::of(&world);
    let key = world.make_deciding_key(&human, "phone");
    let client = Client::of(&world, key.clone());
    let id = world.start("mark", &json!({"name": "x"}));
    let gate = client.gate(&id).await;
    world.kill_executor();
    let human = Human::of(&world);
    assert_eq!(client.may_decide().await, Ok(true), "the record keeps it");

    assert_eq!(human.post("/api-keys/take", &json!({"hash": world.shown_api_key("phone")["hash"]})).status, 200);
    assert_eq!(client.may_decide().await, Ok(false));
    assert_eq!(refusal(client.decide(&id, approval(&gate)).await), (403, Code::NeedsScope));
    assert_eq!(human.post("/api-keys/give", &world.shown_api_key("phone")).status, 200);
    assert_eq!(client.may_decide().await, Ok(true));

    let (kept, shown) = (world.api_keys().list().expect("readable"), world.shown_api_key("phone"));
    world.api_keys().revoke("phone").expect("revoked");
    assert_eq!(refusal(client.may_decide().await), (401, Code::BadApiKey));
    assert_eq!(refusal(client.decide(&id, approval(&gate)).await), (401, Code::BadApiKey));
    assert!(human.get("/api-keys").body.contains("This key was removed"));
    let other = Client::of(&world, world.make_api_key("phone").key);
    assert_eq!(other.may_decide().await, Ok(false), "another key under the same name");
    assert_eq!(refusal(other.decide(&id, approval(&gate)).await), (403, Code::NeedsScope));
    assert_eq!(human.post("/api-keys/give", &shown).status, 409, "it is not the one that was shown");
    // Another key's entry under the name and the hash that may decide is only that key again.
    let text = json!({"keys": kept}).to_string();
    std::fs::write(world.paths().api_keys(), text).expect("written");
    assert_eq!(refusal(other.may_decide().await), (401, Code::BadApiKey));
    assert_eq!(client.may_decide().await, Ok(true));
    let renamed = json!({"keys": [{"name": "other", "id": kept[0].id, "hash": kept[0].hash,
        "created_at": kept[0].created_at, "scopes": {"ask": true, "read": true}}]});
    std::fs::write(world.paths().api_keys(), renamed.to_string()).expect("written");
    assert_eq!(client.may_decide().await, Ok(false), "it was given to a key of another name");
    assert_eq!(written_marks(&world), "");
    assert_eq!(world.result_file(&id)["state"], "awaiting_confirmation");
}

/// What a key approved waits for its turn, and the key is gone when the turn comes.
#[tokio::test]
async fn what_a_revoked_key_approved_does_not_start() {
    for is_killed in [false, true] {
        let world = World::new();
        let script = "echo \"$1\" >> marks; until [ -e go ]; do sleep 0.05; done";
        let mark = json!({"description": "Leaves a mark, and ends when it may.", "concurrency": 1,
            "input": {"type": "object", "properties": {"name": {"type": "string"}}},
            "run": {"process": {"argv": ["sh", "-c", script, "mark", "{{ name }}"], "folder": "."}}});
        world.define("marks.json", &json!({"mark": mark}));
        let human = Human::of(&world);
        let client = Client::of(&world, world.make_deciding_key(&human, "phone"));
        let first = world.start("mark", &json!({"name": "first"}));
        human.approve(&first);
        let second = world.start("mark", &json!({"name": "second"}));
        assert_eq!(client.approve(&second, |_| {}).await, Ok(State::Queued));
        assert_eq!(world.run(&["serve", "key", "revoke", "phone"]).exit, 0);
        if is_killed {
            world.kill_executor();
            let _human = Human::of(&world);
        }
        std::fs::write(world.folder().join("go"), "").expect("written");
        let end = world.end_of(&second);
        assert_eq!(end["status"], "denied", "{end}");
        let message = end["error"]["message"].as_str().expect("a message");
        assert!(message.contains("the API key that approved it may no longer decide"), "{message}");
        assert!(!written_marks(&world).contains("second"));
    }
}

/// A row in the record is no decision of a human: the executor knows what it was told itself.
#[tokio::test]
async fn a_scope_that_is_written_into_the_record_of_a_running_executor_decides_nothing() {
    let world = World::new();
    define_mark(&world);
    let human = Human::of(&world);
    let client = Client::of(&world, world.make_api_key("phone").key);
    let id = world.start("mark", &json!({"name": "x"}));
    let digest = human.pending_task(&id)["digest"].as_str().expect("a digest").to_owned();
    let key = world.shown_api_key("phone");
    let scope = json!({"key": key, "gift": 1, "given_at": "2026-01-01T00:00:00Z", "given_by": "chromium-linux-0000"});
    let store = rusqlite::Connection::open(world.executor_folder().join("tasks.db")).expect("opened");
    store.busy_timeout(std::time::Duration::from_secs(30)).expect("set");
    let row = [key["hash"].as_str().expect("a hash"), &scope.to_string()];
    store.execute("INSERT INTO decide_scopes (hash, body) VALUES (?1, ?2)", row).expect("written");
    drop(store);
    let decision = GateDecision { decision: GateVerdict::Approve, digest, word: None, note: None, answer: None };
    assert_eq!(refusal(client.decide(&id, decision).await), (403, Code::NeedsScope));
    assert_eq!(world.result_file(&id)["state"], "awaiting_confirmation");
}

/// A destructive subtool, a question, a question for a secret, and texts that hide something.
#[tokio::test]
async fn a_word_is_typed_a_question_answered_and_a_secret_only_on_the_page() {
    let world = World::new();
    let mark = |fields: Value| {
        let mut tool = json!({"description": "Leaves a mark.",
            "input": {"type": "object", "properties": {"name": {"type": "string"}}},
            "run": {"process": {"argv": ["sh", "-c", "echo \"$1\" >> marks", "mark", "{{ name }}"], "folder": "."}}});
        tool.as_object_mut().expect("an object").extend(fields.as_object().cloned().expect("an object"));
        tool
    };
    let wipe = json!({"annotations": {"destructiveHint": true}, "type_to_approve": "{{ name }}"});
    world.define("marks.json", &json!({"mark_it": mark(json!({})), "wipe_it": mark(wipe)}));
    let human = Human::of(&world);
    let client = Client::of(&world, world.make_deciding_key(&human, "phone"));

    let wiped = world.start("wipe_it", &json!({"name": "cellar"}));
    let gate = client.gate(&wiped).await;
    assert_eq!((&gate.needs, gate.danger), (&GateNeed::Word { word: "cellar".to_owned() }, true));
    for typed in [None, Some("Cellar"), Some("wipe_it")] {
        let typed = typed.map(str::to_owned);
        assert_eq!(refusal(client.approve(&wiped, |decision| decision.word = typed).await), (422, Code::WantsWord));
    }
    client.approve(&wiped, |decision| decision.word = Some("cellar".to_owned())).await.expect("approved");
    assert_eq!(world.end_of(&wiped)["status"], "succeeded");

    let asked = world.start("ask_user", &json!({"question": "Which color?", "options": ["red", "blue"]}));
    let GateNeed::Answer { question, form } = client.gate(&asked).await.needs else { panic!("a question") };
    assert_eq!(
        (question.text.as_str(), &form.0["properties"]["answer"]["enum"]),
        ("Which color?", &json!(["red", "blue"]))
    );
    assert_eq!(refusal(client.approve(&asked, |_| {}).await), (422, Code::WantsAnswer));
    let answer = |value: &str| json!({"answer": value}).as_object().cloned();
    assert_eq!(
        refusal(client.approve(&asked, |decision| decision.answer = answer("green")).await),
        (422, Code::InvalidInput)
    );
    client.approve(&asked, |decision| decision.answer = answer("blue")).await.expect("answered");
    assert_eq!(world.end_of(&asked)["data"], json!({"action": "accept", "answer": "blue"}));
    let declined = world.start("ask_user", &json!({"question": "And now?"}));
    client.approve(&declined, |decision| decision.decision = GateVerdict::Deny).await.expect("declined");
    assert_eq!(world.end_of(&declined)["data"], json!({"action": "decline"}));

    // Its words hide nothing, and no option goes by another name alone.
    let disguised = json!({"type": "object", "title": "Pay\u{200b}ment", "properties": {"what": {"type": "string",
        "title": "What\u{202e}", "description": "Choose\u{2066} one", "oneOf": [
            {"const": "delete", "title": "Keep\u{200b} everything"}, {"const": "keep", "title": "keep"}]},
        "how": {"enum": ["now\u{200b}", "later"]}}});
    let asked = world.start("ask_user", &json!({"question": "Pay?", "form": disguised}));
    let GateNeed::Answer { form, .. } = client.gate(&asked).await.needs else { panic!("a question") };
    let shown = json!({"type": "object", "title": "Pay\\u{200B}ment", "properties": {"what": {"type": "string",
        "title": "What\\u{202E}", "description": "Choose\\u{2066} one", "oneOf": [
            {"const": "delete", "title": "Keep\\u{200B} everything (value: delete)"}, {"const": "keep", "title": "keep"}]},
        "how": {"enum": ["now\u{200b}", "later"], "enumNames": ["now\\u{200B}", "later"]}}});
    assert_eq!(Value::Object(form.0), shown);
    assert!(human.card(&asked).contains("(value: delete)"));
    let chosen = json!({"what": "delete", "how": "now\u{200b}"}).as_object().cloned();
    client.approve(&asked, |decision| decision.answer = chosen).await.expect("answered");
    assert_eq!(world.end_of(&asked)["data"]["content"]["how"], "now\u{200b}");

    let form = json!({"type": "object", "properties": {"pin": {"type": "string", "format": "password"}}});
    let secret = world.start("ask_user", &json!({"question": "Your PIN?", "form": form}));
    assert_eq!(client.gate(&secret).await.needs, GateNeed::Page);
    let pin = json!({"pin": "1234"}).as_object().cloned();
    assert_eq!(refusal(client.approve(&secret, |decision| decision.answer = pin).await), (403, Code::NeedsAssurance));
    assert_eq!(world.result_file(&secret)["state"], "awaiting_confirmation");

    let hostile = world.start("mark_it", &json!({"name": "a\u{202e}b\u{200b}\\"}));
    let gate = client.gate(&hostile).await;
    assert_eq!(gate.fields[0].value.text, "a\\u{202E}b\\u{200B}\\\\");
    assert_eq!(gate.fields[0].value.hidden, ["U+202E right-to-left override", "U+200B zero width space"]);
    let answered = client.approve(&hostile, |decision| decision.answer = answer("x")).await;
    assert_eq!(refusal(answered), (422, Code::NoQuestion));
    let history = human.get("/history").body;
    assert!(history.contains("answered with API key phone"), "{history}");
}

#[tokio::test]
async fn with_a_passkey_only_its_touch_gives_the_scope_which_covers_no_touch() {
    let world = World::new();
    let tool = |fields: Value| {
        let mut tool = json!({"description": "Leaves a mark.", "input": {}, "run": {"process": {"argv": ["true"]}}});
        tool.as_object_mut().expect("an object").extend(fields.as_object().cloned().expect("an object"));
        tool
    };
    let grave = json!({"annotations": {"destructiveHint": true}});
    world.define("tools.json", &json!({"mild": tool(json!({})), "grave": tool(grave)}));
    let human = Human::of(&world);
    let before = Client::of(&world, world.make_deciding_key(&human, "before"));
    let mut key = SoftKey::es256("a");
    let enrol = json!({"name": "laptop", "registration": human.registration(&key)});
    assert_eq!(human.post("/keys", &enrol).status, 200);
    assert_eq!(before.may_decide().await, Ok(false), "no passkey stands behind it");
    assert!(human.get("/api-keys").body.contains("your keys do not stand behind it"));

    let (phone, other) = (Client::of(&world, world.make_api_key("phone").key), world.make_api_key("other"));
    let (shown, shown_other) = (world.shown_api_key("phone"), world.shown_api_key("other"));
    assert_eq!(human.post("/api-keys/give", &shown).status, 403);
    let mut touched = human.touched("/api-keys/give", &shown, &mut key);
    let mut moved = shown_other.clone();
    moved["touch"] = touched["touch"].clone();
    assert_eq!(human.post("/api-keys/give", &moved).status, 403, "the touch is for one key");
    let mut stranger = SoftKey::es256("agent's");
    let own = human.touched("/api-keys/give", &shown, &mut stranger);
    assert_eq!(human.post("/api-keys/give", &own).status, 403);
    assert_eq!(phone.may_decide().await, Ok(false));
    assert_eq!(human.post("/api-keys/give", &touched).status, 200);
    touched["touch"]["signature"] = "".into();
    assert_eq!(human.post("/api-keys/give", &touched).status, 403);
    assert_eq!((phone.may_decide().await, Client::of(&world, other.key).may_decide().await), (Ok(true), Ok(false)));

    let (mild, grave) = (world.start("mild", &json!({})), world.start("grave", &json!({})));
    assert_eq!(phone.gate(&grave).await.needs, GateNeed::Touch);
    let refused = phone.approve(&grave, |decision| decision.word = Some("grave".to_owned())).await;
    let error = refused.expect_err("it needs a touch");
    assert_eq!((error.status, error.code), (403, Code::NeedsTouch));
    assert!(error.message.contains("only the page can take"), "{error}");
    phone.approve(&mild, |_| {}).await.expect("approved");
    assert_eq!(world.end_of(&mild)["status"], "succeeded");
    assert_eq!(world.result_file(&grave)["state"], "awaiting_confirmation");
    let denied = phone.approve(&grave, |decision| decision.decision = GateVerdict::Deny).await;
    assert_eq!(denied, Ok(State::Denied), "to deny needs none");
    // The touch is kept with the scope, so that it survives the executor, and the record alone gives none.
    world.kill_executor();
    let _human = Human::of(&world);
    assert_eq!(phone.may_decide().await, Ok(true));
    let store = rusqlite::Connection::open(world.executor_folder().join("tasks.db")).expect("opened");
    let swap = "UPDATE decide_scopes SET body = json_set(body, '$.key.hash', ?1, '$.key.name', 'other'), hash = ?1";
    store.execute("DELETE FROM decide_scopes WHERE body ->> '$.key.name' = 'before'", []).expect("removed");
    store.execute(swap, [shown_other["hash"].as_str().expect("a hash")]).expect("changed");
    drop(store);
    assert_eq!(phone.may_decide().await, Ok(false));
    world.kill_executor();
    let human = Human::of(&world);
    assert!(!human.get("/api-keys").body.contains("It may decide in your place."));
}

#[tokio::test]
async fn a_human_lets_a_key_decide_in_the_browser_and_takes_it_back() {
    let world = World::new();
    let client = Client::of(&world, world.make_api_key("phone").key);
    let Some(mut tab) = world.signed_in_tab().await else { return };
    add_authenticator(&mut tab, true).await;
    let origin = world.site().origin();
    tab.go(&format!("{origin}/keys")).await;
    tab.click("#key-name").await;
    tab.insert("this computer").await;
    tab.click("form[data-form=enrol] button").await;
    tab.until("document.querySelector('[data-key]')?.innerText.includes('this computer')").await;

    tab.click("nav a[href='/api-keys']").await;
    tab.until("document.querySelector('[data-api-key=phone]')?.innerText.includes('It may not decide.')").await;
    assert!(!tab.text("[data-api-key=phone]").await.contains("Every client that shows this key"), "it is closed");
    tab.click("[data-api-key=phone] summary").await;
    tab.until("document.querySelector('[data-api-key=phone]').innerText.includes('Every client that shows this key')")
        .await;
    tab.click("[data-api-key=phone] [data-action=give-scope]").await;
    tab.until("document.querySelector('[data-api-key=phone]')?.innerText.includes('It may decide in your place.')")
        .await;
    assert_eq!(client.may_decide().await, Ok(true));
    tab.click("[data-api-key=phone] [data-action=take-scope]").await;
    tab.until("document.querySelector('[data-api-key=phone]')?.innerText.includes('It may not decide.')").await;
    assert_eq!(client.may_decide().await, Ok(false));
    assert_eq!(tab.errors.iter().filter(|error| !error.contains("403")).count(), 0, "{:?}", tab.errors);
}
