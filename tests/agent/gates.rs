//! Turns that are held until a human decided, and data that a model may not get.

use serde_json::{Value, json};

use super::story::{entries_of, spawn};
use super::stub::{Stub, StubAnswer};
use crate::world::{World, until, wait_for_end};

/// `look` only reads but leaves a trace; `mark` needs a human.
fn definitions() -> Value {
    json!({
        "look": {"description": "Looks.", "input": {"type": "object"}, "annotations": {"readOnlyHint": true},
            "run": {"process": {"argv": ["sh", "-c", "touch looked; echo seen"]}}},
        "mark": {"description": "Marks.", "input": {"type": "object"},
            "run": {"process": {"argv": ["sh", "-c", "touch marked; echo left"]}}},
    })
}

fn two_calls() -> Stub {
    Stub::answering(|request, number| {
        let body = String::from_utf8_lossy(&request.body).into_owned();
        if number == 0 {
            StubAnswer::runs("", &["agent-magic-tool run look --wait", "agent-magic-tool run mark"])
        } else if body.contains("not run: another call") {
            StubAnswer::says("Neither was done.")
        } else {
            StubAnswer::says("Both were done.")
        }
    })
}

#[test]
fn no_call_of_a_held_turn_runs_before_the_human_decided() {
    for (verdict, looked, answer) in [("approve", true, "Both were done."), ("deny", false, "Neither was done.")] {
        let world = World::new();
        world.define("gates.json", &definitions());
        let stub = two_calls();
        world.configure(&stub.configuration("hold_turns = true\n", ""));
        let asking = spawn(world.command(&["agent", "--json", "--if-no-approver=wait", "Look and mark"]));
        let mut waiting = json!([]);
        until("the mark waits for a human", || {
            waiting = world.run(&["tasks", "--state", "awaiting_confirmation"]).json();
            waiting[0]["tool"] == "mark"
        });
        assert!(!world.folder().join("looked").exists(), "it is held");
        assert_eq!(waiting.as_array().map(Vec::len), Some(1), "{waiting}");
        world.decide(waiting[0]["id"].as_str().expect("an id"), verdict, "mark");
        let ran = world.transcript(&asking.wait_with_output().expect("the agent ends"));
        assert_eq!(ran.json()["answer"], answer, "{ran}");
        assert_eq!(world.folder().join("looked").exists(), looked, "{verdict}");
        assert_eq!(world.folder().join("marked").exists(), looked, "{verdict}");
        let results = &entries_of(&world, 101, "called")[0]["results"];
        assert_eq!(results.as_array().map(Vec::len), Some(2), "each call has its result, in order: {results}");
        assert_eq!(results[0]["text"].as_str().expect("a text").contains("seen"), looked, "{results}");
    }
}

#[test]
fn a_held_turn_that_was_killed_continues_with_the_same_task() {
    let world = World::new();
    world.define("gates.json", &definitions());
    let stub = two_calls();
    world.configure(&stub.configuration("hold_turns = true\n", ""));
    let mut asking = spawn(world.command(&["agent", "--json", "--if-no-approver=wait", "Look and mark"]));
    let mut waiting = json!([]);
    until("the mark waits for a human", || {
        waiting = world.run(&["tasks", "--state", "awaiting_confirmation"]).json();
        waiting[0]["tool"] == "mark"
    });
    asking.kill().expect("killed");
    wait_for_end(&mut asking);
    let id = waiting[0]["id"].as_str().expect("an id").to_owned();
    world.decide(&id, "approve", "mark");
    assert_eq!(world.run(&["wait", &id]).json()["status"], "succeeded");
    assert!(!world.folder().join("looked").exists());
    let ran = world.run(&["agent", "--json", "--if-no-approver=wait", "--session", "101"]);
    assert_eq!(ran.json()["answer"], "Both were done.", "{ran}");
    let marks = world.run(&["tasks"]).json();
    let marks = marks.as_array().expect("a list").iter().filter(|task| task["tool"] == "mark").count();
    assert_eq!(marks, 1, "the call was not made twice");
}

#[test]
fn a_turn_without_a_human_and_a_turn_that_is_not_held_run_at_once() {
    let world = World::new();
    world.define("gates.json", &definitions());
    let stub = two_calls();
    world.configure(&stub.configuration("hold_turns = true\n", ""));
    let alone = world.run(&["agent", "--json", "--if-no-approver=fail", "Look and mark"]);
    assert_eq!(alone.json()["answer"], "Neither was done.", "{alone}");
    assert!(!world.folder().join("looked").exists());
    let world = World::new();
    world.define("gates.json", &definitions());
    let stub = two_calls();
    world.configure(&stub.configuration("", ""));
    let ran = world.run(&["agent", "--json", "--if-no-approver=fail", "Look and mark"]);
    assert_eq!(
        (ran.json()["answer"].as_str(), world.folder().join("looked").exists()),
        (Some("Both were done."), true)
    );
}

