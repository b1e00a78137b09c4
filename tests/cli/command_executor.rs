//! `command-executor`: the model's commands as JSON lines, and their answers.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

use serde_json::{Map, Value, json};

use crate::executor::bounds::decide;
use crate::world::{World, until};

/// A running `command-executor` with its input and output.
struct Tool {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
}

impl Tool {
    fn of(world: &World) -> Self {
        let mut command = world.command(&["command-executor"]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts");
        let stdin = child.stdin.take();
        let stdout = BufReader::new(child.stdout.take().expect("a pipe"));
        Self { child, stdin, stdout }
    }

    fn ask(&mut self, line: &str) -> Value {
        let stdin = self.stdin.as_mut().expect("standard input is open");
        stdin.write_all(format!("{line}\n").as_bytes()).expect("written");
        let mut answer = String::new();
        self.stdout.read_line(&mut answer).expect("an answer");
        serde_json::from_str(&answer).unwrap_or_else(|error| panic!("{error} in {answer:?}"))
    }

    fn command(&mut self, command: &str) -> Value {
        self.ask(&json!({"command": command}).to_string())
    }

    /// Runs a command that must succeed, and returns its output.
    #[track_caller]
    fn output(&mut self, command: &str) -> String {
        let answer = self.command(command);
        assert_eq!(answer["exit"], 0, "{command}: {answer}");
        answer["output"].as_str().expect("a text").to_owned()
    }
}

impl Drop for Tool {
    fn drop(&mut self) {
        self.stdin = None;
        let ended = self.child.wait().expect("the program ends at the end of its input");
        assert!(ended.success() || std::thread::panicking(), "{ended}");
    }
}

/// Defines the subtool `say`, which returns its input.
fn say(world: &World) {
    world.define(
        "say.json",
        &json!({"say": {"description": "Says a text again.", "annotations": {"readOnlyHint": true},
            "input": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
            "run": {"process": {"argv": ["printf", "%s", "{{ text }}"]}}}}),
    );
}

#[test]
fn a_model_finds_a_subtool_runs_it_and_reads_its_file() {
    let world = World::new();
    say(&world);
    let mut tool = Tool::of(&world);
    let found = tool.output("agent-magic-tool list tools --query=\"say a text\" --limit 1 2>/dev/null");
    assert!(found.starts_with("/** Says a text again. */\nsay(input: {"), "{found}");
    let piped = "agent-magic-tool list tools --query='say a text' --limit 1 2>/dev/null | jq -r .say.description";
    assert_eq!(tool.output(piped), "Says a text again.\n");
    let text = "it's \"年度报告\" & $HOME; `x`";
    let run = format!("agent-magic-tool run say --input=- <<'EOF'\n{}\nEOF", json!({ "text": text }));
    let answer = tool.ask(&json!({"id": {"any": [1]}, "command": run}).to_string());
    assert_eq!((&answer["id"], &answer["exit"]), (&json!({"any": [1]}), &json!(0)), "{answer}");
    let task = &answer["tasks"][0];
    let (id, file) = (task["id"].as_str().expect("an id"), task["result_file"].as_str().expect("a file"));
    assert_eq!((&task["tool"], answer["tasks"].as_array().map(Vec::len)), (&json!("say"), Some(1)));
    let waited: Value = serde_json::from_str(&tool.output(&format!("agent-magic-tool wait {id}"))).expect("JSON");
    assert_eq!(waited["data"], text);
    assert_eq!(tool.output(&format!("cat {file}")), fs::read_to_string(file).expect("the file"));
    assert_eq!(tool.output(&format!("jq -r .data {file} | grep -c 年度")), "1\n");
    assert_eq!(tool.output(&format!("agent-magic-tool read {id} --jq length")), "24\n");
    let at_once = tool.command("agent-magic-tool run say text='年 度' --wait | jq -c '[.status, .data]'");
    assert_eq!((&at_once["output"], &at_once["tasks"]), (&json!("[\"succeeded\",\"年 度\"]\n"), &json!([])));
    let failed = tool.command("agent-magic-tool run git_statu");
    assert_eq!((&failed["exit"], &failed["tasks"]), (&json!(3), &json!([])));
    assert!(failed["output"].as_str().is_some_and(|text| text.contains("did you mean `git_status`?")), "{failed}");
}

#[test]
fn a_wrong_expression_starts_nothing_and_one_that_fails_on_the_data_names_the_task() {
    let world = World::new();
    say(&world);
    let mut tool = Tool::of(&world);
    let count = || world.run(&["tasks"]).json().as_array().map(Vec::len);
    for words in ["--jq '.a)'", "--jq '.id | strptime'", "--jq . --jq ."] {
        let line = format!("agent-magic-tool run say text=x --wait {words}");
        let answer = tool.command(&line);
        assert_eq!((&answer["exit"], count()), (&json!(2), Some(0)), "{line}: {answer}");
        let shell = world.run(&["run", "say", "text=x", "--wait", "--jq", ".a)"]);
        assert_eq!((shell.exit, count()), (2, Some(0)), "{shell}");
    }
    // Twice the same word for a pipe.
    assert_eq!(tool.output("agent-magic-tool run say text=x --wait --whole --jq length"), "1\n");
    for line in ["--wait --jq '.a.b'", "--wait --whole --jq '.a.b'", "--wait | grep nothing", "--wait | head --foo"] {
        let answer = tool.command(&format!("agent-magic-tool run say text=x {line}"));
        let tasks = world.run(&["tasks"]).json();
        let (output, id) = (answer["output"].as_str().expect("a text"), tasks[0]["id"].as_str().expect("an id"));
        assert!(output.contains(id) && output.contains("do not run it again"), "{line}: {output}");
    }
    let failed = world.run(&["run", "say", "text=x", "--wait", "--jq", ".a.b"]);
    let tasks = world.run(&["tasks"]).json();
    assert!(failed.stderr.contains(tasks[0]["id"].as_str().expect("an id")), "{failed}");
}

#[test]
fn a_runaway_jq_expression_ends_soon_and_holds_up_no_other_line() {
    let world = World::new();
    say(&world);
    let mut tool = Tool::of(&world);
    // The name of the program may be left out, as in the tool's definition.
    let said: Value = serde_json::from_str(&tool.output("run say text=x --wait")).expect("JSON");
    let id = said["id"].as_str().expect("an id").to_owned();
    assert_eq!(tool.output(&format!("read {id} --jq length && wait {id} | jq -r .data")), "1\nx\n");
    let started = std::time::Instant::now();
    let endless = json!({"id": "endless", "command": "jq -n 'def f: f; f'"}).to_string();
    let slow = json!({"id": "slow", "command": format!("read {id} --jq 'def f: f; f'")}).to_string();
    let stdin = tool.stdin.as_mut().expect("standard input is open");
    stdin.write_all(format!("{endless}\n{slow}\n").as_bytes()).expect("written");
    let quick = tool.ask(&json!({"id": "quick", "command": "tasks"}).to_string());
    assert_eq!((&quick["id"], &quick["exit"]), (&json!("quick"), &json!(0)), "{quick}");
    for _ in 0..2 {
        let mut answer = String::new();
        tool.stdout.read_line(&mut answer).expect("an answer");
        let answer: Value = serde_json::from_str(&answer).expect("JSON");
        let output = answer["output"].as_str().expect("a text");
        match answer["id"].as_str() {
            Some("endless") => assert!(output.contains("took too much time or memory"), "{output}"),
            _ => assert!(output.contains("write one that ends") && output.contains("processor time"), "{output}"),
        }
    }
    assert!(started.elapsed() < crate::world::TEST_TIMEOUT, "{:?}", started.elapsed());
}

#[test]
fn no_shell_syntax_runs_another_program() {
    let world = World::new();
    say(&world);
    let canary = world.folder().join("canary");
    fs::write(&canary, "alive").expect("written");
    let mut tool = Tool::of(&world);
    for trick in [
        "agent-magic-tool list tools; rm -rf CANARY",
        "agent-magic-tool list tools && rm -rf CANARY",
        "agent-magic-tool xyz || rm -rf CANARY",
        "agent-magic-tool list tools\nrm -rf CANARY",
        "agent-magic-tool list tools & rm -rf CANARY",
        "agent-magic-tool list tools | sh -c 'rm -rf CANARY'",
        "agent-magic-tool run say text=\"$(rm -rf CANARY)\"",
        "agent-magic-tool run say text=`rm -rf CANARY`",
        "agent-magic-tool run say text=x > CANARY",
        "agent-magic-tool run say text=x >> written",
        "agent-magic-tool run say text=x 2> CANARY",
        "agent-magic-tool run say text=x &> CANARY",
        "cat < CANARY",
        "cat CANARY",
        "cat ../work/canary",
        "jq -n '[inputs]' CANARY",
        "grep -r alive .",
        "agent-magic-tool run say --input=@CANARY",
        "agent-magic-tool run say text=@CANARY --wait",
        "agent-magic-tool run say text:=@CANARY --wait",
        "agent-magic-tool run say text=x <(rm CANARY)",
        "agent-magic-tool executor stop",
        "agent-magic-tool secret list",
        "agent-magic-tool command-executor",
        "agent-magic-tool demo",
        "X=1 agent-magic-tool run say text=x",
        "sh -c 'rm -rf CANARY'",
        "/bin/rm CANARY",
        "eval rm CANARY",
        "xargs rm <<< CANARY",
        "echo '",
    ] {
        let answer = tool.command(&trick.replace("CANARY", &canary.display().to_string()));
        assert!(answer["exit"].as_u64().is_some_and(|exit| exit > 0), "{trick}: {answer}");
        assert_eq!(answer["tasks"], json!([]), "{trick}");
        assert!(!answer["output"].as_str().is_some_and(|text| text.contains("alive")), "{trick}: {answer}");
    }
    assert_eq!(fs::read_to_string(&canary).expect("the canary still exists"), "alive");
    assert_eq!(fs::read_dir(world.folder()).expect("a folder").count(), 1, "no other file may be created");
    assert_eq!(tool.output("agent-magic-tool tasks"), "[]\n");
    // Inside quotes, shell syntax is plain text.
    let quoted = "$(rm -rf x); `rm x` > y | sh & *";
    let output = tool.output(&format!("agent-magic-tool run say text='{quoted}' --wait | jq -r .data"));
    assert_eq!(output, format!("{quoted}\n"));
}

#[test]
fn the_tool_definition_does_not_depend_on_the_number_of_subtools() {
    let dialects = ["--definition", "--definition=anthropic", "--definition=gemini"];
    let definitions = [10, 2_000].map(|subtools| {
        let world = World::new();
        let many: Map<_, _> = (0..subtools)
            .map(|number| {
                let description = format!("Does the thing number {number}.");
                let run = json!({"process": {"argv": ["true"]}});
                let subtool =
                    json!({"description": description, "input": {}, "annotations": {"readOnlyHint": true}, "run": run});
                (format!("thing_{number}"), subtool)
            })
            .collect();
        world.define("many.json", &many.into());
        let listed = world.run(&["list", "--format=names", "--limit=5000"]).json();
        assert!(listed.as_array().is_some_and(|names| names.len() > subtools), "{listed}");
        let printed = dialects.map(|dialect| world.run(&["command-executor", dialect]).stdout);
        let answered = Tool::of(&world).ask(r#"{"definition": true}"#)["definition"].to_string() + "\n";
        assert_eq!(answered, printed[0]);
        printed
    });
    assert_eq!(definitions[0], definitions[1]);
    let [openai, anthropic, gemini] = definitions[0].clone();
    assert!(
        openai.starts_with(r#"{"type":"function","function":{"name":"command_executor","description":""#),
        "{openai}"
    );
    assert!(
        anthropic.contains(r#""input_schema":{"type":"object""#) && gemini.contains(r#""parameters":{"type":"object""#)
    );
}

#[test]
fn a_bad_line_gets_an_error_and_the_next_line_still_works() {
    let world = World::new();
    let mut tool = Tool::of(&world);
    let too_long = json!({"command": "x".repeat(2 << 20)}).to_string();
    for (line, id, code) in [
        ("nonsense", json!(null), "invalid-json"),
        (r#"{"id": 7, "comand": "ls"}"#, json!(7), "usage"),
        (r#"{"id": 7}"#, json!(7), "usage"),
        (r#"{"id": 7, "definition": "klingon"}"#, json!(7), "usage"),
        ("[]", json!(null), "usage"),
        (&too_long, json!(null), "request-too-large"),
    ] {
        let answer = tool.ask(line);
        assert_eq!((&answer["id"], &answer["error"]["code"]), (&id, &json!(code)), "{answer}");
    }
    assert_eq!(
        tool.ask(r#"{"id": 8, "command": "echo on"}"#),
        json!({"id": 8, "output": "on\n", "exit": 0, "tasks": []})
    );
}

#[test]
fn an_expression_that_exhausts_time_or_memory_ends_only_itself() {
    let world = World::new();
    let mut tool = Tool::of(&world);
    for expression in ["def f: 1 + f; f", "[range(1e12)] | length"] {
        let answer = tool.command(&format!("jq -n '{expression}'"));
        assert_eq!(answer["exit"], 5, "{answer}");
        assert!(answer["output"].as_str().is_some_and(|text| text.contains("too much time or memory")), "{answer}");
    }
    assert_eq!(tool.output("jq -n '1 + 1'"), "2\n");
}

#[test]
fn a_line_that_waits_holds_up_no_other() {
    let world = World::new();
    world.define(
        "gate.json",
        &json!({"gate": {"description": "Waits for a file.", "annotations": {"readOnlyHint": true}, "input": {},
            "run": {"process": {"argv": ["sh", "-c", "until [ -e gate ]; do sleep 0.01; done"], "folder": "."}}}}),
    );
    let id = world.start("gate", &json!({}));
    let mut tool = Tool::of(&world);
    let mut send = |line: &Value| {
        let stdin = tool.stdin.as_mut().expect("standard input is open");
        stdin.write_all(format!("{line}\n").as_bytes()).expect("written");
    };
    send(&json!({"id": "wait", "command": format!("agent-magic-tool wait {id}")}));
    send(&json!({"id": "run", "command": "agent-magic-tool run gate --wait"}));
    send(&json!({"id": "one", "command": "echo one"}));
    send(&json!({"id": "two", "command": "echo two"}));
    send(&json!({"id": "any", "command": "echo any", "parallel": true}));
    send(&json!({"command": "echo none", "parallel": true}));
    let mut answers = Vec::new();
    let mut next = |count: usize| {
        for _ in 0..count {
            let mut line = String::new();
            tool.stdout.read_line(&mut line).expect("an answer");
            answers.push(serde_json::from_str::<Value>(&line).expect("JSON"));
        }
        answers.clone()
    };
    let first = next(4);
    let place = |id: &str| first.iter().position(|answer| answer["id"] == id).expect("answered before the gate opens");
    assert!(place("one") < place("two"), "{first:?}");
    place("any");
    let refused = first.iter().find(|answer| answer["id"].is_null()).expect("an answer");
    assert!(refused["error"]["message"].as_str().is_some_and(|text| text.contains("needs an `id`")), "{refused}");
    fs::write(world.folder().join("gate"), "").expect("written");
    let last = next(2);
    let waited: Vec<_> = last[4..].iter().map(|answer| answer["exit"].clone()).collect();
    assert_eq!(waited, [0, 0], "{last:?}");
}

#[test]
fn a_line_repeated_with_the_same_key_delegates_once() {
    let world = World::new();
    say(&world);
    let line = json!({"key": "turn-1", "command": "agent-magic-tool run say text=a; agent-magic-tool run say text=b"});
    let [first, again] = [(); 2].map(|()| Tool::of(&world).ask(&line.to_string()));
    assert_eq!(first["tasks"].as_array().map(Vec::len), Some(2), "{first}");
    let listed = world.run(&["tasks"]).json();
    assert_eq!(listed.as_array().map(Vec::len), Some(2), "{again}");
}

#[test]
fn a_line_for_a_real_shell_runs_only_after_a_human_approves_it() {
    let world = World::new();
    assert_eq!(world.run(&["run", "run_shell_command", "command=true"]).exit, 3, "the shell is off by default");
    world.kill_executor();
    world.configure("[shell]\nothers = \"ask\"\n");
    let mut tool = Tool::of(&world);
    let line = "echo 年 > made && cat made | tr -d '\\n'";
    let answer = tool.command(line);
    let task = &answer["tasks"][0];
    assert_eq!((&answer["exit"], &task["tool"]), (&json!(0), &json!("run_shell_command")), "{answer}");
    let id = task["id"].as_str().expect("an id").to_owned();
    let file = world.result_file(&id);
    assert_eq!((&file["state"], &file["input"]["command"]), (&json!("awaiting_confirmation"), &json!(line)));
    assert!(!world.folder().join("made").exists());
    decide(&world, &id, "approve");
    until("it has run", || world.result_file(&id)["status"] == "succeeded");
    assert_eq!(world.result_file(&id)["data"], "年");
    assert_eq!(fs::read_to_string(world.folder().join("made")).expect("it ran in the caller's folder"), "年\n");
    assert_eq!(tool.output("echo still here"), "still here\n");
}

#[test]
fn a_call_carries_the_nesting_depth_of_its_agent() {
    let world = World::new();
    say(&world);
    world.configure("[[confirm.rules]]\nwhen = \"caller.depth >= 2\"\nthen = \"refuse\"\n");
    for (depth, exit) in [(None, 0), (Some("1"), 0), (Some("2"), 5), (Some("999"), 5)] {
        let mut command = world.command(&["run", "say", "text=x"]);
        depth.map(|depth| command.env("AGENT_MAGIC_TOOL_DEPTH", depth));
        let ran = world.transcript(&command.output().expect("it starts"));
        assert_eq!(ran.exit, exit, "{depth:?}: {ran}");
    }
}
