//! Reading, searching and listing files.

use runner::Runner as _;
use std::fmt::Write as _;
use std::io::Write as _;

use ground::task::failure::SideEffect;
use protocol::code::Code;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::{World, runner, shipped};

fn numbered(lines: std::ops::RangeInclusive<u32>) -> String {
    lines.fold(String::new(), |mut text, number| {
        writeln!(text, "line {number}").expect("writing to a String cannot fail");
        text
    })
}

#[tokio::test]
async fn a_range_of_lines_is_read() {
    let world = World::new();
    world.write("log.txt", numbered(1..=30));
    let data = world.data(&shipped("files", "files_read"), json!({"path": "log.txt", "start": 10, "lines": 3})).await;
    assert_eq!(
        data,
        json!({"path": "log.txt", "start": 10, "lines": 3, "total_lines": 30, "text": numbered(10..=12), "next_start": 13})
    );
    let data = world.data(&shipped("files", "files_read"), json!({"path": "log.txt", "start": 29.0})).await;
    assert_eq!(data, json!({"path": "log.txt", "start": 29, "lines": 2, "total_lines": 30, "text": numbered(29..=30)}));
    let data = world.data(&shipped("files", "files_read"), json!({"path": "log.txt", "start": 31})).await;
    assert_eq!(data, json!({"path": "log.txt", "start": 31, "lines": 0, "total_lines": 30, "text": ""}));
}

#[tokio::test]
async fn at_most_500_lines_are_read() {
    let world = World::new();
    world.write("log.txt", numbered(1..=1201));
    let read = shipped("files", "files_read");
    let data = world.data(&read, json!({"path": "log.txt", "lines": 9999})).await;
    assert_eq!((&data["lines"], &data["total_lines"], &data["next_start"]), (&json!(500), &json!(1201), &json!(501)));
    assert_eq!(data["text"], numbered(1..=500));
    let data = world.data(&read, json!({"path": "log.txt", "start": 1001})).await;
    assert_eq!((&data["lines"], data.get("next_start")), (&json!(201), None));
}

#[tokio::test]
async fn long_lines_are_shortened_and_long_texts_end() {
    let world = World::new();
    let read = shipped("files", "files_read");
    world.write("long.txt", format!("a\n{}ö{}\nlast", "x".repeat(1999), "y".repeat(500)));
    let data = world.data(&read, json!({"path": "long.txt"})).await;
    let expected = format!("a\n{} [… line truncated]\nlast", "x".repeat(1999));
    assert_eq!((data["text"].as_str(), &data["total_lines"]), (Some(expected.as_str()), &json!(3)));
    assert_eq!((&data["truncated_lines"], data.get("next_start")), (&json!(1), None));

    world.write("wide.txt", format!("{}\n", "z".repeat(1500)).repeat(100));
    let data = world.data(&read, json!({"path": "wide.txt"})).await;
    assert_eq!((&data["lines"], &data["total_lines"], &data["next_start"]), (&json!(66), &json!(100), &json!(67)));
}

#[tokio::test]
async fn a_missing_final_line_break_and_a_line_of_exactly_the_limit_change_nothing() {
    let world = World::new();
    let read = shipped("files", "files_read");
    for (text, lines) in [("", 0), ("\n", 1), ("a", 1), ("a\n\nb", 3)] {
        world.write("file", text);
        let data = world.data(&read, json!({"path": "file"})).await;
        assert_eq!((&data["text"], &data["total_lines"], &data["lines"]), (&json!(text), &json!(lines), &json!(lines)));
    }
    for length in [1999, 2000] {
        for end in ["", "\n", "\nb\n"] {
            let text = "x".repeat(length) + end;
            world.write("file", &text);
            assert_eq!(world.data(&read, json!({"path": "file"})).await["text"], text);
        }
    }
    world.write("file", "x".repeat(2001));
    let data = world.data(&read, json!({"path": "file"})).await;
    assert_eq!((data["text"].as_str().map(str::len), &data["total_lines"]), (Some(2022), &json!(1)));
}

#[tokio::test]
async fn a_binary_file_is_refused() {
    let world = World::new();
    world.write("image.png", b"\x89PNG\r\n\x1a\n\0\0\0");
    let failure = world.failure(&shipped("files", "files_read"), json!({"path": "image.png"})).await;
    assert_eq!((failure.error.code, failure.side_effect), (Code::Rejected, SideEffect::None));
    assert_eq!(failure.error.details["bytes"], 11);
}

