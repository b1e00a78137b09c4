//! The retrieval sets: tools, and queries with the tools that are relevant to each; and the packs that ship, with the
//! requests for them that are kept in `tests/`.

use std::collections::HashMap;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use search::Verb;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

/// What a set is used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    Tuning,
    Report,
}

impl fmt::Display for Role {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Tuning => "tuning",
            Self::Report => "report",
        })
    }
}

/// A catalog, and the sets of queries about it.
pub(crate) struct Folder {
    pub(crate) tools: Vec<Tool>,
    pub(crate) sets: Vec<QuerySet>,
}

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Tool {
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) description: String,
    #[serde(default)]
    pub(crate) input: Map<String, Value>,
    #[serde(default)]
    pub(crate) phrases: Vec<String>,
    #[serde(default)]
    pub(crate) tags: Vec<String>,
    /// How it is performed, of which only an HTTP method matters.
    #[serde(default)]
    run: Value,
    #[serde(default)]
    annotations: Value,
    /// Whether it is of a pack that ships.
    #[serde(skip)]
    pub(crate) is_shipped: bool,
}

impl Tool {
    /// What it does, unless its name says it: as the program's catalog has it.
    pub(crate) fn verb(&self) -> Option<Verb> {
        if self.annotations["readOnlyHint"] == Value::Bool(true) {
            return Some(Verb::Read);
        }
        let http = self.run.get("http")?;
        Verb::of_http_method(http.get("method").and_then(Value::as_str).unwrap_or("GET"))
    }
}

pub(crate) struct QuerySet {
    pub(crate) name: String,
    pub(crate) role: Role,
    pub(crate) questions: Vec<Question>,
}

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Question {
    pub(crate) query: String,
    pub(crate) relevant: Vec<String>,
}

#[derive(Deserialize)]
struct Phrases {
    name: String,
    phrases: Vec<String>,
}

impl Folder {
    pub(crate) fn read(folder: &Path) -> Self {
        let mut tools: Vec<Tool> = lines(&folder.join("tools.jsonl"));
        if folder.join("phrases.jsonl").exists() {
            let written: Vec<Phrases> = lines(&folder.join("phrases.jsonl"));
            let mut phrases: HashMap<_, _> = written.into_iter().map(|tool| (tool.name, tool.phrases)).collect();
            for tool in &mut tools {
                tool.phrases.extend(phrases.remove(&tool.name).unwrap_or_default());
            }
        }
        let folder_name = folder.file_name().unwrap_or_default().to_string_lossy();
        let mut sets = Vec::new();
        for file in names(folder) {
            let Some(stem) = file.strip_suffix(".jsonl").filter(|stem| stem.starts_with("queries")) else { continue };
            let questions: Vec<Question> = lines(&folder.join(&file));
            let name = format!("{folder_name}/{stem}");
            match name.as_str() {
                "metatool/queries" | "sealtools/queries_dev" => {
                    sets.push(QuerySet { name, role: Role::Tuning, questions });
                }
                // Alternate steps, so that both halves have steps of the same tasks' kinds.
                "livemcpbench/queries_steps" | "livemcpbench/queries_steps_zh" => {
                    let half = |rest: usize| questions.iter().skip(rest).step_by(2).cloned().collect();
                    sets.push(QuerySet { name: format!("{name} (even)"), role: Role::Tuning, questions: half(0) });
                    sets.push(QuerySet { name: format!("{name} (odd)"), role: Role::Report, questions: half(1) });
                    sets.push(QuerySet { name, role: Role::Report, questions });
                }
                _ => sets.push(QuerySet { name, role: Role::Report, questions }),
            }
        }
        Self { tools, sets }
    }
    /// Its tools, and those of `shipped` that have other names.
    pub(crate) fn beside(&self, shipped: &[Tool]) -> Vec<Tool> {
        let is_other = |tool: &&Tool| self.tools.iter().all(|own| own.name != tool.name);
        self.tools.iter().chain(shipped.iter().filter(is_other)).cloned().collect()
    }
}

