//! A touch: keys that are enrolled on the page, and decisions that they sign.
//!
//! A key in software stands for a passkey where a test sends what no browser would; Chromium's virtual authenticator
//! shows that real browsers and our verifier agree.

use std::fs;

use serde_json::{Value, json};

use super::human::Human;
use crate::browser::Tab;
use crate::soft_key::{Ceremony, SoftKey, base64url};
use crate::world::{World, until};

/// A world with `wipe`, which is destructive, and `mark`, which is not.
fn world() -> World {
    let world = World::new();
    let tool = |word: &str, fields: Value| {
        let mut tool = json!({"description": "Leaves a mark.",
            "input": {"type": "object", "properties": {"name": {"type": "string"}}},
            "run": {"process": {"argv": ["sh", "-c", format!("echo {word} \"$1\" >> marks"), "mark", "{{ name }}"],
                "folder": "."}}});
        tool.as_object_mut().expect("an object").extend(fields.as_object().cloned().unwrap_or_default());
        tool
    };
    let grave = json!({"annotations": {"destructiveHint": true}});
    let strict = json!({"min_assurance": "touch"});
    world.define(
        "marks.json",
        &json!({"mark_it": tool("mark", json!({})), "wipe_it": tool("wipe", grave), "sign_it": tool("sign", strict)}),
    );
    world
}

fn marks(world: &World) -> String {
    fs::read_to_string(world.folder().join("marks")).unwrap_or_default()
}

fn code(body: &str) -> Value {
    serde_json::from_str::<Value>(body.trim()).unwrap_or_default()["error"]["code"].clone()
}

impl Human {
    fn json(&self, path: &str, body: &Value) -> (u16, Value) {
        let answer = self.post(path, body);
        (answer.status, serde_json::from_str(answer.body.trim()).unwrap_or_default())
    }

    fn relying_party(&self) -> String {
        self.site.rp_id()
    }

    /// The registration of a new key, answering a challenge of the page.
    pub(super) fn registration(&self, key: &SoftKey) -> Value {
        let (status, begun) = self.json("/keys/begin", &json!({}));
        assert_eq!((status, &begun["rp_id"]), (200, &json!(self.relying_party())));
        let ceremony = Ceremony::create(&self.relying_party(), &self.site.origin(), &bytes(&begun["challenge"]));
        json!({"client_data": base64url(&ceremony.client_data()), "attestation": base64url(&key.attestation(&ceremony))})
    }

    /// Sends `body`, which must need a touch, and returns it with the touch of `key`.
    pub(super) fn touched(&self, path: &str, body: &Value, key: &mut SoftKey) -> Value {
        let (status, answer) = self.json(path, body);
        assert_eq!((status, &answer["error"]["code"]), (403, &json!("needs-touch")), "{answer}");
        with_touch(self, body, &answer["touch"]["challenge"], key)
    }
}

fn with_touch(human: &Human, body: &Value, challenge: &Value, key: &mut SoftKey) -> Value {
    key.counter += 1;
    let ceremony = Ceremony::get(&human.relying_party(), &human.site.origin(), &bytes(challenge));
    let signed = key.sign(&ceremony);
    let mut body = body.clone();
    body["touch"] = json!({"credential": base64url(&key.credential), "client_data": base64url(&signed.client_data),
        "authenticator_data": base64url(&signed.authenticator_data), "signature": base64url(&signed.signature)});
    body
}

fn bytes(text: &Value) -> Vec<u8> {
    use base64::Engine as _;
    base64::engine::general_purpose::URL_SAFE_NO_PAD.decode(text.as_str().expect("text")).expect("base64url")
}

