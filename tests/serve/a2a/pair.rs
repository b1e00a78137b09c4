//! Two servers of ours that ask each other: one hop, no second one, and what remains when one of them is killed.

use serde_json::{Value, json};

use super::define_agent;
use crate::agent::aimock::Model;
use crate::page::human::Human;
use crate::serve::{Server, rules, subtools};
use crate::world::{World, until};

/// One of two agents that know each other.
struct Agent {
    world: World,
    model: Model,
    /// `None` while it is dead.
    server: Option<Server>,
    address: String,
}

impl Agent {
    fn start() -> Option<Self> {
        let world = World::new();
        world.define("tests.json", &subtools());
        let run = |session: &str| format!("agent-magic-tool run ask_remote --input='{{\"message\": \"$1\"{session}}}'");
        let mut told = vec![
            json!({"last": "too-deep", "says": "That is too deep."}),
            json!({"last": "^Relay: (.*)$", "runs": [run("")]}),
            json!({"last": "^Sneak: (.*)$", "runs": [run(", \"session\": \"sneaky\"")]}),
            json!({"last": "\"code\":\\s*\"([a-z-]+)\"", "says": "It failed: $1."}),
        ];
        let known = rules();
        told.extend(known.as_array().expect("a list").iter().filter(|rule| rule["last"] != "").cloned());
        told.push(json!({"last": "\"data\":\\s*\"([^\"]*)", "says": "They say: $1"}));
        told.push(json!({"last": "", "says": "Hello."}));
        let model = Model::start(&world, &Value::Array(told), "")?;
        let server = Server::start(&world);
        let address = server.address.clone();
        Some(Self { world, model, server: Some(server), address })
    }

    fn server(&self) -> &Server {
        self.server.as_ref().expect("it is alive")
    }

    /// Makes it know the other one.
    fn knows(&self, other: &Self, more: &Value) {
        define_agent(&self.world, &format!("http://{}", other.address), more, &json!({"timeout": "50s"}));
    }

    fn ask(&self, session: &str, message: &str) -> String {
        let answer = self.server().ask(session, message);
        answer["answer"].as_str().expect("an answer").to_owned()
    }

    fn kill(&mut self) {
        self.server.take().expect("it is alive").kill();
    }

    /// Starts it again, at the same address.
    fn again(&mut self) {
        let address = format!("--listen={}", self.address);
        self.server = Some(Server::start_with(&self.world, &[&address]));
    }

    fn hold(&self) {
        std::fs::write(self.world.folder().join("hold"), "").expect("written");
    }

    fn release(&self) {
        std::fs::remove_file(self.world.folder().join("hold")).expect("removed");
    }

    /// Waits until its task runs, which waits for [`Self::release`].
    fn until_it_works(&self) {
        until("it works", || {
            let open = self.world.run(&["tasks", "--state", "pending"]);
            open.exit == 0 && open.stdout.contains("count_words") && open.stdout.contains("running")
        });
    }

    /// How many conversations the model was asked to begin.
    fn beginnings(&self) -> usize {
        let is_first = |body: &Value| body["messages"].as_array().is_some_and(|all| all.len() == 2);
        self.model.asked().iter().filter(|body| is_first(body)).count()
    }

    fn sessions(&self) -> usize {
        let listed = self.server().get("/api/v1/sessions").json();
        listed["sessions"].as_array().expect("a list").len()
    }
}

fn pair(more: &Value) -> Option<(Agent, Agent)> {
    let (one, other) = (Agent::start()?, Agent::start()?);
    one.knows(&other, more);
    other.knows(&one, more);
    Some((one, other))
}

/// Both protocols that our servers speak with each other.
fn protocols() -> [Value; 2] {
    [json!({}), json!({"protocol": "api"})]
}

const COUNT: &str = "Relay: How many words are in it?";
const COUNTED: &str = "They say: There are 3 words.";

