//! Hidden inputs: what the schema marks `writeOnly` or `"format": "password"` reaches the subtool and nothing else.

use std::fs;

use serde_json::{Value, json};

use super::human::Human;
use crate::executor::leaks::{CANARY, assert_nowhere, files_with};
use crate::world::{World, until};

/// A subtool that checks its password, and says it back on standard output, error output or not at all.
fn login(extra: &Value) -> Value {
    // Its check of the password does not contain the password, since plans show the line.
    let line = "case $PASSWORD in c4na*81) ;; *) exit 7 ;; esac\nif [ \"$1\" = fail ]; then echo \"refused: $PASSWORD\" >&2; \
                exit 1; fi\necho \"hello $PASSWORD\"; echo \"noise $PASSWORD\" >&2";
    let mut definition = json!({"description": "Logs in.", "input": {"type": "object", "properties": {
            "how": {"type": "string", "default": "well"},
            "password": {"type": "string", "format": "password", "minLength": 4, "maxLength": 12},
            "pins": {"type": "array", "items": {"type": "integer", "writeOnly": true, "minimum": 1000}}}, "required": ["password"]},
        "run": {"process": {"argv": ["sh", "-c", line, "login", "{{ how }}"], "env": {"PASSWORD": "{{ password }}"}}}});
    for (key, value) in extra.as_object().expect("an object") {
        definition[key] = value.clone();
    }
    definition
}

#[test]
fn a_hidden_input_reaches_the_subtool_and_nothing_else() {
    let world = World::new();
    world.configure("[executor]\nlog_inputs = true\nlog = \"debug\"\n[hooks.all]\ncommand = [\"sh\", \"-c\", \"cat >> \\\"$HOME/events\\\"\"]\n");
    world.define(
        "login.json",
        &json!({"login": login(&json!({"annotations": {"readOnlyHint": true}})), "login_once": login(&json!({"confirm": "always"}))}),
    );
    let input = |how: &str| json!({"how": how, "password": CANARY, "pins": [48_151_623]});
    let ran = world.run(&["run", "login", "--input", &input("well").to_string()]);
    assert_eq!(ran.exit, 0, "{ran}");
    assert!(!ran.stdout.contains(CANARY) && !ran.stdout.contains("48151623"), "{ran}");
    let id = ran.json()["id"].as_str().expect("an id").to_owned();
    world.run(&["wait", &id]);
    let well = world.result_file(&id);
    assert_eq!(well["data"], "hello [hidden]", "{well}");
    assert_eq!(well["input"], json!({"how": "well", "password": "[hidden]", "pins": ["[hidden]"]}));
    assert_eq!(well["_meta"]["stderr"], "noise [hidden]\n", "{well}");
    let failed = world.result_of("login", &input("fail"));
    assert!(
        failed["error"]["message"].as_str().is_some_and(|message| message.contains("refused: [hidden]")),
        "{failed}"
    );
    let dry = world.run(&["run", "login", "--dry-run", "--input", &input("well").to_string()]);
    assert!(dry.exit == 0 && dry.stdout.contains("[hidden]") && !dry.stdout.contains(CANARY), "{dry}");
    // An input that does not fit is refused without its value.
    for wrong in [json!({"password": format!("{CANARY}{CANARY}")}), json!({"password": CANARY, "pins": [7]})] {
        let refused = world.run(&["run", "login", "--input", &wrong.to_string()]);
        assert!(
            refused.exit == 2 && !refused.stderr.contains(CANARY) && refused.stderr.contains("hidden"),
            "{refused}"
        );
    }
    // Nothing can be hidden from a human by looking hidden.
    let forged = world.run(&["run", "login", "password=abcd", "how=sealed:1:AAAA"]);
    assert!(forged.exit == 2 && forged.stderr.contains("reserved"), "{forged}");

    // A task that waits for a human survives a crash, and runs with the true value.
    let asked = world.start("login_once", &input("well"));
    until("it waits", || world.result_file(&asked)["state"] == "awaiting_confirmation");
    world.kill_executor();
    assert_nowhere(&world, CANARY);
    let human = Human::of(&world);
    let card = human.get(&format!("/card/{asked}")).body;
    assert!(card.contains("[hidden]") && !card.contains(CANARY) && !card.contains("48151623"), "{card}");
    world.decide(&asked, "approve", "login_once");
    assert_eq!(world.end_of(&asked)["data"], "hello [hidden]");

    // The same key means the same value, although nothing shows it.
    let once =
        |password: &str| world.run(&["run", "login", &format!("password={password}"), "--idempotency-key", "k1"]);
    let first = once(CANARY).json()["id"].clone();
    assert_eq!(once(CANARY).json()["id"], first);
    assert_eq!(once("other-one").error()["code"], "idempotency-mismatch");
    for path in ["/tasks", "/history", &format!("/task/{asked}"), "/grants"] {
        let view = human.get(path);
        assert!(!view.body.contains(CANARY) && !view.body.contains("sealed:1:"), "{path}: {}", view.body);
    }
    world.run(&["executor", "stop"]);
    for needle in [CANARY, "48151623"] {
        assert_nowhere(&world, needle);
    }
    assert!(!fs::read_to_string(world.home().join("events")).expect("events").contains(CANARY));
    assert!(files_with(&world.mailbox(), "sealed:1:").is_empty(), "a result shows no token");
}

#[test]
fn a_human_can_replace_a_hidden_input_without_seeing_it() {
    let world = World::new();
    world.define("login.json", &json!({"login": login(&json!({"confirm": "always"}))}));
    let edit = |id: &str, input: &Value| {
        until("it waits", || world.result_file(id)["state"] == "awaiting_confirmation");
        let human = Human::of(&world);
        let mut body = human.pending_task(id);
        body["input"] = input.clone();
        let shown = human.post("/edit", &body);
        assert!(shown.status == 200 && !shown.body.contains(CANARY), "{}", shown.body);
        let digest: Value = serde_json::from_str(&shown.body).expect("JSON");
        body["edited_digest"] = digest["digest"].clone();
        body["typed"] = "login".into();
        let decided = human.post("/decide-edit", &body);
        assert_eq!(decided.status, 200, "{}", decided.body);
        world.end_of(id)
    };
    // The human changes another field and leaves the hidden one as the form shows it.
    let kept = world.start("login", &json!({"how": "fail", "password": CANARY}));
    let ended = edit(&kept, &json!({"how": "well", "password": "[hidden]"}));
    assert_eq!(ended["data"], "hello [hidden]", "{ended}");
    // The human corrects the hidden one.
    let wrong = world.start("login", &json!({"password": "wrong-one"}));
    let ended = edit(&wrong, &json!({"how": "well", "password": CANARY}));
    assert_eq!(ended["data"], "hello [hidden]", "{ended}");
    world.run(&["executor", "stop"]);
    assert_nowhere(&world, CANARY);
}
