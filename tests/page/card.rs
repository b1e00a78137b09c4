//! One card of the waiting view in a real browser: what a human sees on it and does with it.

use std::panic::Location;

use serde_json::{Value, json};

use crate::browser::Tab;

/// The button that approves, inside a card.
pub(super) const APPROVE: &str = "[data-actions] [data-approve]";

/// A card in one tab, by the id of its task.
pub(crate) struct Card<'tab> {
    tab: &'tab mut Tab,
    id: String,
    /// The test that uses the card, for messages about what never happened.
    caller: &'static Location<'static>,
}

impl Tab {
    #[track_caller]
    pub(crate) fn card(&mut self, id: &str) -> Card<'_> {
        Card { tab: self, id: id.to_owned(), caller: Location::caller() }
    }

    /// Sends a request with the session's proof, past all buttons; the status of the answer.
    pub(super) async fn post(&mut self, path: &str, body: &Value) -> Value {
        let body = json!(body.to_string());
        let script = format!(
            "import('/page/send.js').then(page => page.send('{path}', new page.RawJson({body})))\
             .then(() => 200, problem => problem.status)"
        );
        self.value(&script).await
    }
}

impl Card<'_> {
    /// The selector of the first element inside the card that `inner` finds; of the card itself if `inner` is empty.
    pub(super) fn selector(&self, inner: &str) -> String {
        format!("[data-card='{}'] {inner}", self.id).trim_end().to_owned()
    }

    /// Calls a JavaScript function with an element inside the card, and returns its result.
    pub(super) async fn call(&mut self, inner: &str, function: &str) -> Value {
        let selector = json!(self.selector(inner));
        self.tab.value(&format!("({function})(document.querySelector({selector}))")).await
    }

    /// Waits until a JavaScript function returns true for an element inside the card.
    pub(super) async fn until(&mut self, inner: &str, function: &str) {
        let selector = json!(self.selector(inner));
        let expression = format!("(e => !!e && ({function})(e))(document.querySelector({selector}))");
        self.tab.until_at(self.caller, &expression).await;
    }

    pub(super) async fn click(&mut self, inner: &str) {
        let selector = self.selector(inner);
        self.tab.click_from(self.caller, &selector).await;
    }

    /// Waits until the card is on the page.
    pub(super) async fn appears(&mut self) {
        self.until("", "() => true").await;
    }

    /// Waits until the buttons of the card work.
    pub(super) async fn is_armed(&mut self) {
        self.until("[data-actions]", "e => e.inert === false").await;
    }

    /// Waits until the card is folded into one line.
    pub(super) async fn closes(&mut self) {
        self.until("", "e => e.matches('.closed')").await;
    }

    /// What the card's decision is bound to.
    pub(super) async fn digest(&mut self) -> Value {
        self.call("", "e => e.dataset.digest").await
    }

    /// The text of an element, whether it is in view or not.
    pub(super) async fn text(&mut self, inner: &str) -> String {
        let text = self.call(inner, "e => e.textContent").await;
        text.as_str().unwrap_or_default().to_owned()
    }

    /// The shown value of one field of the input.
    pub(super) async fn field(&mut self, name: &str) -> String {
        self.text(&format!("[data-shown='/{name}'] .value")).await
    }

    pub(crate) async fn approve(&mut self) {
        self.click(APPROVE).await;
    }

    /// The middle of the button to approve, in the coordinates of the window.
    pub(super) async fn place_of_approve(&mut self) -> (f64, f64) {
        let middle = "e => { e.scrollIntoView({block: 'center', behavior: 'instant'}); \
                      const b = e.getBoundingClientRect(); return [b.x + b.width / 2, b.y + b.height / 2]; }";
        let place = self.call(APPROVE, middle).await;
        (place[0].as_f64().expect("x"), place[1].as_f64().expect("y"))
    }

    /// Whether the button to approve is disabled.
    pub(super) async fn is_blocked(&mut self) -> bool {
        self.call(APPROVE, "e => e.ariaDisabled === 'true'").await == true
    }

    /// Denies through the panel, with the keyboard.
    pub(super) async fn deny(&mut self, reason: &str) {
        self.open("deny").await;
        self.until("[data-form=deny] textarea", "e => e === document.activeElement").await;
        self.tab.insert(reason).await;
        self.tab.press("Enter").await;
    }

    pub(super) async fn decline(&mut self) {
        self.click("[data-action=decline]").await;
    }

    /// Opens the panel `deny`, `edit` or `remember`.
    pub(super) async fn open(&mut self, panel: &str) {
        self.click(&format!("[data-opens={panel}]")).await;
    }

    pub(super) async fn submit(&mut self, form: &str) {
        self.click(&format!("[data-form={form}] [type=submit]")).await;
    }

    /// Replaces the text of a field in the panel `edit` or in the form of a question.
    pub(super) async fn fill(&mut self, name: &str, text: &str) {
        let field = format!("[data-pointer='/{name}'] input");
        self.click(&field).await;
        self.call(&field, "e => e.select()").await;
        self.tab.insert(text).await;
    }

    /// Approves the edited request after `submit("edit")`.
    pub(super) async fn approve_changes(&mut self) {
        self.click("[data-form=changes] [data-approve]").await;
    }

    /// Chooses one of the options of a question, given as JSON.
    pub(super) async fn choose(&mut self, option: &Value) {
        self.click(&format!("input[value='{option}']")).await;
    }

    /// Types the subtool's name, which a destructive request needs.
    pub(super) async fn type_word(&mut self, word: &str) {
        self.click("[data-typed]").await;
        self.tab.insert(word).await;
    }

    /// Selects the card for a batch.
    pub(super) async fn select(&mut self) {
        self.click("[data-select]").await;
    }

    pub(super) async fn scroll_to_end(&mut self) {
        self.call("[data-evidence]", "e => { e.scrollTop = e.scrollHeight; }").await;
    }

    /// Approves by a request of the page's own script, past its buttons; the status of the answer.
    pub(super) async fn approve_by_request(&mut self, typed: &str) -> Value {
        let digest = self.digest().await;
        let id = &self.id;
        let body = json!({"verdict": "approve", "typed": typed, "decisions": [{"id": id, "digest": digest}]});
        self.tab.post("/decide", &body).await
    }
}
