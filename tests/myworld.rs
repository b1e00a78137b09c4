//! A real server in the shape of Gmail, GitHub, Drive or Calendar: the `myworld` program (`myworld[gateway]` 0.2.1 on the Python
//! Package Index).
//!
//! The environment variable `AGENT_MAGIC_TOOL_TEST_MYWORLD` holds the path of its binary. Without it, the tests
//! that need the server report on standard error that they are skipped. One world is one process on a free
//! loopback port, with one environment of some servers; dropping the value ends it. This file is self-contained,
//! so that other test programs can include it by `#[path]`.

use std::process::Stdio;
use std::time::Duration;

use base64::Engine as _;
use serde_json::{Value, json};
use tokio::process::{Child, Command};

use crate::skip::skip;

/// The environment variable with the path of the `myworld` binary.
const PROGRAM: &str = "AGENT_MAGIC_TOOL_TEST_MYWORLD";

/// Long, since Python has to import a lot, perhaps on a busy machine.
const START_TIMEOUT: Duration = Duration::from_mins(1);

#[derive(Debug)]
pub(crate) struct World {
    /// The base URL, like `http://127.0.0.1:41234`.
    pub(crate) base: String,
    /// A Google access token of the mailbox's owner; it also works as a refresh token.
    pub(crate) google_token: String,
    pub(crate) github_token: String,
    /// The mailbox's owner.
    pub(crate) email: String,
    run: String,
    client: reqwest::Client,
    _process: Child,
    _folder: tempfile::TempDir,
}

impl World {
    /// Starts a world with an empty mailbox that has the label `work`, and the default repositories.
    /// Returns `None`, and reports it on standard error, if the program is not available.
    pub(crate) async fn start() -> Option<Self> {
        Self::with_faults(json!([])).await
    }

    /// Like [`Self::start`], with injected faults like
    /// `[{"server": "gmail", "tool": "gmail.users.messages.send", "kind": "timeout_after_commit", "on_call": 1}]`.
    /// For REST calls a fault must name the operation, not the service's tool.
    pub(crate) async fn with_faults(faults: Value) -> Option<Self> {
        let owner = json!({"email": "ann@acme.example", "name": "Ann Lee"});
        let mailbox = json!({"user": owner, "labels": ["work"], "emails": []});
        Self::with(&json!({"gmail": {"seed": mailbox}, "github": {}}), &faults).await
    }

    /// Starts a world with these services and faults, as `myworld` describes them.
    pub(crate) async fn with(servers: &Value, faults: &Value) -> Option<Self> {
        let Some(program) = std::env::var_os(PROGRAM) else {
            skip(&format!("{PROGRAM} does not name the `myworld` program (PyPI `myworld[gateway]` 0.2.1)"));
            return None;
        };
        drop(rustls::crypto::ring::default_provider().install_default());
        // The server may close idle connections at any time, so none are kept.
        let client = reqwest::Client::builder().no_proxy().pool_max_idle_per_host(0).build().expect("a client");
        let folder = tempfile::tempdir().expect("a folder");
        let (base, process) = serve(&program, folder.path(), &client).await;
        let spec = json!({"name": "world", "servers": servers, "agents": {"agent": {}}, "faults": faults});
        let started = answer(client.post(format!("{base}/envs")).json(&json!({ "spec": spec }))).await;
        let credentials = &started["credentials"]["agent"];
        let text = |value: &Value| value.as_str().expect("a text").to_owned();
        Some(Self {
            google_token: text(&credentials["google_access_token"]),
            github_token: text(&credentials["github_token"]),
            email: text(&credentials["email"]),
            run: text(&started["id"]),
            base,
            client,
            _process: process,
            _folder: folder,
        })
    }

    /// The base URL that stands for `https://HOST`, for `http.endpoints` of the configuration.
    pub(crate) fn endpoint(&self, host: &str) -> String {
        format!("{}/gw/{host}", self.base)
    }

