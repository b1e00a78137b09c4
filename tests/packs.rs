//! The packs that ship but are off until they are configured, each against a far side that checks what it is asked.
//!
//! `packs/NAME.jsonl` has what people say who want their subtools.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use crate::database_server::{self, DatabaseServer};
use crate::page::human::Human;
use crate::skip::skip;
use crate::world::{World, until};

mod google;
mod magento;
mod magento_db;
mod parts;
mod search;
mod shopware;
mod typo3;

/// The least share of the requests of a pack that finds the right subtool first.
const MIN_FIRST: &str = "85";

/// A server of `tests/packs/`, which ends with the value.
struct FarSide {
    base: String,
    process: Child,
}

impl FarSide {
    /// Starts `tests/packs/SCRIPT`; reports that a test is skipped if what it needs is not installed.
    fn start(script: &str, needs: &[&str]) -> Option<Self> {
        for name in needs {
            if std::env::var_os(name).is_none() {
                skip(&format!("{name} is not set; `tests/run` installs what it names"));
                return None;
            }
        }
        let path =
            Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace").join("tests/packs").join(script);
        let mut process =
            Command::new("node").arg(path).stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("node starts");
        let mut lines = BufReader::new(process.stdout.take().expect("a pipe")).lines();
        let port = lines.next().expect("the server prints its port").expect("a line");
        // What it prints later has to go somewhere.
        std::thread::spawn(move || lines.for_each(drop));
        Some(Self { base: format!("http://127.0.0.1:{port}"), process })
    }

    async fn get(&self, path: &str) -> Value {
        drop(rustls::crypto::ring::default_provider().install_default());
        let client = reqwest::Client::builder().no_proxy().build().expect("a client");
        let response = client.get(format!("{}{path}", self.base)).send().await.expect("an answer");
        serde_json::from_str(&response.text().await.expect("a text")).expect("JSON")
    }

    /// Every request that did not fit the description of the API.
    async fn assert_no_problems(&self) {
        assert_eq!(self.get("/__problems").await, json!([]));
    }

    /// The requests so far whose path contains `part`.
    async fn requests(&self, part: &str) -> Vec<Value> {
        let requests = self.get("/__requests").await;
        let requests = requests.as_array().expect("requests").iter();
        requests.filter(|it| it["path"].as_str().is_some_and(|path| path.contains(part))).cloned().collect()
    }
}

impl Drop for FarSide {
    fn drop(&mut self) {
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

/// A database with tables of its own, and what the configuration says of it.
struct TestDatabase {
    config: String,
    /// Runs as long as this value.
    server: Option<DatabaseServer>,
}

impl TestDatabase {
    /// Makes one, `mariadb` or `sqlite`, with these tables, which the configuration of `world` is to call `name`;
    /// reports that a test is skipped if this machine lacks the server.
    fn new(world: &World, name: &str, kind: &str, tables: &str) -> Option<Self> {
        if kind == "sqlite" {
            let file = world.folder().join(format!("{name}.db"));
            rusqlite::Connection::open(&file).expect("it opens").execute_batch(tables).expect("the tables");
            let config = format!("[databases.{name}]\nurl = \"sqlite://{}\"\n", file.display());
            return Some(Self { config, server: None });
        }
        let Some(server) = database_server::start(kind) else {
            skip(&format!("{kind}: run `tests/run`, which installs it"));
            return None;
        };
        let config = format!("[databases.{name}]\nurl = \"{}\"\npassword = \"secret:{name}-db\"\n", server.text("url"));
        assert_eq!(world.run_with(&["secret", "set", &format!("{name}-db")], server.text("password")).exit, 0);
        let database = Self { config, server: Some(server) };
        database.run(tables);
        Some(database)
    }

    /// Runs statements with MariaDB's own client.
    fn run(&self, statements: &str) {
        let server = self.server.as_ref().expect("a server");
        let port = server.text("url").rsplit(':').next().and_then(|rest| rest.split('/').next()).expect("a port");
        let mut client = Command::new("mariadb")
            .args([
                "--no-defaults",
                "--default-character-set=utf8mb4",
                "-h",
                "127.0.0.1",
                "-P",
                port,
                "-u",
                "shop",
                "shop",
            ])
            .env("MYSQL_PWD", server.text("password"))
            .stdin(Stdio::piped())
            .spawn()
            .expect("the client starts");
        client.stdin.take().expect("its input").write_all(statements.as_bytes()).expect("they are written");
        assert!(client.wait().expect("it ends").success(), "the statements run");
    }
}

/// A world with one more pack, and this configuration.
fn world(pack: &str, config: &str) -> World {
    let world = World::new();
    configure(&world, pack, config);
    world
}

fn configure(world: &World, pack: &str, config: &str) {
    world.configure(&format!(
        "{config}\n[catalog]\npacks = [\"files\", \"git\", \"github\", \"gmail\", \"human\", \"web\", \"{pack}\"]\n"
    ));
}

/// The data of a call that succeeds.
#[track_caller]
fn data(world: &World, tool: &str, input: &Value) -> Value {
    let result = world.result_of(tool, input);
    assert_eq!(result["status"], "succeeded", "{result:#}");
    result["data"].clone()
}

/// The error of a call that fails.
#[track_caller]
fn error(world: &World, tool: &str, input: &Value) -> Value {
    let result = world.result_of(tool, input);
    assert_eq!(result["status"], "failed", "{result:#}");
    result["error"].clone()
}

/// Runs a call that a human must approve, who types `typed` after the card `shows` this, and returns its data.
#[track_caller]
fn approved(world: &World, tool: &str, input: &Value, shows: &[&str], typed: &str) -> Value {
    let id = world.start(tool, input);
    let human = Human::of(world);
    until(&format!("the card of {tool} shows {shows:?}"), || {
        let card = human.card(&id);
        shows.iter().all(|text| card.contains(text))
    });
    world.decide(&id, "approve", typed);
    let result = world.end_of(&id);
    assert_eq!(result["status"], "succeeded", "{result:#}");
    result["data"].clone()
}

/// Requests of people find the right subtool of `pack` among those of the packs that are on by default.
fn assert_found(pack: &str, config: &str) {
    let world = world(pack, config);
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace").join("tests/packs");
    let file = file.join(format!("{pack}.jsonl")).display().to_string();
    let ran = world.run(&["lint", "--eval", &file, &format!("--min={MIN_FIRST}")]);
    assert_eq!(ran.exit, 0, "{ran}");
    assert!(ran.json()["requests"].as_u64() >= Some(25), "{ran}");
    assert!(!ran.stderr.contains("no subtool is named so"), "{ran}");
}

/// Without its variables nothing of `pack` is loaded, and the reason says what to set.
fn assert_says_what_to_set(pack: &str, variables: &[&str]) {
    let world = world(pack, "");
    let ran = world.run(&["lint"]);
    let problems = ran.json();
    assert_eq!(ran.exit, 2, "{ran}");
    for variable in variables {
        let wanted = format!("the variable `{variable}`");
        let said = problems.as_array().expect("findings").iter().filter(|finding| {
            finding["message"].as_str().is_some_and(|it| it.contains(&wanted) && it.contains("[vars] in config.toml"))
        });
        assert_eq!(said.count(), 1, "{variable} is said once for the pack: {ran}");
    }
    let databases = problems.as_array().expect("findings").iter().filter(|it| it["code"] == "missing-database");
    assert_eq!(databases.count(), usize::from(pack == "typo3"), "{ran}");
    assert!(!ran.stdout.contains("example-fails"), "a missing database is said once: {ran}");
}
