//! The door of the API keys, as an attacker meets it: nothing decides for a human without the scope.

use serde_json::{Value, json};

use super::hostile::{define_mark, written_marks};
use super::http::{self, Answer, host};
use super::human::Human;
use crate::world::World;

/// A key that may decide, one that may not, and a task that waits.
struct Siege {
    world: World,
    human: Human,
    deciding: String,
    plain: String,
    id: String,
    digest: String,
}

impl Siege {
    fn new() -> Self {
        let world = World::new();
        define_mark(&world);
        let human = Human::of(&world);
        let (deciding, plain) = (world.make_deciding_key(&human, "phone"), world.make_api_key("ci").key);
        let id = world.start("mark", &json!({"name": "x"}));
        let digest = human.pending_task(&id)["digest"].as_str().expect("a digest").to_owned();
        Self { world, human, deciding, plain, id, digest }
    }

    fn path(&self) -> String {
        format!("/api/gate/{}", self.id)
    }

    fn approval(&self) -> Value {
        json!({"decision": "approve", "digest": self.digest})
    }

    /// Sends a whole request.
    fn send(&self, line: &str, headers: &[String], body: &str) -> Answer {
        let mut head = vec![line.to_owned()];
        head.extend_from_slice(headers);
        head.push("Connection: close".to_owned());
        http::exchange(&self.human.site, &format!("{}\r\n\r\n{body}", head.join("\r\n")))
    }

    /// An approval with these headers beside the host, the type and the length.
    fn approve(&self, headers: &[String]) -> Answer {
        let body = self.approval().to_string();
        let mut all = vec![format!("Host: {}", host(&self.human.site)), "Content-Type: application/json".to_owned()];
        all.push(format!("Content-Length: {}", body.len()));
        all.extend_from_slice(headers);
        self.send(&format!("POST {} HTTP/1.1", self.path()), &all, &body)
    }

    fn get(&self, path: &str, key: &str) -> Answer {
        http::get(&self.human.site, path, &(bearer(key).join("\r\n") + "\r\n"))
    }

    /// Nothing was decided.
    fn holds(&self, how: &str) {
        assert_eq!(self.world.result_file(&self.id)["state"], "awaiting_confirmation", "{how}");
    }
}

fn bearer(key: &str) -> Vec<String> {
    vec![format!("Authorization: Bearer {key}")]
}

fn code(answer: &Answer) -> String {
    let body: Value = serde_json::from_str(answer.body.trim()).unwrap_or_default();
    body["error"]["code"].as_str().unwrap_or_default().to_owned()
}

