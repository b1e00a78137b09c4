//! A real browser: headless Chromium, driven over its debugging protocol.
//!
//! All tests share one process, which ends with the test program. Each test has its own browser context with its own
//! cookies and storage. Clicks and keys are real input events, not script calls.

use std::collections::HashMap;
use std::io::Write as _;
use std::panic::Location;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use base64::Engine as _;
use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async};

use crate::skip::skip;
use crate::world::{TEST_TIMEOUT, until};

/// The names that distributions give to Chromium.
const PROGRAMS: [&str; 3] = ["chromium", "chromium-browser", "google-chrome"];

struct Running {
    /// A shell that ends the browser when its standard input closes, which happens when the test program ends.
    _alive: Child,
    _profile: tempfile::TempDir,
    address: String,
}

/// The address of the shared browser; `None`, with a note on standard error, if no browser is installed.
fn address() -> Option<&'static str> {
    static BROWSER: OnceLock<Option<Running>> = OnceLock::new();
    let running = BROWSER.get_or_init(|| {
        let is_there = |program: &&str| Command::new(program).arg("--version").output().is_ok();
        let Some(program) = PROGRAMS.into_iter().find(|program| is_there(program)) else {
            skip("no browser is installed; install `chromium`");
            return None;
        };
        Some(start(program))
    });
    running.as_ref().map(|running| running.address.as_str())
}

fn start(program: &str) -> Running {
    let profile = tempfile::tempdir().expect("a temporary folder");
    let flags = "--headless --no-sandbox --disable-gpu --no-first-run --disable-background-networking \
                 --disable-component-update --disable-sync --disable-dev-shm-usage --remote-debugging-port=0 --mute-audio";
    let script = format!("{program} {flags} --user-data-dir=\"$1\" about:blank >\"$1/log\" 2>&1 & read -r _; kill $!");
    let mut alive = Command::new("sh")
        .args(["-c", &script, "browser"])
        .arg(profile.path())
        .stdin(Stdio::piped())
        .spawn()
        .expect("a shell");
    alive.stdin.as_mut().expect("a pipe").flush().expect("open");
    let port_file = profile.path().join("DevToolsActivePort");
    let mut address = None;
    until("the browser listens", || {
        let text = std::fs::read_to_string(&port_file).unwrap_or_default();
        address = text.split_once('\n').map(|(port, path)| format!("ws://127.0.0.1:{port}{}", path.trim()));
        address.is_some()
    });
    Running { _alive: alive, _profile: profile, address: address.expect("the browser listens") }
}

/// One tab of the browser.
pub(crate) struct Tab {
    socket: WebSocketStream<MaybeTlsStream<tokio::net::TcpStream>>,
    session: String,
    next: u64,
    answers: HashMap<u64, Value>,
    /// Console errors, uncaught exceptions, policy violations and dialogs.
    pub(crate) errors: Vec<String>,
    context: String,
}

impl Tab {
    /// Opens a tab in a new browser context.
    pub(crate) async fn open() -> Option<Self> {
        let address = address()?;
        let (socket, _) = connect_async(address).await.expect("the browser accepts connections");
        let (session, context) = (String::new(), String::new());
        let mut tab = Self { socket, session, next: 0, answers: HashMap::new(), errors: Vec::new(), context };
        let context = tab.call("Target.createBrowserContext", json!({"disposeOnDetach": true})).await;
        tab.context = context["browserContextId"].as_str().expect("a context").to_owned();
        tab.attach().await;
        Some(tab)
    }

    /// Opens another tab in the same browser context.
    pub(crate) async fn open_another(&self) -> Self {
        let address = address().expect("the browser runs");
        let (socket, _) = connect_async(address).await.expect("the browser accepts connections");
        let (session, context) = (String::new(), self.context.clone());
        let mut tab = Self { socket, session, next: 0, answers: HashMap::new(), errors: Vec::new(), context };
        tab.attach().await;
        tab
    }

    async fn attach(&mut self) {
        let target = json!({"url": "about:blank", "browserContextId": self.context});
        let target = self.call("Target.createTarget", target).await["targetId"].clone();
        let attached = self.call("Target.attachToTarget", json!({"targetId": target, "flatten": true})).await;
        attached["sessionId"].as_str().expect("a session").clone_into(&mut self.session);
        for domain in ["Page", "Runtime", "Log", "Network"] {
            self.call(&format!("{domain}.enable"), json!({})).await;
        }
        self.size(1280, 900, "light").await;
    }

