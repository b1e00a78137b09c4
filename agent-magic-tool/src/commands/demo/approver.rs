//! The human of the demo: the person at the terminal, or a stand-in, which the output labels as such.
//!
//! The stand-in does what a browser does, but only with the demo's own executor: it signs in with a single-use
//! link, reads the card, and sends its digest back.

use std::time::{Duration, Instant};

use agent_side::backoff::Backoff;
use agent_side::error::Error;
use ground::page_client::client::PageClient;
use serde_json::json;

use super::stage::Stage;
use super::text;

/// How long the demo waits for the person at the terminal.
const DECISION_TIMEOUT: Duration = Duration::from_secs(30);
const MAX_PAUSE: Duration = Duration::from_millis(200);

pub(super) struct Approver<'a> {
    stage: &'a Stage<'a>,
    is_done: bool,
}

impl<'a> Approver<'a> {
    pub(super) fn new(stage: &'a Stage<'a>) -> Self {
        Self { stage, is_done: false }
    }

    /// Whether `line`, printed by the agent, shows that its loop sleeps until a human has decided.
    pub(super) fn is_needed(&mut self, line: &str) -> bool {
        let is_needed = !self.is_done && line.contains("waiting for publish_report");
        self.is_done |= is_needed;
        is_needed
    }

    /// Lets the person decide. The stand-in approves if there is no person or no decision in time.
    pub(super) fn decide(&self) -> Result<(), Error> {
        let id = self.pending_id()?;
        if self.stage.has_person() {
            self.stage.show_page()?;
            let seconds = DECISION_TIMEOUT.as_secs();
            self.stage.comment(&format!("Decide there. After {seconds} seconds a stand-in approves it."))?;
            if self.is_decided_within(DECISION_TIMEOUT, &id)? {
                return Ok(());
            }
        }
        self.stage.comment("[stand-in] No human is here, so the demo approves it, as a browser would:")?;
        let client = self.stage.sign_in()?;
        let digest = digest(&client, &id)?;
        self.stage.print_line(&format!(
            "POST /decide {{\"id\": \"{id}\", \"digest\": \"{}…\", \"verdict\": \"approve\"}}",
            &digest[..16]
        ))?;
        let decision = json!({"decisions": [{"id": id, "digest": digest}], "verdict": "approve"});
        client.post("/decide", &decision).map_err(|error| Error::internal(format!("the page refused: {error}")))?;
        client.log_out();
        Ok(())
    }

    /// The id of the task that waits for a human.
    fn pending_id(&self) -> Result<String, Error> {
        let tasks = self.stage.call(&["tasks", "--state", "awaiting_confirmation"])?;
        Ok(text(&tasks[0], "id").to_owned())
    }

    fn is_decided_within(&self, timeout: Duration, id: &str) -> Result<bool, Error> {
        let deadline = Instant::now() + timeout;
        let mut backoff = Backoff::new(MAX_PAUSE);
        while Instant::now() < deadline {
            let waiting = self.stage.call(&["tasks", "--state", "awaiting_confirmation"])?;
            if !waiting.as_array().is_some_and(|tasks| tasks.iter().any(|task| task["id"] == id)) {
                return Ok(true);
            }
            backoff.pause(Some(deadline));
        }
        Ok(false)
    }
}

/// Reads the digest of a task from its card on the page.
fn digest(client: &PageClient, id: &str) -> Result<String, Error> {
    let card = client.get(&format!("/card/{id}"));
    let card = card.map_err(|error| Error::internal(format!("the page shows no card: {error}")))?;
    let digest = card.body.split("data-digest=\"").nth(1).and_then(|rest| rest.split('"').next());
    digest.map(str::to_owned).ok_or_else(|| Error::internal("the card has no digest"))
}
