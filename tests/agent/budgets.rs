//! Budgets over sessions, tasks and sub-agents, and what is recorded of the spending.

use serde_json::{Value, json};

use super::story::entries_of;
use super::stub::{Stub, StubAnswer};
use crate::world::{Transcript, World, program};

/// A model that runs `command` first, then reads the result if it is told to, and answers.
fn running(command: &'static str) -> Stub {
    Stub::answering(move |request, _| {
        let body = String::from_utf8_lossy(&request.body).into_owned();
        let last = request.json()["messages"].as_array().expect("messages").last().expect("one").to_string();
        if last.contains("result is final") || last.contains("\"role\":\"tool\"") || !body.contains("Do it") {
            StubAnswer::says("Done.")
        } else {
            StubAnswer::runs("", &[command])
        }
    })
}

fn ask(world: &World, question: &str) -> Transcript {
    world.run(&["agent", "--json", question])
}

#[test]
fn a_days_budget_holds_over_sessions_and_tasks_and_survives_the_executor() {
    let world = World::new();
    let stub = Stub::answering(|_, _| StubAnswer::says("Hello."));
    // Each request is 15 tokens.
    world.configure(&stub.configuration("tokens_per_day = 40\n", ""));
    assert_eq!(ask(&world, "one").json()["answer"], "Hello.");
    let task = world.result_of("llm_text", &json!({"prompt": "two"}));
    assert_eq!(task["data"], "Hello.", "{task:#}");
    assert_eq!(ask(&world, "three").json()["answer"], "Hello.");
    assert_eq!(stub.received().len(), 3);
    let used_up =
        "the models' budget of this day is used up: 45 of 40 tokens (`tokens_per_day`); the day ends at 00:00 UTC";
    let refused = ask(&world, "four");
    assert_eq!(refused.exit, 6, "{refused}");
    assert_eq!(
        (&refused.json()["termination"], &refused.json()["answer"]),
        (&json!("budget_exhausted"), &json!(format!("[Stopped: {used_up}.]"))),
        "{refused}"
    );
    world.kill_executor();
    let task = world.result_of("llm_text", &json!({"prompt": "five"}));
    assert_eq!((&task["error"]["code"], &task["error"]["message"]), (&json!("budget-exhausted"), &json!(used_up)));
    assert_eq!(stub.received().len(), 3, "nothing was sent");
}

#[test]
fn a_cost_per_day_is_a_sum_without_stray_digits() {
    let world = World::new();
    let stub = Stub::answering(|_, _| StubAnswer::says("Hello."));
    world.configure(&stub.configuration("cost_per_day = 0.0003\n", ""));
    for _ in 0..3 {
        // 10 tokens at 3.0 and 5 at 15.0 per million.
        assert_eq!(ask(&world, "Hi").json()["usage"]["cost"], json!(0.000_105));
    }
    let refused = ask(&world, "Hi").json()["answer"].to_string();
    assert!(refused.contains("0.000315 of 0.0003 (`cost_per_day`)"), "{refused}");
}

#[test]
fn what_a_sub_agent_spends_counts_towards_the_question() {
    let world = World::new();
    let stub = running("agent-magic-tool run ask_agent prompt='Say hello'");
    world.configure(&stub.configuration("", ""));
    let ran = ask(&world, "Do it");
    assert_eq!(ran.json()["answer"], "Done.", "{ran}");
    // Three requests of its own and one of the sub-agent, of 10 and 5 tokens each.
    let usage = &ran.json()["usage"];
    assert_eq!(
        (&usage["requests"], &usage["input_tokens"], &usage["output_tokens"]),
        (&json!(3), &json!(40), &json!(20)),
        "{ran}"
    );
    assert_eq!(entries_of(&world, 101, "woken")[0]["tasks"][0]["spent"]["usage"]["input"], 10);

    world.configure(&stub.configuration("tokens = 45\n", ""));
    let stopped = ask(&world, "Do it");
    assert_eq!((stopped.exit, &stopped.json()["termination"]), (6, &json!("budget_exhausted")), "{stopped}");
    assert_eq!(stopped.json()["usage"]["requests"], 2, "it is not woken by a result that used up the budget");
}

