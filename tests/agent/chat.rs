//! The interactive chat: what a user types and sees, through a real pseudo-terminal.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use serde_json::{Value, json};

use super::aimock::{Model, counting};
use super::terminal::{END, INTERRUPT, TAB, Terminal};
use crate::world::{World, until};

/// Opens a chat, and waits for its greeting.
fn chat(world: &World, arguments: &[&str]) -> Terminal {
    let arguments: Vec<_> = ["agent"].iter().chain(arguments).copied().collect();
    let mut terminal = Terminal::open(world, &arguments);
    terminal.expect("type /help for the commands");
    terminal
}

/// Returns the last message of each request.
fn last_messages(model: &Model) -> Vec<String> {
    let last = |request: &Value| request["messages"].as_array().expect("messages").last().expect("one").to_string();
    model.asked().iter().map(last).collect()
}

#[test]
fn an_answer_is_shown_by_rows_and_commands_never_reach_the_model() {
    let world = World::new();
    let answer = "one two three four ".repeat(8) + "END";
    let Some(model) = Model::start(&world, &json!([{"says": answer}]), "") else { return };
    let mut terminal = chat(&world, &[]);
    terminal.expect("changes need your approval");
    terminal.line("/modle openai");
    terminal.expect("did you mean `/model`?");
    terminal.line("tell me");
    let shown = terminal.expect("END");
    assert!(shown.lines().filter(|line| line.contains("one two")).count() >= 3, "{shown}");
    terminal.line("!usage");
    terminal.expect("this session:  1 request,");
    terminal.press(&format!("/usa{TAB}"));
    terminal.expect("/usage");
    terminal.press("\r");
    terminal.expect("this session:");
    terminal.expect("\n> ");
    terminal.press(END);
    terminal.expect("agent-magic-tool agent --session 101");
    assert!(terminal.ended().success());
    assert_eq!(model.asked().len(), 1);
    let history = world.state().join("agent-history");
    assert_eq!(fs::metadata(&history).expect("a history").permissions().mode() & 0o777, 0o600);
    assert!(fs::read_to_string(&history).expect("read").contains("tell me"));
}

#[test]
fn several_commands_run_in_order_and_the_rest_is_asked() {
    let world = World::new();
    let Some(model) = Model::start(&world, &json!([{"says": "Yes."}]), "") else { return };
    let mut terminal = chat(&world, &[]);
    terminal.press("\u{1b}[200~/model anthropic\nfirst\n!usage\nsecond\u{1b}[201~\r");
    terminal.expect("switched to anthropic");
    terminal.expect("this session:  0 requests");
    terminal.expect("Yes.");
    assert!(last_messages(&model)[0].contains("first\\nsecond"), "{:?}", last_messages(&model));
    assert!(model.asked()[0]["model"].as_str() == Some("anthropic"));
    terminal.line("it goes on \\");
    terminal.line("here");
    terminal.expect("Yes.");
    assert!(last_messages(&model)[1].contains("it goes on \\nhere"), "{:?}", last_messages(&model));
    terminal.line("ask\r");
    terminal.expect("Yes.");
    // An unknown command rejects the whole pasted block.
    terminal.press("\u{1b}[200~/model openai\nquestion\n/nonsense\u{1b}[201~\r");
    terminal.expect("no command named `/nonsense`");
    terminal.line("/model");
    terminal.expect("the current model is anthropic");
    assert_eq!(model.asked().len(), 3);
}