#[tokio::test]
async fn arguments_of_the_wrong_type_are_refused_by_name() {
    let world = World::new();
    let failure = world.failure(&shipped("files", "files_read"), json!({"path": "x", "lines": "many"})).await;
    assert_eq!(failure.error.code, Code::Rejected);
    assert!(failure.error.message.contains("`lines`"), "{}", failure.error.message);
}

#[tokio::test]
async fn a_search_finds_lines_and_skips_ignored_hidden_and_binary_files() {
    let world = World::new();
    world.write(".gitignore", "ignored/\n");
    world.write("ignored/a.txt", "needle\n");
    world.write(".hidden/a.txt", "needle\n");
    world.write("binary.bin", b"\0needle\n");
    world.write("src/deep/b.rs", "one\n  a needle here\r\nthree\n");
    world.write("src/c.txt", "Needle\nneedle\n");
    let search = shipped("files", "files_search");
    let hit = |path: &str, line: u32, text: &str| json!({"path": path, "line": line, "text": text});
    let (rust, text) = (hit("src/deep/b.rs", 2, "  a needle here"), hit("src/c.txt", 2, "needle"));
    let cases = [
        (json!({"pattern": "needle"}), json!([text, rust])),
        (json!({"pattern": "ne{2}dle\\b", "glob": "*.rs"}), json!([rust])),
        (json!({"pattern": "needle", "glob": "src/*"}), json!([text])),
        (json!({"pattern": "needle", "path": "src", "glob": "**/b.*"}), json!([rust])),
        (json!({"pattern": "needle", "path": "src/c.txt"}), json!([text])),
        (json!({"pattern": "^NEEDLE$", "ignore_case": true}), json!([hit("src/c.txt", 1, "Needle"), text])),
        (json!({"pattern": "nothing"}), json!([])),
    ];
    for (input, expected) in cases {
        let data = world.data(&search, input.clone()).await;
        assert_eq!((&data["matches"], &data["more"]), (&expected, &json!(false)), "{input}");
    }
}

#[tokio::test]
async fn a_search_stops_at_50_hits_and_says_so() {
    let world = World::new();
    world.write("a.txt", numbered(1..=30));
    world.write("b.txt", numbered(1..=30));
    world.write("c.txt", numbered(1..=30));
    let search = shipped("files", "files_search");
    let count = |data: &Value| data["matches"].as_array().map_or(0, Vec::len);
    for (input, hits, more) in [
        (json!({"pattern": "line"}), 50, true),
        (json!({"pattern": "line", "limit": 9999}), 50, true),
        (json!({"pattern": "line", "limit": 7}), 7, true),
        (json!({"pattern": "line .$"}), 27, false),
    ] {
        let data = world.data(&search, input).await;
        assert_eq!((count(&data), &data["more"]), (hits, &json!(more)));
    }
    let data = world.data(&search, json!({"pattern": "line"})).await;
    assert_eq!(data["files_searched"], 2, "the third file should not be searched");
    // What is beyond the limit is on the next page.
    for (page, hits, first, more) in [(2, 40, json!(["b.txt", 21]), false), (3, 0, json!([null, null]), false)] {
        let data = world.data(&search, json!({"pattern": "line", "page": page})).await;
        assert_eq!((count(&data), &data["more"]), (hits, &json!(more)), "page {page}");
        assert_eq!(json!([data["matches"][0]["path"], data["matches"][0]["line"]]), first, "page {page}");
    }
}

#[tokio::test]
async fn a_search_counts_what_it_does_not_return() {
    let world = World::new();
    world.write("a.txt", numbered(1..=30));
    world.write("b.txt", numbered(1..=400));
    world.write("c.txt", "nothing\n");
    let search = shipped("files", "files_search");
    let data = world.data(&search, json!({"pattern": "line", "count": true})).await;
    let most = json!([{"path": "b.txt", "lines": 400}, {"path": "a.txt", "lines": 30}]);
    assert_eq!(data, json!({"lines": 430, "files": 2, "most": most, "files_searched": 3, "more": false}));
    let data = world.data(&search, json!({"pattern": "line", "count": true, "limit": 1})).await;
    assert_eq!((&data["lines"], &data["files"], &data["more"]), (&json!(430), &json!(2), &json!(true)));
    assert_eq!(data["most"], json!([{"path": "b.txt", "lines": 400}]));
}

