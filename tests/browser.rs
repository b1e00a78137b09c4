//! A real browser: Debian's `chromium` without a screen, driven over its debugging protocol.
//!
//! One process for all tests, a context of its own (cookies, storage) for each. It ends with the test
//! program, however that ends. Clicks and keys are real events at real places, not calls of a script.

use std::collections::HashMap;
use std::io::Write as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use base64::Engine as _;
use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async};

use crate::world::{PATIENCE, until};

/// The names under which distributions ship it.
const PROGRAMS: [&str; 3] = ["chromium", "chromium-browser", "google-chrome"];

struct Running {
    /// Its end of this pipe closes with the test program, and the browser with that.
    _alive: Child,
    _profile: tempfile::TempDir,
    address: String,
}

/// Where the one browser listens; `None`, with a word on standard error, where there is none.
#[expect(clippy::print_stderr, reason = "a test that did not run must not look like one that passed")]
fn address() -> Option<&'static str> {
    static BROWSER: OnceLock<Option<Running>> = OnceLock::new();
    let running = BROWSER.get_or_init(|| {
        let is_there = |program: &&str| Command::new(program).arg("--version").output().is_ok();
        let Some(program) = PROGRAMS.into_iter().find(|program| is_there(program)) else {
            eprintln!("SKIPPED: no browser; Debian's `chromium` is wanted");
            return None;
        };
        Some(start(program))
    });
    running.as_ref().map(|running| running.address.as_str())
}

fn start(program: &str) -> Running {
    let profile = tempfile::tempdir().expect("a folder");
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
    Running { _alive: alive, _profile: profile, address: address.expect("it listens") }
}

/// One tab, with cookies and storage of its own.
pub(crate) struct Tab {
    socket: WebSocketStream<MaybeTlsStream<tokio::net::TcpStream>>,
    session: String,
    next: u64,
    answers: HashMap<u64, Value>,
    /// What the page's console and its policies complained of.
    pub(crate) complaints: Vec<String>,
    context: String,
}

impl Tab {
    /// A tab in a context of its own.
    pub(crate) async fn open() -> Option<Self> {
        let address = address()?;
        let (socket, _) = connect_async(address).await.expect("the browser answers");
        let (session, context) = (String::new(), String::new());
        let mut tab = Self { socket, session, next: 0, answers: HashMap::new(), complaints: Vec::new(), context };
        let context = tab.ask("Target.createBrowserContext", json!({"disposeOnDetach": true})).await;
        tab.context = context["browserContextId"].as_str().expect("a context").to_owned();
        tab.attach().await;
        Some(tab)
    }

    /// Another tab of the same person.
    pub(crate) async fn beside(&self) -> Self {
        let address = address().expect("it runs");
        let (socket, _) = connect_async(address).await.expect("the browser answers");
        let (session, context) = (String::new(), self.context.clone());
        let mut tab = Self { socket, session, next: 0, answers: HashMap::new(), complaints: Vec::new(), context };
        tab.attach().await;
        tab
    }

    async fn attach(&mut self) {
        let target = json!({"url": "about:blank", "browserContextId": self.context});
        let target = self.ask("Target.createTarget", target).await["targetId"].clone();
        let attached = self.ask("Target.attachToTarget", json!({"targetId": target, "flatten": true})).await;
        attached["sessionId"].as_str().expect("a session").clone_into(&mut self.session);
        for domain in ["Page", "Runtime", "Log", "Network"] {
            self.ask(&format!("{domain}.enable"), json!({})).await;
        }
        self.size(1280, 900, "light").await;
    }

    /// What one command of the protocol answers.
    pub(crate) async fn ask(&mut self, method: &str, parameters: Value) -> Value {
        let answer = self.answer(method, parameters).await;
        assert_eq!(answer.get("error"), None, "{method}: {answer}");
        answer["result"].clone()
    }

    /// Its answer, whether that is a result or an error.
    async fn answer(&mut self, method: &str, parameters: Value) -> Value {
        self.next += 1;
        let id = self.next;
        let mut request = json!({"id": id, "method": method, "params": parameters});
        if !self.session.is_empty() {
            request["sessionId"] = self.session.as_str().into();
        }
        self.socket.send(Message::text(request.to_string())).await.expect("sent");
        loop {
            if let Some(answer) = self.answers.remove(&id) {
                return answer;
            }
            let read = tokio::time::timeout(PATIENCE, self.socket.next()).await.expect("the browser answers in time");
            let Some(Ok(Message::Text(text))) = read else { continue };
            let message: Value = serde_json::from_str(&text).expect("JSON");
            match message["id"].as_u64() {
                Some(id) => drop(self.answers.insert(id, message)),
                None => self.hear(&message),
            }
        }
    }

    fn hear(&mut self, message: &Value) {
        let complaint = match message["method"].as_str() {
            Some("Log.entryAdded") => &message["params"]["entry"]["text"],
            Some("Runtime.exceptionThrown") => &message["params"]["exceptionDetails"]["exception"]["description"],
            Some("Runtime.consoleAPICalled") if message["params"]["type"] == "error" => &message["params"]["args"],
            Some("Page.javascriptDialogOpening") => &message["params"]["message"],
            _ => return,
        };
        self.complaints.push(complaint.to_string());
    }

