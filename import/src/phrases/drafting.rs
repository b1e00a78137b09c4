//! Phrases that a model drafts for operations that have none: what it is asked, and what of its answer is kept.
//!
//! The model reads descriptions of a stranger, so its answer is data too: a phrase is a few words of letters and digits,
//! belongs to an operation that was asked about, and is said of no other one.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use serde_json::{Map, Value};

use protocol::sentences::first_sentences;

/// What every request begins with.
pub const SYSTEM: &str = include_str!("../../phrases/drafting.md");
/// An operation with fewer phrases gets more of them.
pub const MIN_PHRASES: usize = 3;
/// The most phrases that an operation keeps.
const MAX_PHRASES: usize = 12;
/// How many operations are in a request: few enough that the answer is not cut.
pub const BATCH: usize = 15;
const MAX_DESCRIPTION_CHARS: usize = 300;
const MAX_INPUTS: usize = 12;
const MAX_PHRASE_CHARS: usize = 60;
const MAX_PHRASE_WORDS: usize = 8;
/// About as many characters are one token.
const CHARS_PER_TOKEN: usize = 4;
/// About as many tokens has the answer for one operation in one language.
const ANSWER_TOKENS: usize = 90;

/// An operation without phrases.
#[derive(Debug, Clone, PartialEq)]
pub struct Undescribed {
    pub name: String,
    /// What the model reads of it, in a line.
    line: String,
}

/// The definitions of a file that have fewer phrases than [`MIN_PHRASES`].
pub fn without_phrases(file: &Map<String, Value>) -> Vec<Undescribed> {
    let definitions = file.iter().filter(|(name, _)| !name.starts_with('$'));
    let lacking = definitions.filter(|(_, definition)| {
        let phrases = definition["phrases"].as_array().map_or(0, Vec::len);
        definition.is_object() && phrases < MIN_PHRASES
    });
    lacking.map(|(name, definition)| Undescribed { name: name.clone(), line: line(name, definition) }).collect()
}

fn line(name: &str, definition: &Value) -> String {
    let description = definition["description"].as_str().unwrap_or_default();
    let inputs = definition.pointer("/input/properties").and_then(Value::as_object);
    let inputs: Vec<_> = inputs.into_iter().flatten().take(MAX_INPUTS).map(|(field, _)| field.as_str()).collect();
    let mut line = format!("{name}: {}", first_sentences(description, MAX_DESCRIPTION_CHARS));
    if !inputs.is_empty() {
        write!(line, " (inputs: {})", inputs.join(", ")).expect("a string takes all");
    }
    line
}

/// What the model is asked about these operations, for phrases in English and in `languages`.
pub fn question(operations: &[Undescribed], languages: &[String]) -> String {
    let mut text = String::new();
    if !languages.is_empty() {
        let of_each = "8 to 12 phrases in each of these languages: English, ";
        writeln!(text, "Write {of_each}{}.\n", languages.join(", ")).expect("a string takes all");
    }
    for operation in operations {
        writeln!(text, "- {}", operation.line).expect("a string takes all");
    }
    text
}

/// About how many tokens the requests for these operations have, and their answers.
pub fn estimated_tokens(operations: &[Undescribed], languages: usize) -> (usize, usize) {
    let requests = operations.len().div_ceil(BATCH);
    let chars: usize = operations.iter().map(|operation| operation.line.len() + 3).sum();
    let asked = (chars + requests * SYSTEM.len()).div_ceil(CHARS_PER_TOKEN);
    (asked, operations.len() * ANSWER_TOKENS * (languages + 1))
}

/// Reads what a model answered: the phrases of each of `operations`. `said` are phrases of other operations, which lead
/// nowhere else; those of the answer are added. An error says why nothing could be read.
pub fn read(
    answer: &str,
    operations: &[Undescribed],
    languages: usize,
    said: &mut BTreeSet<String>,
) -> Result<BTreeMap<String, Vec<String>>, String> {
    let object = answer.find('{').zip(answer.rfind('}')).and_then(|(start, end)| answer.get(start..=end));
    let object = object.ok_or("the answer has no JSON object")?;
    let drafted: BTreeMap<String, Value> =
        serde_json::from_str(object).map_err(|error| format!("the answer is not JSON: {error}"))?;
    let mut phrases = BTreeMap::new();
    for operation in operations {
        let texts = drafted.get(&operation.name).and_then(Value::as_array).into_iter().flatten();
        let texts = texts.filter_map(Value::as_str).map(|text| text.trim().to_lowercase());
        let kept = texts.filter(|text| is_phrase(text, &operation.name) && said.insert(text.clone()));
        let kept: Vec<_> = kept.take(MAX_PHRASES * (languages + 1)).collect();
        if !kept.is_empty() {
            phrases.insert(operation.name.clone(), kept);
        }
    }
    Ok(phrases)
}

