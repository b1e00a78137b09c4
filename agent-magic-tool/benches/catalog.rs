//! Measures the listing at several sizes of the catalog: building it, its file, and a cold query, beside SQLite's FTS5.
//!
//! FTS5 is asked within this process: opening its file and one query, which is what a program that used it would add to
//! its own start. Ours is a whole process.

use std::fs;
use std::time::Instant;

use rusqlite::{Connection, params};
use serde_json::Value;

use crate::measure::{self, in_turns, milliseconds, peak_memory};
use crate::plot::{Line, Plot};
use crate::table::{Table, Verdict};
use crate::world::World;
use crate::{Effort, agent, generated};

/// Subtools, and the targets of a query in milliseconds and MiB, and of building the listing in seconds.
const SIZES: [(usize, f64, f64, f64); 4] =
    [(100, 4.0, 16.0, 5.0), (1_000, 5.0, 16.0, 5.0), (generated::MANY, 5.0, 16.0, 5.0), (50_000, 8.0, 16.0, 20.0)];
const QUERY: &str = "search mail message";

pub(crate) fn list(effort: Effort, table: &mut Table) {
    let mut lines = ["list --query", "full program", "FTS5 within a process", "a bare process"]
        .map(|name| Line { name, points: Vec::new() });
    for (subtools, max_ms, max_mib, max_s) in SIZES {
        let world = generated::world(subtools);
        let full = || world.command(&["list", "tools", "--query", QUERY]);
        let command = || agent::command(&world, &["list", "tools", "--query", QUERY]);
        let started = Instant::now();
        let found = measure::output(&mut full());
        assert!(found.len() > 100, "the query finds something");
        let built = started.elapsed();
        let file = world.home().join(".cache/agent-magic-tool/listing.index");
        let mib = |bytes: u64| f64::from(u32::try_from(bytes >> 10).expect("small")) / 1024.0;
        let size = mib(fs::metadata(&file).expect("the listing").len());
        table.row(
            &format!("building the listing, {subtools} subtools"),
            &format!("<= {max_s} s"),
            &format!("{:.2} s, {size:.1} MiB", built.as_secs_f64()),
            "",
            "",
            Verdict::of(built.as_secs_f64() <= max_s),
        );
        let changed = rebuilt_after_an_edit(&world);
        table.row(
            &format!("the same after an edit of one file, {subtools} subtools"),
            "",
            &format!("{changed:.2} s"),
            "",
            "",
            Verdict::NoTarget,
        );
        let peer = Fts5::build(&world);
        let what = format!("list --query, {subtools} subtools");
        measure::run(&mut world.command(&["executor", "start"]));
        let [ours, full, bare, theirs] = in_turns(
            effort.runs,
            &mut [
                &mut || measure::run(&mut command()),
                &mut || measure::run(&mut full()),
                &mut || measure::run(&mut measure::bare()),
                &mut || peer.search(),
            ],
        );
        table.time(&what, Some(max_ms), &ours, Some(("bare process", &bare)));
        table.time(&format!("{what}, full program"), None, &full, Some(("bare process", &bare)));
        let size = f64::from(u32::try_from(subtools).expect("small"));
        for (line, samples) in lines.iter_mut().zip([&ours, &full, &theirs, &bare]) {
            line.points.push((size, milliseconds(samples.median())));
        }
        let both = format!("FTS5's part alone {:.2} ms", milliseconds(theirs.median()));
        let more = milliseconds(ours.median()) - milliseconds(bare.median());
        let ratio = more / milliseconds(theirs.median()).max(f64::EPSILON);
        let ours = format!("{more:.2} ms over a bare process");
        table.row(&format!("{what}, beside FTS5"), "", &ours, &both, &format!("{ratio:.2}"), Verdict::NoTarget);
        let found = peak_memory(&command());
        let target = format!("<= {max_mib} MiB");
        let verdict = Verdict::of(found <= max_mib);
        table.row(&format!("{what}, peak memory"), &target, &format!("{found:.1} MiB"), "", "", verdict);
    }
    table.plot(Plot {
        name: "latency-by-catalog",
        title: "A cold query over a catalog of any size",
        x: "subtools",
        y: "ms, median",
        lines: lines.to_vec(),
    });
}

/// How many seconds the first query after an edit takes.
fn rebuilt_after_an_edit(world: &World) -> f64 {
    let file = world.subtools().join("own.json");
    let text = fs::read_to_string(&file).expect("the definitions");
    fs::write(&file, format!("{text}\n")).expect("written");
    let started = Instant::now();
    measure::run(&mut world.command(&["list", "tools", "--query", QUERY]));
    started.elapsed().as_secs_f64()
}

/// The same definitions in a table of FTS5, with Porter's stemmer and weights for its columns.
struct Fts5 {
    file: std::path::PathBuf,
}

impl Fts5 {
    fn build(world: &World) -> Self {
        let file = world.home().join("fts5.db");
        let mut connection = Connection::open(&file).expect("a database");
        connection
            .execute_batch(
                "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF;
                 CREATE VIRTUAL TABLE tools USING fts5(name, description, parameters, texts, definition UNINDEXED,
                     tokenize = 'porter unicode61');",
            )
            .expect("a build with FTS5");
        let transaction = connection.transaction().expect("a transaction");
        for entry in fs::read_dir(world.subtools()).expect("the definitions") {
            let bytes = fs::read(entry.expect("an entry").path()).expect("readable");
            let Value::Object(definitions) = serde_json::from_slice(&bytes).expect("JSON") else { continue };
            for (name, definition) in definitions {
                let (mut names, mut texts) = (String::new(), String::new());
                for (name, schema) in definition["input"]["properties"].as_object().into_iter().flatten() {
                    names.push_str(&name.replace('_', " "));
                    names.push(' ');
                    texts.push_str(schema["description"].as_str().unwrap_or_default());
                    texts.push(' ');
                }
                let shown = definition["input"].to_string();
                let description = definition["description"].as_str().unwrap_or_default();
                let row = params![name.replace('_', " "), description, names, texts, shown];
                transaction.execute("INSERT INTO tools VALUES (?, ?, ?, ?, ?)", row).expect("a row");
            }
        }
        transaction.commit().expect("written");
        Self { file }
    }

    /// Opens the file and reads the ten best definitions; ranks first, and reads only what it gives back.
    fn search(&self) {
        let connection = Connection::open(&self.file).expect("a database");
        let words = QUERY.split(' ').map(|word| format!("\"{word}\"")).collect::<Vec<_>>().join(" OR ");
        let select = "SELECT rowid FROM tools WHERE tools MATCH ? ORDER BY bm25(tools, 10.0, 5.0, 2.0, 1.0) LIMIT 10";
        let mut statement = connection.prepare(select).expect("a statement");
        let rows: Vec<i64> = statement
            .query_map(params![words], |row| row.get(0))
            .expect("a query")
            .map(|row| row.expect("a row"))
            .collect();
        assert!(!rows.is_empty(), "the query finds something");
        for row in rows {
            let read = connection
                .query_row("SELECT definition FROM tools WHERE rowid = ?", params![row], |row| row.get::<_, String>(0));
            assert!(!read.expect("a definition").is_empty());
        }
    }
}
