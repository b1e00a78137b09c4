//! `read`: parts of large data, read directly from its file.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;

use serde_json::{Value, json};

use crate::world::{PROGRAM, Transcript, World};

/// The memory that commands that read a part may write to; less than a quarter of the data's size.
const MEMORY_KB: u32 = 40_000;

struct Large {
    world: World,
    id: String,
    data_file: PathBuf,
}

impl Large {
    /// Runs a task that returns `data`.
    fn of(data: &Value) -> Self {
        let large = Self::of_inline(data);
        assert!(large.data_file.is_absolute(), "the data is in a file of its own");
        large
    }

    /// The same, whether or not the data is large; without a data file its path is empty.
    fn of_inline(data: &Value) -> Self {
        let world = World::new();
        fs::write(world.folder().join("data.json"), data.to_string()).expect("written");
        world.define(
            "some.json",
            &json!({"data": {"description": "Gives what lies in a file.", "input": {}, "annotations": {"readOnlyHint": true},
                "run": {"process": {"argv": ["cat", "data.json"], "output": "json", "max_bytes": 10_000_000}}}}),
        );
        let result = world.result_of("data", &json!({}));
        let id = result["id"].as_str().expect("an id").to_owned();
        let data_file = result["_meta"]["data_file"].as_str().unwrap_or_default().into();
        Self { world, id, data_file }
    }

    fn read(&self, part: &[&str]) -> Transcript {
        self.world.run(&[&["read", self.id.as_str()], part].concat())
    }

    /// Runs a command that was printed as a suggestion.
    fn follow(&self, command: &Value) -> Transcript {
        let command = command.as_str().expect("a command").replace("agent-magic-tool", PROGRAM);
        self.world.transcript(&self.world.within("sh", &["-c", &command]).output().expect("sh"))
    }

    /// Reads a part in a process whose memory is limited to [`MEMORY_KB`].
    fn read_with_limited_memory(&self, part: &str) -> Transcript {
        let script = format!("ulimit -d {MEMORY_KB}; exec {PROGRAM} read {} {part}", self.id);
        self.world.transcript(&self.world.within("sh", &["-c", &script]).output().expect("sh"))
    }
}

fn records(count: usize) -> Vec<Value> {
    (0..count).map(|n| json!({"id": n, "name": format!("record {n}"), "tags": ["a", "b"]})).collect()
}

#[test]
fn a_page_of_a_list_names_the_command_for_the_next_page() {
    let large = Large::of(&json!(records(5_000)));
    let first = large.read(&["--page", "1"]).json();
    assert_eq!((&first["page"], &first["pages"], &first["of"]), (&json!(1), &json!(50), &json!(5_000)));
    assert_eq!(first["items"], json!(records(100)));
    let second = large.follow(&first["next"]).json();
    assert_eq!((&second["page"], &second["items"][0]["id"]), (&json!(2), &json!(100)));
    let last = large.read(&["--page", "3", "--page-size", "2000", "--whole"]).json();
    assert_eq!((last["items"].as_array().map(Vec::len), last.get("next")), (Some(1_000), None));
    let filtered = large.read(&["--jq", "map(select(.id % 2 == 1)) | .[].id", "--page=1", "--page-size=2"]).json();
    assert_eq!((&filtered["items"], &filtered["of"]), (&json!([1, 3]), &json!(2_500)));
    assert_eq!(large.follow(&filtered["next"]).json()["items"], json!([5, 7]));
    let beyond = large.read(&["--page", "51"]);
    assert_eq!((beyond.exit, beyond.error()["code"].as_str()), (2, Some("usage")), "{beyond}");
    assert_eq!(large.read(&["--page-size", "2"]).exit, 2);
    assert_eq!(large.read(&["--page", "0"]).exit, 2);
}

#[test]
fn the_result_describes_the_datas_shape_and_how_to_read_it() {
    let large = Large::of(&json!({"next": null, "items": records(5_000)}));
    let meta = large.world.result_file(&large.id)["_meta"].clone();
    let record = json!({"id": "number", "name": "string", "tags": {"array": 2, "of": "string"}});
    assert_eq!(meta["shape"], json!({"next": "null", "items": {"array": 5_000, "of": record}}));
    assert_eq!(meta["query"], json!({"tool": "data", "input": {}}));
    let read = meta["read"].as_array().expect("commands");
    for command in read {
        let ran = large.follow(command);
        assert_eq!(ran.exit, 0, "{command}: {ran}");
    }
    assert_eq!(large.follow(&read[0]).json()["items"][99]["id"], 99);
    let not_a_list = large.read(&["--page", "1"]).error();
    assert_eq!(not_a_list["message"], "the data is not a list but an object with `next`, `items`");
    let hint = not_a_list["hint"].as_str().and_then(|hint| hint.strip_prefix("the list in it: ")).expect("a command");
    assert_eq!(large.follow(&json!(hint)).json()["items"][0]["id"], 0);
    assert_eq!(
        large.read(&["--jq", ".items | length"]).json(),
        5_000,
        "the limit on the keys of an input does not apply to data"
    );
}