#[test]
fn a_task_that_fails_after_a_request_keeps_what_it_spent() {
    let world = World::new();
    let stub = Stub::answering(|_, _| StubAnswer::says("This is not JSON."));
    world.configure(&stub.configuration("", ""));
    world.define(
        "json.json",
        &json!({"as_json": {"description": "Asks for JSON.", "input": {"type": "object"},
            "annotations": {"readOnlyHint": true}, "run": {"llm": {"prompt": "x", "output": "json"}}}}),
    );
    let failed = world.result_of("as_json", &json!({}));
    assert_eq!(failed["error"]["code"], "bad-response", "{failed:#}");
    let usage = &failed["error"]["details"]["usage"];
    assert_eq!((&usage["requests"], &usage["input_tokens"]), (&json!(1), &json!(10)), "{failed:#}");
}

#[test]
fn a_task_asks_once_more_after_an_empty_answer_and_a_refusal_is_a_failure() {
    let world = World::new();
    let stub = Stub::answering(|_, number| StubAnswer::says(if number == 0 { "" } else { "Hello." }));
    world.configure(&stub.configuration("", ""));
    let asked = world.result_of("llm_text", &json!({"prompt": "x"}));
    assert_eq!((&asked["data"], &asked["_meta"]["usage"]["requests"]), (&json!("Hello."), &json!(2)), "{asked:#}");

    let world = World::new();
    let stub = Stub::answering(|_, _| StubAnswer::ends("", super::stub::AnswerEnd::Refused));
    world.configure(&stub.configuration("", ""));
    let refused = world.result_of("llm_text", &json!({"prompt": "x"}));
    assert_eq!(refused["error"]["message"], "the model `openai` or its provider refused to answer", "{refused:#}");
    assert_eq!(stub.received().len(), 1);
}

#[test]
fn delegation_to_a_model_can_be_switched_off() {
    let world = World::new();
    let stub = Stub::answering(|_, _| StubAnswer::says("Hello."));
    let config = stub.configuration("", "").replace("provider = \"gemini\"", "provider = \"gemini\"\ndelegate = false");
    world.configure(&config);
    for tool in ["llm_text", "ask_agent"] {
        let refused = world.result_of(tool, &json!({"prompt": "x", "model": "gemini"}));
        assert_eq!(refused["error"]["message"], "delegation to the model `gemini` is switched off", "{refused:#}");
        assert!(refused["error"]["hint"].as_str().expect("a hint").contains("anthropic, ollama"), "{refused:#}");
    }
    assert_eq!(world.run(&["agent", "--json", "--model", "gemini", "Hi"]).exit, 0, "a human may still use it");
}

#[test]
fn a_model_without_tool_calls_makes_a_delegated_call_as_text() {
    let world = World::new();
    world.define(
        "count.json",
        &json!({"count": {"description": "Counts letters.",
            "input": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
            "annotations": {"readOnlyHint": true},
            "run": {"process": {"argv": ["sh", "-c", "printf %s \"$0\" | wc -c", "{{ text }}"]}}}}),
    );
    let call = json!({"name": "count", "arguments": {"text": "abc"}});
    let stub = Stub::answering(move |_, number| match number {
        0 => StubAnswer::says(&format!("I will count.\n<tool_call>{call}</tool_call>")),
        _ => StubAnswer::says("Three."),
    });
    world.configure(&stub.configuration("", ""));
    let called = world.result_of("llm_tool", &json!({"tool": "count", "prompt": "Count abc", "model": "text"}));
    assert_eq!(called["data"], "Three.", "{called:#}");
    let bodies = stub.bodies(0);
    assert!(bodies[0].get("tools").is_none(), "{}", bodies[0]);
    assert!(
        bodies[0]["messages"][0].to_string().contains("You have one tool, `count`: Counts letters."),
        "{}",
        bodies[0]
    );
    assert!(bodies[1].to_string().contains("<tool_response>"), "{}", bodies[1]);
}