/// Whether a text is a few words, and no name, template or reference.
fn is_phrase(text: &str, name: &str) -> bool {
    let is_word = |it: char| it.is_alphanumeric() || matches!(it, ' ' | '-' | '\'' | '’' | '&' | '+' | '#' | '.');
    let words = text.split_whitespace().count();
    // Languages without spaces write several words as one.
    let is_short = words <= MAX_PHRASE_WORDS && text.chars().count() <= MAX_PHRASE_CHARS;
    let has_words = words > 1 || (text.chars().count() > 1 && !text.is_ascii());
    is_short && has_words && text.chars().all(is_word) && text != name
}

/// The phrases of an operation that are said in `file` already.
pub fn said_in(file: &Map<String, Value>) -> BTreeSet<String> {
    let of_each = file.values().filter_map(|definition| definition["phrases"].as_array());
    of_each.flatten().filter_map(Value::as_str).map(str::to_lowercase).collect()
}

/// Adds phrases to the definitions of a file.
pub fn add(file: &mut Map<String, Value>, phrases: &BTreeMap<String, Vec<String>>) {
    for (name, phrases) in phrases {
        let Some(definition) = file.get_mut(name).and_then(Value::as_object_mut) else { continue };
        let there = definition.entry("phrases").or_insert_with(|| Value::Array(Vec::new()));
        if let Value::Array(there) = there {
            there.extend(phrases.iter().map(|phrase| Value::from(phrase.as_str())));
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn file() -> Map<String, Value> {
        let file = json!({"$source": {}, "mail_list": {"description": "Lists messages. More.", "input": {"properties": {"q": {}}}},
            "mail_send": {"description": "Sends.", "phrases": ["write to someone", "send an email", "mail a text"]},
            "mail_read": {"description": "Reads.", "phrases": ["Title"]}});
        file.as_object().cloned().unwrap_or_default()
    }

    #[test]
    fn operations_with_few_phrases_are_asked_about() {
        let lacking = without_phrases(&file());
        let names: Vec<_> = lacking.iter().map(|operation| operation.name.as_str()).collect();
        assert_eq!(names, ["mail_list", "mail_read"]);
        let text = question(&lacking, &["German".to_owned()]);
        assert!(text.contains("- mail_list: Lists messages. More. (inputs: q)\n- mail_read: Reads."), "{text}");
        assert!(text.starts_with("Write 8 to 12 phrases in each of these languages: English, German."), "{text}");
    }

    #[test]
    fn only_phrases_of_an_answer_are_kept() {
        let lacking = without_phrases(&file());
        let mut said = said_in(&file());
        let answer = "Here:\n```json\n{\"mail_list\": [\"Show my mail\", \"send an email\", \"show my mail\", \"{{ secret }}\", \
            \"secret:google now\", \"inbox\", \"what came in today\", \"new messages\", \"邮件列表\"], \"other\": [\"a b\"], \
            \"mail_read\": [\"read it\", 5]}\n```";
        let phrases = read(answer, &lacking, 0, &mut said).expect("an answer");
        let expected = ["show my mail", "what came in today", "new messages", "邮件列表"];
        let of_read = ("mail_read".to_owned(), vec!["read it".to_owned()]);
        assert_eq!(phrases, BTreeMap::from([("mail_list".to_owned(), expected.map(str::to_owned).to_vec()), of_read]));
        let mut file = file();
        add(&mut file, &phrases);
        assert_eq!(file["mail_list"]["phrases"], json!(expected));
        assert!(read("I cannot.", &lacking, 0, &mut said).is_err());
        assert!(read("{\"mail_list\": [", &lacking, 0, &mut said).is_err());
    }
}