/// Subtools with data of three classes.
fn classes() -> Value {
    let echo = |class: Value| {
        json!({"description": "Returns data.", "input": {"type": "object"}, "annotations": {"readOnlyHint": true},
            "data_class": class, "run": {"process": {"argv": ["echo", "data"]}}})
    };
    json!({"news": echo(json!("public")), "mail": echo(json!("confidential")), "keys": echo(json!("secret")), "plain": echo(Value::Null),
        "fail": {"description": "Fails.", "input": {"type": "object"}, "annotations": {"readOnlyHint": true},
            "data_class": "secret", "run": {"process": {"argv": ["sh", "-c", "echo data >&2; exit 1"]}}},
        "echo": {"description": "Says a text.", "input": {"type": "object", "properties": {"text": {"type": "string"}}},
            "annotations": {"readOnlyHint": true}, "data_class": "public", "run": {"process": {"argv": ["echo", "{{ text }}"]}}}})
}

#[test]
fn a_model_gets_no_data_above_its_trust() {
    let world = World::new();
    let mut classes = classes();
    classes["plain"].as_object_mut().expect("an object").remove("data_class");
    world.define("classes.json", &classes);
    let stub = Stub::answering(|request, _| {
        if String::from_utf8_lossy(&request.body).contains("run keys") {
            StubAnswer::says("Done.")
        } else {
            let run = |name: &str| format!("agent-magic-tool run {name} --wait");
            let commands = ["news", "plain", "mail", "keys"].map(run);
            StubAnswer::runs("", &commands.each_ref().map(String::as_str))
        }
    });
    let statuses = |session: u32| {
        let results = entries_of(&world, session, "called")[0]["results"].clone();
        let status = |result: &Value| result["status"].as_u64().expect("a status");
        results.as_array().expect("results").iter().map(status).collect::<Vec<_>>()
    };
    for (number, (trust, expected)) in
        [("", [0, 0, 0, 0]), ("trust = \"confidential\"", [0, 0, 0, 5]), ("trust = \"public\"", [0, 5, 5, 5])]
            .into_iter()
            .enumerate()
    {
        world.configure(&stub.configuration("", trust));
        assert!(world.run(&["agent", "--json", "Read all"]).json()["answer"].is_string());
        assert_eq!(statuses(101 + u32::try_from(number).expect("a few")), expected, "{trust}");
    }
    let last = entries_of(&world, 102, "called")[0]["results"][3]["text"].to_string();
    assert!(last.contains("trust-zone") && last.contains("data of the class `secret`"), "{last}");
    let by_variable = world.transcript(
        &world.command(&["run", "mail"]).env("AGENT_MAGIC_TOOL_TRUST", "internal").output().expect("it starts"),
    );
    assert_eq!((by_variable.exit, by_variable.error()["code"].as_str()), (5, Some("trust-zone")), "{by_variable}");
    // Nor what another model, or the human, got: by no way to a result.
    let (got, free) = (world.start("keys", &json!({})), world.start("news", &json!({})));
    let of = |id: &str, words: &[&str]| {
        let words: Vec<_> = words.iter().map(|word| word.replace("ID", id)).collect();
        let words: Vec<_> = words.iter().map(String::as_str).collect();
        world.transcript(&world.command(&words).env("AGENT_MAGIC_TOOL_TRUST", "public").output().expect("it starts"))
    };
    assert_eq!(
        (world.end_of(&got)["data"].clone(), world.end_of(&free)["data"].clone()),
        (json!("data"), json!("data"))
    );
    for words in
        [&["read", "ID"][..], &["wait", "ID"], &["run", "echo", "text=@ID"], &["run", "echo", "text=@ID.[0:2]"]]
    {
        let (refused, read) = (of(&got, words), of(&free, words));
        assert_eq!((refused.exit, refused.error()["code"].as_str()), (5, Some("trust-zone")), "{words:?}: {refused}");
        assert_eq!(read.exit, 0, "{words:?}: {read}");
    }
    let failed = world.start("fail", &json!({}));
    assert_eq!(world.end_of(&failed)["status"], "failed");
    let refused = of(&failed, &["read", "ID"]);
    assert_eq!((refused.exit, refused.error()["code"].as_str()), (5, Some("trust-zone")), "{refused}");
    let path = world.mailbox().join(format!("results/result-{got}.json")).display().to_string();
    for words in [["run", "echo", &format!("text=@{path}")], ["run", "echo", &format!("--input=@{path}")]] {
        let refused = of(&got, &words);
        assert!(refused.exit != 0 && !refused.stdout.contains("data"), "{words:?}: {refused}");
    }
    let line = world.folder().join("line");
    std::fs::write(&line, json!({"command": format!("cat {path}")}).to_string()).expect("written");
    let mut cat = world.command(&["command-executor"]);
    cat.env("AGENT_MAGIC_TOOL_TRUST", "public").stdin(std::fs::File::open(&line).expect("a file"));
    let printed = world.transcript(&cat.output().expect("it starts"));
    assert!(printed.stdout.contains("output") && !printed.stdout.contains("succeeded"), "{printed}");
    let shown = world.run(&["inspect", "keys"]);
    assert!(shown.stdout.contains("secret"), "{shown}");
}

