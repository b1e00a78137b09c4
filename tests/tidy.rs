//! The rules of ARCHITECTURE.md that the compiler does not check.
//!
//! Searches the text of the sources instead of parsing them: most rules forbid a word in some files. Comments and
//! code inside `#[cfg(test)]` are ignored.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// A longer file probably has a second subject.
const MAX_LINES: usize = 600;

/// Code that prints to a standard stream.
const PRINTING: &[&str] = &["println!", "eprintln!", "print!(", "eprint!(", "dbg!(", "io::stdout()", "io::stderr()"];

/// The crates of the workspace.
pub(crate) const CRATES: [&str; 21] = [
    "agent-loop",
    "agent-magic-tool",
    "agent-side",
    "catalog",
    "database",
    "definition",
    "dispatcher",
    "executor",
    "ground",
    "import",
    "jq",
    "listing",
    "mcp",
    "net",
    "protocol",
    "runner",
    "script",
    "search",
    "serve",
    "sql",
    "store",
];

/// The folder of a crate of ours, whose code is called by the same name; of others, their own name.
pub(crate) fn folder_of(package: &str) -> &str {
    match package.strip_prefix("agent-magic-tool-") {
        Some("loop") => "agent-loop",
        folder => folder.unwrap_or(package),
    }
}

/// Code that reads the environment.
const ENVIRONMENT: &[&str] =
    &["env::var(", "env::var_os(", "env::vars", "env::temp_dir(", "env::home_dir(", "option_env!("];

/// The files that read the environment, and what for.
const READS_ENVIRONMENT: &[(&str, &str)] = &[
    ("protocol/src/fault.rs", "the fault that a test injects, in debug builds"),
    ("protocol/src/paths.rs", "the installation's folders"),
    ("ground/src/config/secret.rs", "a secret whose source is a variable"),
    ("net/src/guard.rs", "the proxies that reqwest uses"),
    ("runner/src/process/program_call.rs", "the variables that every program gets"),
];

/// Code with side effects. The dispatcher and the agent's state machine must be pure functions of their events.
const IMPURE: &[&str] = &[
    "std::fs",
    "std::net",
    "std::process",
    "std::thread",
    "std::io",
    "env::",
    "tokio",
    "reqwest",
    "rusqlite",
    "sqlite",
    "Instant::now",
    "SystemTime",
    "Timestamp::now",
    "clock::",
    "tracing::",
];

/// Code that is too expensive for a short-lived command.
const EXPENSIVE: &[&str] =
    &["tokio", "reqwest", "jsonschema", "rusqlite", "SqliteStore", "InputSchema", "Dispatcher", "PendingConfirmations"];

#[test]
fn every_source_file_starts_with_a_module_doc() {
    assert_none(rust_files().iter().filter(|file| !file.text.starts_with("//! ")).map(|file| file.name.clone()));
}

#[test]
fn no_source_file_is_too_long() {
    let long = |file: &File| {
        let lines = file.text.lines().count();
        (lines > MAX_LINES).then(|| format!("{}: {lines} lines", file.name))
    };
    assert_none(rust_files().iter().filter_map(long));
}

#[test]
fn no_module_file_is_called_mod_rs() {
    assert_none(rust_files().iter().filter(|file| file.name.ends_with("/mod.rs")).map(|file| file.name.clone()));
}

/// A file that none declares is not compiled, and its tests never fail.
#[test]
fn every_source_file_is_declared_as_a_module() {
    let all = rust_files();
    let is_declared = |file: &&File| {
        let (folder, own) = file.name.rsplit_once('/').unwrap_or_default();
        let declaration = format!("mod {};", own.trim_end_matches(".rs"));
        let parents = [format!("{folder}.rs"), format!("{folder}/lib.rs"), format!("{folder}/main.rs")];
        let declares = |line: &str| line == declaration || line.ends_with(&format!(" {declaration}"));
        let is_parent = |other: &&File| parents.contains(&other.name) && other.text.lines().any(declares);
        ["lib.rs", "main.rs"].contains(&own) || all.iter().any(|other| is_parent(&other))
    };
    let sources = all.iter().filter(|file| file.name.contains("/src/"));
    assert_none(sources.filter(|file| !is_declared(file)).map(|file| file.name.clone()));
}

#[test]
fn only_output_rs_prints() {
    let files = own_sources();
    assert_none(files.filter(|file| file.name != "agent-side/src/output.rs").flat_map(|file| file.having(PRINTING)));
}

