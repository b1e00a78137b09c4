//! The retrieval sets: tools, and queries with the tools that are relevant to each.

use std::collections::HashMap;
use std::fmt;
use std::fs;
use std::path::Path;

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

#[derive(Debug, Deserialize)]
pub(crate) struct Tool {
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) description: String,
    #[serde(default)]
    pub(crate) input: Map<String, Value>,
    #[serde(default)]
    pub(crate) phrases: Vec<String>,
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
        let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
        let mut files: Vec<_> = entries.map(|entry| entry.expect("an entry").file_name()).collect();
        files.sort();
        let mut sets = Vec::new();
        for file in files.iter().map(|file| file.to_string_lossy()) {
            let Some(stem) = file.strip_suffix(".jsonl").filter(|stem| stem.starts_with("queries")) else { continue };
            let questions: Vec<Question> = lines(&folder.join(&*file));
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
}

fn lines<T: DeserializeOwned>(path: &Path) -> Vec<T> {
    let text = fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let parse = |line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    text.lines().filter(|line| !line.trim().is_empty()).map(parse).collect()
}
