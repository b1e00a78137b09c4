//! The documents: what stands in their code blocks and tables is true of the program.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use protocol::code::Code;
use serde_json::Value;

use crate::world::World;

/// A fenced block of a document.
struct Block {
    /// The document and the line that the block begins at.
    place: String,
    /// What stands behind the fence, such as `json subtool`.
    kind: String,
    text: String,
}

#[test]
fn definitions_in_the_documents_load() {
    let world = World::new();
    // The chapter on databases asks this one.
    world.configure("[databases.shop]\nurl = \"mysql://reader@127.0.0.1:3306/shop\"\n");
    let mut places = Vec::new();
    for block in blocks().iter().filter(|block| block.kind.starts_with("json") && block.kind != "json pack") {
        let value: Value = serde_json::from_str(&block.text).unwrap_or_else(|error| panic!("{}: {error}", block.place));
        let is_definition = |value: &Value| value.get("run").is_some() && value.get("description").is_some();
        if value.as_object().is_some_and(|file| file.values().any(is_definition)) {
            let file = format!("from-docs-{}.json", places.len());
            world.define(&file, &value);
            places.push(format!("{file} is {}", block.place));
        }
    }
    let lint = world.run(&["lint"]);
    assert_eq!(lint.exit, 0, "{places:#?}: {lint}");
    assert!(places.len() >= 2, "the README and the chapter on subtools show definitions");
}

#[test]
fn the_pack_in_the_documents_works() {
    let world = World::new();
    let blocks = blocks();
    let text = |kind: &str| &blocks.iter().find(|block| block.kind == kind).expect("docs/packs.md shows a pack").text;
    let folder = world.config_folder().join("packs/crm");
    fs::create_dir_all(&folder).expect("made");
    fs::write(folder.join("pack.toml"), text("toml pack")).expect("written");
    fs::write(folder.join("crm.json"), text("json pack")).expect("written");
    let enabled = world.run(&["pack", "enable", "crm"]);
    assert_eq!((enabled.exit, enabled.json()["subtools"].as_u64()), (0, Some(2)), "{enabled}");
    let issues = ["the variable `crm_url` is not set", "the secret `crm` is not set"];
    assert_eq!(enabled.json()["issues"], serde_json::json!(issues), "{enabled}");
    world.configure("[packs.crm]\nenabled = true\n[vars]\ncrm_url = \"https://crm.example.com\"\n");
    assert_eq!(world.run_with(&["secret", "set", "crm"], "a-secret-value").exit, 0);
    let info = world.run(&["pack", "info", "crm"]).json();
    assert_eq!(info["state"], "ready", "{info:#}");
    let lint = world.run(&["lint"]);
    assert_eq!((lint.exit, lint.json()), (0, serde_json::json!([])), "{lint}");
    let plan = world.run(&["test", "crm_find_customer", "--dry-run"]);
    assert_eq!(plan.exit, 0, "{plan}");
}

#[test]
fn settings_in_the_documents_are_accepted() {
    let blocks = blocks();
    let settings: Vec<_> = blocks.iter().filter(|block| block.kind == "toml").collect();
    assert!(settings.len() >= 4, "several chapters show settings");
    for block in settings {
        let world = World::new();
        world.configure(&block.text);
        let listed = world.run(&["list", "--format=names"]);
        assert_eq!(listed.exit, 0, "{}: {listed}", block.place);
    }
}

#[test]
fn every_option_in_the_documents_exists() {
    let world = World::new();
    let mut helps: BTreeMap<String, String> = BTreeMap::new();
    let mut help = |command: &str| {
        helps
            .entry(command.to_owned())
            .or_insert_with(|| {
                let words: Vec<_> = command.split(' ').filter(|word| !word.is_empty()).chain(["--help"]).collect();
                world.run(&words).stdout
            })
            .clone()
    };
    let mut checked = 0;
    for (place, call) in calls() {
        let mut words = call.split_whitespace();
        let command = words.next().unwrap_or_default().trim_end_matches(['`', ',', '.', ';', ':']);
        if !command.starts_with(|first: char| first.is_ascii_lowercase()) {
            continue;
        }
        let all: Vec<&str> = words.collect();
        let depth = match command {
            "executor" | "secret" | "pack" => 1,
            "script" if all.first() == Some(&"save") => 1,
            "serve" => 2,
            _ => 0,
        };
        let is_word = |word: &&&str| word.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-');
        let nested = all.iter().take(depth).take_while(is_word).copied().take_while(|word| !word.starts_with('-'));
        let text = help(&[command].into_iter().chain(nested).collect::<Vec<_>>().join(" "));
        assert!(text.contains("Usage:"), "{place}: there is no command `{command}`: {text}");
        for option in all.iter().filter_map(|word| option_in(word)) {
            assert!(text.contains(&option), "{place}: `{command}` has no option `{option}`");
            checked += 1;
        }
    }
    assert!(checked > 20, "only {checked} options were found in the documents");
}