#[test]
fn no_interface_decides_for_a_human_without_the_scope() {
    let siege = Siege::new();
    let with = |headers: &[&str]| -> Vec<String> {
        bearer(&siege.deciding).into_iter().chain(headers.iter().map(|&header| header.to_owned())).collect()
    };
    let site = &siege.human.site;
    let wrong = format!("amt_{}_{}", &siege.deciding[4..12], "A".repeat(43));
    let origin = format!("Origin: {}", site.origin());
    let cookie = siege.human.cookie_header().trim_end().to_owned();
    let basic = format!("Authorization: Basic {}", siege.deciding);
    let lower = format!("Authorization: bearer {}", siege.deciding);
    let spaced = format!("Authorization: Bearer  {}", siege.deciding);
    let listed = format!("Authorization: Bearer {}, Bearer {}", siege.deciding, siege.plain);
    let custom = format!("X-Api-Key: {}", siege.deciding);
    let twice = [bearer(&siege.deciding), bearer(&siege.plain)].concat();
    // How a request is made, and the status that refuses it.
    let by_headers: Vec<(&str, Vec<String>, u16)> = vec![
        ("without a key", vec![], 401),
        ("with a key that may not decide", bearer(&siege.plain), 403),
        ("with a wrong secret", bearer(&wrong), 401),
        ("with the id alone", bearer(&siege.deciding[..12]), 401),
        ("with the hash of the key", bearer(siege.world.shown_api_key("phone")["hash"].as_str().expect("text")), 401),
        ("with another scheme", vec![basic], 401),
        ("with the scheme in lower case", vec![lower], 401),
        ("with two spaces", vec![spaced], 401),
        ("with a list of keys", vec![listed], 401),
        ("with two keys", twice, 400),
        ("with the key in another header", vec![custom], 403),
        ("from the page itself", with(&[&origin]), 403),
        ("from another origin", with(&["Origin: https://evil.example"]), 403),
        ("from a sandboxed frame", with(&["Origin: null"]), 403),
        ("as a browser's script", with(&["Sec-Fetch-Site: same-origin", "Sec-Fetch-Mode: cors"]), 403),
        ("as a browser's navigation", with(&["Sec-Fetch-Dest: document"]), 403),
        ("as a browser with hints", with(&["Sec-CH-UA: \"Chromium\""]), 403),
        ("with the human's cookie", with(&[&cookie]), 403),
        ("with any cookie", with(&["Cookie: a=b"]), 403),
        ("with a referrer", with(&["Referer: https://evil.example/"]), 403),
        ("through a proxy", with(&["X-Forwarded-For: 127.0.0.1"]), 403),
        ("through a proxy that names a host", with(&["X-Forwarded-Host: evil.example"]), 403),
        ("through a proxy that names a protocol", with(&["X-Forwarded-Proto: https"]), 403),
        ("through a standard proxy", with(&["Forwarded: for=127.0.0.1"]), 403),
        ("through a proxy with another name", with(&["Via: 1.1 proxy"]), 403),
        ("through a proxy with an address", with(&["X-Real-IP: 127.0.0.1"]), 403),
        ("with another path in a header", with(&["X-Original-URL: /api/key"]), 403),
        ("with another method in a header", with(&["X-HTTP-Method-Override: GET"]), 403),
        ("with a proof of a session", with(&["X-Page-Proof: 1.2"]), 403),
        ("with a second host", with(&["Host: evil.example"]), 421),
        ("with two lengths", with(&["Transfer-Encoding: chunked"]), 400),
        ("with two types", with(&["Content-Type: text/plain"]), 400),
    ];
    let count = by_headers.len();
    assert!(count >= 20, "{count}");
    for (how, headers, status) in by_headers {
        let answer = siege.approve(&headers);
        assert_eq!(answer.status, status, "{how}: {}", answer.body);
        assert!(!answer.head.contains("access-control-"), "{how}");
        siege.holds(how);
    }
    // Whole requests of another form.
    let (length, body) = (siege.approval().to_string().len(), siege.approval().to_string());
    let usual = |host: &str, kind: &str| -> Vec<String> {
        let own = [format!("Host: {host}"), format!("Content-Type: {kind}"), format!("Content-Length: {length}")];
        own.into_iter().chain(bearer(&siege.deciding)).collect()
    };
    let (ours, json) = (host(site), "application/json");
    let (path, post) = (siege.path(), format!("POST {} HTTP/1.1", siege.path()));
    let by_form: Vec<(String, Vec<String>, u16)> = vec![
        (post.clone(), usual(&format!("localhost:{}", site.port), json), 421),
        (post.clone(), usual(&format!("127.0.0.1:{}", site.port), json), 421),
        (post.clone(), usual("evil.example", json), 421),
        (post.clone(), usual(&ours.to_uppercase(), json), 421),
        (post.clone(), usual(&format!("{}.:{}", site.host, site.port), json), 421),
        (post.clone(), usual(&ours, "text/plain"), 415),
        (post.clone(), usual(&ours, "application/x-www-form-urlencoded"), 415),
        (post.clone(), usual(&ours, "application/json; charset=utf-8"), 415),
        (format!("POST http://{ours}{path} HTTP/1.1"), usual(&ours, json), 400),
        (format!("POST {path} HTTP/1.0"), usual(&ours, json), 400),
        (format!("PUT {path} HTTP/1.1"), usual(&ours, json), 405),
        (format!("PATCH {path} HTTP/1.1"), usual(&ours, json), 405),
        (format!("GET {path} HTTP/1.1"), usual(&ours, json), 400),
        (format!("POST {path}?digest={} HTTP/1.1", siege.digest), usual(&ours, json), 400),
        (format!("POST /api//gate/{} HTTP/1.1", siege.id), usual(&ours, json), 404),
        (format!("POST /API/gate/{} HTTP/1.1", siege.id), usual(&ours, json), 403),
        (format!("POST /api/gate/..%2f{} HTTP/1.1", siege.id), usual(&ours, json), 404),
        ("POST /api/gates HTTP/1.1".to_owned(), usual(&ours, json), 405),
        ("POST /decide HTTP/1.1".to_owned(), usual(&ours, json), 403),
        ("POST /api-keys/give HTTP/1.1".to_owned(), usual(&ours, json), 403),
    ];
    for (line, headers, status) in by_form {
        let answer = siege.send(&line, &headers, &body);
        assert_eq!(answer.status, status, "{line} {headers:?}: {}", answer.body);
        siege.holds(&line);
    }
    assert_eq!(written_marks(&siege.world), "");
}

