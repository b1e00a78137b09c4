//! What a model writes wrongly is answered with the line to write in its place, never with the words of a parser.

use std::fs;

use insta::assert_snapshot;
use serde_json::json;

use crate::world::{Transcript, World};

fn world() -> World {
    let world = World::new();
    let say = json!({"description": "Says a text again.", "annotations": {"readOnlyHint": true},
        "input": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"],
            "additionalProperties": false},
        "run": {"process": {"argv": ["printf", "%s", "{{ text }}"]}}});
    let numbers = json!({"description": "Counts.", "annotations": {"readOnlyHint": true}, "input": {},
        "run": {"process": {"argv": ["seq", "250"], "output": "lines"}}});
    world.define("say.json", &json!({"say": say, "numbers": numbers}));
    world
}

/// One line for each command: its words, the message, and the hint.
fn table(world: &World, lines: &[&[&str]]) -> String {
    let row = |words: &&[&str]| {
        let ran = world.run(words);
        assert_eq!(ran.stdout, "", "{ran}");
        format!("{}\n  {}\n  > {}\n", words.join(" "), text(&ran, "message"), text(&ran, "hint"))
    };
    lines.iter().map(row).collect()
}

fn text(ran: &Transcript, field: &str) -> String {
    let text = ran.error()[field].as_str().unwrap_or_default().to_owned();
    for leak in ["..=", "EOF while", "subcommand", "--help'", "invalid digit", "os error", "argument '"] {
        assert!(!text.contains(leak), "`{leak}` in: {ran}");
    }
    text
}