#[test]
fn one_hop_works_two_do_not_and_the_session_is_kept() {
    for protocol in protocols() {
        let Some((one, other)) = pair(&protocol) else { return };
        assert_eq!(one.ask("a", COUNT), COUNTED, "{protocol}");
        assert_eq!(one.ask("a", COUNT), COUNTED, "{protocol}");
        assert_eq!(other.sessions(), 1, "{protocol}: the same caller, the same session");
        assert_eq!(one.ask("b", COUNT), COUNTED, "{protocol}");
        assert_eq!(other.sessions(), 2, "{protocol}: another caller, another session");
        for way in ["Relay", "Sneak"] {
            let answer = one.ask("a", &format!("{way}: {way}: How many words are in it?"));
            assert_eq!(answer, "They say: That is too deep.", "{protocol}");
        }
        assert_eq!(one.sessions(), 2, "{protocol}: nothing came back to the first one");
        // A call that says honestly how deep it is, is refused by the server itself.
        let body = json!({"message": "Hi", "session": "deep"}).to_string();
        let refused = other.server().request("POST", "/api/v1/submit", "x-agent-depth: 2\r\n", &body);
        assert_eq!((refused.status, refused.code().as_str()), (403, "too-deep"));
        let parts = json!([{"text": "Hi"}]);
        let message = json!({"messageId": "m", "parts": parts, "metadata": {"agent-magic-tool": {"depth": 2}}});
        let call = json!({"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message}});
        let task = other.server().post("/a2a", &call).json()["result"]["task"].clone();
        assert_eq!(task["status"]["state"], "TASK_STATE_REJECTED", "{task:#}");
    }
}

#[test]
fn a_killed_callee_comes_back_and_is_asked_once() {
    for protocol in protocols() {
        let Some((one, mut other)) = pair(&protocol) else { return };
        other.hold();
        one.server().post("/api/v1/submit", &json!({"session": "a", "message": COUNT, "wait": false}));
        other.until_it_works();
        other.kill();
        other.again();
        other.release();
        assert_eq!(one.ask("a", COUNT), COUNTED, "{protocol}");
        assert_eq!(other.beginnings(), 1, "{protocol}: it was asked once");
        assert_eq!(other.sessions(), 1, "{protocol}");
        assert_eq!(other.world.run(&["tasks"]).json().as_array().map(Vec::len), Some(1), "{protocol}");
    }
}

#[test]
fn a_killed_caller_goes_on_with_what_it_asked() {
    for protocol in protocols() {
        let Some((mut one, other)) = pair(&protocol) else { return };
        other.hold();
        one.server().post("/api/v1/submit", &json!({"session": "a", "message": COUNT, "wait": false}));
        other.until_it_works();
        one.kill();
        one.world.kill_executor().expect("an executor was running");
        one.again();
        other.release();
        assert_eq!(one.ask("a", COUNT), COUNTED, "{protocol}");
        assert_eq!(other.beginnings(), 1, "{protocol}: it was asked once");
        assert_eq!(other.sessions(), 1, "{protocol}");
    }
}

#[test]
fn a_callee_that_does_not_come_back_is_an_error() {
    let Some((one, mut other)) = pair(&json!({})) else { return };
    other.hold();
    one.server().post("/api/v1/submit", &json!({"session": "a", "message": COUNT, "wait": false}));
    other.until_it_works();
    other.kill();
    assert_eq!(one.ask("a", COUNT), "It failed: unknown-outcome.");
}

#[test]
fn a_gate_of_the_callee_is_decided_on_its_own_page() {
    for protocol in protocols() {
        let Some((one, other)) = pair(&protocol) else { return };
        let human = Human::of(&other.world);
        let _page = human.open_page();
        one.server().post("/api/v1/submit", &json!({"session": "a", "message": "Relay: Write a note", "wait": false}));
        let waiting = |world: &World, tool: &str| {
            let open = world.run(&["tasks", "--state", "pending"]);
            let open: Value = serde_json::from_str(&open.stdout).unwrap_or_default();
            let found = open.as_array()?.iter().find(|task| task["tool"] == tool)?;
            Some(found["id"].as_str()?.to_owned())
        };
        until("the caller says that a human is waited for there", || {
            let Some(id) = waiting(&one.world, "ask_remote") else { return false };
            let message = &one.world.result_file(&id)["progress"]["message"];
            message.as_str().is_some_and(|text| text.contains("waits for a human, on its own page"))
        });
        let id = waiting(&other.world, "note").expect("it waits");
        other.world.decide(&id, "approve", "");
        assert_eq!(one.ask("a", "Relay: Write a note"), "They say: The note is written.", "{protocol}");
    }
}