    /// Inserts a mail into the mailbox as MIME, by `messages.insert`, and returns its id.
    /// `labels` are names; labels that do not exist are created.
    pub(crate) async fn insert_mail(&self, subject: &str, body: &str, labels: &[&str]) -> String {
        let mut ids = Vec::new();
        for label in labels {
            ids.push(self.label(label).await);
        }
        let encode = |text: &str| base64::engine::general_purpose::STANDARD.encode(text);
        let mime = format!(
            "From: Bob <bob@example.com>\r\nTo: {}\r\nSubject: =?UTF-8?B?{}?=\r\nMIME-Version: 1.0\r\n\
             Content-Type: text/plain; charset=UTF-8\r\nContent-Transfer-Encoding: base64\r\n\r\n{}\r\n",
            self.email,
            encode(subject),
            encode(body)
        );
        let raw = base64::engine::general_purpose::URL_SAFE.encode(mime);
        let inserted = self.gmail(reqwest::Method::POST, "messages", Some(json!({"raw": raw, "labelIds": ids}))).await;
        inserted["id"].as_str().expect("an id").to_owned()
    }

    /// Returns the id of the label with this name, and creates the label if it does not exist.
    pub(crate) async fn label(&self, name: &str) -> String {
        let labels = self.gmail(reqwest::Method::GET, "labels", None).await;
        let known = labels["labels"].as_array().expect("labels").iter().find(|label| label["name"] == name).cloned();
        let label = match known {
            Some(label) => label,
            None => self.gmail(reqwest::Method::POST, "labels", Some(json!({"name": name}))).await,
        };
        label["id"].as_str().expect("an id").to_owned()
    }

    /// Returns the mails that were really sent: those with the label SENT, in full.
    pub(crate) async fn sent(&self) -> Vec<Value> {
        let listed = self.gmail(reqwest::Method::GET, "messages?labelIds=SENT", None).await;
        let mut sent = Vec::new();
        for message in listed["messages"].as_array().into_iter().flatten() {
            let id = message["id"].as_str().expect("an id");
            sent.push(self.gmail(reqwest::Method::GET, &format!("messages/{id}"), None).await);
        }
        sent
    }

    /// Advances the world's clock, which does not move by itself.
    pub(crate) async fn advance(&self, seconds: u64) {
        let passed = self.client.post(format!("{}/envs/{}/advance", self.base, self.run));
        answer(passed.json(&json!({ "seconds": seconds }))).await;
    }

    /// Returns every call to the world's services, in order, including those that this value made itself.
    pub(crate) async fn calls(&self) -> Vec<Value> {
        let calls = answer(self.client.get(format!("{}/envs/{}/calls", self.base, self.run))).await;
        calls["calls"].as_array().expect("calls").clone()
    }

    /// Sends a request to Gmail v1 as the mailbox's owner, bypassing the code under test.
    pub(crate) async fn gmail(&self, method: reqwest::Method, path: &str, body: Option<Value>) -> Value {
        let url = format!("{}/gmail/v1/users/me/{path}", self.endpoint("gmail.googleapis.com"));
        let request = self.client.request(method, url).bearer_auth(&self.google_token);
        answer(match body {
            Some(body) => request.json(&body),
            None => request,
        })
        .await
    }
}

/// Starts the program on a free port. Tries again if another process takes the port meanwhile.
async fn serve(program: &std::ffi::OsStr, home: &std::path::Path, client: &reqwest::Client) -> (String, Child) {
    for _ in 0..5 {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("an address").port();
        drop(listener);
        let mut process = Command::new(program)
            .args(["serve", "--host", "127.0.0.1", "--log-level", "error", "--port", &port.to_string()])
            .env("HOME", home)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .expect("the program starts");
        let base = format!("http://127.0.0.1:{port}");
        let ready = async {
            // The program prints nothing when it is ready, so its health endpoint is polled.
            let mut pause = tokio::time::interval(Duration::from_millis(50));
            loop {
                pause.tick().await;
                if client.get(format!("{base}/healthz")).send().await.is_ok_and(|answer| answer.status().is_success()) {
                    return;
                }
            }
        };
        tokio::select! {
            () = ready => return (base, process),
            _ = process.wait() => {}
            () = tokio::time::sleep(START_TIMEOUT) => panic!("`myworld serve` did not answer within {START_TIMEOUT:?}"),
        }
    }
    panic!("`myworld serve` ended five times");
}

async fn answer(request: reqwest::RequestBuilder) -> Value {
    let response = request.send().await.expect("an answer");
    let status = response.status();
    let text = response.text().await.expect("a text");
    assert!(status.is_success(), "{status}: {text}");
    serde_json::from_str(&text).expect("JSON")
}