    pub(crate) async fn size(&mut self, width: u32, height: u32, theme: &str) {
        let metrics = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500});
        self.ask("Emulation.setDeviceMetricsOverride", metrics).await;
        let features = json!([{"name": "prefers-color-scheme", "value": theme},
            {"name": "prefers-reduced-motion", "value": "reduce"}]);
        self.ask("Emulation.setEmulatedMedia", json!({"features": features})).await;
    }

    pub(crate) async fn go(&mut self, url: &str) {
        // A fragment alone is no other page.
        self.ask("Page.navigate", json!({"url": "about:blank"})).await;
        self.ask("Page.navigate", json!({"url": url})).await;
        self.until("document.readyState === 'complete' && location.href !== 'about:blank'").await;
    }

    /// The value of an expression, awaited.
    pub(crate) async fn value(&mut self, expression: &str) -> Value {
        let asked = json!({"expression": expression, "awaitPromise": true, "returnByValue": true});
        let answer = self.ask("Runtime.evaluate", asked).await;
        assert_eq!(answer.get("exceptionDetails"), None, "{expression}: {answer}");
        answer["result"]["value"].clone()
    }

    /// The value of an expression as things are; null where the page went elsewhere meanwhile.
    async fn glance(&mut self, expression: &str) -> Value {
        let asked = json!({"expression": expression, "awaitPromise": true, "returnByValue": true});
        self.answer("Runtime.evaluate", asked).await["result"]["result"]["value"].clone()
    }

    /// Waits until an expression is true.
    #[track_caller]
    pub(crate) fn until<'a>(&'a mut self, expression: &'a str) -> impl Future<Output = ()> + 'a {
        let place = std::panic::Location::caller();
        async move {
            let deadline = tokio::time::Instant::now() + PATIENCE;
            loop {
                if self.glance(expression).await == true {
                    return;
                }
                if tokio::time::Instant::now() >= deadline {
                    let text = self.text("body").await;
                    panic!("{place}: it never came true that {expression}; the page says:\n{text}");
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
    }

    /// What a person reads there.
    pub(crate) async fn text(&mut self, selector: &str) -> String {
        let expression = format!("document.querySelector({})?.innerText ?? ''", json!(selector));
        self.value(&expression).await.as_str().unwrap_or_default().to_owned()
    }

    /// Clicks in the middle of what `selector` finds, as soon as it can be clicked.
    #[track_caller]
    pub(crate) fn click<'a>(&'a mut self, selector: &'a str) -> impl Future<Output = ()> + 'a {
        let place = std::panic::Location::caller();
        async move {
            // Where nothing covers it, and where it still is a frame later.
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
            let deadline = tokio::time::Instant::now() + PATIENCE;
            let at = loop {
                let found = self.glance(&find).await;
                if found.is_array() {
                    break found;
                }
                if tokio::time::Instant::now() >= deadline {
                    let text = self.text("body").await;
                    panic!("{place}: `{selector}` could never be clicked; the page says:\n{text}");
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            };
            self.click_at(at[0].as_f64().expect("a place"), at[1].as_f64().expect("a place")).await;
        }
    }

    pub(crate) async fn click_at(&mut self, x: f64, y: f64) {
        for kind in ["mouseMoved", "mousePressed", "mouseReleased"] {
            let event = json!({"type": kind, "x": x, "y": y, "button": "left", "clickCount": 1});
            self.ask("Input.dispatchMouseEvent", event).await;
        }
    }

    /// Types into what has the focus.
    pub(crate) async fn insert(&mut self, text: &str) {
        self.ask("Input.insertText", json!({"text": text})).await;
    }

    /// Presses one key, by its name in the web's own words.
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
        self.ask("Input.dispatchKeyEvent", event("keyDown")).await;
        self.ask("Input.dispatchKeyEvent", json!({"type": "keyUp", "key": key, "windowsVirtualKeyCode": code})).await;
    }

    /// A picture of what is in view.
    pub(crate) async fn picture(&mut self, path: &Path) {
        self.take_picture(json!({"format": "png"}), path).await;
    }

    /// A picture of the whole page, from its top to its end.
    pub(crate) async fn whole_picture(&mut self, path: &Path) {
        let size = self.ask("Page.getLayoutMetrics", json!({})).await["cssContentSize"].clone();
        let clip = json!({"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1});
        self.take_picture(json!({"format": "png", "captureBeyondViewport": true, "clip": clip}), path).await;
    }

    async fn take_picture(&mut self, asked: Value, path: &Path) {
        let picture = self.ask("Page.captureScreenshot", asked).await;
        let bytes = base64::engine::general_purpose::STANDARD.decode(picture["data"].as_str().expect("a picture"));
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        std::fs::write(path, bytes.expect("base64")).expect("written");
    }
}