#[test]
fn the_first_key_is_enrolled_with_a_session_and_every_other_with_a_key() {
    let world = world();
    let human = Human::of(&world);
    let (mut first, mut second) = (SoftKey::es256("first"), SoftKey::ed25519("second"));
    let enrol = |key: &SoftKey, name: &str| json!({"name": name, "registration": human.registration(key)});
    assert_eq!(world.run(&["approver", "list"]).json()["keys"], json!([]));
    assert_eq!(human.json("/keys", &enrol(&first, "laptop")).0, 200);

    // A session alone enrols nothing more, whatever it sends along.
    let body = enrol(&second, "agent's");
    assert_eq!(human.post("/keys", &body).status, 403);
    let own = human.touched("/keys", &body, &mut second);
    let refused = human.post("/keys", &own);
    assert_eq!((refused.status, code(&refused.body)), (403, json!("bad-touch")), "{}", refused.body);
    // Nor does a touch for something else.
    let other = human.touched("/keys", &enrol(&second, "phone"), &mut first);
    let mut renamed = body.clone();
    renamed["touch"] = other["touch"].clone();
    assert_eq!(human.post("/keys", &renamed).status, 422, "the registration answers an older challenge");
    let names = || -> Vec<Value> {
        let keys = world.run(&["approver", "list"]).json()["keys"].clone();
        keys.as_array().expect("a list").iter().map(|key| key["name"].clone()).collect()
    };
    assert_eq!(names(), ["laptop"]);
    let body = human.touched("/keys", &enrol(&second, "phone"), &mut first);
    assert_eq!(human.post("/keys", &body).status, 200);
    assert_eq!(names(), ["laptop", "phone"]);

    // A key is revoked with another one, and the last one stays.
    let id = |key: &SoftKey| json!({"id": base64url(&key.credential)});
    let of_itself = human.touched("/keys/revoke", &id(&first), &mut first);
    assert_eq!(human.post("/keys/revoke", &of_itself).status, 422);
    let revoke = human.touched("/keys/revoke", &id(&first), &mut second);
    assert_eq!(human.post("/keys/revoke", &revoke).status, 200);
    assert_eq!(names(), ["phone"]);
    assert_eq!(human.post("/keys/revoke", &id(&second)).status, 422, "it is the last one");
    let page = human.get("/keys").body;
    assert!(page.contains("phone") && !page.contains("laptop"), "{page}");
}

#[test]
fn what_is_destructive_runs_only_with_a_touch_and_verify_proves_it() {
    let world = world();
    let human = Human::of(&world);
    let mut key = SoftKey::es256("a");
    let enrol = json!({"name": "laptop", "registration": human.registration(&key)});
    assert_eq!(human.post("/keys", &enrol).status, 200);
    let wipe = world.start("wipe_it", &json!({"name": "x"}));
    let mark = world.start("mark_it", &json!({"name": "y"}));
    let mut approval = human.decision(&wipe, "approve");
    approval["typed"] = "wipe_it".into();
    let touched = human.touched("/decide", &approval, &mut key);
    assert_eq!(world.result_file(&wipe)["state"], "awaiting_confirmation");
    // The touch is worth nothing for another task.
    let mut moved = human.decision(&mark, "approve");
    moved["touch"] = touched["touch"].clone();
    assert_eq!(human.post("/decide", &moved).status, 403);
    assert_eq!(human.post("/decide", &touched).status, 200);
    assert_eq!(world.end_of(&wipe)["status"], "succeeded");
    assert_eq!(human.post("/decide", &touched).status, 409, "it counts once");
    assert_eq!(human.approve(&mark).status, 200);
    assert_eq!(world.end_of(&mark)["status"], "succeeded");
    assert_eq!(marks(&world), "wipe x\nmark y\n");

    let public = world.run(&["approver", "list"]).json()["keys"][0]["public_key"].clone();
    let verified = world.run(&["verify", &wipe]);
    assert_eq!((verified.exit, &verified.json()["verified"]), (0, &json!(true)), "{verified}");
    assert_eq!(verified.json()["key"]["name"], "laptop");
    // The record and the public key are enough.
    assert_eq!(world.run(&["executor", "stop"]).exit, 0);
    let folder = world.executor_folder();
    fs::remove_file(folder.join("approver-keys.json")).expect("removed");
    let option = format!("--key={}", public.as_str().expect("text"));
    assert_eq!(world.run(&["verify", &wipe, &option]).exit, 0);
    let unbelieved = world.run(&["verify", &wipe]);
    assert_eq!((unbelieved.exit, &unbelieved.json()["verified"]), (1, &json!(false)), "{unbelieved}");
    let unproved = world.run(&["verify", &mark, &option]);
    assert_eq!(
        (unproved.exit, &unproved.json()["reason"]),
        (1, &json!("it was decided on the page without a touch of a key")),
    );
    // A record that says something else was approved is not proved.
    let store = rusqlite::Connection::open(folder.join("tasks.db")).expect("opened");
    store.execute("UPDATE tasks SET input = '{\"name\":\"z\"}' WHERE id = ?1", [&wipe]).expect("changed");
    drop(store);
    let forged = world.run(&["verify", &wipe, &option]);
    assert_eq!(
        (forged.exit, &forged.json()["reason"]),
        (1, &json!("the record of the task is not what the decision is bound to")),
    );
}

