//! The official SDKs of OpenAI, Anthropic and Ollama, unchanged, for Python and for JavaScript.
//!
//! `AGENT_MAGIC_TOOL_TEST_SERVE_PYTHON` names the folder of a Python with `openai`, `anthropic` and `ollama`,
//! `AGENT_MAGIC_TOOL_TEST_SERVE_NODE` the `node_modules` with the packages of these names. Without them, the tests that
//! need them print that they are skipped.
//!
//! `AGENT_MAGIC_TOOL_TEST_FRAMEWORKS_PYTHON` and `AGENT_MAGIC_TOOL_TEST_FRAMEWORKS_NODE` name the same for frameworks that are
//! built on such SDKs.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use crate::skip::skip;
use crate::world::Lines;

const PYTHON: &str = "AGENT_MAGIC_TOOL_TEST_SERVE_PYTHON";
const NODE: &str = "AGENT_MAGIC_TOOL_TEST_SERVE_NODE";
const FRAMEWORKS_PYTHON: &str = "AGENT_MAGIC_TOOL_TEST_FRAMEWORKS_PYTHON";
const FRAMEWORKS_NODE: &str = "AGENT_MAGIC_TOOL_TEST_FRAMEWORKS_NODE";

/// One SDK.
#[derive(Debug, Clone)]
pub(super) struct Sdk {
    pub(super) script: &'static str,
    /// The program, and what it needs before its own arguments.
    words: Vec<PathBuf>,
}

/// All five SDKs; `None`, with a note on standard error, if they are not installed.
pub(super) fn all() -> Option<Vec<Sdk>> {
    let (Some(python), Some(node)) = (std::env::var_os(PYTHON), std::env::var_os(NODE)) else {
        skip(&format!("{PYTHON} and {NODE} do not name the SDKs of `openai` and `ollama`"));
        return None;
    };
    let of = |script| Sdk::of(script, &python, &node);
    Some(["openai.py", "openai.mjs", "anthropic.py", "ollama.py", "ollama.mjs"].map(of).into())
}

/// The frameworks for Python, and those for JavaScript; `None`, with a note on standard error, if they are not installed.
pub(super) fn frameworks() -> Option<[Sdk; 2]> {
    let (Some(python), Some(node)) = (std::env::var_os(FRAMEWORKS_PYTHON), std::env::var_os(FRAMEWORKS_NODE)) else {
        skip(&format!("{FRAMEWORKS_PYTHON} and {FRAMEWORKS_NODE} do not name frameworks for agents"));
        return None;
    };
    Some(["frameworks.py", "frameworks.mjs"].map(|script| Sdk::of(script, &python, &node)))
}

/// The SDK of Anthropic.
pub(super) fn anthropic() -> Option<Sdk> {
    all()?.into_iter().find(|sdk| sdk.script == "anthropic.py")
}

/// The SDKs of OpenAI.
pub(super) fn openai() -> Option<Vec<Sdk>> {
    Some(all()?.into_iter().filter(Sdk::is_openai).collect())
}

impl Sdk {
    /// The SDK that this script uses, from the folder of a Python or of modules for Node.
    fn of(script: &'static str, python: &OsStr, node: &OsStr) -> Self {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/serve").join(script);
        let words = match file.extension().and_then(OsStr::to_str) {
            Some("py") => vec![Path::new(python).join("python"), file],
            _ => vec![PathBuf::from("node"), file, PathBuf::from(node)],
        };
        Self { script, words }
    }

    pub(super) fn is_openai(&self) -> bool {
        self.script.starts_with("openai")
    }

    pub(super) fn is_python(&self) -> bool {
        Path::new(self.script).extension().is_some_and(|extension| extension == "py")
    }

    pub(super) fn is_ollama(&self) -> bool {
        self.script.starts_with("ollama")
    }

    /// The way to ask a question in a chat.
    pub(super) fn chat(&self) -> &'static str {
        self.apis()[0]
    }

    /// The ways to ask a question with it, the chat first.
    pub(super) fn apis(&self) -> &'static [&'static str] {
        match self {
            sdk if sdk.is_openai() => &["chat", "responses", "completions"],
            sdk if sdk.is_ollama() => &["chat", "generate"],
            _ => &["messages"],
        }
    }

    /// Starts to make these requests, one after the other.
    pub(super) fn start(&self, url: &str, key: &str, requests: &Value) -> SdkRun {
        let mut process = Command::new(&self.words[0])
            .args(&self.words[1..])
            .args([url, key, &requests.to_string()])
            .stdout(Stdio::piped())
            .spawn()
            .expect("the SDK starts");
        let lines = Lines::of(process.stdout.take().expect("a pipe"));
        SdkRun { process, lines, text: String::new() }
    }

    /// Makes these requests, and returns their answers.
    pub(super) fn run(&self, url: &str, key: &str, requests: &Value) -> Vec<Value> {
        let mut run = self.start(url, key, requests);
        let count = requests.as_array().expect("a list").len();
        (0..count).map(|_| run.end()).collect()
    }

    /// Asks one question in one way.
    pub(super) fn ask(&self, url: &str, api: &str, stream: bool, message: &str) -> Value {
        self.run(url, "none", &json!([{"api": api, "stream": stream, "message": message}])).remove(0)
    }
}

/// An SDK at work.
#[derive(Debug)]
pub(super) struct SdkRun {
    process: Child,
    lines: Lines,
    /// What was streamed of the current answer.
    pub(super) text: String,
}

impl SdkRun {
    fn line(&mut self) -> Value {
        let line = self.lines.next();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?} after {:?}", self.text))
    }

    /// Waits until the streamed text has these words.
    pub(super) fn until(&mut self, words: &str) {
        while !self.text.contains(words) {
            let line = self.line();
            let piece = line["piece"].as_str().unwrap_or_else(|| panic!("the answer ended before `{words}`: {line}"));
            self.text.push_str(piece);
        }
    }

    /// The next answer or error, with what was streamed of it.
    pub(super) fn end(&mut self) -> Value {
        loop {
            let mut line = self.line();
            let Some(piece) = line["piece"].as_str() else {
                line["streamed"] = std::mem::take(&mut self.text).into();
                return line;
            };
            self.text.push_str(piece);
        }
    }
}

impl Drop for SdkRun {
    fn drop(&mut self) {
        // An error means that the process has already ended.
        self.process.kill().ok();
        self.process.wait().ok();
    }
}
