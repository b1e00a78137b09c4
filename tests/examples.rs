//! The set-ups in `examples/`: each is installed as its README says, and does what its README says.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::thread;

use serde_json::json;

use crate::page::human::Human;
use crate::world::{PROGRAM, World, until};

/// A file of an example.
fn file(example: &str, name: &str) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the member lies in the workspace");
    root.join("examples").join(example).join(name)
}

fn text(example: &str, name: &str) -> String {
    fs::read_to_string(file(example, name)).expect("a file of the example")
}

/// A world with the configuration and the definitions of an example; `ours` stands where its configuration has `theirs`.
fn world(example: &str, theirs: &str, ours: &str) -> World {
    let world = World::new();
    let config = text(example, "config.toml");
    assert!(config.contains(theirs), "{config}");
    world.configure(&config.replace(theirs, ours));
    for definitions in fs::read_dir(file(example, "subtools")).expect("its definitions") {
        let path = definitions.expect("an entry").path();
        fs::copy(&path, world.subtools().join(path.file_name().expect("a name"))).expect("copied");
    }
    world
}

/// Nothing is wrong with the definitions, and nothing could be better.
fn assert_is_clean(world: &World) {
    let lint = world.run(&["lint"]);
    assert_eq!((lint.exit, lint.json()), (0, json!([])), "{lint}");
}

/// A server that tells the weather to callers with this key; returns its host and port.
fn weather_server(key: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let host = listener.local_addr().expect("an address").to_string();
    // The thread ends with the test program.
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let lines = BufReader::new(&stream).lines().map_while(Result::ok);
            let head: Vec<_> = lines.take_while(|line| !line.is_empty()).collect();
            let has_key = head.iter().any(|line| line.eq_ignore_ascii_case(&format!("x-api-key: {key}")));
            let (status, body) = match head.first().map(String::as_str) {
                Some("GET /v1/weather/Lisbon HTTP/1.1") if has_key => {
                    ("200 OK", json!({"place": "Lisbon", "current": {"temperature": 21, "wind": 14, "rain": 0}}))
                }
                Some(_) if has_key => ("404 Not Found", json!({"error": "no such place"})),
                _ => ("401 Unauthorized", json!({"error": "no such key"})),
            };
            let head = format!("HTTP/1.1 {status}\r\ncontent-type: application/json\r\nconnection: close\r\n\r\n");
            drop(stream.write_all(format!("{head}{body}").as_bytes()));
        }
    });
    host
}

#[test]
fn the_http_api_is_asked_with_a_key_that_the_agent_never_sees() {
    let key = "key-of-the-weather-service";
    let host = weather_server(key);
    let world = world("http-api", "https://api.example.com", &format!("http://{host}"));
    let before = world.run(&["run", "weather_now", "place=Lisbon", "--wait"]);
    assert_eq!((before.exit, &before.json()["error"]["code"]), (1, &json!("secret-missing")), "{before}");
    assert_eq!(world.run_with(&["secret", "set", "weather", "--host", &host], key).exit, 0);
    assert_is_clean(&world);
    let planned = world.run(&["run", "weather_now", "place=Lisbon", "--dry-run"]);
    assert!(planned.exit == 0 && planned.stdout.contains("secret:weather"), "{planned}");
    let ran = world.run(&["run", "weather_now", "place=Lisbon", "--wait"]);
    assert_eq!(ran.json()["data"], json!({"temperature": 21, "wind": 14, "rain": 0}), "{ran}");
    assert!(!planned.stdout.contains(key) && !ran.stdout.contains(key), "{planned}{ran}");
    let elsewhere = world.run(&["run", "weather_now", "place=Atlantis", "--wait"]);
    assert_eq!((elsewhere.exit, &elsewhere.json()["error"]["code"]), (1, &json!("api-error")), "{elsewhere}");
}

