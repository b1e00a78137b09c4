//! A human who is signed in to the page: in a browser, or with plain HTTP requests.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::PathBuf;

use ground::page_client::link::make_link;
use ground::page_client::proof::{ChallengeAnswer, ProvenRequest, SessionKey};
use ground::page_client::site::PageSite;
use serde_json::{Value, json};

use super::http::{self, Answer};
use crate::browser::Tab;
use crate::world::{World, until};

impl World {
    /// The folder of this world's executor.
    pub(super) fn executor_folder(&self) -> PathBuf {
        let mut found = None;
        until("the executor has a folder", || {
            let folders = std::fs::read_dir(self.state().join("executors")).into_iter().flatten().flatten();
            found = folders.map(|entry| entry.path()).find(|folder| folder.join("page.json").exists());
            found.is_some()
        });
        found.expect("the executor has a folder")
    }

    pub(super) fn site(&self) -> PageSite {
        let folder = self.executor_folder();
        let mut site = None;
        until("the page listens", || {
            site = PageSite::load_or_create(&folder).ok().filter(|site| site.port != 0);
            site.is_some()
        });
        site.expect("the page listens")
    }

    /// A link like the one that `executor page` prints.
    pub(super) fn link(&self) -> String {
        let site = self.site();
        format!("{}/#{}", site.origin(), make_link(&self.executor_folder()).expect("a link"))
    }

    /// A tab in which a human is signed in; `None` if no browser is installed.
    pub(crate) async fn signed_in_tab(&self) -> Option<Tab> {
        assert_eq!(self.run(&["executor", "start"]).exit, 0);
        let mut tab = Tab::open().await?;
        tab.go(&self.link()).await;
        tab.until("document.body.classList.contains('signed-in')").await;
        // The browser reports the 401 of the first request, before the sign-in.
        tab.errors.clear();
        Some(tab)
    }

    /// Has a human decide about a pending task; `typed` is the name that a destructive task needs.
    pub(crate) fn decide(&self, id: &str, verdict: &str, typed: &str) {
        until("the task waits for a human", || self.result_file(id)["state"] == "awaiting_confirmation");
        let human = Human::of(self);
        // A preview that arrives in between changes the digest; then decide again.
        until("the decision is accepted", || {
            let mut decision = human.decision(id, verdict);
            decision["typed"] = typed.into();
            let answer = human.post("/decide", &decision);
            assert!(matches!(answer.status, 200 | 409), "{}", answer.body);
            answer.status == 200
        });
    }

    /// The result file of a task after the task has ended.
    pub(crate) fn end_of(&self, id: &str) -> Value {
        until("the task has ended", || self.result_file(id)["status"] != "pending");
        self.result_file(id)
    }
}

/// A session of the page without a browser.
pub(crate) struct Human {
    pub(super) site: PageSite,
    pub(super) cookie: String,
    pub(super) key: SessionKey,
}

impl Human {
    /// Starts the executor if needed and signs in with a link.
    pub(crate) fn of(world: &World) -> Self {
        assert_eq!(world.run(&["executor", "start"]).exit, 0);
        let site = world.site();
        let secret = make_link(&world.executor_folder()).expect("a link");
        let answer = http::post(&site, "/login", &json!({"secret": secret}), "");
        assert_eq!(answer.status, 200, "{}", answer.body);
        let cookie =
            answer.head.split("set-cookie: ").nth(1).and_then(|rest| rest.split(';').next()).expect("a cookie");
        let body: Value = serde_json::from_str(answer.body.trim()).expect("JSON");
        let key = body["key"].as_str().and_then(SessionKey::from_hex).expect("a key");
        Self { cookie: cookie.to_owned(), key, site }
    }

    /// The header with the session's cookie.
    pub(super) fn cookie_header(&self) -> String {
        format!("Cookie: {}\r\n", self.cookie)
    }

    /// A proof of one request, or the answer that refuses the challenge.
    fn try_proof(&self, method: &str, target: &str, body: &str) -> Result<String, Answer> {
        let challenge = http::get(&self.site, "/challenge?nonce=ours", &self.cookie_header());
        let answer: Option<ChallengeAnswer> = serde_json::from_str(&challenge.body).ok();
        // The executor proves itself first.
        let answer = answer.filter(|answer| self.key.is_executor("ours", answer)).ok_or(challenge)?;
        Ok(self.key.prove(ProvenRequest { method, target, body: body.as_bytes() }, &answer))
    }