#[test]
fn a_wrong_command_is_answered_with_the_line_to_write() {
    let world = world();
    assert_snapshot!(table(&world, &[
        &["search", "send mail"],
        &["call", "say", "text=it's me"],
        &["ls"],
        &["get"],
        &["describe", "say"],
        &["jobs"],
        &["stop", "01a1fce914ce72a8be531d1bffc6ef06"],
        &["lst"],
        &["resolv", "x"],
        &["secrets"],
        &["say", "text=x"],
        &["gibberish"],
        &["executor", "begin"],
        &["run", "list"],
        &["list", "subtols"],
        &["list", "gmail"],
        &["list", "tools", "sya"],
    ]), @r#"
    search send mail
      no command `search`
      > agent-magic-tool list tools --query="send mail"
    call say text=it's me
      no command `call`
      > agent-magic-tool run say 'text=it'\''s me'
    ls
      no command `ls`
      > agent-magic-tool list tools --query="two or three words"
    get
      no command `get`
      > agent-magic-tool read ID
    describe say
      no command `describe`
      > agent-magic-tool list tools say
    jobs
      no command `jobs`
      > agent-magic-tool tasks
    stop 01a1fce914ce72a8be531d1bffc6ef06
      no command `stop`
      > agent-magic-tool cancel 01a1fce914ce72a8be531d1bffc6ef06
    lst
      no command `lst`
      > agent-magic-tool list tools
    resolv x
      no command `resolv`
      > did you mean `agent-magic-tool resolve`?
    secrets
      no command `secrets`
      > did you mean `agent-magic-tool secret`?
    say text=x
      no command `say`
      > `say` is a subtool: agent-magic-tool run say text=x
    gibberish
      no command `gibberish`
      > the commands are list, run, wait, read, tasks, cancel; to find a subtool: agent-magic-tool list tools --query="two or three words"
    executor begin
      `executor` has no command `begin`
      > agent-magic-tool executor --help
    run list
      no subtool named `list`
      > `list` is a command; leave out `run`: agent-magic-tool list
    list subtols
      `list` lists `tools` or `packs`, not `subtols`
      > agent-magic-tool list tools --query="subtols"
    list gmail
      `list` lists `tools` or `packs`, not `gmail`
      > agent-magic-tool list tools --query="gmail"
    list tools sya
      no subtool named `sya`
      > agent-magic-tool list tools --query="sya"
    "#);
    assert_eq!(world.run(&["list", "subtools", "--format=names", "--limit=1"]).exit, 0);
    assert!(world.run(&["list", "tools", "say"]).json()["say"]["input"].is_object());
}

#[test]
fn a_word_from_elsewhere_and_an_option_before_the_command_are_answered() {
    let world = world();
    assert_snapshot!(table(&world, &[
        &["approve", "01a1fce914ce72a8be531d1bffc6ef06"],
        &["delete", "01a1fce914ce72a8be531d1bffc6ef06"],
        &["schedule", "say"],
        &["--query=mail"],
        &["--query", "send mail"],
        &["--json", "list", "tools"],
        &["--verbose"],
        &["list", "--json"],
        &["run", "tools"],
    ]), @r#"
    approve 01a1fce914ce72a8be531d1bffc6ef06
      no command `approve`
      > only the user can decide, on the page; tell them to run: agent-magic-tool executor page
    delete 01a1fce914ce72a8be531d1bffc6ef06
      no command `delete`
      > agent-magic-tool cancel 01a1fce914ce72a8be531d1bffc6ef06
    schedule say
      no command `schedule`
      > agent-magic-tool run NAME key=value --at=09:00
    --query=mail
      `--query=mail` is given before a command
      > agent-magic-tool list tools --query="mail"
    --query send mail
      `--query` is given before a command
      > agent-magic-tool list tools --query="send mail"
    --json list tools
      `--json` is given before a command
      > begin with the command, and leave `--json` out: agent-magic-tool list tools
    --verbose
      `--verbose` is given before a command
      > the commands are list, run, wait, read, tasks, cancel; all of them: agent-magic-tool --help
    list --json
      `list` has no option `--json`
      > leave it out: the output is JSON
    run tools
      no subtool named `tools`
      > to list them: agent-magic-tool list tools
    "#);
}

#[test]
fn a_wrong_value_is_answered_with_those_that_are_allowed() {
    let world = world();
    let shown = table(
        &world,
        &[
            &["list", "--format=xml"],
            &["list", "--limit=0"],
            &["list", "--limit=many"],
            &["list", "--query"],
            &["list", "--search=mail"],
            &["tasks", "--state=done"],
            &["tasks", "--limit=0"],
            &["run", "say", "--pattern=x"],
            &["run", "say", "--text=x"],
            &["run", "say", "--text", "x"],
            &["run", "say", "text=x", "--timeout", "5s"],
            &["run", "say", "text=x", "--verbose"],
            &["run", "say", "text=x", "--page=2"],
            &["run", "nothing", "--path=x"],
            &["run", "say", "text=x", "--in", "-5s"],
            &["run", "say", "text=x", "--wait=soon"],
            &["run", "say", "text=x", "--wait", "60s"],
            &["run", "say", "text=x", "--in=400d"],
            &["run", "say", "text=x", "--in=1d", "--at=09:00"],
            &["run", "say", "text=x", "--if-no-approver=maybe"],
            &["run", "say", "text=x", "--idempotency-key="],
            &["wait"],
            &["wait", "01a1fce914ce72a8be531d1bffc6ef06", "--all"],
        ],
    );
    assert_snapshot!(shown, @r#"
    list --format=xml
      `--format`: `xml` is not one of its values
      > its values are json, typescript, names, hits, openai, anthropic, gemini, mcp, table
    list --limit=0
      `--limit`: `0` is too small
      > the least is 1
    list --limit=many
      `--limit`: `many` is not a whole number
      > write one from 1 to 1000000
    list --query
      `--query` needs a value
      > the options: agent-magic-tool help list
    list --search=mail
      `list` has no option `--search`
      > agent-magic-tool list tools --query="mail"
    tasks --state=done
      `--state`: `done` is not a state
      > the states are pending (all that have not ended), scheduled, accepted, awaiting_confirmation, queued, running, succeeded, failed, denied, expired, cancelled, timed_out, unknown
    tasks --limit=0
      `--limit`: `0` is too small
      > the least is 1
    run say --pattern=x
      `run` has no option `--pattern`
      > leave it out; the fields of `say` are text, written like text=VALUE; the options: agent-magic-tool help run
    run say --text=x
      `run` has no option `--text`
      > a field of the input is written without dashes: agent-magic-tool run say text=x
    run say --text x
      `run` has no option `--text`
      > a field of the input is written without dashes: agent-magic-tool run say text=x
    run say text=x --timeout 5s
      `run` has no option `--timeout`
      > to wait for the result, at most so long: agent-magic-tool run say text=x --wait=5s
    run say text=x --verbose
      `run` has no option `--verbose`
      > leave it out; the fields of `say` are text, written like text=VALUE; the options: agent-magic-tool help run
    run say text=x --page=2
      `run` has no option `--page`
      > it is for a result that is there: run it with --wait, then agent-magic-tool read ID --page 1
    run nothing --path=x
      `run` has no option `--path`
      > a field of the input is written without dashes: agent-magic-tool run nothing path=x
    run say text=x --in -5s
      `--in`: a duration must be longer than 0s
      > write it like `30s`, `5m` or `1h`
    run say text=x --wait=soon
      `--wait`: `soon` is not a valid duration
      > write it like `500ms`, `30s`, `5m`, `1h` or `7d`
    run say text=x --wait 60s
      `60s` is not of the form `key=value`
      > a duration belongs to its option: --wait=60s
    run say text=x --in=400d
      a task can start at most 366 days ahead
      > request it again when the time is closer
    run say text=x --in=1d --at=09:00
      `--in` cannot be combined with `--at`
      > the options: agent-magic-tool help run
    run say text=x --if-no-approver=maybe
      `--if-no-approver`: `maybe` is not `wait`, `fail`, or a duration like `30s`
      > the options: agent-magic-tool help run
    run say text=x --idempotency-key=
      `--idempotency-key`: it is empty
      > give it a value, or leave the option out
    wait
      `wait` needs ID|FILE...
      > agent-magic-tool wait ID|FILE...
    wait 01a1fce914ce72a8be531d1bffc6ef06 --all
      `wait` has no option `--all`
      > the options: agent-magic-tool help wait
    "#);
}

#[test]
fn a_wrong_part_of_a_result_is_answered_with_one_that_exists() {
    let world = world();
    let id = world.start("numbers", &json!({}));
    assert_eq!(world.run(&["wait", &id]).exit, 0);
    let read = |option| ["read", id.as_str(), option];
    let shown = table(
        &world,
        &[
            &read("--page=0"),
            &read("--page=99"),
            &read("--page-size=5"),
            &read("--lines=0-3"),
            &read("--lines=9-1"),
            &read("--lines=5"),
            &read("--lines=900-"),
            &read("--bytes=x-y"),
        ],
    );
    assert_snapshot!(shown.replace(&id, "ID"), @r#"
    read ID --page=0
      `--page`: `0` is too small
      > the least is 1
    read ID --page=99
      there is no page 99: 250 items make 3 pages of 100
      > the last page: agent-magic-tool read ID --page 3
    read ID --page-size=5
      `read` needs --page N
      > agent-magic-tool read --page N --page-size N ID|FILE
    read ID --lines=0-3
      `--lines`: lines count from 1, so there is no line 0
      > write it like 1-200
    read ID --lines=9-1
      `--lines`: the range `9-1` ends before it starts
      > write the smaller number first, like 1-200
    read ID --lines=5
      `--lines`: `5` is not a range
      > write it like 1-200, or 201- for all that follows
    read ID --lines=900-
      lines 900- are beyond the end: the data has 252 lines
      > from the beginning: agent-magic-tool read ID --lines 1-
    read ID --bytes=x-y
      `--bytes`: `x-y` is not a range
      > write it like 1-200, or 201- for all that follows
    "#);
}

#[test]
fn a_wrong_input_is_answered_in_plain_words() {
    let world = world();
    fs::create_dir(world.folder().join("folder")).expect("made");
    assert_snapshot!(table(&world, &[
        &["run", "say", "--input="],
        &["run", "say", "--input=-"],
        &["run", "say", "--input={\"text\": \"x\""],
        &["run", "say", "--input={\"text\": \"x"],
        &["run", "say", "--input={text: x}"],
        &["run", "say", "--input={\"text\": 'x'}"],
        &["run", "say", "--input=hello"],
        &["run", "say", "--input=[1]"],
        &["run", "say", "--input=@."],
        &["run", "say", "--input=@missing.json"],
        &["run", "say", "text:={"],
        &["run", "say", "hello"],
        &["run", "say", "text=x", "texts=y", "more:=1"],
        &["run", "say"],
    ]), @r#"
    run say --input=
      the input is empty
      > write the fields as key=value, or pass the JSON on standard input: agent-magic-tool run say --input=- <<'EOF'
    {"key": "value"}
    EOF
    run say --input=-
      standard input is empty
      > write the fields as key=value, or pass the JSON on standard input: agent-magic-tool run say --input=- <<'EOF'
    {"key": "value"}
    EOF
    run say --input={"text": "x"
      the input is not valid JSON: it ends before an object is closed with `}` at line 1 column 12
      > write the fields as key=value, or pass the JSON on standard input: agent-magic-tool run say --input=- <<'EOF'
    {"key": "value"}
    EOF
    run say --input={"text": "x
      the input is not valid JSON: it ends inside a text: the closing quote is missing at line 1 column 11
      > write the fields as key=value, or pass the JSON on standard input: agent-magic-tool run say --input=- <<'EOF'
    {"key": "value"}
    EOF
    run say --input={text: x}
      the input is not valid JSON: a key is not in double quotes at line 1 column 2
      > the shell removed the quotes; write the fields as key=value, or pass the JSON on standard input: agent-magic-tool run say --input=- <<'EOF'
    {"key": "value"}
    EOF
    run say --input={"text": 'x'}
      the input is not valid JSON: there is no JSON value here; texts are in double quotes at line 1 column 10
      > write the fields as key=value, or pass the JSON on standard input: agent-magic-tool run say --input=- <<'EOF'
    {"key": "value"}
    EOF
    run say --input=hello
      the input is not valid JSON: there is no JSON value here; texts are in double quotes at line 1 column 1
      > write the fields as key=value, or pass the JSON on standard input: agent-magic-tool run say --input=- <<'EOF'
    {"key": "value"}
    EOF
    run say --input=[1]
      the input must be a JSON object
      > its fields: agent-magic-tool list tools say
    run say --input=@.
      failed to read the input file `.`: it is not a regular file
      > in --input, `@` is followed by the path of a file; for the input itself write key=value
    run say --input=@missing.json
      failed to read the input file `missing.json`: there is no such file
      > in --input, `@` is followed by the path of a file; for the input itself write key=value
    run say text:={
      the value of `text` is not valid JSON: it ends before an object is closed with `}` at line 1 column 1
      > for a text write it without the colon: text=TEXT
    run say hello
      `hello` is not of the form `key=value`
      > write the input as key=text or key:=JSON; its fields: agent-magic-tool list tools say
    run say text=x texts=y more:=1
      the input of `say` is wrong at `/more`: no field named `more`; the fields are `text`; 2 mistakes in all
      > fix the fields in `problems`; the schema: agent-magic-tool list tools say
    run say
      the input of `say` is wrong at `/text`: `text` is required
      > fix the fields in `problems`; the schema: agent-magic-tool list tools say
    "#);
}

#[test]
fn durations_take_days_and_a_bare_number_is_seconds() {
    let world = world();
    let planned = |after: &str| {
        let ran = world.run(&["run", "say", "text=x", "--dry-run", after]);
        assert_eq!(ran.exit, 0, "{ran}");
        let at: jiff::Timestamp = ran.json()["run_at"].as_str().expect("a time").parse().expect("a time");
        at.duration_since(jiff::Timestamp::now()).as_secs()
    };
    assert!((86_400 * 6..86_400 * 7).contains(&planned("--in=7d")));
    assert!((60..=90).contains(&planned("--in=90")));
    assert_eq!(world.run(&["run", "say", "text=x", "--wait=30"]).json()["data"], "x");
}

#[test]
fn a_run_of_a_subtool_with_a_mistake_in_its_definition_names_the_mistake() {
    let world = world();
    world.define(
        "bad.json",
        &json!({"bad": {"description": "Is wrong.", "input": {}, "run": {"process": {"argv": []}}}}),
    );
    let ran = world.run(&["run", "bad"]);
    assert_eq!((ran.exit, ran.error()["code"].as_str()), (2, Some("bad-definition")), "{ran}");
    let message = ran.error()["message"].as_str().expect("a text").to_owned();
    assert!(message.contains("bad.json: bad: run.process.argv"), "{message}");
    assert_eq!(ran.error()["hint"], "all mistakes: agent-magic-tool lint");
}

#[test]
fn the_one_tool_gives_the_same_hints_without_a_catalog() {
    let world = world();
    let lines = ["search mail", "gmail_search query=x", "secret list", "executor start", "lst"];
    let requests = lines.map(|line| json!({"command": format!("agent-magic-tool {line}")}).to_string());
    let input = requests.join("\n");
    let answers = world.run_with(&["command-executor"], &input).stdout;
    let hint = |line: &str| {
        let answer: serde_json::Value = serde_json::from_str(line).expect("JSON");
        let error: serde_json::Value =
            serde_json::from_str(answer["output"].as_str().expect("a text").lines().next().expect("a line"))
                .expect("JSON");
        format!(
            "{}: {}\n",
            error["error"]["code"].as_str().expect("a code"),
            error["error"]["hint"].as_str().expect("a hint")
        )
    };
    assert_snapshot!(answers.lines().map(hint).collect::<String>(), @r#"
    usage: agent-magic-tool list tools --query="mail"
    usage: if it is a subtool: agent-magic-tool run gmail_search query=x; to find one: agent-magic-tool list tools --query="two or three words"
    humans-only: if it is needed, tell the user to run it in a terminal; the commands for agents are list, run, wait, read, tasks, cancel, script, resolve
    humans-only: if it is needed, tell the user to run it in a terminal; the commands for agents are list, run, wait, read, tasks, cancel, script, resolve
    usage: agent-magic-tool list tools
    "#);
}