#[test]
fn a_body_that_says_more_or_something_else_decides_nothing() {
    let siege = Siege::new();
    let post = |path: &str, body: &str| {
        let headers = format!("Content-Type: application/json\r\nAuthorization: Bearer {}\r\n", siege.deciding);
        http::post_with(&siege.human.site, path, body, &headers)
    };
    let digest = &siege.digest;
    let bodies = [
        (String::new(), 400),
        ("null".to_owned(), 400),
        ("[]".to_owned(), 400),
        (json!({"decision": "approve"}).to_string(), 400),
        (json!({"decision": "approve", "digest": ""}).to_string(), 400),
        (json!({"decision": "yes", "digest": digest}).to_string(), 400),
        (json!({"decision": "approve", "digest": "0".repeat(64)}).to_string(), 409),
        (json!({"decision": "approve", "digest": digest, "input": {"name": "y"}}).to_string(), 400),
        (json!({"decision": "approve", "digest": digest, "remember": true}).to_string(), 400),
        (json!({"decision": "approve", "digest": digest, "grant": {"expires_in": "8h"}}).to_string(), 400),
        (json!({"decision": "approve", "digest": digest, "touch": {}}).to_string(), 400),
        (json!({"decision": "approve", "digest": digest, "key": siege.deciding}).to_string(), 400),
        (json!({"decision": "approve", "digest": digest, "answer": {}}).to_string(), 422),
        (format!("{{\"decision\":\"deny\",\"decision\":\"approve\",\"digest\":\"{digest}\"}}"), 400),
    ];
    for (body, status) in bodies {
        let answer = post(&siege.path(), &body);
        assert_eq!(answer.status, status, "{body}: {}", answer.body);
        siege.holds(&body);
    }
    // What was shown of one task does not decide on another.
    let other = siege.world.start("mark", &json!({"name": "y"}));
    let moved = post(&format!("/api/gate/{other}"), &siege.approval().to_string());
    assert_eq!((moved.status, code(&moved).as_str()), (409, "stale"));
    assert_eq!(written_marks(&siege.world), "");
    assert_eq!(post(&siege.path(), &siege.approval().to_string()).status, 200, "the request itself was right");
    assert_eq!(siege.world.end_of(&siege.id)["status"], "succeeded");
}

#[test]
fn a_key_that_may_not_decide_learns_only_what_it_is() {
    let siege = Siege::new();
    let own = siege.get("/api/key", &siege.plain);
    assert_eq!((own.status, own.body.trim()), (200, "{\"name\":\"ci\",\"may_decide\":false}"));
    assert_eq!(siege.get("/api/key", &siege.deciding).body.trim(), "{\"name\":\"phone\",\"may_decide\":true}");
    let refused = siege.get("/api/gates", &siege.plain);
    assert_eq!((refused.status, code(&refused).as_str()), (403, "needs-scope"));
    let absent = protocol::task::TaskId::new();
    for path in [siege.path(), format!("/api/gate/{absent}"), "/api/gate/x".to_owned(), "/api/nothing".to_owned()] {
        let answer = siege.get(&path, &siege.plain);
        assert_eq!((answer.status, &answer.body), (403, &refused.body), "{path}: the same words");
    }
    assert_eq!(siege.get("/api/nothing", &siege.deciding).status, 404);
    assert_eq!(siege.get("/", &siege.deciding).status, 401, "no key opens the page");
    // Answers to wrong keys do not differ.
    let (absent, removed) = (siege.get("/api/key", &format!("amt_00000000_{}", "A".repeat(43))), siege.plain.clone());
    siege.world.api_keys().revoke("ci").expect("revoked");
    let revoked = siege.get("/api/key", &removed);
    assert_eq!((absent.status, &absent.body), (401, &revoked.body));
    assert!(revoked.head.contains("www-authenticate: bearer"), "{}", revoked.head);
}