#[test]
fn the_error_codes_are_those_of_the_program() {
    let text = read("docs/commands.md");
    let row = |line: &str| {
        let mut cells = line.strip_prefix("| `")?.split(" | ");
        let code = cells.next()?.trim_end_matches('`').to_owned();
        Some((code, cells.next()?.trim().parse::<u8>().ok()?))
    };
    let documented: BTreeMap<_, _> = text.lines().filter_map(row).collect();
    let known: BTreeMap<_, _> = Code::ALL.iter().map(|code| (code.as_str().to_owned(), code.exit() as u8)).collect();
    assert_eq!(documented, known);
}

#[test]
fn the_packs_are_those_that_ship() {
    let text = read("docs/subtools.md");
    let row = |line: &str| {
        let (name, rest) = line.strip_prefix("| [")?.split_once("](../subtools/")?;
        let count = rest.split(" | ").nth(1)?.trim().parse::<usize>().ok()?;
        Some((name.to_owned(), count))
    };
    let documented: BTreeMap<_, _> = text.lines().filter_map(row).collect();
    let mut shipped = BTreeMap::new();
    for entry in fs::read_dir(root().join("subtools")).expect("the packs") {
        let folder = entry.expect("an entry").path();
        let name = folder.file_name().and_then(|name| name.to_str()).expect("a name").to_owned();
        if folder.is_dir() {
            let file: serde_json::Map<String, Value> =
                serde_json::from_slice(&fs::read(folder.join(format!("{name}.json"))).expect("a pack")).expect("JSON");
            shipped.insert(name, file.keys().filter(|key| !key.starts_with('$')).count());
        }
    }
    assert_eq!(documented, shipped);
}

#[test]
fn every_subtool_of_a_pack_that_is_off_by_default_is_described() {
    let text = read("docs/packs.md");
    let default = ground::config::Config::default().catalog.packs;
    let others = catalog::SHIPPED.iter().filter(|pack| {
        // The pack `shell` has a setting of its own.
        pack.name != "shell" && !default.iter().any(|name| name == pack.name)
    });
    for pack in others {
        assert!(text.contains(&format!("\n## {}\n", pack.name)), "docs/packs.md has no section `{}`", pack.name);
        let file: serde_json::Map<String, Value> = serde_json::from_str(pack.text).expect("JSON");
        for name in file.keys().filter(|key| !key.starts_with('$')) {
            assert!(text.contains(&format!("\n| `{name}` | ")), "docs/packs.md has no row for `{name}`");
        }
    }
}

#[test]
fn the_book_has_every_chapter_and_every_link_leads_somewhere() {
    let summary = read("docs/SUMMARY.md");
    let listed: BTreeSet<_> = links(&summary).collect();
    let chapters = documents().into_iter().filter_map(|path| path.strip_prefix("docs/").map(str::to_owned));
    let chapters: BTreeSet<_> = chapters.filter(|name| name != "SUMMARY.md").collect();
    assert_eq!(listed.into_iter().map(str::to_owned).collect::<BTreeSet<_>>(), chapters);
    for document in documents() {
        let folder = root().join(&document).parent().expect("a folder").to_owned();
        for link in links(&read(&document)) {
            let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target = if file.is_empty() { root().join(&document) } else { folder.join(file) };
            assert!(target.exists(), "{document}: `{link}` leads nowhere");
            if !anchor.is_empty() {
                let text = fs::read_to_string(&target).expect("a document");
                let mut headings = text.lines().filter(|line| line.starts_with('#'));
                assert!(headings.any(|line| slug(line) == anchor), "{document}: `{link}` names no heading");
            }
        }
    }
}

/// GitHub shows a form with a mistake as an empty issue.
#[test]
fn the_issue_forms_have_what_github_asks_for() {
    for name in ["bug", "idea"] {
        let file = format!(".github/ISSUE_TEMPLATE/{name}.yml");
        let form = import::document::Document::new(&file, read(&file)).expect("YAML").data;
        assert!(form["name"].is_string() && form["description"].is_string(), "{file}");
        let mut ids = BTreeSet::new();
        for field in form["body"].as_array().expect("a list of fields") {
            let kind = field["type"].as_str().unwrap_or_default();
            let text = if kind == "markdown" { "value" } else { "label" };
            assert!(["markdown", "input", "textarea"].contains(&kind), "{file}: {field}");
            assert!(field["attributes"][text].is_string(), "{file}: {field}");
            assert!(kind == "markdown" || field["id"].as_str().is_some_and(|id| ids.insert(id)), "{file}: {field}");
        }
        assert!(!ids.is_empty(), "{file}");
    }
}

#[test]
fn the_readme_counts_right() {
    let readme = read("README.md");
    let (_, rest) = readme.split_once("<!-- count: definition-bytes -->").expect("the README counts the definition");
    let (count, _) = rest.split_once("<!-- /count -->").expect("it ends");
    let definition = protocol::command_executor::definition().to_string();
    assert_eq!(count.parse::<usize>().ok(), Some(definition.len()));
    let words = readme.split_whitespace().count();
    assert!(words < 1_400, "{words} words: the README starts people, the manual is in docs/");
}

