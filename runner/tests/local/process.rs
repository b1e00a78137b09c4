//! Programs: their arguments, environment and input, and the interpretation of their output and exit status.

use ground::task::failure::{Retry, SideEffect};
use protocol::code::Code;
use runner::Runner as _;
use runner::{OutputData, RunnerOutput};
use serde_json::{Value, json};

use crate::{World, json_of, runner};

#[tokio::test]
async fn a_list_becomes_several_arguments_and_an_absent_value_none() {
    let world = World::new();
    let run = json!({"process": {"argv": [
        "printf", "[%s]", {"if": "limit", "args": ["-n", "{{ limit }}"]}, "--max={{ max }}", "--", "{{ paths }}", "{{ absent }}"
    ]}});
    let input = json!({"max": 5, "paths": ["a b", "$(id)", "-x", 7, true]});
    assert_eq!(world.data(&run, input).await, "[--max=5][--][a b][$(id)][-x][7][true]");
}

#[tokio::test]
async fn a_value_never_becomes_an_option_unless_the_definition_allows_it() {
    let world = World::new();
    let argv = json!(["echo", "{{ what }}"]);
    let failure = world.failure(&json!({"process": {"argv": argv}}), json!({"what": "-n"})).await;
    assert_eq!((failure.error.code, failure.side_effect), (Code::Rejected, SideEffect::None));
    let run = json!({"process": {"argv": argv, "allow_options": true}});
    assert_eq!(world.data(&run, json!({"what": ["-n", "-e"]})).await, "");
}

#[tokio::test]
async fn only_allowed_first_arguments_are_run() {
    let world = World::new();
    let run = json!({"process": {"argv": ["echo", "{{ command }}"], "allow": ["status", "list"]}});
    assert_eq!(world.data(&run, json!({"command": ["status", "now"]})).await, "status now");
    for command in [json!("remove"), json!(["remove", "status"]), json!([])] {
        let failure = world.failure(&run, json!({"command": command})).await;
        assert_eq!((failure.error.code, failure.side_effect), (Code::NotAllowed, SideEffect::None));
        assert_eq!(failure.error.hint.as_deref(), Some("use one of: `status`, `list`"));
    }
}

#[tokio::test]
async fn the_environment_is_clean() {
    let world = World::new();
    assert!(std::env::var_os("CARGO_MANIFEST_DIR").is_some(), "this test needs a variable that must not be inherited");
    let run = json!({"process": {"argv": ["env"], "output": "lines", "env": {"GIVEN": "<{{ value }}>", "ABSENT": "{{ absent }}"}}});
    let lines = world.data(&run, json!({"value": "a b"})).await;
    let lines: Vec<&str> = lines.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    assert!(lines.contains(&"GIVEN=<a b>"), "{lines:?}");
    for line in lines {
        let name = line.split('=').next().unwrap_or_default();
        assert!(
            ["PATH", "HOME", "LANG", "TMPDIR", "USER", "AGENT_MAGIC_TOOL_PROGRAM", "GIVEN"].contains(&name),
            "{line}"
        );
    }
}

#[tokio::test]
async fn a_secret_reaches_only_the_program() {
    let world = World::new();
    world.context.secrets.set(&"token".parse().expect("a name"), "hunter2-hunter2").expect("stored");
    let script = r#"[ "$TOKEN" = hunter2-hunter2 ] && echo "it is $TOKEN, not $TEXT"; echo "$TOKEN" >&2; exit $1"#;
    let run = json!({"process": {
        "argv": ["sh", "-c", script, "sh", "{{ status }}"],
        "env": {"TOKEN": "secret:token", "TEXT": "{{ text }}"}
    }});
    let input = |status: u8| json!({"status": status, "text": "secret:token"});
    let success = world.perform(&run, input(0)).await.expect("the program should succeed");
    assert_eq!(success.meta["stderr"], "[secret:token]\n");
    assert_eq!(json_of(success), "it is [secret:token], not secret:token");
    let failure = world.failure(&run, input(1)).await;
    assert!(!format!("{failure:?}").contains("hunter2"), "{failure:?}");
    let plan = runner(&run).plan(&world.invocation(input(0)), &world.context.config).expect("a plan");
    assert_eq!(plan["env"], json!({"TEXT": "secret:token", "TOKEN": "secret:token"}));
}