#[test]
fn only_the_listed_files_read_the_environment() {
    let mut readers = BTreeSet::new();
    let mut others = Vec::new();
    for file in own_sources() {
        let found = file.having(ENVIRONMENT);
        if READS_ENVIRONMENT.iter().all(|(name, _)| *name != file.name) {
            others.extend(found);
        } else if !found.is_empty() {
            readers.insert(file.name);
        }
    }
    assert_none(others);
    assert_none(READS_ENVIRONMENT.iter().filter(|(name, _)| !readers.contains(*name)).map(|(name, what_for)| {
        format!("{name} no longer reads {what_for} from the environment; take it off the list")
    }));
}

#[test]
fn the_dispatcher_is_pure() {
    let files = sources("dispatcher/src/");
    assert_none(files.flat_map(|file| file.having(IMPURE)));
}

#[test]
fn the_agents_state_machine_is_pure() {
    let files = ["machine", "model/view", "model/fallback", "model/conversation"];
    let files = files.iter().flat_map(|name| sources(&format!("agent-loop/src/{name}")));
    assert_none(files.flat_map(|file| file.having(IMPURE)));
}

#[test]
fn a_tasks_state_is_set_only_by_code_that_uses_the_life_cycle() {
    let files = own_sources();
    let setters = files.filter(|file| !file.having(&[".state = "]).is_empty());
    assert_none(setters.filter(|file| !file.code().contains(".after(")).map(|file| file.name).filter(|name| {
        // Applies transitions that the dispatcher has decided.
        name != "store/src/memory.rs"
    }));
}

#[test]
fn the_command_line_starts_no_runtime_compiles_no_schema_and_opens_no_store() {
    assert_none(sources("agent-magic-tool/src/").flat_map(|file| file.having(EXPENSIVE)));
}

#[test]
fn secrets_are_exposed_only_inside_the_executor() {
    assert_none(sources("agent-magic-tool/src/").flat_map(|file| file.having(&[".expose("])));
}

#[test]
fn no_todos_are_left() {
    let words = ["todo!(", "unimplemented!(", "FIXME", "XXX"];
    let own = |file: &&File| file.name != "tests/tidy.rs";
    assert_none(rust_files().iter().filter(own).flat_map(|file| {
        words
            .iter()
            .filter(|word| file.text.contains(**word))
            .map(|word| format!("{}: {word}", file.name))
            .collect::<Vec<_>>()
    }));
}

#[test]
fn no_line_has_tabs_or_spaces_at_its_end() {
    let mut wrong = Vec::new();
    for file in files()
        .iter()
        .filter(|file| ends_with_any(&file.name, &[".rs", ".toml", ".md", ".json", ".sql", ".html", ".css", ".js"]))
    {
        for (number, line) in file.text.split('\n').enumerate() {
            if line.contains('\t') || line.ends_with([' ', '\r']) {
                wrong.push(format!("{}:{}", file.name, number + 1));
            }
        }
        if !file.text.is_empty() && !file.text.ends_with('\n') {
            wrong.push(format!("{}: no newline at the end", file.name));
        }
    }
    assert_none(wrong);
}

#[test]
fn every_path_named_in_the_documents_exists() {
    let names: Vec<_> = files().into_iter().map(|file| file.name).collect();
    let exists = |path: &str| {
        root().join(path).exists()
            || (ends_with_any(path, &[".rs"]) && names.iter().any(|name| name.ends_with(&format!("/{path}"))))
    };
    let mut missing = Vec::new();
    for document in ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md"] {
        let text = fs::read_to_string(root().join(document)).unwrap_or_else(|error| panic!("{document}: {error}"));
        let prose = without_code_blocks(&text);
        let paths = quoted(&prose).filter(|words| is_path(words)).chain(links(&text));
        missing.extend(paths.filter(|path| !exists(path)).map(|path| format!("{document}: {path}")));
    }
    assert_none(missing);
}

/// A rule without its test is only a sentence.
#[test]
fn every_test_that_architecture_md_names_exists() {
    let document = fs::read_to_string(root().join("ARCHITECTURE.md")).expect("readable");
    let (_, rules) = document.split_once("## What always holds").expect("its rules");
    let (rules, _) = rules.split_once("\n## ").expect("more after them");
    let prose = rules.split_whitespace().collect::<Vec<_>>().join(" ");
    let is_test = |words: &&str| {
        words.matches('_').count() > 1
            && words.chars().all(|letter| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '_')
    };
    let named: Vec<_> = quoted(&prose).filter(is_test).map(str::to_owned).collect();
    assert!(named.len() > 8, "{named:?}");
    let declared: String = rust_files().into_iter().map(|file| file.text).collect();
    assert_none(named.into_iter().filter(|name| {
        let is_declared = |(at, _): (usize, &str)| {
            let before = &declared[..at];
            let attributes = before.rsplit("\n\n").next().unwrap_or_default();
            attributes.contains("#[test]") || attributes.contains("#[tokio::test")
        };
        !declared.match_indices(&format!("fn {name}(")).any(is_declared)
    }));
}