#[test]
fn the_help_groups_the_commands_as_the_readme_does() {
    let help = World::new().run(&["--help"]).stdout;
    let readme = read("README.md");
    let (_, table) = readme.split_once("## Commands").expect("the README lists the commands");
    let rows = table.lines().filter(|line| line.starts_with("| `"));
    let of_readme: Vec<Vec<_>> = rows
        .take_while(|row| row.contains(" | "))
        .map(|row| row.split(" | ").next().into_iter().flat_map(|cell| cell.split('`').skip(1).step_by(2)).collect())
        .map(|names: Vec<_>| names.into_iter().filter(|name| *name != "help").collect())
        .collect();
    let name =
        |line: &str| line.strip_prefix("  ")?.split(' ').next().filter(|name| !name.is_empty()).map(str::to_owned);
    let groups = help.split("\n\n").filter(|part| part.starts_with("What agents") || part.starts_with("To "));
    let of_help: Vec<Vec<_>> = groups.map(|group| group.lines().filter_map(name).collect()).collect();
    assert_eq!(of_help, of_readme, "{help}");
}

/// `--option` at the beginning of a word, without brackets and value.
fn option_in(word: &str) -> Option<String> {
    let word = word.trim_start_matches(['[', '`', '(', '|']);
    let end = word.find(|letter: char| !letter.is_ascii_lowercase() && letter != '-').unwrap_or(word.len());
    Some(word[..end].to_owned()).filter(|option| option.len() > 2 && option.starts_with("--"))
}

/// Every `agent-magic-tool ...` in a code span, a code block or a row of the command tables, without the program's name.
fn calls() -> Vec<(String, String)> {
    let mut calls = Vec::new();
    for document in documents() {
        for (number, line) in read(&document).lines().enumerate() {
            let place = format!("{document}:{}", number + 1);
            for (at, _) in line.match_indices("agent-magic-tool ") {
                let before = line[..at].chars().next_back();
                let rest = &line[at + "agent-magic-tool ".len()..];
                if matches!(before, Some('`')) {
                    calls.push((place.clone(), rest.split('`').next().unwrap_or_default().to_owned()));
                } else if line.starts_with("agent-magic-tool ") || line.starts_with("$ agent-magic-tool ") {
                    calls.push((place.clone(), rest.split(" #").next().unwrap_or_default().to_owned()));
                }
            }
            if document == "docs/commands.md"
                && let Some(cell) = line.strip_prefix("| `").and_then(|rest| rest.split("` |").next())
            {
                let shown = cell.replace("\\|", " ").replace('`', "");
                calls.extend(
                    shown.split(", ").filter(|call| call.contains("--")).map(|call| (place.clone(), call.to_owned())),
                );
            }
        }
    }
    calls
}

fn blocks() -> Vec<Block> {
    let mut blocks = Vec::new();
    for document in documents() {
        let mut open: Option<Block> = None;
        for (number, line) in read(&document).lines().enumerate() {
            match (line.strip_prefix("```"), open.take()) {
                (Some(_), Some(block)) => blocks.push(block),
                (Some(kind), None) => {
                    let place = format!("{document}:{}", number + 1);
                    open = Some(Block { place, kind: kind.to_owned(), text: String::new() });
                }
                (None, Some(mut block)) => {
                    block.text.push_str(line);
                    block.text.push('\n');
                    open = Some(block);
                }
                (None, None) => {}
            }
        }
        assert!(open.is_none(), "{document}: a code block is not closed");
    }
    blocks
}

/// The documents of the root, the READMEs of the examples and the chapters of the book, by their paths from the root.
fn documents() -> Vec<String> {
    let mut found = ["README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"].map(str::to_owned).to_vec();
    found.push("examples/README.md".to_owned());
    for entry in fs::read_dir(root().join("examples")).expect("the examples") {
        let entry = entry.expect("an entry");
        if entry.path().is_dir() {
            found.push(format!("examples/{}/README.md", entry.file_name().display()));
        }
    }
    for entry in fs::read_dir(root().join("docs")).expect("the book") {
        let name = entry.expect("an entry").file_name().into_string().expect("a plain name");
        if Path::new(&name).extension().is_some_and(|extension| extension == "md") {
            found.push(format!("docs/{name}"));
        }
    }
    found.sort();
    found
}

/// The targets of links within the repository.
fn links(text: &str) -> impl Iterator<Item = &str> {
    let targets = text.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(target, _)| target);
    targets.filter(|target| !target.contains(':'))
}

/// The anchor of a heading.
fn slug(heading: &str) -> String {
    let words = heading.trim_start_matches('#').trim().to_lowercase();
    words.chars().filter(|letter| letter.is_alphanumeric() || *letter == ' ').collect::<String>().replace(' ', "-")
}

fn read(document: &str) -> String {
    fs::read_to_string(root().join(document)).unwrap_or_else(|error| panic!("{document}: {error}"))
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the member lies in the workspace").to_owned()
}