#[test]
fn a_conversation_with_sensitive_data_is_not_shown_to_another_model() {
    let world = World::new();
    world.define("classes.json", &classes());
    let stub = Stub::answering(|request, _| {
        if String::from_utf8_lossy(&request.body).contains("run keys") {
            StubAnswer::says("Done.")
        } else {
            StubAnswer::runs("", &["agent-magic-tool run keys --wait"])
        }
    });
    let config = stub.configuration("", "");
    world.configure(&config.replace("provider = \"gemini\"", "provider = \"gemini\"\ntrust = \"confidential\""));
    assert_eq!(world.run(&["agent", "--json", "Read the keys"]).json()["answer"], "Done.");
    let before = stub.received().len();
    let refused = world.run(&["agent", "--json", "--session", "101", "--model", "gemini", "And?"]);
    assert_eq!((refused.exit, refused.error()["code"].as_str()), (5, Some("trust-zone")), "{refused}");
    assert_eq!(stub.received().len(), before, "nothing was sent");
}

#[test]
fn a_delegated_call_and_a_sub_agent_are_bound_by_the_model_they_use() {
    let world = World::new();
    world.define("classes.json", &classes());
    let stub = Stub::answering(|request, _| {
        let body = request.json().to_string();
        if body.contains("\"tool_call_id\"") || body.contains("tool_response") {
            StubAnswer::says(if body.contains("trust-zone") { "It was refused." } else { "I have it." })
        } else if body.contains("command_executor") {
            StubAnswer::runs("", &["agent-magic-tool run keys --wait"])
        } else {
            let call = json!({"name": "keys", "arguments": {}});
            StubAnswer::says(&format!("<tool_call>{call}</tool_call>"))
        }
    });
    let config =
        stub.configuration("", "").replace("provider = \"openai\"", "provider = \"openai\"\ntrust = \"confidential\"");
    world.configure(&config);
    let called = world.result_of("llm_tool", &json!({"tool": "keys", "prompt": "Get it", "model": "text"}));
    assert_eq!(called["error"]["code"], "trust-zone", "{called:#}");
    let sub_agent = world.result_of("ask_agent", &json!({"prompt": "Get the keys"}));
    assert_eq!(sub_agent["data"], "It was refused.", "{sub_agent:#}");
}