    /// A proof of one request.
    pub(super) fn proof(&self, method: &str, target: &str, body: &str) -> String {
        self.try_proof(method, target, body).unwrap_or_else(|refused| panic!("{} {}", refused.status, refused.body))
    }

    fn headers_with(&self, proof: &str) -> String {
        format!("{}X-Page-Proof: {proof}\r\n", self.cookie_header())
    }

    /// The headers that prove one request.
    pub(super) fn headers(&self, method: &str, target: &str, body: &str) -> String {
        self.headers_with(&self.proof(method, target, body))
    }

    pub(crate) fn post(&self, path: &str, body: &Value) -> Answer {
        match self.try_proof("POST", path, &body.to_string()) {
            Ok(proof) => http::post(&self.site, path, body, &self.headers_with(&proof)),
            Err(refused) => refused,
        }
    }

    pub(crate) fn get(&self, path: &str) -> Answer {
        match self.try_proof("GET", path, "") {
            Ok(proof) => http::get(&self.site, path, &self.headers_with(&proof)),
            Err(refused) => refused,
        }
    }

    /// The card of a pending task, as the page's server sends it.
    pub(crate) fn card(&self, id: &str) -> String {
        self.get(&format!("/card/{id}")).body
    }

    /// A pending task and the digest of what its card shows now.
    pub(crate) fn pending_task(&self, id: &str) -> Value {
        let card = self.get(&format!("/card/{id}"));
        let digest = card.body.split("data-digest=\"").nth(1).and_then(|rest| rest.split('"').next());
        json!({"id": id, "digest": digest.unwrap_or_else(|| panic!("{id} is not pending: {}", card.body))})
    }

    /// The address that the card of a question offers to open, if it offers one.
    pub(crate) fn link_of(&self, id: &str) -> Option<String> {
        let card = self.get(&format!("/card/{id}")).body;
        let link = card.split("class=\"sign-in\"").nth(1)?.split("href=\"").nth(1)?.split('"').next()?;
        Some(link.replace("&amp;", "&").replace("&#x2f;", "/"))
    }

    /// The body of a decision about what the card of a pending task shows now.
    pub(super) fn decision(&self, id: &str, verdict: &str) -> Value {
        json!({"decisions": [self.pending_task(id)], "verdict": verdict})
    }

    pub(crate) fn approve(&self, id: &str) -> Answer {
        self.post("/decide", &self.decision(id, "approve"))
    }

    pub(crate) fn deny(&self, id: &str) -> Answer {
        self.post("/decide", &self.decision(id, "deny"))
    }

    /// Answers a question: `accept` with what is filled in, `decline` or `cancel`.
    pub(crate) fn answer(&self, id: &str, action: &str, content: &Value) {
        let mut answer = self.pending_task(id);
        answer["action"] = action.into();
        if action == "accept" {
            answer["content"] = content.clone();
        }
        let answered = self.post("/answer", &answer);
        assert_eq!(answered.status, 200, "{}", answered.body);
    }

    /// The first event of the event stream.
    pub(super) fn first_event(&self) -> String {
        self.open_page().1
    }

    /// Opens the event stream, as a browser with the page does; the page is open until the stream is dropped. Also
    /// returns its first event.
    pub(crate) fn open_page(&self) -> (TcpStream, String) {
        let mut stream = http::connect(&self.site);
        let host = http::host(&self.site);
        let (proof, cookie) = (self.proof("GET", "/events", ""), self.cookie_header());
        let request = format!("GET /events?proof={proof} HTTP/1.1\r\nHost: {host}\r\n{cookie}\r\n");
        stream.write_all(request.as_bytes()).expect("the request is sent");
        let mut bytes = Vec::new();
        let mut part = [0; 4096];
        // An empty line ends the head, and another one the first event.
        while let Ok(count @ 1..) = stream.read(&mut part) {
            bytes.extend_from_slice(&part[..count]);
            if let Some((_, body)) = String::from_utf8_lossy(&bytes).split_once("\r\n\r\n")
                && body.contains("\n\n")
            {
                let event = body.to_owned();
                return (stream, event);
            }
        }
        panic!("the stream ended: {}", String::from_utf8_lossy(&bytes));
    }
}