#[test]
fn data_that_fits_in_the_file_but_not_in_a_glance_is_previewed() {
    let large = Large::of_inline(&json!({"rows": records(400)}));
    let file = large.world.result_file(&large.id);
    assert!(file["data"]["rows"].is_array(), "the file has all of it");
    assert_eq!(large.read(&["--bytes", "0-9"]).json()["of"], file["_meta"]["bytes"], "counted in one way");
    for arguments in [["read", &large.id], ["wait", &large.id]] {
        let printed = large.world.run(&arguments);
        let answer = printed.json();
        assert!(printed.stdout.len() < 4_000 && answer.get("data").is_none(), "{printed}");
        assert!(answer["preview"].as_str().is_some_and(|text| text.starts_with("{\n  \"rows\": [")), "{printed}");
        assert_eq!(answer["shape"], file["_meta"]["shape"]);
        let first = large.follow(&answer["read"][0]);
        assert_eq!(first.json()["items"][99]["id"], 99, "{first}");
    }
    let hint = large.read(&["--page", "1"]).error()["hint"].clone();
    assert_eq!(hint, format!("the list in it: agent-magic-tool read {} --jq '.rows' --page 1", large.id));
    let little = Large::of_inline(&json!({"rows": [1, 2], "my list": [1, 2, 3]}));
    assert_eq!(little.world.run(&["read", &little.id]).json()["data"]["rows"], json!([1, 2]));
    let hint = little.read(&["--page", "1"]).error()["hint"].clone();
    let command = hint.as_str().and_then(|hint| hint.strip_prefix("the list in it: ")).expect("a command");
    assert_eq!(little.follow(&json!(command)).json()["items"], json!([1, 2, 3]), "{command}");
}

#[test]
fn each_line_is_a_record_and_byte_ranges_join_up() {
    let large = Large::of(&json!(records(5_000)));
    let lines = large.read(&["--lines", "2-3"]).json();
    let text = "  {\"id\":0,\"name\":\"record 0\",\"tags\":[\"a\",\"b\"]},\n  {\"id\":1,\"name\":\"record 1\",\"tags\":[\"a\",\"b\"]},";
    assert_eq!((&lines["text"], &lines["lines"], &lines["of"]), (&json!(text), &json!([2, 3]), &json!(5_002)));
    let whole = fs::read_to_string(&large.data_file).expect("readable");
    let (first, rest) = (large.read(&["--bytes", "0-99"]).json(), large.read(&["--bytes", "100-", "--whole"]).json());
    assert_eq!(format!("{}{}", first["text"].as_str().expect("text"), rest["text"].as_str().expect("text")), whole);
    let beyond = large.read(&["--bytes", "9999999-"]);
    assert_eq!((beyond.exit, beyond.error()["code"].as_str()), (2, Some("usage")), "{beyond}");
}

#[test]
fn a_part_of_200_megabytes_is_read_with_little_memory() {
    let large = Large::of(&json!(records(5_000)));
    let line = format!("  {},\n", json!({"text": "年".repeat(100)}));
    let chunk = line.repeat(1_000_000 / line.len());
    fs::remove_file(&large.data_file).expect("removed");
    let mut file =
        fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&large.data_file).expect("made");
    file.write_all(b"[\n").expect("written");
    let chunks = 200_000_000 / chunk.len();
    for _ in 0..chunks {
        file.write_all(chunk.as_bytes()).expect("written");
    }
    file.write_all(b"  0\n]").expect("written");
    let size = file.metadata().expect("there").len();
    let result = large.data_file.with_extension("").with_extension("json");
    let written: Value = serde_json::from_slice(&fs::read(&result).expect("a result")).expect("JSON");
    let bytes = |size: u64| format!("\"bytes\": {size}");
    let text = fs::read_to_string(&result).expect("a result");
    let former = bytes(written["_meta"]["bytes"].as_u64().expect("a size"));
    fs::write(&result, text.replace(&former, &bytes(size))).expect("written");
    assert!(size > u64::from(MEMORY_KB) * 4_096, "the data must be far larger than the memory limit");
    let lines = chunks * (chunk.len() / line.len()) + 3;

    let bytes = large.read_with_limited_memory(&format!("--bytes {}-", size - 6));
    assert_eq!((bytes.exit, &bytes.json()["text"]), (0, &json!(",\n  0\n]"[1..])), "{}", bytes.stderr);
    let middle = large.read_with_limited_memory(&format!("--lines {}-{}", lines / 2, lines / 2 + 1));
    let expected = format!("{line}{}", line.trim_end_matches('\n'));
    assert_eq!((&middle.json()["text"], &middle.json()["of"]), (&json!(expected), &json!(lines)), "{}", middle.stderr);
    let page = large.read_with_limited_memory(&format!("--page {}", lines / 200)).json();
    assert_eq!((&page["of"], page["items"].as_array().map(Vec::len)), (&json!(lines - 2), Some(100)));
    let most = large.read_with_limited_memory("--bytes 0- --whole").json();
    assert!(most["text"].as_str().is_some_and(|text| text.len() > 999_990), "a part has a maximum size");
    let most = large.read_with_limited_memory("--bytes 0-").json();
    assert!(
        most["text"].as_str().is_some_and(|text| (30_000..33_000).contains(&text.len())),
        "and so has one for a model"
    );
    assert!(large.follow(&most["next"]).json()["text"].is_string());
    let refused = large.read_with_limited_memory("--jq length");
    assert_eq!((refused.exit, refused.error()["code"].as_str()), (1, Some("response-too-large")), "{refused}");
}