#[test]
fn data_that_came_through_other_tasks_keeps_its_class() {
    let world = World::new();
    let mut classes = classes();
    let steps = |inner: &str| {
        json!({"description": "Passes on.", "input": {"type": "object"}, "annotations": {"readOnlyHint": true},
            "data_class": "public", "run": {"steps": [{"name": "inner", "subtool": inner}]}})
    };
    for (name, inner) in [("of_keys", "keys"), ("of_failure", "fail"), ("of_steps", "of_keys"), ("of_news", "news")] {
        classes[name] = steps(inner);
    }
    // What a step got is in the input of the next one; what is looked up after a lost attempt is the result.
    classes["to_echo"] = steps("keys");
    classes["to_echo"]["run"]["steps"] = json!([{"name": "keys", "subtool": "keys"},
        {"name": "said", "subtool": "echo", "input": {"text": "{{ steps.keys }}"}}]);
    classes["verified"] = json!({"description": "Changes it.", "input": {"type": "object"}, "data_class": "public",
        "confirm": "never", "run": {"process": {"argv": ["sh", "-c", "kill -9 $$"]}},
        "verify": {"subtool": "keys", "input": {}, "happened": "true"}});
    classes["tried"] = json!({"description": "Fails for a while.", "input": {"type": "object", "properties": {"text": {"type": "string"}}},
        "annotations": {"readOnlyHint": true}, "data_class": "secret", "retries": {"times": 3, "backoff": "60s"},
        "run": {"process": {"argv": ["sh", "-c", "echo data >&2; exit 75"]}}});
    world.define("classes.json", &classes);
    let stub = Stub::answering(|request, _| {
        let body = request.json().to_string();
        if body.contains("\"tool_call_id\"") || body.contains("tool_response") {
            StubAnswer::says("I have it.")
        } else if body.contains("command_executor") {
            StubAnswer::runs("", &["agent-magic-tool run of_steps --wait"])
        } else {
            let call = json!({"name": "keys", "arguments": {}});
            StubAnswer::says(&format!("<tool_call>{call}</tool_call>"))
        }
    });
    world.configure(&stub.configuration("", ""));
    for (name, input, class) in [
        ("of_keys", json!({}), json!("secret")),
        ("of_failure", json!({}), json!("secret")),
        ("of_steps", json!({}), json!("secret")),
        ("of_news", json!({}), json!("public")),
        ("to_echo", json!({}), json!("secret")),
        ("verified", json!({}), json!("secret")),
        ("llm_tool", json!({"tool": "keys", "prompt": "Get it", "model": "text"}), json!("secret")),
        ("ask_agent", json!({"prompt": "Get the keys"}), json!("secret")),
    ] {
        let id = world.start(name, &input);
        assert_eq!(world.end_of(&id)["_meta"]["data_class"], class, "{name}");
        let mut read = world.command(&["read", &id]);
        let read = world.transcript(&read.env("AGENT_MAGIC_TOOL_TRUST", "public").output().expect("it starts"));
        assert_eq!(read.exit == 5, class == "secret", "{name}: {read}");
    }
    // The tasks of the steps, and one that took its input from another result.
    let keys = world.start("keys", &json!({}));
    world.end_of(&keys);
    let taken = world.run(&["run", "echo", &format!("text=@{keys}"), "--wait"]).json()["id"].clone();
    let listed = world.run(&["tasks", "--limit=50"]).json();
    let of_echo: Vec<_> = listed.as_array().expect("tasks").iter().filter(|task| task["tool"] == "echo").collect();
    assert_eq!((of_echo.len(), &of_echo[0]["id"]), (2, &taken), "{listed}");
    // No model gets more than it is trusted with as a part of its input either.
    let config =
        stub.configuration("", "").replace("provider = \"gemini\"", "provider = \"gemini\"\ntrust = \"public\"");
    world.configure(&config);
    let before = stub.received().len();
    for subtool in ["llm_text", "ask_agent"] {
        let ran = world.run(&["run", subtool, "model=gemini", &format!("prompt=@{keys}"), "--wait"]);
        assert!(ran.to_string().contains("trust-zone"), "{subtool}: {ran}");
    }
    assert_eq!(stub.received().len(), before);
    // One that waits for its next attempt quotes the error of the last one.
    let tried = world.start("tried", &json!({"text": "data"}));
    until("it failed once", || world.result_file(&tried)["last_error"].is_object());
    let public = |words: &[&str]| {
        world.transcript(&world.command(words).env("AGENT_MAGIC_TOOL_TRUST", "public").output().expect("it starts"))
    };
    for id in of_echo.iter().map(|task| task["id"].as_str().expect("an id")).chain([&*tried]) {
        for words in [["read", id], ["wait", id]] {
            let refused = public(&words);
            assert_eq!(
                (refused.exit, refused.error()["code"].as_str()),
                (5, Some("trust-zone")),
                "{words:?}: {refused}"
            );
        }
    }
    let seen = public(&["tasks", "--limit=50"]);
    assert!(!seen.stdout.contains("data") && !seen.stdout.contains("tried"), "{seen}");
    world.run(&["cancel", &tried]);
    let quoted = public(&["run", "echo", &format!("text=@{keys}.nothing.at")]);
    assert!(quoted.exit == 5 && !quoted.to_string().contains("\\\"data\\\""), "{quoted}");
}

#[test]
fn a_conversation_with_data_of_no_declared_class_is_not_shown_to_a_model_for_public_data() {
    let world = World::new();
    let mut classes = classes();
    classes["plain"].as_object_mut().expect("an object").remove("data_class");
    world.define("classes.json", &classes);
    let stub = Stub::answering(|request, _| {
        if String::from_utf8_lossy(&request.body).contains("run plain") {
            StubAnswer::says("Done.")
        } else {
            StubAnswer::runs("", &["agent-magic-tool run plain --wait"])
        }
    });
    let config = stub.configuration("", "");
    world.configure(&config.replace("provider = \"gemini\"", "provider = \"gemini\"\ntrust = \"public\""));
    assert_eq!(world.run(&["agent", "--json", "Read it"]).json()["answer"], "Done.");
    let refused = world.run(&["agent", "--json", "--session", "101", "--model", "gemini", "And?"]);
    assert_eq!((refused.exit, refused.error()["code"].as_str()), (5, Some("trust-zone")), "{refused}");
}