#[tokio::test]
async fn a_secret_truncated_by_the_limit_is_not_shown() {
    let world = World::new();
    world.context.secrets.set(&"token".parse().expect("a name"), "hunter2-hunter2").expect("stored");
    let run = json!({"process": {
        "argv": ["sh", "-c", "printf 'it is %s' $TOKEN; sleep 300"], "env": {"TOKEN": "secret:token"}, "max_bytes": 12
    }});
    let failure = world.failure(&run, json!({})).await;
    assert_eq!((failure.error.code, &failure.error.details["stdout"]), (Code::ResponseTooLarge, &json!("it is ")));
}

#[tokio::test]
async fn a_missing_secret_or_program_or_folder_starts_nothing() {
    let world = World::new();
    let cases = [
        (json!({"argv": ["echo"], "env": {"TOKEN": "secret:unset"}}), Code::SecretMissing),
        (json!({"argv": ["no-such-program-anywhere"]}), Code::CannotStart),
        (json!({"argv": ["/etc/passwd"]}), Code::CannotStart),
        (json!({"argv": ["echo"], "folder": "not/there"}), Code::NotFound),
        (json!({"argv": ["echo", "{{ nul }}"]}), Code::Rejected),
        (json!({"argv": ["echo", "a{{ absent }}"]}), Code::TemplateFailed),
    ];
    for (process, code) in cases {
        let failure = world.failure(&json!({"process": process}), json!({"nul": "a\0b"})).await;
        assert_eq!(
            (failure.error.code, failure.side_effect, failure.retry),
            (code, SideEffect::None, Retry::Never),
            "{process}"
        );
    }
}

#[tokio::test]
async fn colors_are_stripped_and_bad_utf_8_is_replaced() {
    let world = World::new();
    let run = json!({"process": {"argv": ["printf", r"\033[1;31mred\033[0m\tand \303\244 \377\n\n"]}});
    assert_eq!(world.data(&run, json!({})).await, "red\tand ä \u{fffd}");
}