    /// Runs one protocol command that must succeed, and returns its result.
    pub(crate) async fn call(&mut self, method: &str, parameters: Value) -> Value {
        let answer = self.try_call(method, parameters).await;
        assert_eq!(answer.get("error"), None, "{method}: {answer}");
        answer["result"].clone()
    }

    /// Runs one protocol command, and returns the answer with its result or error.
    async fn try_call(&mut self, method: &str, parameters: Value) -> Value {
        self.next += 1;
        let id = self.next;
        let mut request = json!({"id": id, "method": method, "params": parameters});
        if !self.session.is_empty() {
            request["sessionId"] = self.session.as_str().into();
        }
        self.socket.send(Message::text(request.to_string())).await.expect("the command is sent");
        loop {
            if let Some(answer) = self.answers.remove(&id) {
                return answer;
            }
            let read = tokio::time::timeout(TEST_TIMEOUT, self.socket.next())
                .await
                .expect("the browser answers before the deadline");
            let Some(Ok(Message::Text(text))) = read else { continue };
            let message: Value = serde_json::from_str(&text).expect("JSON");
            match message["id"].as_u64() {
                Some(id) => drop(self.answers.insert(id, message)),
                None => self.record_error(&message),
            }
        }
    }

    fn record_error(&mut self, message: &Value) {
        let error = match message["method"].as_str() {
            Some("Log.entryAdded") => &message["params"]["entry"]["text"],
            Some("Runtime.exceptionThrown") => &message["params"]["exceptionDetails"]["exception"]["description"],
            Some("Runtime.consoleAPICalled") if message["params"]["type"] == "error" => &message["params"]["args"],
            Some("Page.javascriptDialogOpening") => &message["params"]["message"],
            _ => return,
        };
        self.errors.push(error.to_string());
    }

