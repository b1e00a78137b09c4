//! A scripted language model: npm's `@copilotkit/aimock` speaks the protocols, `model.mjs` chooses the answers.
//!
//! `AGENT_MAGIC_TOOL_TEST_AIMOCK` names the folder of the package. Without it, the tests that need it print that
//! they are skipped.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use crate::skip::skip;
use crate::world::World;

const PACKAGE: &str = "AGENT_MAGIC_TOOL_TEST_AIMOCK";

/// All providers.
pub(crate) const PROVIDERS: [&str; 5] = ["openai", "openai_responses", "anthropic", "gemini", "ollama"];

#[derive(Debug)]
pub(crate) struct Model {
    process: Child,
    address: String,
    _scenario: tempfile::NamedTempFile,
}

impl Model {
    /// Starts a model that follows these rules, and configures it in `world` once for each provider; the default
    /// is `openai`. Returns `None`, with a note on standard error, if the package is not installed.
    pub(crate) fn start(world: &World, rules: &Value, more: &str) -> Option<Self> {
        let Some(package) = std::env::var_os(PACKAGE) else {
            skip(&format!("{PACKAGE} does not name npm's `@copilotkit/aimock`"));
            return None;
        };
        let mut scenario = tempfile::NamedTempFile::new().expect("a file");
        scenario.write_all(rules.to_string().as_bytes()).expect("written");
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/agent/model.mjs");
        let mut process = Command::new("node")
            .args([script.as_os_str(), &package, scenario.path().as_os_str()])
            // The process ends when its standard input closes.
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("node starts");
        let mut url = String::new();
        BufReader::new(process.stdout.take().expect("a pipe"))
            .read_line(&mut url)
            .expect("the model prints its address");
        let address = url.trim().strip_prefix("http://").expect("a URL").to_owned();
        let model = Self { process, address, _scenario: scenario };
        world.configure(&model.configuration(more));
        Some(model)
    }

    /// Returns host and port.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// Returns the configuration with this model for each provider. `more` may start with keys of `[agent]`.
    pub(crate) fn configuration(&self, more: &str) -> String {
        let entry = |provider: &&str| {
            format!(
                "[models.{provider}]\nprovider = \"{provider}\"\nurl = \"http://{}\"\nprice = {{ input = 3.0, output = 15.0 }}\n",
                self.address
            )
        };
        let models: String = PROVIDERS.iter().map(entry).collect();
        let text = format!("[models.text]\nprovider = \"openai\"\nurl = \"http://{}\"\ntools = false\n", self.address);
        format!("[agent]\nmodel = \"openai\"\n{more}\n{models}{text}")
    }

    /// Returns the bodies of the requests so far, in the provider's format.
    pub(crate) fn asked(&self) -> Vec<Value> {
        asked_at(&self.address)
    }
}

/// Returns the bodies of the requests to the model at this address.
pub(crate) fn asked_at(address: &str) -> Vec<Value> {
    let mut stream = TcpStream::connect(address).expect("the model listens");
    write!(stream, "GET /__aimock/journal HTTP/1.0\r\nHost: {address}\r\n\r\n").expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("answered");
    let (_, body) = answer.split_once("\r\n\r\n").expect("a body");
    let entries: Value = serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {body}"));
    let entries = entries.as_array().expect("a list").iter();
    entries.map(|entry| entry["body"].clone()).collect()
}

impl Drop for Model {
    fn drop(&mut self) {
        // An error means that the process has already ended.
        self.process.kill().ok();
        self.process.wait().ok();
    }
}

/// A subtool that counts words. It waits while a file `hold` exists in its folder.
pub(crate) fn counting() -> Value {
    json!({"count_words": {
        "description": "Counts the words of a text.",
        "annotations": {"readOnlyHint": true},
        "input": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
        "run": {"process": {
            "argv": ["sh", "-c", "while [ -e hold ]; do sleep 0.02; done; awk '{print NF}'"],
            "stdin": "{{ text }}"
        }}
    }})
}

/// The rules of a whole task: list, run, end the turn, be woken, read, answer.
pub(crate) fn story() -> Value {
    json!([
        {"last": "^How many words", "runs": ["agent-magic-tool list tools --query='count words' --limit 1"]},
        {"last": "\"status\":\\s*\"pending\"", "says": "It is under way."},
        {"last": "result is final", "runs": ["agent-magic-tool read $ID"]},
        {"last": "\"data\":\\s*\"?(\\d+)", "says": "There are $1 words."},
        {"last": "count_words", "runs": ["agent-magic-tool run count_words --input='{\"text\": \"年度 b c\"}'"]},
    ])
}