#[test]
fn the_database_is_read_freely_and_changed_after_a_human_saw_the_rows() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("notes.db");
    let database = rusqlite::Connection::open(&path).expect("it opens");
    database.execute_batch(&text("sqlite", "notes.sql")).expect("the table");
    let world = world("sqlite", "/home/me/notes.db", path.to_str().expect("a plain path"));
    assert_is_clean(&world);
    let query = "SELECT topic, count(*) AS notes FROM note GROUP BY topic ORDER BY topic";
    let answer = world.result_of("notes_query", &json!({"query": query}));
    assert_eq!(answer["data"]["data"], json!([{"topic": "garden", "notes": 2}, {"topic": "house", "notes": 1}]));
    let done = || -> i64 {
        let count = "SELECT count(*) FROM note WHERE is_done";
        database.query_row(count, [], |row| row.get(0)).expect("a row")
    };
    let mut change = json!({"statement": "UPDATE note SET is_done = 1 WHERE topic = 'garden'"});
    let tried = world.result_of("notes_change", &change);
    assert_eq!((&tried["status"], done()), (&json!("succeeded"), 0), "{tried:#}");
    change["dry_run"] = false.into();
    let id = world.start("notes_change", &change);
    let human = Human::of(&world);
    until("the card shows the rows", || human.card(&id).contains("Water the tomatoes."));
    assert_eq!(done(), 0);
    world.decide(&id, "approve", "notes_change");
    assert_eq!((&world.end_of(&id)["status"], done()), (&json!("succeeded"), 2));
}

#[test]
fn the_program_pays_what_the_human_typed_and_nothing_above_the_limit() {
    let world = world("own-program", "input.amount > 1000", "input.amount > 1000");
    let program = world.home().join("bin/pay-invoice");
    fs::create_dir_all(program.parent().expect("a folder")).expect("made");
    fs::copy(file("own-program", "pay-invoice"), &program).expect("copied");
    assert_is_clean(&world);
    let payments = || fs::read_to_string(world.home().join("payments.csv")).unwrap_or_default();
    let pay = |amount: &str| {
        let amount = format!("amount:={amount}");
        world.run(&["run", "invoice_pay", "invoice=R-17", &amount, "currency=EUR", "--reason=the plumber's bill"])
    };
    let refused = pay("1500");
    assert_eq!((refused.exit, &refused.error()["code"]), (5, &json!("refused-by-policy")), "{refused}");
    assert!(refused.stderr.contains("more than 1,000 is paid at the bank"), "{refused}");
    let id = pay("250").json()["id"].as_str().expect("an id").to_owned();
    let human = Human::of(&world);
    let mut wrong = json!({"decisions": [human.pending_task(&id)], "verdict": "approve", "typed": "25 EUR"});
    let answer = human.post("/decide", &wrong);
    assert!(answer.body.contains("wants-word") && payments().is_empty(), "{}", answer.body);
    wrong["typed"] = "250 EUR".into();
    assert_eq!(human.post("/decide", &wrong).status, 200);
    assert_eq!(world.end_of(&id)["data"], json!({"invoice": "R-17", "paid": 250, "currency": "EUR"}));
    assert_eq!(payments(), "R-17;250;EUR\n");
}

#[test]
fn the_loop_in_shell_runs_a_subtool_waits_and_reads() {
    let world = world("shell-agent", "[\".\"]", "[\".\"]");
    assert_is_clean(&world);
    fs::write(world.folder().join("letter.txt"), "Dear reader, this is a letter.\n").expect("written");
    let folder = Path::new(PROGRAM).parent().expect("a folder");
    let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap_or_default());
    let agent = file("shell-agent", "agent.sh");
    let mut command = world.within(&agent, &["How long is the letter?"]);
    let output = command.env("PATH", path).env("MODEL", file("shell-agent", "model.sh")).output().expect("it starts");
    let answered = world.transcript(&output);
    assert_eq!((answered.exit, answered.stdout.as_str()), (0, "The letter has 6 words.\n"), "{answered}");
    let tasks = world.run(&["tasks"]).json();
    assert_eq!((&tasks[0]["tool"], tasks.as_array().map(Vec::len)), (&json!("text_count"), Some(1)), "{tasks}");
}

/// A folder without its row, or without a README, is an example that is not found.
#[test]
fn every_example_is_in_the_list_of_examples() {
    let list = text("", "README.md");
    let mut listed = 0;
    for entry in fs::read_dir(file("", "")).expect("the examples") {
        let folder = entry.expect("an entry").path();
        let name = folder.file_name().and_then(|name| name.to_str()).expect("a name");
        if folder.is_dir() {
            assert!(folder.join("README.md").is_file() && list.contains(&format!("({name}/README.md)")), "{name}");
            listed += 1;
        }
    }
    assert_eq!(listed, 4, "each has a test above");
}