#[test]
fn a_demanded_touch_needs_an_enrolled_key_and_a_rule_can_demand_it() {
    let world = world();
    world.configure("[[confirm.rules]]\ntools = [\"mark_it\"]\nthen = \"ask\"\nmin_assurance = \"touch\"\n");
    for tool in ["sign_it", "mark_it"] {
        let refused = world.run(&["run", tool, "name=x"]);
        assert_eq!((refused.exit, &refused.error()["code"]), (5, &json!("needs-assurance")), "{refused}");
    }
    let human = Human::of(&world);
    let mut key = SoftKey::rs256("a");
    let enrol = json!({"name": "laptop", "registration": human.registration(&key)});
    assert_eq!(human.post("/keys", &enrol).status, 200);
    for tool in ["sign_it", "mark_it"] {
        let id = world.start(tool, &json!({"name": "x"}));
        let approval = human.touched("/decide", &human.decision(&id, "approve"), &mut key);
        assert_eq!(human.post("/decide", &approval).status, 200);
        assert_eq!(world.end_of(&id)["status"], "succeeded");
    }
    // Denying needs none.
    let id = world.start("sign_it", &json!({"name": "y"}));
    assert_eq!(human.deny(&id).status, 200);
}

#[test]
fn a_task_that_waits_for_a_touch_needs_it_also_when_the_rule_has_gone() {
    let world = world();
    let rule = "[[confirm.rules]]\ntools = [\"mark_it\"]\nthen = \"ask\"\nmin_assurance = \"touch\"\n";
    world.configure(rule);
    let human = Human::of(&world);
    let mut key = SoftKey::rs256("a");
    let enrol = json!({"name": "laptop", "registration": human.registration(&key)});
    assert_eq!(human.post("/keys", &enrol).status, 200);
    for lowered in ["[confirm]\nrules = []\n", &rule.replace("\"touch\"", "\"page\"")] {
        world.configure(rule);
        let waiting = world.start("mark_it", &json!({"name": "x"}));
        world.configure(lowered);
        let later = world.start("mark_it", &json!({"name": "y"}));
        assert_eq!(human.post("/decide", &human.decision(&later, "approve")).status, 200, "the rule has gone");
        let refused = human.post("/decide", &human.decision(&waiting, "approve"));
        assert_ne!(refused.status, 200, "{}", refused.body);
        assert_eq!(world.result_file(&waiting)["state"], "awaiting_confirmation");
        let approval = human.touched("/decide", &human.decision(&waiting, "approve"), &mut key);
        assert_eq!(human.post("/decide", &approval).status, 200);
        assert_eq!(world.end_of(&waiting)["status"], "succeeded");
    }
}