#[test]
fn after_one_question_to_another_model_the_chat_switches_back() {
    let world = World::new();
    let rules = json!([
        {"last": "break", "fails": 400},
        {"last": "slowly", "slow": true, "says": "slow ".repeat(200)},
        {"says": "Yes."},
    ]);
    let Some(model) = Model::start(&world, &rules, "retries = 0\n") else { return };
    let mut terminal = chat(&world, &[]);
    let models = || -> Vec<_> {
        model.asked().iter().map(|request| request["model"].as_str().expect("a model").to_owned()).collect()
    };
    terminal.line("@nobody hello");
    terminal.expect("no model named `nobody`");
    assert_eq!(models(), [] as [&str; 0]);
    terminal.line("@anthropic hello");
    terminal.expect("Yes.");
    terminal.line("and you?");
    terminal.expect("Yes.");
    terminal.line("@anthropic break");
    terminal.expect("no answer:");
    terminal.line("and you?");
    terminal.expect("Yes.");
    terminal.line("@anthropic slowly");
    terminal.expect("slow slow");
    terminal.press(INTERRUPT);
    terminal.expect("stopped");
    terminal.line("and you?");
    terminal.expect("Yes.");
    assert_eq!(models(), ["anthropic", "openai", "anthropic", "openai", "anthropic", "openai"]);
}

#[test]
fn a_question_taken_back_can_be_edited() {
    let world = World::new();
    let Some(model) = Model::start(&world, &json!([{"says": "Yes."}]), "") else { return };
    let mut terminal = chat(&world, &[]);
    terminal.line("blue elephant");
    terminal.expect("Yes.");
    terminal.line("secret plan");
    terminal.expect("Yes.");
    terminal.line("/undo");
    terminal.expect("taken back");
    terminal.expect("> secret plan");
    terminal.line(" B");
    terminal.expect("Yes.");
    let asked = model.asked().last().expect("asked")["messages"].to_string();
    assert!(asked.contains("blue elephant") && asked.contains("secret plan B"), "{asked}");
    assert_eq!(asked.matches("secret plan").count(), 1, "{asked}");
    terminal.line("/clear");
    terminal.expect("starts over");
    terminal.line("alone");
    terminal.expect("Yes.");
    assert!(!model.asked().last().expect("asked").to_string().contains("blue elephant"));
}

#[test]
fn a_new_question_stops_the_current_answer() {
    let world = World::new();
    let rules = json!([{"last": "slowly", "slow": true, "says": "slow ".repeat(400)}, {"says": "Quick."}]);
    let Some(model) = Model::start(&world, &rules, "") else { return };
    let mut terminal = chat(&world, &[]);
    terminal.line("slowly");
    terminal.expect("slow slow");
    terminal.line("another question");
    terminal.expect("Quick.");
    // The keys are typed ahead; the second command always finds nothing running.
    terminal.press("/cancel\r/cancel\r");
    terminal.expect("nothing is running");
    // After this no key is typed ahead, and the next prompt reads the interrupt.
    terminal.press("/tasks\r");
    terminal.expect("no open tasks");
    terminal.expect("\n> ");
    terminal.press(INTERRUPT);
    terminal.expect("/exit or Ctrl-D leaves");
    assert_eq!(model.asked().len(), 2);
    assert!(!terminal.shown().contains("no answer"));
}

#[test]
fn a_task_continues_after_its_chat_and_is_reported_in_the_next_one() {
    let world = World::new();
    world.define("count.json", &counting());
    fs::write(world.folder().join("hold"), "").expect("held");
    let rules = json!([
        {"last": "^Count", "runs": ["agent-magic-tool run count_words text='a b c'"]},
        {"last": "\"status\":\\s*\"pending\"", "says": "It is under way."},
        {"last": "result is final", "runs": ["agent-magic-tool read $ID"]},
        {"last": "\"data\":\\s*\"?(\\d+)", "says": "There are $1 words."},
    ]);
    let Some(_model) = Model::start(&world, &rules, "preview = 20\n") else { return };
    let mut terminal = chat(&world, &[]);
    terminal.line("Count");
    terminal.expect("waiting for count_words");
    terminal.line("/tasks");
    terminal.expect("running, ");
    terminal.line("/exit");
    terminal.expect("1 task continues: count_words (");
    assert!(terminal.ended().success());
    let mut terminal = chat(&world, &[]);
    terminal.expect("the last session in this folder was 101");
    terminal.line("/resume 101");
    terminal.expect("session 101 (resumed), model openai, 1 open task");
    terminal.line("/sessions");
    terminal.expect("* 101");
    fs::remove_file(world.folder().join("hold")).expect("removed");
    terminal.expect("succeeded after");
    terminal.expect("more characters; the model reads all of it");
    terminal.expect("There are 3 words.");
    terminal.expect("\n> ");
    terminal.press(END);
    assert!(terminal.ended().success());
    let numbers: Vec<_> = world
        .run(&["agent", "--sessions"])
        .json()
        .as_array()
        .expect("a list")
        .iter()
        .map(|one| one["number"].clone())
        .collect();
    assert_eq!(numbers, [json!(101)], "a session without a question is deleted");
}