#[test]
fn text_data_is_read_by_its_own_lines() {
    let world = World::new();
    world.define(
        "log.json",
        &json!({"log": {"description": "A long text.", "input": {}, "annotations": {"readOnlyHint": true},
        "run": {"process": {"argv": ["seq", "1", "40000"]}}}}),
    );
    let result = world.result_of("log", &json!({}));
    let id = result["id"].as_str().expect("an id");
    assert!(result["_meta"]["data_file"].as_str().is_some_and(|path| path.contains(".data.txt")), "{result}");
    let read = |part: &[&str]| world.run(&[&["read", id], part].concat());
    assert_eq!(read(&["--lines", "7-8"]).json()["text"], "7\n8");
    assert_eq!(read(&["--jq", "split(\"\\n\") | length"]).json(), 40_000);
    assert_eq!(read(&["--page", "1"]).exit, 2);
}

#[test]
fn a_single_long_line_is_read_in_bounded_parts() {
    let world = World::new();
    world.define(
        "line.json",
        &json!({"line": {"description": "A long line.", "input": {}, "annotations": {"readOnlyHint": true},
            "run": {"process": {"argv": ["sh", "-c", "seq 1 20000 | tr '\\n' ' '"]}}}}),
    );
    let result = world.result_of("line", &json!({}));
    let id = result["id"].as_str().expect("an id");
    let suggested = result["_meta"]["read"].to_string();
    assert!(suggested.contains("--bytes") && !suggested.contains("--lines"), "{suggested}");
    let first = world.run(&["read", id, "--lines", "1-100"]);
    assert!(first.stdout.len() < 40_000, "{} bytes", first.stdout.len());
    let next = first.json()["next"].as_str().expect("a command").to_owned();
    assert!(next.ends_with("--bytes 32768-42767"), "{next}");
    let bytes = world.run(&["read", id, "--bytes", "0-9"]);
    assert_eq!(bytes.json()["of"], result["_meta"]["bytes"], "{bytes}");
}

#[test]
fn data_that_is_not_the_tasks_own_is_refused() {
    let large = Large::of(&json!(records(5_000)));
    let secret = large.world.folder().join("secret.json");
    fs::write(&secret, "[\"secret\"]").expect("written");
    fs::remove_file(&large.data_file).expect("removed");
    let gone = large.read(&["--lines", "1-1"]);
    assert_eq!((gone.exit, gone.error()["code"].as_str()), (3, Some("not-found")), "{gone}");
    std::os::unix::fs::symlink(&secret, &large.data_file).expect("linked");
    for part in [["--bytes", "0-9"], ["--lines", "1-1"], ["--page", "1"], ["--jq", "."]] {
        let ran = large.read(&part);
        assert_ne!((ran.exit, ran.stdout.contains("secret")), (0, true), "{ran}");
    }
    // A forged result file cannot make `read` open another file.
    let path = large.world.mailbox().join(format!("results/result-{}.json", large.id));
    let forged = fs::read_to_string(&path)
        .expect("readable")
        .replace(&large.data_file.display().to_string(), &secret.display().to_string());
    fs::write(&path, forged).expect("written");
    let ran = large.read(&["--jq", "."]);
    assert_eq!((ran.exit, ran.stdout.as_str()), (3, ""), "{ran}");
}

#[test]
fn too_much_data_fails_and_what_may_have_taken_effect_is_unknown() {
    let world = World::new();
    world.configure("[executor]\noutput_bytes = 1000\n[confirm]\nwrites = \"allow\"\n");
    let numbers = |hint: bool| {
        json!({"description": "Counts.", "input": {}, "annotations": {"readOnlyHint": hint},
            "run": {"process": {"argv": ["seq", "1", "1000"], "output": "lines"}}})
    };
    world.define("numbers.json", &json!({"look": numbers(true), "change": numbers(false)}));
    let looked = world.result_of("look", &json!({}));
    assert_eq!((&looked["status"], &looked["error"]["code"]), (&json!("failed"), &json!("response-too-large")));
    let changed = world.result_of("change", &json!({}));
    let error = &changed["error"];
    assert_eq!((&changed["status"], &error["code"]), (&json!("unknown"), &json!("unknown-outcome")));
    assert_eq!(error["details"]["cause"], "response-too-large");
}
