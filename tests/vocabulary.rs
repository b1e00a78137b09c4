//! One word for one thing: what can be tested of the glossary in ARCHITECTURE.md.

use std::collections::BTreeMap;

use crate::tidy::{CRATES, File, own_sources, sources};

/// Names that each command and each module may have one of.
const SHARED: [&str; 2] = ["Args", "Error"];

/// Beginnings of constants that say with a riddle what `MAX_`, `MIN_` and `_TIMEOUT` say.
const ODD_CONSTANTS: [&str; 8] = ["MOST", "LARGEST", "LONGEST", "LEAST", "FEWEST", "SHORTEST", "SMALLEST", "FARTHEST"];

/// Types that are no nouns: participles and particles that once named something.
const NO_NOUNS: [&str; 38] = [
    "Again", "Answered", "Asked", "Asleep", "Below", "Broken", "By", "Called", "Changed", "Chosen", "Closed", "Covers",
    "Decided", "Ended", "Failed", "Filled", "Finished", "Found", "Given", "Heard", "Held", "How", "Kept", "Known",
    "Listed", "Most", "Moved", "Off", "Opened", "Ran", "Said", "Settled", "Shown", "Spoken", "Taken", "Told", "Until",
    "Why",
];

/// Phrases that a maintainer elsewhere has to read twice.
const RIDDLES: [&str; 6] = ["nobody", "whoever", "somebody", " is none", " are none", "anybody"];

#[test]
fn every_type_name_stands_once_in_a_crate() {
    for package in CRATES {
        let mut defined: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for file in sources(&format!("{package}/src/")) {
            for name in types(&file) {
                defined.entry(name).or_default().push(file.name.clone());
            }
        }
        let shared: Vec<_> = defined
            .iter()
            .filter(|(name, files)| files.len() > 1 && !SHARED.contains(&name.as_str()))
            .map(|(name, files)| format!("{name}: {}", files.join(", ")))
            .collect();
        assert!(shared.is_empty(), "{package}:\n{}", shared.join("\n"));
    }
}

#[test]
fn a_type_is_a_noun() {
    let mut odd = Vec::new();
    for file in own_sources() {
        odd.extend(
            types(&file)
                .into_iter()
                .filter(|name| NO_NOUNS.contains(&name.as_str()))
                .map(|name| format!("{}: {name}", file.name)),
        );
    }
    assert!(odd.is_empty(), "\n{}", odd.join("\n"));
}

#[test]
fn a_bound_is_called_max_or_min() {
    let mut odd = Vec::new();
    for file in own_sources() {
        for line in file.code().lines() {
            let Some((_, rest)) = line.split_once("const ") else { continue };
            let name: String =
                rest.chars().take_while(|letter| letter.is_ascii_uppercase() || *letter == '_').collect();
            if ODD_CONSTANTS.iter().any(|odd| name.split('_').any(|word| word == *odd)) {
                odd.push(format!("{}: {name}", file.name));
            }
        }
    }
    assert!(odd.is_empty(), "\n{}", odd.join("\n"));
}

#[test]
fn comments_and_messages_are_plain_english() {
    let mut odd = Vec::new();
    for file in own_sources() {
        for (number, line) in file.text.lines().enumerate() {
            let lower = line.to_lowercase();
            if let Some(riddle) = RIDDLES.iter().find(|riddle| lower.contains(**riddle)) {
                odd.push(format!("{}:{}: {riddle}", file.name, number + 1));
            }
        }
    }
    assert!(odd.is_empty(), "\n{}", odd.join("\n"));
}

/// To clients of the API, a task that waits for a human is a gate, and a rule of the configuration has `gates`. In code the
/// first is `waiting` and the second table access.
#[test]
fn a_gate_is_a_word_of_clients_and_rules_alone() {
    let mut odd = Vec::new();
    for package in ["agent-loop", "mcp", "serve", "sql"] {
        for file in sources(&format!("{package}/src/")) {
            for (number, line) in file.text.lines().enumerate() {
                let is_said =
                    line.split(|letter: char| !letter.is_alphanumeric()).any(|word| word == "gate" || word == "gates");
                if is_said && !line.contains(['"', '`']) {
                    odd.push(format!("{}:{}: {}", file.name, number + 1, line.trim()));
                }
            }
        }
    }
    assert!(odd.is_empty(), "\n{}", odd.join("\n"));
}

#[test]
fn a_word_of_the_glossary_has_one_meaning() {
    let text = include_str!("../ARCHITECTURE.md");
    let (_, glossary) = text.split_once("## Glossary").expect("a glossary");
    let (glossary, _) = glossary.split_once("\n## ").expect("what follows it");
    let rows = glossary.lines().filter_map(|line| line.strip_prefix("| ")?.split(" | ").next());
    let mut words: Vec<_> = rows.flat_map(|words| words.split(", ")).collect();
    words.sort_unstable();
    let twice: Vec<_> = words.windows(2).filter(|pair| pair[0] == pair[1]).map(|pair| pair[0]).collect();
    assert!(words.len() > 70 && twice.is_empty(), "{twice:?}");
}

/// The types that a file defines, outside of its tests; associated types do not count.
fn types(file: &File) -> Vec<String> {
    let mut names = Vec::new();
    let code = file.code();
    for line in code.lines() {
        let is_associated = line.starts_with(' ') && line.trim_start().starts_with("type ");
        let mut words = line
            .trim_start()
            .split(|letter: char| !letter.is_alphanumeric() && letter != '_' && letter != '(' && letter != ')');
        let mut word = words.next().unwrap_or_default();
        if word.starts_with("pub") {
            word = words.find(|word| ["struct", "enum", "trait", "type"].contains(word)).unwrap_or_default();
        }
        if !is_associated && ["struct", "enum", "trait", "type"].contains(&word) {
            names.extend(words.next().map(|name| name.split('(').next().unwrap_or(name).to_owned()));
        }
    }
    names
}