/// Which of the packs that ship are meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Packs {
    /// Those that are on once the program is installed.
    Installed,
    /// Those, and the pack `models`, which is on as soon as a model is.
    WithModels,
    All,
}

impl fmt::Display for Packs {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Installed => "as installed",
            Self::WithModels => "with models",
            Self::All => "all",
        })
    }
}

impl Packs {
    fn has(self, pack: &str) -> bool {
        match self {
            Self::Installed => ["files", "git", "github", "gmail", "human", "web"].contains(&pack),
            Self::WithModels => pack == "models" || Self::Installed.has(pack),
            Self::All => true,
        }
    }
}

fn project() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The subtools of the packs that ship, by name.
pub(crate) fn shipped(packs: Packs) -> Vec<Tool> {
    let mut tools = Vec::new();
    for pack in names(&project().join("subtools")) {
        let file = project().join("subtools").join(&pack).join(format!("{pack}.json"));
        if !packs.has(&pack) || !file.exists() {
            continue;
        }
        let text = fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let definitions: Map<String, Value> = serde_json::from_str(&text).expect("a pack's definitions");
        for (name, mut definition) in definitions.into_iter().filter(|(name, _)| !name.starts_with('$')) {
            definition["name"] = name.into();
            let tool: Tool = serde_json::from_value(definition).expect("a definition");
            tools.push(Tool { is_shipped: true, ..tool });
        }
    }
    tools.sort_by(|one, other| one.name.cmp(&other.name));
    tools
}

/// Requests of people for what ships, in one language.
pub(crate) struct Requests {
    pub(crate) name: String,
    pub(crate) language: &'static str,
    pub(crate) questions: Vec<Question>,
}

/// The requests for these packs. Those whose name ends with `unseen` were never tuned on.
pub(crate) fn requests(packs: Packs) -> Vec<Requests> {
    #[derive(Deserialize)]
    struct Request {
        query: String,
        #[serde(default)]
        language: String,
        subtools: Vec<String>,
    }
    let tests = project().join("tests");
    let of_packs = names(&tests.join("packs")).into_iter().filter(|name| name.strip_suffix(".jsonl").is_some());
    let (unseen, seen): (Vec<_>, Vec<_>) = of_packs.partition(|name| name.ends_with("-unseen.jsonl"));
    let path = |name: &String| tests.join("packs").join(name);
    let mut groups = vec![
        ("routing", vec![tests.join("routing.jsonl")]),
        ("routing-unseen", vec![tests.join("routing-unseen.jsonl")]),
    ];
    if packs == Packs::All {
        groups.push(("packs", seen.iter().map(path).collect()));
        groups.push(("packs-unseen", unseen.iter().map(path).collect()));
    }
    let mut found = Vec::new();
    for (name, files) in groups {
        let all: Vec<Request> = files.iter().flat_map(|file| lines(file)).collect();
        for language in ["en", "de", "zh"] {
            let own = all.iter().filter(|request| request.language == language);
            let questions =
                own.map(|request| Question { query: request.query.clone(), relevant: request.subtools.clone() });
            let questions: Vec<_> = questions.collect();
            let twos = questions.chunks_exact(2).map(|pair| Question {
                query: format!("{}. {}", pair[0].query, pair[1].query),
                relevant: pair.iter().flat_map(|question| question.relevant.clone()).collect(),
            });
            found.push(Requests { name: format!("{name}, two at once"), language, questions: twos.collect() });
            found.push(Requests { name: name.to_owned(), language, questions });
        }
    }
    found.retain(|requests| !requests.questions.is_empty());
    found
}

/// The words of each tool's name, as a model types what it has seen before.
pub(crate) fn names_as_words(tools: &[Tool]) -> Vec<Question> {
    let words = |tool: &Tool| Question { query: tool.name.replace(['_', '-'], " "), relevant: vec![tool.name.clone()] };
    tools.iter().map(words).collect()
}

/// The names of what a folder has, in order.
fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut names: Vec<_> =
        entries.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

fn lines<T: DeserializeOwned>(path: &Path) -> Vec<T> {
    let text = fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let parse = |line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    text.lines().filter(|line| !line.trim().is_empty()).map(parse).collect()
}