#[test]
fn a_question_of_a_task_is_answered_in_the_chat() {
    let world = World::new();
    let rules = json!([
        {"last": "^Ask", "runs": ["agent-magic-tool run ask_user --input='{\"question\": \"Which year?\", \"options\": [\"2024\", \"2025\"]}'"]},
        {"last": "\"status\":\\s*\"pending\"", "says": "I asked."},
        {"last": "result is final", "runs": ["agent-magic-tool read $ID"]},
        {"last": "\"answer\":\\s*\"(\\d+)", "says": "It is $1."},
        {"last": "decline", "says": "No answer then."},
    ]);
    let Some(model) = Model::start(&world, &rules, "") else { return };
    let mut terminal = chat(&world, &[]);
    terminal.line("Ask");
    terminal.expect_all(&["ask_user asks you: Which year?", "2. 2025", "waiting for ask_user"]);
    terminal.line("3");
    terminal.expect("not one of the options");
    terminal.line("2");
    terminal.expect("answered: 2025");
    terminal.expect("It is 2025.");
    terminal.line("Ask again");
    terminal.expect_all(&["asks you: Which year?", "waiting for ask_user"]);
    terminal.line("/decline");
    terminal.expect("declined");
    terminal.expect("No answer then.");
    assert!(last_messages(&model).iter().all(|message| !message.contains("\"2\"") && !message.contains("\"3\"")));
}

#[test]
fn neither_another_model_nor_typed_text_can_approve() {
    let world = World::new();
    world.define("send.json", &json!({"send": {"description": "Sends.", "input": {"type": "object"}, "run": {"process": {"argv": ["touch", "sent"]}}}}));
    let rules = json!([
        {"last": "^Send", "runs": ["agent-magic-tool run send"]},
        {"last": "\"status\":\\s*\"pending\"", "says": "It waits for approval."},
        {"last": "refused-by-policy", "says": "I may not."},
        {"says": "Well."},
    ]);
    let Some(_model) = Model::start(&world, &rules, "") else { return };
    let mut terminal = chat(&world, &[]);
    terminal.line("@anthropic Send");
    terminal.expect_all(&["needs your approval: http://", "waiting for send"]);
    terminal.line("yes");
    terminal.expect("Well.");
    terminal.line("/page");
    terminal.expect("(works once, within a minute");
    let tasks = world.run(&["tasks"]).json();
    assert_eq!(tasks[0]["state"], "awaiting_confirmation");
    terminal.line("/exit");
    assert!(terminal.ended().success());
    let mut terminal = chat(&world, &["--read-only"]);
    terminal.expect("READ-ONLY");
    terminal.line("Send");
    terminal.expect("I may not.");
    let ran = world.run(&["agent", "--read-only", "Send"]);
    assert_eq!((ran.exit, ran.stdout.as_str()), (5, "I may not.\n"), "{ran}");
    assert!(!world.folder().join("sent").exists());
    world.configure(
        &(fs::read_to_string(world.config_folder().join("config.toml")).expect("read")
            + "\n[confirm]\nwrites = \"allow\"\n"),
    );
    world.kill_executor();
    let mut allowed = chat(&world, &[]);
    allowed.expect("WRITES ARE ALLOWED");
    allowed.line("Send");
    until("the task ran", || world.folder().join("sent").exists());
}