#[test]
fn a_key_only_denies_what_was_asked_with_it() {
    let siege = Siege::new();
    let client = format!("shared-phone.{}", siege.deciding.split('_').nth(1).expect("an id"));
    // Its session, one that it names, a sub-agent of it; and what an earlier key of the same name asked.
    let labels = [format!("{client}-1"), format!("{client}:api-x-2"), format!("{client}-3"), "shared-phone.0-4".into()];
    for session in labels {
        let ran = siege
            .world
            .command(&["run", "mark", &format!("name={session}")])
            .env("AGENT_MAGIC_TOOL_SESSION", &session)
            .output()
            .expect("it starts");
        let receipt: Value = serde_json::from_slice(&ran.stdout).expect("a receipt");
        let id = receipt["id"].as_str().expect("an id");
        let path = format!("/api/gate/{id}");
        let gate: Value = serde_json::from_str(siege.get(&path, &siege.deciding).body.trim()).expect("a gate");
        assert_eq!(gate["own"], true, "{session}");
        let post = |decision: &str| {
            let body = json!({"decision": decision, "digest": gate["digest"]}).to_string();
            let headers = format!("Content-Type: application/json\r\nAuthorization: Bearer {}\r\n", siege.deciding);
            http::post_with(&siege.human.site, &path, &body, &headers)
        };
        let refused = post("approve");
        assert_eq!((refused.status, code(&refused).as_str()), (403, "needs-scope"), "{session}: {}", refused.body);
        assert!(refused.body.contains("with another API key that may decide, or on the page"), "{}", refused.body);
        assert_eq!(siege.world.result_file(id)["state"], "awaiting_confirmation", "{session}");
        assert_eq!(post("deny").status, 200, "{session}");
    }
    assert_eq!(written_marks(&siege.world), "");
}

/// A file is the agent's to write: it cannot give the scope, and a broken one makes no key valid.
#[test]
fn the_file_of_keys_gives_no_scope() {
    let siege = Siege::new();
    let path = siege.world.paths().api_keys();
    let text = std::fs::read_to_string(&path).expect("readable");
    let decides = text.replace("\"read\": true", "\"read\": true, \"decide\": true");
    assert_ne!(decides, text);
    std::fs::write(&path, decides).expect("written");
    assert_eq!(siege.approve(&bearer(&siege.plain)).status, 401);
    assert_eq!(siege.approve(&bearer(&siege.deciding)).status, 401);
    assert!(siege.human.get("/api-keys").body.contains("none of them is valid"));
    // The hash of the key that may decide, in the entry of another one.
    let [phone, ci] = ["phone", "ci"].map(|name| {
        let keys: Value = serde_json::from_str(&text).expect("JSON");
        let mut keys = keys["keys"].as_array().expect("a list").clone();
        keys.retain(|key| key["name"] == name);
        keys.remove(0)
    });
    let mut forged = ci.clone();
    (forged["name"], forged["id"]) = (phone["name"].clone(), phone["id"].clone());
    std::fs::write(&path, json!({"keys": [forged, phone]}).to_string()).expect("written");
    assert_eq!(siege.approve(&bearer(&siege.plain)).status, 401, "its id is another");
    let mut renamed = ci;
    renamed["name"] = "phone".into();
    std::fs::write(&path, json!({"keys": [renamed]}).to_string()).expect("written");
    assert_eq!(siege.approve(&bearer(&siege.plain)).status, 403);
    siege.holds("with a changed file");
}

#[test]
fn wrong_keys_are_limited_and_keep_no_valid_key_out() {
    let siege = Siege::new();
    let tried: Vec<_> =
        (0..30).map(|number| siege.get("/api/key", &format!("amt_{number:08}_{}", "A".repeat(43))).status).collect();
    assert_eq!(tried.iter().filter(|status| **status == 401).count(), 20, "{tried:?}");
    assert_eq!(tried.last(), Some(&429));
    assert_eq!(siege.get("/api/key", &siege.deciding).status, 200);
    assert_eq!(siege.approve(&bearer(&siege.deciding)).status, 200);
}

/// The human gave the scope to the entry that was shown: one whose end was changed in the file decides nothing.
#[test]
fn a_key_whose_entry_was_changed_decides_nothing() {
    let siege = Siege::new();
    let file = siege.world.state().join("serve/keys.json");
    let mut keys: Value = serde_json::from_slice(&std::fs::read(&file).expect("the keys")).expect("JSON");
    let hash = siege.world.shown_api_key("phone")["hash"].clone();
    let list = keys["keys"].as_array_mut().expect("a list");
    let entry = list.iter_mut().find(|key| key["hash"] == hash).expect("the key");
    let unchanged = entry.clone();
    entry["expires_at"] = "2999-01-01T00:00:00Z".into();
    std::fs::write(&file, keys.to_string()).expect("written");
    let answer = siege.approve(&bearer(&siege.deciding));
    assert_eq!(answer.status, 403, "{}", answer.body);
    siege.holds("with a changed entry");
    let list = keys["keys"].as_array_mut().expect("a list");
    *list.iter_mut().find(|key| key["hash"] == hash).expect("the key") = unchanged;
    std::fs::write(&file, keys.to_string()).expect("written");
    assert_eq!(siege.approve(&bearer(&siege.deciding)).status, 200);
}
