//! Runs command lines over a mailbox, with a shell that records its calls.

use std::fs;
use std::os::unix::fs::symlink;
use std::sync::{Mutex, PoisonError};

use super::*;

/// Prints its words as JSON, or the output in `outputs` for its first word.
#[derive(Debug, Default)]
struct RecordingShell {
    calls: Mutex<Vec<(Vec<String>, String)>>,
    outputs: Vec<(&'static str, PrintedOutput)>,
}

impl Shell for RecordingShell {
    fn call(&self, words: &[String], stdin: &str, _: &Caller) -> PrintedOutput {
        let mut calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
        calls.push((words.to_vec(), stdin.to_owned()));
        let output = self.outputs.iter().find(|(command, _)| *command == words[0]);
        output.map_or_else(|| printed(&json!(words).to_string()), |(_, printed)| printed.clone())
    }
}

fn printed(stdout: &str) -> PrintedOutput {
    PrintedOutput { stdout: format!("{stdout}\n"), ..PrintedOutput::default() }
}

struct Bench {
    folder: tempfile::TempDir,
    mailbox: Mailbox,
    shell: Arc<RecordingShell>,
    executor: CommandExecutor,
}

impl Bench {
    fn new(outputs: Vec<(&'static str, PrintedOutput)>) -> Self {
        let folder = tempfile::tempdir().expect("failed to create a temporary folder");
        let mailbox = Mailbox::open(&folder.path().join("mailbox")).expect("failed to open the mailbox");
        let shell = Arc::new(RecordingShell { outputs, ..RecordingShell::default() });
        let executor = CommandExecutor::new(Arc::<RecordingShell>::clone(&shell), mailbox.clone(), Caller::default());
        Self { folder, mailbox, shell, executor }
    }

    fn answer(&self, command: &str) -> CommandOutput {
        self.executor.execute(command, "")
    }

    fn text(&self, command: &str) -> String {
        self.answer(command).text
    }

    fn calls(&self) -> Vec<Vec<String>> {
        let calls = self.shell.calls.lock().unwrap_or_else(PoisonError::into_inner);
        calls.iter().map(|(words, _)| words.clone()).collect()
    }

    /// Publishes a final result with this data; returns its task and the path of its file.
    fn result(&self, data: &Value) -> (TaskId, String) {
        let id = TaskId::new();
        let file = json!({"id": id, "tool": "t", "status": "succeeded", "success": true, "data": data});
        self.mailbox.publish(id, &format!("{file:#}\n")).expect("failed to publish the result");
        (id, self.mailbox.result_file(id).display().to_string())
    }
}

#[test]
fn operators_work_as_in_a_shell() {
    let failed = PrintedOutput { status: 3, stdout: String::new(), stderr: "no such thing\n".to_owned() };
    let bench = Bench::new(vec![("inspect", failed)]);
    let answer =
        bench.answer("agent-magic-tool inspect x && agent-magic-tool tasks || /usr/bin/agent-magic-tool list 'a b'");
    assert_eq!(bench.calls(), [vec!["inspect", "x"], vec!["list", "--format=typescript", "a b"]]);
    assert_eq!(
        (answer.text.as_str(), answer.status),
        ("[\"list\",\"--format=typescript\",\"a b\"]\nno such thing\n", 0)
    );
    assert_eq!(bench.text("agent-magic-tool inspect x"), "no such thing\nexit status: 3\n");
    assert_eq!(
        bench.text("agent-magic-tool inspect x 2>&1 | wc -l; agent-magic-tool inspect y 2>/dev/null || true"),
        "1\n"
    );
    assert_eq!(bench.text("agent-magic-tool list | grep -o list"), "list\n");
}

#[test]
fn jq_sees_the_data_of_every_result_and_hides_no_failure() {
    let printed = |status, document: Value| PrintedOutput { status, ..printed(&document.to_string()) };
    let id = TaskId::new();
    let data = format!("result-{id}.data.json");
    let large = json!({"id": id, "status": "succeeded", "bytes": 20_000, "shape": "[{a}]"});
    let failed = json!({"id": id, "status": "failed", "error": {"code": "http-status", "message": "404"}});
    let bench = Bench::new(vec![("wait", printed(0, large)), ("read", printed(1, failed.clone()))]);
    fs::write(bench.mailbox.results().join(&data), "[{\"a\": 1}, {\"a\": 2}]").expect("written");
    let meta = json!({"more_pages": true, "more_with": "--all"});
    for (file, said) in [
        (json!({"data": [{"a": 1}, {"a": 2}], "_meta": {}}), ""),
        (json!({"_meta": {"data_file": data}}), ""),
        (json!({"data": [{"a": 1}, {"a": 2}], "_meta": meta}), "all pages in one result: run it with --all\n"),
    ] {
        bench.mailbox.publish(id, &file.to_string()).expect("published");
        let text = bench.text(&format!("agent-magic-tool wait {id} | jq -c '[.data[].a]'"));
        let (words, stdin) =
            bench.shell.calls.lock().unwrap_or_else(PoisonError::into_inner).last().cloned().expect("jq");
        let seen: Value = serde_json::from_str(&stdin).expect("JSON");
        assert_eq!((words[0].as_str(), &seen["data"]), ("jq", &json!([{"a": 1}, {"a": 2}])), "{file}");
        assert!(text.ends_with(said) && (said.is_empty() || text.contains("note: ")), "{file}: {text}");
    }
    let read = format!("agent-magic-tool read {id} | jq '.data[0].a'");
    for in_vain in [printed(5, json!("jq: cannot use null")), printed(0, json!(null))] {
        let bench = Bench::new(vec![("read", printed(1, failed.clone())), ("jq", in_vain)]);
        let answer = bench.answer(&read);
        assert_eq!(answer.status, 1, "{}", answer.text);
        assert!(
            answer.text.starts_with(&failed.to_string()) && answer.text.contains("did not succeed"),
            "{}",
            answer.text
        );
    }
    let done = json!({"id": id, "status": "succeeded", "data": [1]});
    let bench = Bench::new(vec![("read", printed(0, done)), ("jq", printed(5, json!("no")))]);
    let text = bench.text(&read);
    assert!(text.contains("its data is `.data`") && text.contains(&format!("wait {id} | jq")), "{text}");
    let bench = Bench::new(vec![("read", printed(1, failed)), ("jq", printed(0, json!("http-status")))]);
    assert_eq!(bench.text(&read), "\"http-status\"\n");
}

#[test]
fn a_list_prints_signatures_unless_jq_or_the_line_wants_another_format() {
    let of_line = |line: &str| {
        let bench = Bench::new(vec![]);
        bench.answer(line);
        bench.calls()[0].join(" ")
    };
    for (line, called) in [
        ("agent-magic-tool list tools x", "list --format=typescript tools x"),
        ("list tools -q x | head -5", "list --format=typescript tools -q x"),
        ("list tools -q x | jq keys", "list tools -q x"),
        ("list tools -q x | head -5 | jq keys", "list tools -q x"),
        ("list tools --format names", "list tools --format names"),
        ("list tools --format=json", "list tools --format=json"),
        ("tasks", "tasks"),
    ] {
        assert_eq!(of_line(line), called, "{line}");
    }
}

#[test]
fn a_line_with_a_forbidden_command_is_not_run_at_all() {
    let bench = Bench::new(vec![]);
    for line in
        ["agent-magic-tool list; rm x", "agent-magic-tool list | sh", "agent-magic-tool list && curl y", "echo $(id)"]
    {
        let answer = bench.answer(line);
        assert_eq!(answer.status, 5, "{line}");
        assert!(answer.text.contains("\"code\":\"not-carried-out\""), "{}", answer.text);
    }
    for (line, advice) in
        [("sleep 5; agent-magic-tool read x", "wait ID"), ("cd /tmp && ls", "no working folder to change")]
    {
        assert!(bench.text(line).contains(advice), "{line}");
    }
    for (line, code) in [
        ("agent-magic-tool executor stop", "humans-only"),
        ("agent-magic-tool secret list", "humans-only"),
        ("agent-magic-tool jq .", "humans-only"),
        ("agent-magic-tool doctor --repair", "humans-only"),
        ("agent-magic-tool lint /etc", "humans-only"),
        ("agent-magic-tool run x --input=@/etc/passwd", "not-carried-out"),
        ("agent-magic-tool run x --input @f", "not-carried-out"),
        ("agent-magic-tool inspect x -i@f", "not-carried-out"),
        ("agent-magic-tool list 'x", "usage"),
        ("", "usage"),
    ] {
        assert!(bench.text(line).contains(&format!("\"code\":\"{code}\"")), "{line}: {}", bench.text(line));
    }
    assert_eq!(bench.calls(), Vec::<Vec<String>>::new());
}

#[test]
fn a_foreign_line_becomes_a_task_if_so_configured() {
    let id = TaskId::new();
    let pending = json!({"tool": SHELL_SUBTOOL, "id": id, "status": "pending"}).to_string();
    let bench = Bench::new(vec![("run", printed(&pending))]);
    let asking = bench.executor.clone().with_foreign_commands(ForeignCommands::Ask);
    let line = "make test > log 2>&1; tail log";
    let answer = asking.execute(line, "k");
    let result_file = bench.mailbox.result_file(id);
    assert_eq!(answer.opened, [OpenedTask { id, tool: SHELL_SUBTOOL.to_owned(), result_file }]);
    let calls = bench.shell.calls.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let words = ["run", "--idempotency-key=k", SHELL_SUBTOOL, "--input=-"].map(str::to_owned).to_vec();
    assert_eq!(calls, [(words, json!({"command": line}).to_string())]);
    for refused in ["sleep 5", "make 'x", "agent-magic-tool secret list"] {
        assert!(asking.execute(refused, "k").status > 1, "{refused}");
    }
    assert_eq!(bench.calls().len(), 1);
}

#[test]
fn every_run_gets_its_own_reproducible_key() {
    let bench = Bench::new(vec![]);
    let line = "agent-magic-tool run a || agent-magic-tool run b; agent-magic-tool run c --idempotency-key=own; \
                agent-magic-tool run d x=1; agent-magic-tool wait e";
    bench.executor.execute(line, "k");
    let keys =
        |call: &Vec<String>| call.iter().find_map(|word| word.strip_prefix("--idempotency-key=").map(str::to_owned));
    let found: Vec<_> = bench.calls().iter().map(keys).collect();
    assert_eq!(found, [Some("k"), Some("own"), Some("k-4"), None].map(|key| key.map(str::to_owned)));
}

#[test]
fn created_tasks_and_collected_results_are_reported() {
    let (done, open, read) = (TaskId::new(), TaskId::new(), TaskId::new());
    let state = |id: TaskId, status: &str| json!({"id": id, "tool": "t", "status": status});
    let bench = Bench::new(vec![
        ("run", printed(&state(open, "pending").to_string())),
        ("wait", printed(&json!([state(done, "failed"), state(open, "pending")]).to_string())),
    ]);
    let answer = bench.answer("agent-magic-tool run t");
    assert_eq!((answer.opened.len(), answer.opened[0].id, answer.only_reads), (1, open, false));
    let answer = bench.answer("agent-magic-tool wait a b");
    assert_eq!((answer.opened.len(), answer.collected, answer.only_reads), (0, vec![done], true));
    let file = |id: TaskId, status: &str| format!("{:#}\n", json!({"id": id, "status": status}));
    bench.mailbox.publish(read, &file(read, "succeeded")).expect("failed to publish the result");
    bench.mailbox.publish(open, &file(open, "pending")).expect("failed to publish the result");
    for line in ["agent-magic-tool read ID --jq .x", "cat result-ID.json", "jq .status result-ID.json | grep -v x"] {
        let answer = bench.answer(&line.replace("ID", &read.to_string()));
        assert_eq!((answer.collected, answer.only_reads, answer.status), (vec![read], true, 0), "{line}");
        assert_eq!(bench.answer(&line.replace("ID", &open.to_string())).collected, [], "{line}");
    }
    assert!(!bench.answer("agent-magic-tool wait x; agent-magic-tool list").only_reads);
}

#[test]
fn a_run_that_waits_reports_its_task_before_it_waits() {
    let id = TaskId::new();
    let receipt = json!({"id": id, "tool": "t", "status": "pending"}).to_string();
    let note = "agent-magic-tool: note: queued\n";
    let accepted = PrintedOutput { stderr: note.to_owned(), ..printed(&receipt) };
    for (line, runs, waits, status, is_collected) in [
        ("run t --wait", vec!["run", "t"], vec!["wait", "ID", "--timeout=60s"], "succeeded", true),
        ("run t --wait=5s", vec!["run", "t"], vec!["wait", "ID", "--timeout=5s"], "pending", false),
        (
            "run t --wait --jq .x",
            vec!["run", "--checked-jq=.x", "t"],
            vec!["wait", "ID", "--timeout=60s", "--jq=.x"],
            "succeeded",
            true,
        ),
    ] {
        let result = json!({"id": id, "tool": "t", "status": status});
        let shown = if line.contains("jq") { "7".to_owned() } else { result.to_string() };
        let bench = Bench::new(vec![("run", accepted.clone()), ("wait", printed(&shown))]);
        bench.mailbox.publish(id, &format!("{result:#}\n")).expect("failed to publish the result");
        let told = Mutex::new(Vec::new());
        let report = |progress: CallProgress<'_>| {
            let word = match progress {
                CallProgress::Opened(task) => format!("opened {}", task.id),
                CallProgress::WaitsFor(task) => format!("waits for {}", task.id),
            };
            told.lock().unwrap_or_else(PoisonError::into_inner).push((word, bench.calls().len()));
        };
        let answer = bench.executor.execute_and_report(&format!("agent-magic-tool {line}"), "", &report);
        let expected = [(format!("opened {id}"), 1), (format!("waits for {id}"), 1)];
        assert_eq!(*told.lock().unwrap_or_else(PoisonError::into_inner), expected, "{line}");
        let waits: Vec<_> = waits.into_iter().map(|word| word.replace("ID", &id.to_string())).collect();
        let runs: Vec<_> = runs.into_iter().map(str::to_owned).collect();
        assert_eq!(bench.calls(), [runs, waits], "{line}");
        assert_eq!(answer.text, format!("{shown}\n{note}"), "{line}");
        let (opened, collected) = (answer.opened.len(), answer.collected.len());
        assert_eq!((opened, collected), if is_collected { (0, 1) } else { (1, 0) }, "{line}");
    }
    let refused = PrintedOutput::refused(&ErrorBody::new(Code::UnknownSubtool, "none"));
    let bench = Bench::new(vec![("run", refused)]);
    assert_eq!(bench.answer("agent-magic-tool run t --wait").status, Code::UnknownSubtool.exit() as u8);
    assert_eq!(bench.calls().len(), 1, "there is nothing to wait for");
}

#[test]
fn a_line_that_fails_names_the_tasks_that_it_started() {
    let id = TaskId::new();
    let receipt = json!({"id": id, "tool": "t", "status": "succeeded"});
    let bench = Bench::new(vec![("run", printed(&receipt.to_string()))]);
    for (line, is_named) in [
        ("run t | grep -Z x", true),
        ("run t | grep nothing", true),
        ("run t >/dev/null; agent-magic-tool secret list", true),
        ("run t; agent-magic-tool secret list", true),
        ("run t >/dev/null", false),
    ] {
        let answer = bench.answer(&format!("agent-magic-tool {line}"));
        assert_eq!(answer.text.contains(&id.to_string()), is_named, "{line}: {}", answer.text);
        assert_eq!(answer.status != 0, is_named, "{line}");
    }
}

#[test]
fn only_result_files_can_be_read() {
    let bench = Bench::new(vec![]);
    let secret = bench.folder.path().join("secret");
    fs::write(&secret, "top secret").expect("failed to write");
    let results = bench.mailbox.results();
    symlink(&secret, results.join("result-link.json")).expect("failed to create the link");
    symlink(bench.folder.path(), results.join("folder")).expect("failed to create the link");
    fs::hard_link(&secret, results.join("result-hard.json")).expect("failed to create the link");
    let (_, path) = bench.result(&json!({"text": "it's 年度报告"}));
    assert_eq!(bench.text(&format!("grep -o 年度报告 {path}")), "年度报告\n");
    let name = path.rsplit('/').next().expect("the path has a file name");
    assert_eq!(bench.text(&format!("ls {name}; ls")), format!("{name}\n{name}\n"));
    let id = TaskId::new();
    let temporary = format!(".result-{id}.json.{}-3", "0".repeat(32));
    let hidden =
        [temporary, format!(".result-{id}.json"), format!("result-{id}.json~"), format!("result-{id}.data.exe")];
    for name in &hidden {
        fs::write(results.join(name), r#"{"data": "another's secret"}"#).expect("failed to write");
    }
    let hard = format!("result-{}.json", TaskId::new());
    fs::hard_link(&secret, results.join(&hard)).expect("failed to create the link");
    for name in hidden {
        for path in [name.clone(), results.join(&name).display().to_string()] {
            for program in ["cat", "head", "tail", "wc", "grep .", "jq .", "ls"] {
                let text = bench.text(&format!("{program} '{path}'"));
                assert!(text.contains("no such file"), "{program} {path}: {text}");
            }
        }
    }
    for file in [
        secret.display().to_string(),
        "../../secret".to_owned(),
        "result-link.json".to_owned(),
        "result-hard.json".to_owned(),
        hard,
        "folder/secret".to_owned(),
        "/etc/passwd".to_owned(),
        "..".to_owned(),
        ".".to_owned(),
        "result-none.json".to_owned(),
    ] {
        for program in ["cat", "head", "tail", "wc", "grep .", "jq ."] {
            let answer = bench.answer(&format!("{program} '{file}'"));
            assert!(
                answer.status != 0 && !answer.text.contains("secret\"") && !answer.text.contains("root:"),
                "{}",
                answer.text
            );
            assert!(
                answer.text.contains("only result files")
                    || answer.text.contains("failed to read the file")
                    || answer.text.contains("no such file"),
                "{}",
                answer.text
            );
        }
    }
    assert!(bench.text("ls /etc").contains("only result files"));
}

#[test]
fn the_reading_programs_work_like_their_namesakes() {
    let bench = Bench::new(vec![]);
    let lines = "<<'EOF'\none 1\ntwo (2)\nThree|3\nfour\nEOF\n";
    for (command, expected) in [
        ("head -n 2", "one 1\ntwo (2)\n"),
        ("head -1", "one 1\n"),
        ("head -c 3", "one\n"),
        ("head -n -3", "one 1\n"),
        ("tail -n1", "four\n"),
        ("tail -n +3", "Three|3\nfour\n"),
        ("tail -c 5", "four\n"),
        ("cat -n | tail -1", "     4\tfour\n"),
        ("wc", "4 6 27\n"),
        ("wc -l", "4\n"),
        ("grep o", "one 1\ntwo (2)\nfour\n"),
        ("grep -in THREE", "3:Three|3\n"),
        ("grep -c '[0-9]'", "3\n"),
        ("grep -v o", "Three|3\n"),
        ("grep 'e|3'", "Three|3\n"),
        ("grep -E 'one|four'", "one 1\nfour\n"),
        ("grep 'one\\|four'", "one 1\nfour\n"),
        ("grep -F '(2)'", "two (2)\n"),
        ("grep '(2)'", "two (2)\n"),
        ("grep -o '[a-z]* [0-9]'", "one 1\n"),
        ("grep -m 1 -e o", "one 1\n"),
        ("grep -q o && echo yes", "yes\n"),
        ("grep zzz", "exit status: 1\n"),
        ("cat -A", "cat: the option `-A` is not supported; `cat` supports -n\nexit status: 2\n"),
        (
            "tail -f",
            "tail: files cannot be followed here; `agent-magic-tool wait ID` blocks until the result is final\nexit status: 1\n",
        ),
    ] {
        let (first, rest) = command
            .split_once(" |")
            .or_else(|| command.split_once(" &&"))
            .map_or((command, ""), |(first, _)| (first, &command[first.len()..]));
        assert_eq!(
            bench.text(&format!("{first} {}", lines.replacen("<<'EOF'", &format!("<<'EOF' {rest}"), 1))),
            expected,
            "{command}"
        );
    }
    assert_eq!(
        bench.text("jq -rc '.a[]' <<< 1"),
        "[\"jq\",\"-r\",\"-c\",\"--\",\".a[]\"]\n",
        "`jq` runs in its own process"
    );
}

#[test]
fn long_output_is_cut_with_a_note_on_how_to_read_the_rest() {
    let bench = Bench::new(vec![]);
    let (id, path) = bench.result(&json!("年".repeat(40_000)));
    let answer = bench.answer(&format!("cat {path}; agent-magic-tool inspect x 2>&1; cat nothing"));
    assert!(answer.text.len() <= 50_000, "{}", answer.text.len());
    let (shown, rest) = answer.text.split_once("[cut: ").expect("the note about cut output");
    assert!(shown.len() > 49_000 && shown.trim_end().ends_with('年'), "{}", &shown[shown.len() - 30..]);
    assert!(rest.contains(&format!("agent-magic-tool read {id} --jq EXPR")), "{rest}");
    assert!(rest.contains("no such file") && rest.ends_with("exit status: 1\n"), "{rest}");
}