#[test]
fn every_error_code_is_used() {
    let codes = fs::read_to_string(root().join("protocol/src/code.rs")).expect("readable");
    let variants: Vec<_> = codes
        .lines()
        .filter_map(|line| line.strip_prefix("    ")?.split_once(" = \""))
        .map(|(variant, _)| variant)
        .filter(|variant| variant.chars().all(char::is_alphanumeric))
        .collect();
    assert!(variants.len() > 20, "the format of the list of codes has changed: {variants:?}");
    let code: String =
        own_sources().filter(|file| file.name != "protocol/src/code.rs").map(|file| file.code()).collect();
    let is_used = |variant: &str| {
        code.split(&format!("Code::{variant}")).skip(1).any(|rest| !rest.starts_with(char::is_alphanumeric))
    };
    let unused: Vec<_> = variants.into_iter().filter(|variant| !is_used(variant)).collect();
    assert_eq!(unused, [] as [&str; 0], "no code uses these error codes");
}

#[test]
fn every_dependency_is_used() {
    let workspace = fs::read_to_string(root().join("Cargo.toml")).expect("the workspace");
    let manifests = CRATES.map(|member| {
        (member, fs::read_to_string(root().join(member).join("Cargo.toml")).expect("a member of the workspace"))
    });
    let mut unused = Vec::new();
    for dependency in keys_of(&workspace, "[workspace.dependencies]") {
        let is_used = |(_, manifest): &(&str, String)| {
            manifest.contains(&format!("\n{dependency}.workspace = true"))
                || manifest.contains(&format!("\n{dependency} = {{ workspace = true"))
        };
        if !manifests.iter().any(is_used) {
            unused.push(format!("no crate uses the dependency {dependency}"));
        }
    }
    let files = rust_files();
    for (member, manifest) in &manifests {
        for section in ["[dependencies]", "[dev-dependencies]"] {
            for dependency in keys_of(manifest, section) {
                let dependency = dependency.trim_end_matches(".workspace");
                let word = folder_of(dependency).replace('-', "_");
                // The end-to-end tests are outside the crate's folder.
                let own =
                    |file: &&File| file.name.starts_with(&format!("{member}/")) || file.name.starts_with("tests/");
                if !files.iter().filter(own).any(|file| file.text.contains(&word)) {
                    unused.push(format!("{member} never uses {dependency}"));
                }
            }
        }
    }
    assert_none(unused);
}

/// A text file of the repository.
pub(crate) struct File {
    /// The path from the root, separated by `/`.
    pub(crate) name: String,
    pub(crate) text: String,
}

impl File {
    /// Returns the text without comments and unit tests.
    pub(crate) fn code(&self) -> String {
        let text = without_tests(&self.text);
        let lines = text.lines().filter(|line| !line.trim_start().starts_with("//"));
        lines.flat_map(|line| [line, "\n"]).collect()
    }

    /// Returns those of `words` that the code contains, with the name of the file.
    fn having(&self, words: &[&str]) -> Vec<String> {
        let code = self.code();
        words.iter().filter(|word| code.contains(**word)).map(|word| format!("{}: {word}", self.name)).collect()
    }
}

/// The code of a file with an empty line in place of each line that is compiled only for tests, wherever it stands.
pub(crate) fn without_tests(text: &str) -> String {
    let mut kept = String::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if line.trim_start() != "#[cfg(test)]" {
            kept.extend([line, "\n"]);
            continue;
        }
        kept.push('\n');
        let indent = &line[..line.len() - line.trim_start().len()];
        // The item ends where the brace of its own indentation closes, or with its first line.
        let mut is_open = false;
        for line in lines.by_ref() {
            kept.push('\n');
            let is_own = line.strip_prefix(indent).is_some_and(|rest| !rest.starts_with(' '));
            let ends_with = |ending: char| is_own && line.ends_with(ending);
            is_open |= ends_with('{');
            if (!is_open && ends_with(';'))
                || (is_open && is_own && ["}", "};"].contains(&line.trim()))
                || (ends_with('}') && !is_open)
            {
                break;
            }
        }
    }
    kept
}