    pub(crate) async fn size(&mut self, width: u32, height: u32, theme: &str) {
        let metrics = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500});
        self.call("Emulation.setDeviceMetricsOverride", metrics).await;
        let features = json!([{"name": "prefers-color-scheme", "value": theme},
            {"name": "prefers-reduced-motion", "value": "reduce"}]);
        self.call("Emulation.setEmulatedMedia", json!({"features": features})).await;
    }

    pub(crate) async fn go(&mut self, url: &str) {
        // Navigating to the same page with another fragment would load nothing.
        self.call("Page.navigate", json!({"url": "about:blank"})).await;
        self.call("Page.navigate", json!({"url": url})).await;
        self.until(
            "document.readyState === 'complete' && location.href !== 'about:blank' && !document.querySelector('[data-login=opening]')",
        )
        .await;
    }

    /// Evaluates an expression that must not throw, awaits it, and returns its value.
    pub(crate) async fn value(&mut self, expression: &str) -> Value {
        let parameters = json!({"expression": expression, "awaitPromise": true, "returnByValue": true});
        let answer = self.call("Runtime.evaluate", parameters).await;
        assert_eq!(answer.get("exceptionDetails"), None, "{expression}: {answer}");
        answer["result"]["value"].clone()
    }

    /// Evaluates an expression; null if it throws or the page navigates meanwhile.
    async fn try_value(&mut self, expression: &str) -> Value {
        let parameters = json!({"expression": expression, "awaitPromise": true, "returnByValue": true});
        self.try_call("Runtime.evaluate", parameters).await["result"]["result"]["value"].clone()
    }

    /// Waits until an expression is true.
    #[track_caller]
    pub(crate) fn until<'a>(&'a mut self, expression: &'a str) -> impl Future<Output = ()> + 'a {
        self.until_at(Location::caller(), expression)
    }

    /// Like `until`, for a helper that reports its caller's location.
    pub(crate) async fn until_at(&mut self, caller: &Location<'_>, expression: &str) {
        let deadline = tokio::time::Instant::now() + TEST_TIMEOUT;
        while self.try_value(expression).await != true {
            if tokio::time::Instant::now() >= deadline {
                let text = self.text("body").await;
                panic!("{caller}: timed out waiting for {expression}; the page shows:\n{text}");
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// The text that a person reads in the first element that `selector` finds.
    pub(crate) async fn text(&mut self, selector: &str) -> String {
        let expression = format!("document.querySelector({})?.innerText ?? ''", json!(selector));
        self.value(&expression).await.as_str().unwrap_or_default().to_owned()
    }

    /// Clicks the middle of the first element that `selector` finds, as soon as it can be clicked.
    #[track_caller]
    pub(crate) fn click<'a>(&'a mut self, selector: &'a str) -> impl Future<Output = ()> + 'a {
        self.click_from(Location::caller(), selector)
    }

    /// Like `click`, for a helper that reports its caller's location.
    pub(crate) async fn click_from(&mut self, caller: &Location<'_>, selector: &str) {
        // The element must be enabled, must not move for two frames, and nothing may cover it.
        let find = format!(
            "(async () => {{ const frame = () => new Promise(requestAnimationFrame); \
             const e = document.querySelector({}); if (!e) return null; \
             e.scrollIntoView({{block: 'center', behavior: 'instant'}}); await frame(); \
             if (e.disabled || e.closest('[inert], [aria-disabled=true]')) return null; \
             const a = e.getBoundingClientRect(); await frame(); await frame(); const b = e.getBoundingClientRect(); \
             if (a.x !== b.x || a.y !== b.y || b.width === 0) return null; \
             const at = [b.x + b.width / 2, b.y + b.height / 2]; \
             return e.contains(document.elementFromPoint(...at)) ? at : null; }})()",
            json!(selector)
        );
        let deadline = tokio::time::Instant::now() + TEST_TIMEOUT;
        let at = loop {
            // Nothing moves in a tab that is not shown. A new tab may come to the front late.
            if self.value("document.visibilityState").await != "visible" {
                self.call("Page.bringToFront", json!({})).await;
            }
            let found = self.try_value(&find).await;
            if found.is_array() {
                break found;
            }
            if tokio::time::Instant::now() >= deadline {
                let text = self.text("body").await;
                panic!("{caller}: timed out waiting to click `{selector}`; the page shows:\n{text}");
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        };
        self.click_at(at[0].as_f64().expect("x"), at[1].as_f64().expect("y")).await;
    }

    /// Makes this the tab that the window shows. A busy browser may leave another one there, so it is asked again.
    pub(crate) async fn bring_to_front(&mut self) {
        let deadline = tokio::time::Instant::now() + TEST_TIMEOUT;
        loop {
            self.call("Page.bringToFront", json!({})).await;
            if self.value("document.visibilityState === 'visible' && document.hasFocus()").await == true {
                return;
            }
            assert!(tokio::time::Instant::now() < deadline, "the tab is not shown");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    pub(crate) async fn click_at(&mut self, x: f64, y: f64) {
        for kind in ["mouseMoved", "mousePressed", "mouseReleased"] {
            let event = json!({"type": kind, "x": x, "y": y, "button": "left", "clickCount": 1});
            self.call("Input.dispatchMouseEvent", event).await;
        }
    }

    /// Types into the focused element.
    pub(crate) async fn insert(&mut self, text: &str) {
        self.call("Input.insertText", json!({"text": text})).await;
    }

    /// Presses one key, named as in `KeyboardEvent.key`.
    pub(crate) async fn press(&mut self, key: &str) {
        let code = match key {
            "Enter" => 13,
            "Tab" => 9,
            "Escape" => 27,
            other => u32::from(other.to_ascii_uppercase().as_bytes()[0]),
        };
        let text = if key == "Enter" {
            "\r"
        } else if key.len() == 1 {
            key
        } else {
            ""
        };
        let event = |kind: &str| json!({"type": kind, "key": key, "windowsVirtualKeyCode": code, "text": text});
        self.call("Input.dispatchKeyEvent", event("keyDown")).await;
        self.call("Input.dispatchKeyEvent", json!({"type": "keyUp", "key": key, "windowsVirtualKeyCode": code})).await;
    }

    /// Saves a screenshot of the visible part of the page.
    pub(crate) async fn screenshot(&mut self, path: &Path) {
        self.capture(json!({"format": "png"}), path).await;
    }

    /// Saves a screenshot of the whole page.
    pub(crate) async fn full_screenshot(&mut self, path: &Path) {
        let size = self.call("Page.getLayoutMetrics", json!({})).await["cssContentSize"].clone();
        let clip = json!({"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1});
        self.capture(json!({"format": "png", "captureBeyondViewport": true, "clip": clip}), path).await;
    }

    async fn capture(&mut self, parameters: Value, path: &Path) {
        let screenshot = self.call("Page.captureScreenshot", parameters).await;
        let bytes = base64::engine::general_purpose::STANDARD.decode(screenshot["data"].as_str().expect("image data"));
        std::fs::create_dir_all(path.parent().expect("a parent folder")).expect("the folder is created");
        std::fs::write(path, bytes.expect("base64")).expect("the file is written");
    }
}