#[tokio::test]
async fn a_hit_in_a_long_line_is_shown_with_its_surroundings() {
    let world = World::new();
    world.write("minified.js", format!("{}needle{}", "ä".repeat(5000), "b".repeat(5000)));
    let data = world.data(&shipped("files", "files_search"), json!({"pattern": "needle"})).await;
    let text = data["matches"][0]["text"].as_str().unwrap_or_default().to_owned();
    assert!(text.contains("needle") && text.starts_with('…') && text.ends_with('…') && text.len() < 320, "{text}");
}

#[tokio::test]
async fn an_invalid_pattern_or_glob_is_refused() {
    let world = World::new();
    for input in [json!({"pattern": "(a"}), json!({"pattern": "(?=a)"}), json!({"pattern": "a", "glob": "{a"})] {
        let failure = world.failure(&shipped("files", "files_search"), input).await;
        assert_eq!((failure.error.code, failure.side_effect), (Code::Rejected, SideEffect::None));
    }
}

#[tokio::test]
async fn a_pattern_with_catastrophic_backtracking_is_harmless() {
    let world = World::new();
    world.write("a.txt", "a".repeat(20_000));
    let data = world.data(&shipped("files", "files_search"), json!({"pattern": "^(a+)+$|(a|aa)+b"})).await;
    assert_eq!(data["matches"].as_array().map(Vec::len), Some(1));
    let failure = world.failure(&shipped("files", "files_search"), json!({"pattern": "(a{1000}){1000}"})).await;
    assert_eq!(failure.error.code, Code::Rejected);
}

#[tokio::test]
async fn a_search_can_be_cancelled() {
    let world = World::new();
    // A sparse file of 4 GiB takes no space, but reading it takes longer than the cancellation.
    let file = std::fs::File::create(world.home().join("sparse")).expect("a file");
    (&file).write_all(&b"text\n".repeat(20_000)).expect("written");
    file.set_len(4 << 30).expect("a long file");
    let cancel = CancellationToken::new();
    let read = shipped("files", "files_read");
    let canceller = async {
        tokio::task::yield_now().await;
        cancel.cancel();
    };
    let (outcome, ()) =
        tokio::join!(world.perform_until(&read, json!({"path": "sparse", "start": 30_000}), &cancel), canceller);
    let failure = outcome.expect_err("it was cancelled");
    assert_eq!((failure.error.code, failure.side_effect), (Code::Cancelled, SideEffect::None));
}

#[tokio::test]
async fn a_folder_is_listed_with_types_and_sizes() {
    let world = World::new();
    world.write("b.txt", "12345");
    world.write(".hidden", "");
    world.write("a/deep/c.txt", "1");
    world.write("a/ignored.log", "1");
    world.write(".gitignore", "*.log");
    let list = shipped("files", "files_list");
    let file = |path: &str, bytes: u32| json!({"path": path, "type": "file", "bytes": bytes});
    let folder = |path: &str| json!({"path": path, "type": "folder"});
    let cases = [
        (json!({}), ".", json!([file(".gitignore", 5), file(".hidden", 0), folder("a"), file("b.txt", 5)])),
        (json!({"glob": "*.{txt,md}"}), ".", json!([file("b.txt", 5)])),
        (json!({"glob": "**/*.txt"}), ".", json!([file("a/deep/c.txt", 1), file("b.txt", 5)])),
        (json!({"path": "a"}), "a", json!([folder("deep"), file("ignored.log", 1)])),
        (json!({"path": "a", "glob": "**"}), "a", json!([folder("deep"), file("deep/c.txt", 1)])),
    ];
    for (input, path, entries) in cases {
        let data = world.data(&list, input.clone()).await;
        assert_eq!(data, json!({"path": path, "entries": entries, "more": false}), "{input}");
    }
    assert_eq!(world.failure(&list, json!({"path": "b.txt"})).await.error.code, Code::Rejected);
}

#[tokio::test]
async fn at_most_200_entries_are_listed() {
    let world = World::new();
    for number in 0..201 {
        world.write(&format!("{number:03}"), "");
    }
    let data = world.data(&shipped("files", "files_list"), json!({"limit": 9999})).await;
    assert_eq!((data["entries"].as_array().map(Vec::len), &data["more"]), (Some(200), &json!(true)));
}

#[test]
fn the_plan_shows_the_filled_arguments() {
    let world = World::new();
    let run = runner(&shipped("files", "files_search"));
    let plan = run.plan(&world.invocation(json!({"pattern": "x", "limit": 3})), &world.context.config).expect("a plan");
    assert_eq!(plan, json!({"search_files": {"pattern": "x", "limit": 3}}));
}