#[test]
fn only_what_is_for_tests_is_left_out_of_the_code() {
    let text = "use a;\n#[cfg(test)]\nmod tests;\nuse b;\n    #[cfg(test)]\n    fn c() {\n        d();\n    }\n    e();\n\
                #[cfg(test)]\nmod tests {\n    fn f() {}\n}\nuse g;\n#[cfg(test)]\n#[path = \"x\"]\nmod x;\n#[cfg(test)]\nuse y::{\n    z,\n};\nuse h;\n";
    let code = without_tests(text);
    assert_eq!(code.lines().count(), text.lines().count(), "lines keep their numbers");
    let kept: Vec<_> = code.lines().filter(|line| !line.is_empty()).collect();
    assert_eq!(kept, ["use a;", "use b;", "    e();", "use g;", "use h;"]);
}

/// Whether the file is like `executor/src/x/tests.rs`, which `executor/src/x.rs` declares for tests only.
fn is_only_for_tests(file: &File, all: &[File]) -> bool {
    let Some((folder, own)) = file.name.rsplit_once('/') else { return false };
    let declared = format!("#[cfg(test)]\nmod {};", own.trim_end_matches(".rs"));
    all.iter().any(|other| other.name == format!("{folder}.rs") && other.text.contains(&declared))
}

/// The Rust files whose path starts with `beginning`, except files that are only for tests.
pub(crate) fn sources(beginning: &str) -> impl Iterator<Item = File> + use<> {
    let all = rust_files();
    let wanted: Vec<_> =
        all.iter().map(|file| file.name.starts_with(beginning) && !is_only_for_tests(file, &all)).collect();
    all.into_iter().zip(wanted).filter(|(_, wanted)| *wanted).map(|(file, _)| file)
}

/// The Rust files of all crates, except files that are only for tests.
pub(crate) fn own_sources() -> impl Iterator<Item = File> {
    CRATES.into_iter().flat_map(|package| sources(&format!("{package}/src/")))
}

fn rust_files() -> Vec<File> {
    files().into_iter().filter(|file| ends_with_any(&file.name, &[".rs"])).collect()
}

/// Every text file that belongs to the repository.
fn files() -> Vec<File> {
    let mut found = Vec::new();
    let mut folders = vec![root()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder of the repository") {
            let path = entry.expect("an entry of the folder").path();
            let name = path.strip_prefix(root()).expect("a path below the root").to_string_lossy().into_owned();
            if ends_with_any(&name, &[".git", "target", "node_modules"]) {
                continue;
            }
            if path.is_dir() {
                folders.push(path);
            } else if let Ok(text) = fs::read_to_string(&path) {
                found.push(File { name, text });
            }
        }
    }
    found.sort_by(|a, b| a.name.cmp(&b.name));
    assert!(found.len() > 50, "{} is not the root of the repository", root().display());
    found
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the crate is in the workspace's folder").to_owned()
}

fn ends_with_any(name: &str, endings: &[&str]) -> bool {
    endings.iter().any(|ending| name.ends_with(ending))
}

/// The keys of one section of a TOML file.
fn keys_of<'a>(manifest: &'a str, section: &str) -> impl Iterator<Item = &'a str> {
    let (_, rest) = manifest.split_once(&format!("{section}\n")).unwrap_or_default();
    rest.lines()
        .take_while(|line| !line.starts_with('['))
        .filter_map(|line| Some(line.split_once(" = ")?.0))
        .filter(|key| !key.starts_with('#'))
}

/// Removes the code blocks from a document.
fn without_code_blocks(text: &str) -> String {
    let mut inside = false;
    let prose = text.lines().filter(|line| {
        let is_fence = line.trim_start().starts_with("```");
        inside ^= is_fence;
        !inside && !is_fence
    });
    prose.flat_map(|line| [line, "\n"]).collect()
}

/// The texts in backticks.
fn quoted(prose: &str) -> impl Iterator<Item = &str> {
    prose.split('`').skip(1).step_by(2)
}

/// The targets of links into the repository.
fn links(text: &str) -> impl Iterator<Item = &str> {
    let targets = text.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(target, _)| target);
    targets
        .filter(|target| !target.contains(':') && !target.starts_with('#'))
        .map(|target| target.split('#').next().unwrap_or(target))
}

/// Whether a text in backticks names a file or folder of the repository.
fn is_path(words: &str) -> bool {
    let plain = words.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"/._-".contains(&byte));
    let below_root = words.split_once('/').is_some_and(|(first, _)| !first.is_empty() && root().join(first).is_dir());
    plain && (below_root || ends_with_any(words, &[".rs", ".md"]))
}

#[track_caller]
fn assert_none(wrong: impl IntoIterator<Item = String>) {
    let wrong: Vec<_> = wrong.into_iter().collect();
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}