#[test]
fn a_rule_that_demands_a_touch_by_now_holds_for_what_waits_and_what_has_not_started() {
    let world = world();
    let rule = "[[confirm.rules]]\ntools = [\"mark_it\"]\nthen = \"ask\"\n";
    world.configure(rule);
    let human = Human::of(&world);
    let mut key = SoftKey::rs256("a");
    let enrol = json!({"name": "laptop", "registration": human.registration(&key)});
    assert_eq!(human.post("/keys", &enrol).status, 200);
    let start = |name: &str, at: &[&str]| {
        let name = format!("name={name}");
        let run: Vec<_> = ["run", "mark_it", &name].into_iter().chain(at.iter().copied()).collect();
        world.run(&run).json()["id"].as_str().expect("an id").to_owned()
    };
    let (waiting, scheduled) = (start("x", &[]), start("y", &["--in", "1h"]));
    let shown = human.decision(&waiting, "approve");
    assert_eq!(human.approve(&scheduled).status, 200);
    assert_eq!(world.result_file(&scheduled)["state"], "queued");

    world.configure(&format!("{rule}min_assurance = \"touch\"\n"));
    assert_ne!(human.post("/decide", &shown).status, 200, "it was shown under the weaker rule");
    for id in [&waiting, &scheduled] {
        assert_eq!(world.result_file(id)["state"], "awaiting_confirmation");
        let clicked = human.approve(id);
        assert_eq!((clicked.status, code(&clicked.body)), (403, json!("needs-touch")), "{}", clicked.body);
        let approval = human.touched("/decide", &human.decision(id, "approve"), &mut key);
        assert_eq!(human.post("/decide", &approval).status, 200);
    }
    assert_eq!(world.end_of(&waiting)["status"], "succeeded");
    assert_eq!(world.result_file(&scheduled)["state"], "queued");
    assert_eq!(marks(&world), "mark x\n");
}

/// What is done by someone else's server or agent needs a touch unless it is declared to be harmless, and the card names
/// the address without being unfolded.
#[test]
fn what_a_server_or_an_agent_elsewhere_does_needs_a_touch_and_its_address_is_shown() {
    let world = World::new();
    let input = json!({"type": "object", "properties": {"name": {"type": "string"}}});
    let runs = [
        (
            "mcp_remote",
            json!({"mcp": {"server": {"name": "far", "url": "http://127.0.0.1:9/mcp"}, "tool": "t"}}),
            Some("http://127.0.0.1:9"),
        ),
        ("mcp_program", json!({"mcp": {"server": {"name": "near", "command": ["true"]}, "tool": "t"}}), Some("near")),
        (
            "agent",
            json!({"agent": {"prompt": "{{ name }}", "url": "http://127.0.0.1:9"}}),
            Some("the agent at http://127.0.0.1:9"),
        ),
        (
            "http",
            json!({"http": {"method": "POST", "base_url": "http://127.0.0.1:9", "path": "/"}}),
            Some("http://127.0.0.1:9"),
        ),
        ("process", json!({"process": {"argv": ["true"]}}), None),
    ];
    let harmless = json!({"destructiveHint": false, "openWorldHint": false});
    let mut definitions = serde_json::Map::new();
    for (name, run, _) in &runs {
        let undeclared = json!({"description": "Does it.", "input": input, "confirm": "always", "run": run});
        let mut declared = undeclared.clone();
        declared["annotations"] = harmless.clone();
        definitions.insert((*name).to_owned(), undeclared);
        definitions.insert(format!("{name}_harmless"), declared);
    }
    world.define("own.json", &Value::Object(definitions));
    let human = Human::of(&world);
    let key = SoftKey::rs256("a");
    let enrol = json!({"name": "laptop", "registration": human.registration(&key)});
    assert_eq!(human.post("/keys", &enrol).status, 200);
    for (name, _, shown) in &runs {
        for (tool, needs_touch) in [((*name).to_owned(), shown.is_some()), (format!("{name}_harmless"), false)] {
            let id = world.start(&tool, &json!({"name": "x"}));
            let card = human.card(&id).replace("&#x2f;", "/");
            let touches = card.split("touches ").nth(1).and_then(|rest| rest.split("</li>").next()).unwrap_or_default();
            assert!(touches.contains(shown.unwrap_or_default()), "{tool}: {touches}");
            let approval = human.approve(&id);
            assert_eq!(code(&approval.body) == json!("needs-touch"), needs_touch, "{tool}: {}", approval.body);
        }
    }
}