#[test]
fn the_prompt_says_what_happens_to_changes() {
    let world = World::new();
    let prompt = |arguments: &[&str]| {
        let shown = world.run(&[&["agent", "--show-prompt"], arguments].concat());
        shown.json()["prompt"].as_str().expect("a prompt").to_owned()
    };
    let asks = prompt(&[]);
    let read_only = prompt(&["--read-only"]);
    assert!(read_only.contains("This session is read-only"), "{read_only}");
    assert!(!asks.contains("read-only") && !asks.contains("runs at once"), "{asks}");
    let by_variable = world.transcript(
        &world.command(&["agent", "--show-prompt"]).env("AGENT_MAGIC_TOOL_READ_ONLY", "1").output().expect("it starts"),
    );
    assert_eq!(by_variable.json()["prompt"], read_only);
    world.configure("[confirm]\nwrites = \"allow\"\n");
    assert!(prompt(&[]).contains("a call that changes something runs at once"));
    world.configure("[confirm]\nwrites = \"refuse\"\n");
    assert!(prompt(&[]).contains("a call that changes something is refused"));
}

#[test]
fn the_calls_for_a_question_are_counted_whatever_makes_them() {
    const MANY: [&str; 9] = ["agent-magic-tool run note --wait"; 9];
    let program = program();
    let by_program = format!("for n in 1 2 3 4 5 6 7 8 9; do {} run note --wait || exit 1; done", program.display());
    let nested = |run: Value| json!({"description": "Notes nine times.", "input": {}, "annotations": {"readOnlyHint": true}, "run": run});
    let steps: Vec<Value> = (0..9).map(|number| json!({"name": format!("s{number}"), "subtool": "note"})).collect();
    for (way, commands, done) in [
        ("the model", MANY.to_vec(), 4),
        (
            "a script",
            vec!["agent-magic-tool script --wait <<'EOF'\nfor (let n = 0; n < 9; n++) await note({})\nEOF"],
            3,
        ),
        ("scripts", vec!["agent-magic-tool script --wait <<'EOF'\nawait note({}); await note({})\nEOF"; 3], 2),
        ("steps", vec!["agent-magic-tool run by_steps --wait"], 3),
        ("a program", vec!["agent-magic-tool run by_program --wait"], 3),
        ("a sub-agent", vec!["agent-magic-tool run ask_agent prompt='Note it' --wait"], 3),
        ("all", ["agent-magic-tool run by_steps --wait", "agent-magic-tool run by_program --wait"].to_vec(), 3),
    ] {
        let world = World::new();
        world.define(
            "own.json",
            &json!({
                "note": {
                    "description": "Notes that it was called.", "input": {}, "annotations": {"readOnlyHint": true},
                    "run": {"process": {"argv": ["sh", "-c", "echo called >>called"]}}
                },
                "by_steps": nested(json!({"steps": steps})),
                "by_program": nested(json!({"process": {"argv": ["sh", "-c", by_program], "env": {"AGENT_MAGIC_TOOL_DIR": world.mailbox()}}})),
            }),
        );
        let stub = Stub::answering(move |request, _| {
            let body = String::from_utf8_lossy(&request.body).into_owned();
            if body.contains("\"role\":\"tool\"") {
                StubAnswer::says("Done.")
            } else if body.contains("Do it") {
                StubAnswer::runs("", &commands)
            } else {
                StubAnswer::runs("", &MANY)
            }
        });
        world.configure(&stub.configuration("calls = 4\nreflect_after = 0\n", ""));
        let called = || std::fs::read_to_string(world.folder().join("called")).unwrap_or_default().lines().count();
        for question in 1..=2 {
            let ran = ask(&world, "Do it");
            assert_eq!(ran.json()["answer"], "Done.", "{way}: {ran}");
            // The steps of one task run at the same time, and those that are refused stop the others.
            let is_exact = !way.contains("steps") && way != "all";
            let (found, most) = (called(), question * done);
            assert!(found == most || !is_exact && found < most, "{way}: {found} of {most}\n{ran}");
        }
        let read = stub.received().iter().map(|it| String::from_utf8_lossy(&it.body).into_owned()).collect::<String>();
        assert!(read.contains("a question may make 4 calls"), "{way}: the model is told\n{read}");
    }
}
