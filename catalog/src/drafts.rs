//! First versions of definitions: a template for each runner.
//!
//! Each of them loads and has no finding of `lint`; their authors change the words.

use serde_json::{Value, json};

/// A definition, and what its author must do before it works.
#[derive(Debug)]
pub struct NewDefinition {
    pub definition: Value,
    pub steps: Vec<String>,
}

/// A kind of subtool to start from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Template {
    Http,
    HttpWrite,
    Process,
    AskUser,
    Script,
    Llm,
    Agent,
}

impl Template {
    /// Each template with its name and what it is for.
    pub const ALL: [(&'static str, &'static str, Self); 7] = [
        ("http", "A GET request to an API with a key", Self::Http),
        ("http-write", "A request that changes something, after a human approved it", Self::HttpWrite),
        ("process", "A program with arguments", Self::Process),
        ("ask-user", "A question to the human", Self::AskUser),
        ("script", "A program in JavaScript that calls other subtools", Self::Script),
        ("llm", "A question to a language model", Self::Llm),
        ("agent", "A task for a sub-agent", Self::Agent),
    ];

    pub fn draft(self) -> NewDefinition {
        NewDefinition { definition: self.definition(), steps: self.steps() }
    }

    fn definition(self) -> Value {
        match self {
            Self::Http => json!({
                "description": "Tells the current weather of a place: temperature, wind, rain.",
                "phrases": ["is it raining", "do I need an umbrella"],
                "input": object(&json!({"place": {"type": "string", "description": "A city, like `Lisbon`."}})),
                "annotations": {"readOnlyHint": true},
                "run": {"http": {
                    "base_url": "https://api.example.com/v1",
                    "path": "/weather/{{ place }}",
                    "auth": {"api_key": {"header": "X-Api-Key", "value": "secret:example"}}
                }},
                "result": {"select": ".current // ."},
                "timeout": "30s",
                "retries": {"times": 2},
                "examples": [{"input": {"place": "Lisbon"}}]
            }),
            Self::HttpWrite => json!({
                "description": "Writes a note with a key and a text into the notebook.",
                "phrases": ["jot this down", "remember this for later"],
                "input": object(&json!({
                    "key": {"type": "string", "description": "A key that no other note has."},
                    "text": {"type": "string", "description": "The text, as Markdown."}
                })),
                "annotations": {"idempotentHint": true, "destructiveHint": false},
                "confirm": "always",
                "run": {"http": {
                    "method": "POST",
                    "base_url": "https://api.example.com/v1",
                    "path": "/notes",
                    "auth": {"bearer": "secret:example"},
                    "idempotency_header": "Idempotency-Key",
                    "body": {"json": {"key": "{{ key }}", "text": "{{ text }}"}}
                }},
                "timeout": "30s",
                "retries": {"times": 2},
                "examples": [{"input": {"key": "2026-05-01", "text": "Buy bread."}}]
            }),
            Self::Process => json!({
                "description": "Counts the words, lines and bytes of a file.",
                "phrases": ["how long is this text", "number of words"],
                "input": object(&json!({"path": {"type": "string", "description": "The path of the file."}})),
                "annotations": {"readOnlyHint": true, "openWorldHint": false},
                "run": {"process": {"argv": ["wc", "--", {"input_file": "{{ path }}"}], "output": "lines"}},
                "timeout": "30s",
                "examples": [{"input": {"path": "README.md"}}]
            }),
            Self::AskUser => json!({
                "description": "Asks the user which of several colors they want.",
                "phrases": ["let them pick a color"],
                "input": object(&json!({
                    "colors": {"type": "array", "items": {"type": "string"}, "minItems": 2, "description": "The colors."}
                })),
                "annotations": {"readOnlyHint": true, "openWorldHint": false},
                "run": {"ask_user": {"question": "Which color do you want?", "options": "{{ colors }}"}},
                "examples": [{"input": {"colors": ["red", "green"]}}]
            }),
            Self::Script => json!({
                "description": "Counts the files of a folder by the ends of their names.",
                "phrases": ["how many files of each kind", "what kinds of files are here"],
                "input": object(&json!({"path": {"type": "string", "description": "The path of the folder."}})),
                "annotations": {"readOnlyHint": true, "openWorldHint": false},
                "run": {"script": {
                    "source": "const {entries} = await files_list({path: input.path});\nconst counts = new Map();\n\
                        for (const {path} of entries) {\n  const end = path.split('.').at(-1);\n  \
                        counts.set(end, (counts.get(end) ?? 0) + 1);\n}\nreturn Object.fromEntries(counts);",
                    "calls": ["files_list"]
                }},
                "timeout": "1m",
                "examples": [{"input": {"path": "docs"}}]
            }),
            Self::Llm => json!({
                "description": "Translates a text into another language, and returns only the translation.",
                "phrases": ["say this in Portuguese", "what does this mean in English"],
                "input": object(&json!({
                    "text": {"type": "string", "description": "The text."},
                    "target_language": {"type": "string", "description": "The language to translate into."}
                })),
                "annotations": {"readOnlyHint": true},
                "run": {"llm": {
                    "system": "You translate. Answer with the translation and nothing else.",
                    "prompt": "Translate into {{ target_language }}:\n\n{{ text }}",
                    "temperature": 0
                }},
                "timeout": "2m",
                "examples": [{"input": {"text": "Good morning", "target_language": "Portuguese"}}]
            }),
            Self::Agent => json!({
                "description": "Has an assistant read the files of a folder and summarize them.",
                "phrases": ["what is in this folder about", "sum up my notes"],
                "input": object(&json!({"folder": {"type": "string", "description": "The folder to read."}})),
                "annotations": {"readOnlyHint": true},
                "run": {"agent": {
                    "prompt": "Summarize the files in {{ folder }} in ten sentences.",
                    "subtools": ["files_*"],
                    "steps": 20
                }},
                "timeout": "10m",
                "examples": [{"input": {"folder": "docs"}}]
            }),
        }
    }

    fn steps(self) -> Vec<String> {
        match self {
            Self::Http | Self::HttpWrite => {
                vec!["store its key: agent-magic-tool secret set example".to_owned()]
            }
            Self::Llm | Self::Agent => vec!["it needs a model in [models] of config.toml".to_owned()],
            Self::Script => vec![
                "move a longer program into a file beside it: \"file\": \"NAME.js\" instead of `source`".to_owned(),
            ],
            Self::Process | Self::AskUser => Vec::new(),
        }
    }
}

/// The schema of an object with these required properties.
fn object(properties: &Value) -> Value {
    let required: Vec<_> = properties.as_object().into_iter().flatten().map(|(name, _)| name).collect();
    json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false})
}
