//! A human with the page open.

use std::path::PathBuf;

use executor::page::{PageSite, make_link};
use serde_json::{Value, json};

use super::ann::bound;
use super::threats::Human;
use crate::browser::Tab;
use crate::world::{World, until};

impl World {
    /// The folder of this world's executor.
    pub(super) fn executor_folder(&self) -> PathBuf {
        let mut found = None;
        until("an executor was here", || {
            let folders = std::fs::read_dir(self.state().join("executors")).into_iter().flatten().flatten();
            found = folders.map(|entry| entry.path()).find(|folder| folder.join("page.json").exists());
            found.is_some()
        });
        found.expect("found")
    }

    pub(super) fn site(&self) -> PageSite {
        let folder = self.executor_folder();
        let mut site = None;
        until("the page listens", || {
            site = PageSite::of(&folder).ok().filter(|site| site.port != 0);
            site.is_some()
        });
        site.expect("it listens")
    }

    /// What `executor page` would give to the human's terminal.
    pub(super) fn link(&self) -> String {
        let site = self.site();
        format!("{}/#{}", site.origin(), make_link(&self.executor_folder()).expect("made"))
    }

    /// A tab in which a human is logged in; `None` where there is no browser.
    pub(crate) async fn human(&self) -> Option<Tab> {
        assert_eq!(self.run(&["executor", "start"]).exit, 0);
        let mut tab = Tab::open().await?;
        tab.go(&self.link()).await;
        tab.until("document.body.classList.contains('signed-in')").await;
        // Whoever has no session yet is told so, and the browser notes that.
        tab.complaints.clear();
        Some(tab)
    }

    /// What a human says on the page of a task that waits; `typed` is what they type where that is wanted.
    pub(crate) fn decides(&self, id: &str, verdict: &str, typed: &str) {
        until("it waits for a human", || self.result_file(id)["state"] == "awaiting_confirmation");
        let human = Human::of(self);
        // What it would replace may be found out just now: then it is asked anew.
        until("the human is heard", || {
            let decision = json!({"decisions": [bound(&human, id)], "verdict": verdict, "typed": typed});
            let answer = human.post("/decide", &decision);
            assert!(matches!(answer.status, 200 | 409), "{}", answer.body);
            answer.status == 200
        });
    }

    /// The end of a task.
    pub(crate) fn end_of(&self, id: &str) -> Value {
        until("the task has ended", || self.result_file(id)["status"] != "pending");
        self.result_file(id)
    }
}