/// Deleting the file of keys opens no second first run, and lifts no demand.
#[test]
fn lost_keys_are_still_demanded_until_root_resets_them() {
    let world = world();
    let human = Human::of(&world);
    let key = SoftKey::es256("a");
    let enrol = json!({"name": "laptop", "registration": human.registration(&key)});
    assert_eq!(human.post("/keys", &enrol).status, 200);
    let mark = world.start("mark_it", &json!({"name": "x"}));
    let mut grant = human.pending_task(&mark);
    grant["fields"] = json!([]);
    grant["expires_in"] = "8h".into();
    assert_eq!(human.post("/grants", &grant).status, 200);
    assert_eq!(world.end_of(&world.start("mark_it", &json!({"name": "x"})))["status"], "succeeded", "by the grant");
    assert_eq!(world.run(&["executor", "stop"]).exit, 0);
    fs::remove_file(world.executor_folder().join("approver-keys.json")).expect("removed");

    let human = Human::of(&world);
    let stranger = SoftKey::es256("agent's");
    let enrol = json!({"name": "agent's", "registration": human.registration(&stranger)});
    assert_eq!(human.post("/keys", &enrol).status, 422);
    let wipe = world.start("wipe_it", &json!({"name": "x"}));
    let mut approval = human.decision(&wipe, "approve");
    approval["typed"] = "wipe_it".into();
    assert_eq!(human.post("/decide", &approval).status, 403);
    if !nix::unistd::Uid::effective().is_root() {
        let refused = world.run(&["approver", "reset"]);
        assert_eq!((refused.exit, &refused.error()["code"]), (5, &json!("needs-assurance")), "{refused}");
        crate::skip::skip("removing all keys: only root can");
        return;
    }
    assert_eq!(world.run(&["approver", "reset"]).json(), json!({"reset": true}));
    let enrol = json!({"name": "new", "registration": human.registration(&stranger)});
    until("the executor has seen the reset", || human.post("/keys", &enrol).status == 200);
    // Grants from before are void.
    let again = world.start("mark_it", &json!({"name": "x"}));
    assert_eq!(world.result_file(&again)["state"], "awaiting_confirmation");
}

/// Adds Chromium's authenticator to a tab. Without `present`, no user touches it.
pub(super) async fn add_authenticator(tab: &mut Tab, present: bool) {
    tab.call("WebAuthn.enable", json!({})).await;
    let options = json!({"protocol": "ctap2", "transport": "internal", "hasResidentKey": true, "hasUserVerification": true,
        "isUserVerified": true, "automaticPresenceSimulation": present});
    tab.call("WebAuthn.addVirtualAuthenticator", json!({"options": options})).await;
}

#[tokio::test]
async fn a_browser_enrols_keys_and_approves_with_a_touch() {
    let world = world();
    let Some(mut tab) = world.signed_in_tab().await else { return };
    add_authenticator(&mut tab, true).await;
    tab.go(&format!("{}/keys", world.site().origin())).await;
    tab.click("#key-name").await;
    tab.insert("this computer").await;
    tab.click("form[data-form=enrol] button").await;
    tab.until("document.querySelector('[data-key]')?.innerText.includes('this computer')").await;
    let origin = world.site().origin();
    tab.go(&format!("{origin}/")).await;
    let wipe = world.start("wipe_it", &json!({"name": "x"}));
    let mut card = tab.card(&wipe);
    card.is_armed().await;
    card.type_word("wipe_it").await;
    card.approve().await;
    assert_eq!(world.end_of(&wipe)["status"], "succeeded");
    let verified = world.run(&["verify", &wipe]);
    assert_eq!(verified.exit, 0, "{verified}");
    assert_eq!(tab.errors.iter().filter(|error| !error.contains("403")).count(), 0, "{:?}", tab.errors);
}