#[tokio::test]
async fn output_is_text_lines_or_json() {
    let world = World::new();
    let run = |output: &str| json!({"process": {"argv": ["printf", "{{ text }}"], "output": output}});
    assert_eq!(world.data(&run("lines"), json!({"text": r"a\n\nb\n"})).await, json!(["a", "", "b"]));
    assert_eq!(world.data(&run("json"), json!({"text": r#"{"a": [1]}\n"#})).await, json!({"a": [1]}));
    let failure = world.failure(&run("json"), json!({"text": "oops"})).await;
    assert_eq!((failure.error.code, failure.side_effect), (Code::BadResponse, SideEffect::Possible));
    assert_eq!(failure.error.details["stdout"], "oops");
}

/// Returns the content of an output that is a file, its content type and its name.
fn file_of(output: &RunnerOutput) -> (Vec<u8>, &str, Option<&str>) {
    let OutputData::File { path, content_type, bytes } = &output.data else { panic!("not a file: {output:?}") };
    let content = std::fs::read(path).expect("the file");
    assert_eq!(content.len() as u64, *bytes);
    (content, content_type, output.meta.get("file_name").and_then(Value::as_str))
}

#[tokio::test]
async fn a_file_that_a_program_writes_is_its_data() {
    let world = World::new();
    world.context.secrets.set(&"token".parse().expect("a name"), "hunter2-hunter2").expect("stored");
    let script = r#"printf 'a\0%s' "$TOKEN" > "${1#--to=}"; echo written"#;
    let file = json!({"output_file": "chart.png", "prefix": "--to="});
    let run = json!({"process": {"argv": ["sh", "-c", script, "sh", file], "env": {"TOKEN": "secret:token"}}});
    let written = world.perform(&run, json!({})).await.expect("it succeeds");
    assert_eq!(file_of(&written), (b"a\0[secret:token]".to_vec(), "image/png", Some("chart.png")));
    let left: Vec<_> = std::fs::read_dir(&world.context.spool).expect("a folder").flatten().collect();
    assert_eq!(left.len(), 1, "only the data is left: {left:?}");
    let plan = runner(&run).plan(&world.invocation(json!({})), &world.context.config).expect("a plan");
    assert_eq!(plan["argv"][4], "--to=OUTPUT_FOLDER/chart.png");

    // Nothing else than a file that the program wrote itself.
    world.write("other", "private");
    for script in ["true", r#"ln -s "$PWD/other" "$1""#, r#"mkfifo "$1""#, r#"mkdir "$1""#] {
        let run = json!({"process": {"argv": ["sh", "-c", script, "sh", {"output_file": "out"}]}});
        let failure = world.failure(&run, json!({})).await;
        assert_eq!((failure.error.code, failure.side_effect), (Code::BadResponse, SideEffect::Possible), "{script}");
        assert!(failure.error.message.contains("did not write `out`"), "{failure:?}");
    }
    let failing = json!({"process": {"argv": ["sh", "-c", "echo x > $1; exit 3", "sh", {"output_file": "out"}]}});
    assert_eq!(world.failure(&failing, json!({})).await.error.code, Code::ProcessFailed);
}

#[tokio::test]
async fn binary_output_is_a_file_and_text_has_the_declared_encoding() {
    let world = World::new();
    let print = |bytes: &str, more: Value| {
        let mut process = json!({"argv": ["printf", bytes]});
        process.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        json!({"process": process})
    };
    let file =
        world.perform(&print(r"\377\001", json!({"output": "file", "content_type": "image/x-raw"})), json!({})).await;
    assert_eq!(file_of(&file.expect("it succeeds")), (vec![0xff, 1], "image/x-raw", None));
    let recognized = world.perform(&print(r"a\000b", json!({})), json!({})).await.expect("it succeeds");
    assert_eq!(file_of(&recognized), (b"a\0b".to_vec(), "application/octet-stream", None));
    let latin = print(r"caf\351\n", json!({"encoding": "iso-8859-1"}));
    assert_eq!(world.data(&latin, json!({})).await, "café");
    let wide = print(r"\351\000\n\000", json!({"encoding": "utf-16le", "output": "lines"}));
    assert_eq!(world.data(&wide, json!({})).await, json!(["é"]));
}

#[tokio::test]
async fn stdin_that_is_not_text_is_written_as_json() {
    let world = World::new();
    let run =
        json!({"process": {"argv": ["cat"], "stdin": {"limit": "{{ limit }}", "q": "{{ q }}"}, "output": "json"}});
    assert_eq!(world.data(&run, json!({"limit": 3})).await, json!({"limit": 3}));
    let run = json!({"process": {"argv": ["cat"]}});
    assert_eq!(world.data(&run, json!({})).await, "", "without `stdin`, standard input is empty");
}

#[tokio::test]
async fn a_failing_program_says_why() {
    let world = World::new();
    let script = "echo so far; echo one >&2; echo 'fatal: no such thing' >&2; exit 3";
    let mut run = json!({"process": {"argv": ["sh", "-c", script]}});
    let failure = world.failure(&run, json!({})).await;
    assert_eq!((failure.error.code, failure.side_effect), (Code::ProcessFailed, SideEffect::Answered));
    assert_eq!(failure.error.message, "`sh` ended with status 3: one; fatal: no such thing");
    assert_eq!(
        Value::Object(failure.error.details),
        json!({"exit_code": 3, "stdout": "so far\n", "stderr": "one\nfatal: no such thing\n"})
    );

    run["process"]["ok_statuses"] = json!([0, 3]);
    let success = world.perform(&run, json!({})).await.expect("status 3 counts as success");
    assert_eq!(success.meta["exit_code"], 3);
    assert_eq!(json_of(success), "so far");

    let failure = world.failure(&json!({"process": {"argv": ["sh", "-c", "kill -KILL $$"]}}), json!({})).await;
    assert_eq!(
        (failure.error.message.as_str(), &failure.error.details["signal"]),
        ("`sh` ended with signal SIGKILL", &json!("SIGKILL"))
    );
}

#[tokio::test]
async fn a_program_runs_in_the_callers_folder_or_in_a_folder_relative_to_it() {
    let world = World::new();
    world.write("sub/file", "");
    let home = world.home().canonicalize().expect("the folder exists");
    let run = json!({"process": {"argv": ["pwd"], "folder": "{{ folder }}"}});
    let shown = |path: &std::path::Path| Value::from(path.to_string_lossy());
    assert_eq!(world.data(&run, json!({})).await, shown(&home));
    assert_eq!(world.data(&run, json!({"folder": "sub"})).await, shown(&home.join("sub")));
    assert_eq!(world.data(&run, json!({"folder": "/"})).await, "/");
}

#[test]
fn the_plan_shows_the_filled_program_call() {
    let world = World::new();
    let run = runner(&json!({"process": {
        "argv": ["git", "log", "{{ paths }}"], "env": {"A": "{{ a }}"}, "stdin": ["{{ a }}"], "folder": "x"
    }}));
    let plan =
        run.plan(&world.invocation(json!({"paths": ["p", "q"], "a": 1})), &world.context.config).expect("a plan");
    assert_eq!(
        plan,
        json!({"program": "git", "argv": ["git", "log", "p", "q"], "folder": world.home().join("x").to_string_lossy(),
            "env": {"A": "1"}, "stdin": "[1]"})
    );
}
