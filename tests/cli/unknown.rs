//! A run whose outcome is lost: verified by a lookup where there is one, and reported as `unknown` otherwise.

use std::fs;

use serde_json::{Value, json};

use crate::world::{World, until};

/// A world with `post`, which runs `script`, and `posted`, which looks up whether the line was sent.
fn world(script: &str, lookup: &str) -> World {
    let world = World::new();
    let input = json!({"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]});
    world.define(
        "post.json",
        &json!({
            "post": {"description": "Sends a line.", "input": input, "confirm": "never", "timeout": "2s",
                "run": {"process": {"argv": ["sh", "-c", script, "post", "{{ text }}"]}},
                "verify": {"subtool": "posted", "input": {"text": "{{ text }}"}, "happened": "if length < 2 then length > 0 else null end"}},
            "posted": {"description": "Looks for a line that was sent.", "input": input,
                "annotations": {"readOnlyHint": true},
                "run": {"process": {"argv": ["sh", "-c", lookup, "posted", "{{ text }}"], "output": "lines"}}}
        }),
    );
    world
}

const LOOK: &str = "grep -x -- \"$1\" sent || true";

fn sent(world: &World) -> String {
    fs::read_to_string(world.folder().join("sent")).unwrap_or_default()
}

#[test]
fn a_run_that_took_effect_and_timed_out_succeeds_by_its_lookup() {
    let world = world("echo \"$1\" >> sent; sleep 60", LOOK);
    let result = world.result_of("post", &json!({"text": "hello"}));
    assert_eq!((&result["status"], &result["data"]), (&json!("succeeded"), &json!(["hello"])), "{result}");
    assert_eq!(result["_meta"]["verified"], json!({"subtool": "posted", "input": {"text": "hello"}}));
    assert_eq!(sent(&world), "hello\n");
}

#[test]
fn a_run_that_verifiably_had_no_effect_is_repeated() {
    let world = world("test -e tried && echo \"$1\" >> sent && exit 0; touch tried; sleep 60", LOOK);
    let result = world.result_of("post", &json!({"text": "hello"}));
    assert_eq!((&result["status"], &result["_meta"]["attempts"]), (&json!("succeeded"), &json!(3)), "{result}");
    assert_eq!(sent(&world), "hello\n");
}

#[test]
fn a_run_whose_executor_was_killed_is_looked_up_by_the_next_one() {
    let world = world("echo \"$1\" >> sent; sleep 1.9", LOOK);
    let id = world.start("post", &json!({"text": "hello"}));
    until("it was sent", || !sent(&world).is_empty());
    world.kill_executor();
    let ran = world.run(&["wait", &id]);
    let result = ran.json();
    assert_eq!((ran.exit, &result["data"], sent(&world).as_str()), (0, &json!(["hello"]), "hello\n"), "{ran}");
}

#[test]
fn an_inconclusive_lookup_ends_as_unknown_with_details_for_checking() {
    let world = world("echo \"$1\" >> sent; sleep 60", "echo one; echo another");
    let result = world.result_of("post", &json!({"text": "hello"}));
    assert_eq!((&result["status"], &result["error"]["code"]), (&json!("unknown"), &json!("unknown-outcome")));
    let details = &result["error"]["details"];
    assert_eq!(details["sent"]["process"]["argv"][4], "hello", "{result}");
    assert!(details["started_at"].is_string(), "{result}");
    assert_eq!(details["check"], json!({"subtool": "posted", "input": {"text": "hello"}}));
    assert_eq!(details["lookup"], "the data of `posted` does not show whether it happened", "{result}");
    assert_eq!(sent(&world), "hello\n", "the run must not be repeated");
}

#[test]
fn a_lookup_outside_the_callers_tool_scope_is_not_made() {
    let world = world("echo \"$1\" >> sent; sleep 60", LOOK);
    world.configure("[access]\ndeny = [\"posted\"]\n");
    let result = world.result_of("post", &json!({"text": "hello"}));
    assert_eq!((&result["status"], result.get("data")), (&json!("unknown"), None), "{result}");
}

/// A lookup is a call of the caller: its subtool's own rules and the caller's tool scope hold for it.
#[test]
fn a_lookup_that_the_caller_could_not_run_is_not_made() {
    let world = world("echo \"$1\" >> sent; sleep 60", "touch looked; grep -x -- \"$1\" sent || true");
    let looked = world.folder().join("looked");
    let unknown = |ran: &crate::world::Transcript, why: &str| {
        let result = ran.json();
        assert_eq!((&result["status"], result.get("data")), (&json!("unknown"), None), "{result}");
        let told = result["error"]["details"]["lookup"].as_str().unwrap_or_default();
        assert!(told.contains(why), "{result}");
        let is_named = result["error"]["details"]["check"]["subtool"] == "posted";
        assert_eq!(is_named, !why.contains("does not have"), "what the caller does not have is not named: {result}");
        assert!(!looked.exists(), "it was run: {result}");
    };
    let words = ["run", "post", "text=hello", "--wait"];
    let mut scoped = world.command(&words);
    scoped.env("AGENT_MAGIC_TOOL_SCOPE", r#"[["post"]]"#);
    unknown(&world.transcript(&scoped.output().expect("it starts")), "the caller does not have");
    for (then, why) in [("refuse", "is refused: not you"), ("ask", "needs a human itself: not you")] {
        world
            .configure(&format!("[[confirm.rules]]\ntools = [\"posted\"]\nthen = \"{then}\"\nbecause = \"not you\"\n"));
        assert_eq!(world.run(&["executor", "reload"]).exit, 0);
        unknown(&world.run(&words), why);
    }
    // A rule about other inputs changes nothing.
    fs::remove_file(world.folder().join("sent")).expect("it was sent");
    world.configure("[[confirm.rules]]\ntools = [\"posted\"]\nwhen = \"input.text == 'other'\"\nthen = \"refuse\"\n");
    assert_eq!(world.run(&["executor", "reload"]).exit, 0);
    let mut scoped = world.command(&words);
    scoped.env("AGENT_MAGIC_TOOL_SCOPE", r#"[["post*"]]"#);
    let found = world.transcript(&scoped.output().expect("it starts")).json();
    assert_eq!((&found["status"], looked.exists()), (&json!("succeeded"), true), "{found}");
}

#[test]
fn without_a_lookup_the_result_says_what_was_sent_and_when() {
    let world = World::new();
    let look = json!({"description": "Looks.", "input": {}, "annotations": {"readOnlyHint": true}, "run": {"process": {"argv": ["cat", "sent"]}}});
    world.define(
        "post.json",
        &json!({"look": look, "post": {"description": "Sends a line.", "input": {"properties": {"text": {"type": "string"}}},
            "confirm": "never", "depends_on": ["look"],
            "run": {"process": {"argv": ["sh", "-c", "echo x >> sent; sleep 60", "{{ text }}"], "env": {"KEY": "secret:key"}}}}}),
    );
    let set = world.run_with(&["secret", "set", "key"], "s3cret-value");
    assert_eq!(set.exit, 0, "{set}");
    let lost = |kill: &dyn Fn(&str)| -> Value {
        let id = world.start("post", &json!({"text": "hello"}));
        until("it was sent", || !sent(&world).is_empty());
        kill(&id);
        let result = world.run(&["wait", &id]).json();
        fs::remove_file(world.folder().join("sent")).expect("removed");
        let details = &result["error"]["details"];
        assert_eq!(details["sent"]["process"]["argv"][3], "hello", "{result}");
        assert!(details["started_at"].is_string(), "{result}");
        assert!(!result.to_string().contains("s3cret"), "{result}");
        result
    };
    let killed = lost(&|_| assert!(world.kill_executor().is_some()));
    assert_eq!((&killed["status"], &killed["error"]["details"]["check_with"]), (&json!("unknown"), &json!(["look"])));
    let cancelled = lost(&|id| drop(world.run(&["cancel", id])));
    assert_eq!(cancelled["status"], "cancelled", "{cancelled}");
}
