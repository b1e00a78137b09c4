//! Measures how an index grows: builds one of any size, and asks it from a process that has just started.
//!
//! ```text
//! cargo run --release -p agent-magic-tool-search --example scale -- build FOLDER COUNT FILE
//! cargo run --release -p agent-magic-tool-search --example scale -- ask FILE WORDS...
//! ```
//!
//! `FOLDER` is one of those that `evaluate` reads. Its tools are repeated under other names until there are `COUNT`, so
//! every word is in more documents than it would be among as many different tools.
#![expect(clippy::print_stdout, reason = "a program for developers")]

use std::fs::{self, File};
use std::io::BufWriter;
use std::path::Path;
use std::time::Instant;

use search::{Document, Index, IndexWriter, LearnedRequests, PreviousIndex};
use serde::Deserialize;
use serde_json::{Map, Value};

#[derive(Deserialize)]
struct Tool {
    name: String,
    description: String,
    input: Map<String, Value>,
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments.as_slice() {
        ["build", folder, count, file] => build(folder, count.parse().expect("a number"), Path::new(file)),
        ["ask", file, words @ ..] => ask(Path::new(file), &words.join(" ")),
        _ => println!("usage: scale build FOLDER COUNT FILE, or scale ask FILE WORDS..."),
    }
}

fn build(folder: &str, count: usize, file: &Path) {
    let text = fs::read_to_string(Path::new(folder).join("tools.jsonl")).expect("the tools");
    let tools: Vec<(Tool, &str)> =
        text.lines().map(|line| (serde_json::from_str(line).expect("a tool"), line)).collect();
    let begun = Instant::now();
    let output = BufWriter::with_capacity(1 << 20, File::create(file).expect("the file"));
    let mut writer = IndexWriter::new(output).expect("the file");
    for (number, (tool, line)) in tools.iter().cycle().take(count).enumerate() {
        let name = format!("{}_v{}", tool.name, number / tools.len());
        let Tool { description, input, .. } = tool;
        let document = Document { name: &name, description, phrases: &[], tags: &[], verb: None, input };
        writer.add(&document, line.as_bytes()).expect("the file");
    }
    writer.finish(&[]).expect("the file").into_inner().expect("the file");
    println!(
        "built in {:?}, {} bytes, {}",
        begun.elapsed(),
        fs::metadata(file).expect("the file").len(),
        peak_memory()
    );

    let begun = Instant::now();
    let previous = Index::open(file).expect("an index");
    let mut copies = PreviousIndex::new(&previous).expect("an index");
    let mut writer = IndexWriter::new(std::io::sink()).expect("nowhere");
    for number in 0..previous.document_count() {
        writer.copy(&mut copies, number, None).expect("an index");
    }
    writer.finish(&[]).expect("nowhere");
    println!("built of copies in {:?}", begun.elapsed());
}

fn ask(file: &Path, words: &str) {
    let begun = Instant::now();
    let index = Index::open(file).expect("an index");
    let opened = begun.elapsed();
    let begun = Instant::now();
    let hits = index.search(words, &LearnedRequests::default()).expect("an index");
    let searched = begun.elapsed();
    let begun = Instant::now();
    let bytes: usize = hits.iter().take(10).map(|hit| index.payload(hit.document).expect("an index").len()).sum();
    println!(
        "opened in {opened:?}, {} hits in {searched:?}, {bytes} bytes of the best in {:?}, {}",
        hits.len(),
        begun.elapsed(),
        peak_memory()
    );
}

/// The most memory that this process has had.
fn peak_memory() -> String {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    status.lines().find(|line| line.starts_with("VmHWM")).unwrap_or("memory unknown").replace(['\t', ' '], "")
}
