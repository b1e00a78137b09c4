//! Hostile texts and hostile pages against a browser that is signed in.

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use super::card::APPROVE;
use super::http;
use super::human::Human;
use super::scenario::Scenario;
use crate::browser::Tab;
use crate::world::{World, until};

/// Texts that try to be markup or code, and what the page must show for each.
const TEXTS: [(&str, &str); 11] = [
    ("<img src=x onerror=alert(1)>", "<img src=x onerror=alert(1)>"),
    ("</script><script>alert(2)</script>", "</script><script>alert(2)</script>"),
    ("</textarea></title><svg onload=alert(3)>", "</textarea></title><svg onload=alert(3)>"),
    ("javascript:alert(4)", "javascript:alert(4)"),
    ("\" onmouseover=\"alert(5)\" x=\"", "\" onmouseover=\"alert(5)\" x=\""),
    ("' autofocus onfocus='alert(6)", "' autofocus onfocus='alert(6)"),
    ("{{ 7 * 7 }}{% include 'base.html' %}${7*7}", "{{ 7 * 7 }}{% include 'base.html' %}${7*7}"),
    ("a\u{2028}b\u{2029}c\u{202e}d", "aU+2028bU+2029cU+202Ed"),
    ("&lt;b&gt;&amp;#60;", "&lt;b&gt;&amp;#60;"),
    ("**bold** [link](https://evil.example) ```", "**bold** [link](https://evil.example) ```"),
    ("\u{1b}[31mred\u{0}\u{7f}", "U+001B[31mredU+0000U+007F"),
];

/// An expression that lists the elements on the page that its own templates would never produce.
const FOREIGN: &str = "[...document.querySelectorAll('*')].filter(e => [...e.attributes].some(a => /^on/i.test(a.name) \
    || /^\\s*javascript:/i.test(a.value) && a.name !== 'value' && a.name !== 'placeholder' && !a.name.startsWith('data-') \
    && a.name !== 'title') || e.matches('iframe, object, embed, script:not([src^=\"/page\"]), img:not([src=\"/icon.svg\"])'))\
    .map(e => e.outerHTML)";

/// An expression that is true once an element of the page shows `text`.
fn is_shown(text: &str) -> String {
    format!(
        "[...document.querySelectorAll('bdi, h1, h2, p, dd, span')].some(e => e.textContent.includes({}))",
        json!(text)
    )
}

/// In a description, an input, a reason, an error, a folder, a session and a human's note.
#[tokio::test]
async fn hostile_texts_are_shown_as_text_and_do_nothing() {
    let world = World::new();
    let all = TEXTS.iter().map(|(text, _)| *text).collect::<Vec<_>>().join(" ");
    let plain = TEXTS.iter().map(|(text, _)| text.replace('\0', "")).collect::<Vec<_>>().join(" ");
    let properties = TEXTS
        .iter()
        .enumerate()
        .map(|(n, (text, _))| (format!("f{n}"), json!({"type": "string", "description": text})));
    let properties: serde_json::Map<_, _> = properties.collect();
    let printed = format!("{{% raw %}}{plain}{{% endraw %}}");
    let argv = ["sh", "-c", "printf %s \"$1\" >&2; exit 1", "fail", &printed];
    world.define(
        "hostile.json",
        &json!({
            "hostile": {"description": all, "input": {"type": "object", "properties": properties}, "run": {"process": {"argv": ["true"]}}},
            "broken": {"description": "Fails.", "input": {}, "annotations": {"readOnlyHint": true}, "tags": [plain],
                "run": {"process": {"argv": argv}}}
        }),
    );
    let Some(mut tab) = world.signed_in_tab().await else { return };
    let folder = world.folder().join("<img src=x onerror=alert(8)>\n\u{1b}[2J");
    std::fs::create_dir(&folder).expect("the folder is created");
    let input: serde_json::Map<_, _> =
        TEXTS.iter().enumerate().map(|(n, (text, _))| (format!("f{n}"), json!(text))).collect();
    let reason = format!("--reason={}", TEXTS[0].0);
    let ask = |tool: &str, input: &Value| {
        let mut command = world.command(&["run", tool, "--input", &input.to_string(), &reason]);
        command.current_dir(&folder).env("AGENT_MAGIC_TOOL_SESSION", plain.replace(['\u{1b}', '\u{7f}'], ""));
        let ran = world.transcript(&command.output().expect("the program starts"));
        assert_eq!(ran.exit, 0, "{ran}");
        ran.json()["id"].as_str().expect("an id").to_owned()
    };
    let (asked, failed) = (ask("hostile", &Value::Object(input)), ask("broken", &json!({})));
    world.end_of(&failed);
    let mut card = tab.card(&asked);
    card.appears().await;
    for (n, (_, shown)) in TEXTS.iter().enumerate() {
        assert_eq!(card.field(&format!("f{n}")).await, *shown);
    }
    assert_eq!(card.text(".reason .value").await, TEXTS[0].1);
    let origin = card.text(".origin").await;
    assert!(origin.contains("<img src=x onerror=alert(8)>U+000AU+001B[2J"), "{origin}");
    card.open("edit").await;
    card.open("remember").await;
    card.deny(TEXTS[1].0).await;
    world.end_of(&asked);

    let origin = world.site().origin();
    for path in ["/", "/tasks", "/history", "/subtools", "/subtool/hostile", "/subtool/broken"]
        .map(str::to_owned)
        .into_iter()
        .chain([
            format!("/task/{asked}"),
            format!("/task/{failed}"),
            format!("/history?q={}", "%3Cimg%20src=x%20onerror=alert(9)%3E"),
        ])
    {
        tab.go(&format!("{origin}{path}")).await;
        assert_eq!(tab.value(FOREIGN).await, json!([]), "{path}");
        if path == format!("/task/{asked}") {
            tab.until(&is_shown(TEXTS[1].1)).await;
        } else if path == format!("/task/{failed}") {
            tab.until(&is_shown("</textarea></title><svg onload=alert(3)>")).await;
        }
    }
    assert_eq!(tab.errors, [] as [String; 0]);
}

/// A megabyte is shown in full, and can be approved only after its end was in view.
#[tokio::test]
async fn a_megabyte_is_shown_to_the_last_byte_and_must_be_read() {
    let world = World::new();
    world.define(
        "large.json",
        &json!({"count": {"description": "Counts bytes.", "input": {"type": "object", "properties": {"text": {"type": "string"}}},
            "run": {"process": {"argv": ["sh", "-c", "wc -c >> marks"], "folder": ".", "stdin": "{{ text }}"}}}}),
    );
    let Some(mut tab) = world.signed_in_tab().await else { return };
    let end = "rm -rf the last byte";
    let mut text = (0..)
        .map(|line| format!("line {line} says nothing in particular, and so does the next\n"))
        .scan(0, |length, line| {
            *length += line.len();
            (*length < 1_000_000).then_some(line)
        })
        .collect::<String>();
    text.push_str(end);
    let ran = world.run_with(&["run", "count", "--input", "-"], &json!({"text": text}).to_string());
    assert_eq!(ran.exit, 0, "{ran}");
    let id = ran.json()["id"].as_str().expect("an id").to_owned();
    let mut card = tab.card(&id);
    card.is_armed().await;
    assert_eq!(card.call("[data-shown='/text'] .value", "e => e.textContent.slice(-20)").await, end);
    assert_eq!(card.call("[data-shown='/text'] .value", "e => e.textContent.length").await, text.len());
    // At the top and half way, neither the button nor the keyboard approves.
    for scroll in ["e => { e.scrollTop = 0; }", "e => { e.scrollTop = e.scrollHeight / 2; }"] {
        let mut card = tab.card(&id);
        card.call("[data-evidence]", scroll).await;
        card.call(APPROVE, "e => e.scrollIntoView({block: 'center', behavior: 'instant'})").await;
        assert!(card.is_blocked().await);
        card.call(APPROVE, "e => e.click()").await;
        tab.press("a").await;
        tab.press("Enter").await;
    }
    assert_eq!(world.result_file(&id)["state"], "awaiting_confirmation");
    let mut card = tab.card(&id);
    card.call("[data-evidence]", "e => e.scrollIntoView({block: 'end', behavior: 'instant'})").await;
    card.scroll_to_end().await;
    card.approve().await;
    assert_eq!(world.end_of(&id)["status"], "succeeded");
    let counted = std::fs::read_to_string(world.folder().join("marks")).expect("it ran");
    assert_eq!(counted.trim(), text.len().to_string());
}

/// Defines `mark`, which appends `name` to a file and needs a confirmation.
pub(super) fn define_mark(world: &World) {
    world.define(
        "marks.json",
        &json!({"mark": {"description": "Leaves a mark.", "input": {"type": "object", "properties": {"name": {"type": "string"}}},
            "run": {"process": {"argv": ["sh", "-c", "echo \"$1\" >> marks", "mark", "{{ name }}"], "folder": "."}}}}),
    );
}

/// The names that `mark` has written so far.
pub(super) fn written_marks(world: &World) -> String {
    std::fs::read_to_string(world.folder().join("marks")).unwrap_or_default()
}

/// A card that appears during a click does not receive the click.
#[tokio::test]
async fn a_click_hits_what_was_shown_or_nothing() {
    let world = World::new();
    define_mark(&world);
    let Some(mut tab) = world.signed_in_tab().await else { return };
    let first = world.start("mark", &json!({"name": "shown"}));
    tab.card(&first).is_armed().await;
    let (x, y) = tab.card(&first).place_of_approve().await;
    let event = |kind: &str| json!({"type": kind, "x": x, "y": y, "button": "left", "clickCount": 1});
    tab.call("Input.dispatchMouseEvent", event("mousePressed")).await;
    let second = world.start("mark", &json!({"name": "came meanwhile"}));
    tab.card(&second).appears().await;
    tab.call("Input.dispatchMouseEvent", event("mouseReleased")).await;
    assert_eq!(world.end_of(&first)["status"], "succeeded");
    assert_eq!(written_marks(&world), "shown\n");

    // A click at the moment when a card appears: by a script, and by a pointer that was already there.
    tab.value(
        "window.came = new Map(); window.early = []; new MutationObserver(changes => { for (const change of changes) \
         for (const node of change.addedNodes) if (node.matches?.('[data-card]')) { came.set(node.dataset.card, performance.now()); \
         node.querySelector('[data-approve]').click(); } }).observe(document.querySelector('#cards'), {childList: true}); \
         document.addEventListener('pointerdown', event => early.push(performance.now()), true)",
    )
    .await;
    loop {
        let id = world.start("mark", &json!({"name": "too early"}));
        tab.until(&format!("came.has('{id}')")).await;
        let (x, y) = tab.card(&id).place_of_approve().await;
        tab.click_at(x, y).await;
        let took = tab.value(&format!("early.at(-1) - came.get('{id}')")).await.as_f64().expect("a time");
        // On a busy machine the click may come after the arming time; then it counts rightly, and we try again.
        if took < 700.0 {
            tab.card(&id).is_armed().await;
            assert_eq!(world.result_file(&id)["state"], "awaiting_confirmation");
            assert_eq!(tab.card(&id).call("", "e => e.matches('[data-deciding], .closed')").await, false);
            break;
        }
        world.run(&["cancel", &id]);
    }
}

/// Another server on this machine. It answers every request with a page, and keeps the requests.
struct HostileServer {
    port: u16,
    requests: Arc<Mutex<Vec<String>>>,
}

impl HostileServer {
    fn start(page: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("bound").port();
        let requests = Arc::new(Mutex::new(Vec::new()));
        let (received, page) = (Arc::clone(&requests), page.to_owned());
        // The thread ends with the test program.
        std::thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                let mut bytes = [0; 8192];
                let count = stream.read(&mut bytes).unwrap_or(0);
                let request = String::from_utf8_lossy(&bytes[..count]).into_owned();
                received.lock().expect("the lock is not poisoned").push(request);
                let length = page.len();
                let answer = "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nConnection: close\r\nContent-Length";
                // The browser may have closed the connection.
                stream.write_all(format!("{answer}: {length}\r\n\r\n{page}").as_bytes()).ok();
            }
        });
        Self { port, requests }
    }
}

/// A page of another server on this machine, even under the page's own host name.
#[tokio::test]
async fn a_page_on_another_port_gets_the_cookie_but_decides_nothing() {
    let world = World::new();
    define_mark(&world);
    let Some(mut tab) = world.signed_in_tab().await else { return };
    let id = world.start("mark", &json!({"name": "forged"}));
    tab.card(&id).appears().await;
    let digest = tab.card(&id).digest().await;
    let site = world.site();
    let target = site.origin();
    // Suppose that it knows the digest and even a proof.
    let approval = json!({"decisions": [{"id": id, "digest": digest}], "verdict": "approve"}).to_string();
    let prove = format!("import('/page/session.js').then(page => page.prove('POST', '/decide', {}))", json!(approval));
    let hostile = HostileServer::start(
        "<!doctype html><title>hostile</title><form id=f method=post enctype=text/plain target=_self></form>",
    );
    for host in [site.host.as_str(), "localhost", "127.0.0.1"] {
        let mut evil = tab.open_another().await;
        evil.go(&format!("http://{host}:{}/", hostile.port)).await;
        assert_eq!(evil.value("indexedDB.databases().then(all => all.length)").await, 0, "{host}: it has no key");
        let proof = tab.value(&prove).await.as_str().expect("a proof").to_owned();
        let body = json!(approval);
        let fetches = [
            format!(
                "fetch('{target}/decide', {{method: 'POST', mode: 'no-cors', credentials: 'include', body: {body}}})"
            ),
            format!(
                "fetch('{target}/decide', {{method: 'POST', credentials: 'include', body: {body}, \
                     headers: {{'content-type': 'application/json', 'x-page-proof': '{proof}'}}}})"
            ),
            format!(
                "fetch('{target}/card/{id}', {{credentials: 'include'}}).then(r => r.text()).then(t => {{ window.read = t; }})"
            ),
            format!("Promise.resolve(navigator.sendBeacon('{target}/decide', {body}))"),
        ];
        for fetch in fetches {
            evil.value(&format!("{fetch}.then(() => 0, () => 0)")).await;
        }
        assert_eq!(evil.value("window.read ?? null").await, Value::Null, "{host}: it reads nothing either");
        // The page in a frame.
        evil.errors.clear();
        evil.value(&format!(
            "new Promise(done => {{ const frame = document.createElement('iframe'); frame.onload = frame.onerror = done; \
             frame.src = '{target}/'; document.body.append(frame); }}).then(() => 0)"
        ))
        .await;
        let frames = evil.call("Page.getFrameTree", json!({})).await;
        let inner = &frames["frameTree"]["childFrames"][0]["frame"];
        let is_refused = inner["unreachableUrl"].is_string()
            || inner["url"].as_str().is_none_or(|url| url.starts_with("chrome-error"));
        assert!(is_refused, "{host}: {frames}");
        // A form whose plain-text body is valid JSON; the browser navigates to the answer.
        evil.value(&format!(
            "(form => {{ form.action = '{target}/decide'; const field = document.createElement('input'); \
             field.name = {}; field.value = '\"}}'; form.append(field); form.submit(); }})(document.querySelector('#f'))",
            json!(format!("{},\"typed\":\"", approval.trim_end_matches('}')))
        ))
        .await;
        evil.until(&format!("location.href.startsWith('{target}') && document.body.innerText.includes('error')")).await;
    }
    // Browsers send a cookie to every port of its host, so the hostile server has it. See what a program can do with it.
    let requests = hostile.requests.lock().expect("the lock is not poisoned").clone();
    let cookie = requests.iter().flat_map(|request| request.lines()).find_map(|line| {
        line.split_once(": ")
            .filter(|(name, _)| name.eq_ignore_ascii_case("cookie"))
            .map(|(_, cookie)| cookie.to_owned())
    });
    let cookie = cookie.expect("cookies ignore the port");
    let stolen = format!("Cookie: {cookie}\r\n");
    let answer = http::get(&site, "/", &stolen);
    assert_eq!(answer.status, 200, "the cookie belongs to the session");
    assert!(!answer.body.contains(&id), "it shows nothing: {}", answer.body);
    let refused = http::post(&site, "/decide", &serde_json::from_str(&approval).expect("JSON"), &stolen);
    assert_eq!(refused.status, 403, "{}", refused.body);
    assert_eq!(world.result_file(&id)["state"], "awaiting_confirmation");
    assert_eq!(written_marks(&world), "");
}

/// A crawler that opens every link changes nothing.
#[test]
fn following_every_link_changes_nothing() {
    let scenario = Scenario::new();
    scenario.finish_tasks();
    scenario.start_waiting_tasks();
    let human = Human::of(&scenario.world);
    let record = || {
        ["tasks.db", "tasks.db-wal"]
            .map(|file| std::fs::read(scenario.world.executor_folder().join(file)).unwrap_or_default())
    };
    let results = || {
        let mut found: Vec<_> = std::fs::read_dir(scenario.world.mailbox().join("results"))
            .expect("a folder")
            .flatten()
            // Hidden files are those that the executor keeps to use again.
            .filter(|entry| !entry.file_name().to_string_lossy().starts_with('.'))
            .map(|entry| (entry.path(), std::fs::read(entry.path()).unwrap_or_default()))
            .collect();
        found.sort();
        found
    };
    until("a result file shows the running task", || {
        results().iter().any(|(_, text)| String::from_utf8_lossy(text).contains("\"running\""))
    });
    let before = (record(), results());
    let mut seen = BTreeSet::from(["/".to_owned()]);
    let mut ahead = vec!["/".to_owned()];
    while let Some(path) = ahead.pop() {
        let host = format!("{}:{}", human.site.host, human.site.port);
        let proven = human.headers("HEAD", &path, "");
        let request = format!("HEAD {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{proven}\r\n");
        http::exchange(&human.site, &request);
        let body = human.get(&path).body;
        let names = ["href=\"", "src=\"", "action=\""];
        for link in names.iter().flat_map(|name| body.split(name).skip(1)).filter_map(|rest| rest.split('"').next()) {
            let link = link.replace("&amp;", "&").replace("&#x2f;", "/");
            if link.starts_with('/') && seen.insert(link.clone()) {
                ahead.push(link);
            }
        }
    }
    assert!(seen.len() > 40 && seen.iter().any(|path| path.starts_with("/task/")), "{seen:?}");
    let changed: Vec<_> = results().into_iter().filter(|found| !before.1.contains(found)).collect();
    let changed: Vec<_> = changed.iter().map(|(path, text)| (path, String::from_utf8_lossy(text))).collect();
    assert!(changed.is_empty() && results().len() == before.1.len(), "results were written: {changed:#?}");
    assert!(record() == before.0, "the record was written");
}

/// Line breaks in names cannot forge log lines.
#[test]
fn names_and_sessions_cannot_forge_log_lines() {
    for format in ["json", "plain"] {
        let world = World::new();
        world.configure(&format!("[executor]\nlog = \"debug\"\nlog_format = \"{format}\"\n"));
        define_mark(&world);
        world.define(
            "look.json",
            &json!({"look": {"description": "Looks.", "input": {}, "annotations": {"readOnlyHint": true},
                "run": {"process": {"argv": ["true"]}}}}),
        );
        let forged = "x\n2026-01-01T00:00:00Z  INFO forged line\r\n{\"level\":\"INFO\",\"forged\":true}\u{1b}[31m\u{85}\u{2028}y";
        let folder = world.folder().join("f\nforged folder\u{1b}[2J");
        std::fs::create_dir(&folder).expect("the folder is created");
        for words in [
            ["run", "mark", "name=\n\u{1b}[31mforged"],
            ["run", forged, "name=x"],
            ["run", "look", "--reason=\nforged"],
        ] {
            let mut command = world.command(&words);
            command.env("AGENT_MAGIC_TOOL_SESSION", forged).current_dir(&folder).output().expect("the program starts");
        }
        let human = Human::of(&world);
        human.post("/decide", &json!({"decisions": [], "verdict": "deny", "reason": forged}));
        human.get("/subtool/x%0Aforged%1b");
        let mut log = String::new();
        until("the log has the end of a task", || {
            log = std::fs::read_to_string(world.log()).expect("a log");
            log.contains("task ended")
        });
        assert!(log.contains("forged"), "{format}: the log has the text, escaped: {log}");
        for line in log.lines() {
            assert!(!line.contains(['\u{1b}', '\r']), "{format}: {line:?}");
            let is_genuine = if format == "json" {
                serde_json::from_str::<Value>(line).is_ok_and(|line| line["forged"].is_null())
            } else {
                line.get(..3).is_some_and(|start| start.starts_with("20")) && !line.starts_with("2026-01-01")
            };
            assert!(is_genuine, "{format}: {line:?}");
        }
    }
}

/// Going back in the browser shows the current state.
#[tokio::test]
async fn going_back_shows_nothing_stale() {
    let world = World::new();
    define_mark(&world);
    let Some(mut tab) = world.signed_in_tab().await else { return };
    let id = world.start("mark", &json!({"name": "once"}));
    tab.card(&id).appears().await;
    let digest = tab.card(&id).digest().await;
    tab.click("nav a[href='/tasks']").await;
    tab.until("location.pathname === '/tasks' && document.readyState === 'complete'").await;
    let mut other = tab.open_another().await;
    other.go(&format!("{}/", world.site().origin())).await;
    other.bring_to_front().await;
    other.card(&id).approve().await;
    assert_eq!(world.end_of(&id)["status"], "succeeded");
    tab.bring_to_front().await;
    tab.value("setTimeout(() => history.back(), 0)").await;
    tab.until("location.pathname === '/' && document.readyState === 'complete'").await;
    let approve_button = json!(tab.card(&id).selector(APPROVE));
    tab.until(&format!("!document.querySelector({approve_button})")).await;
    // A late approval of what was shown before is refused.
    let approval = json!({"verdict": "approve", "decisions": [{"id": id, "digest": digest}]});
    assert_eq!(tab.post("/decide", &approval).await, 409);
    assert_eq!(written_marks(&world), "once\n");
}

#[tokio::test]
async fn a_second_link_leaves_no_secret_in_the_address_and_both_tabs_still_work() {
    let world = World::new();
    define_mark(&world);
    let Some(mut tab) = world.signed_in_tab().await else { return };
    let mut other = tab.open_another().await;
    other.go(&world.link()).await;
    other.until("document.body.classList.contains('signed-in') && location.hash === ''").await;
    // A second browser on the same machine gets its own session.
    let mut stranger = Tab::open().await.expect("the browser runs");
    stranger.go(&world.link()).await;
    stranger.until("document.body.classList.contains('signed-in')").await;
    for (name, tab) in [("first", &mut tab), ("second", &mut other), ("third", &mut stranger)] {
        let id = world.start("mark", &json!({"name": name}));
        tab.bring_to_front().await;
        tab.card(&id).approve().await;
        assert_eq!(world.end_of(&id)["status"], "succeeded");
    }
    assert_eq!(written_marks(&world), "first\nsecond\nthird\n");
}

#[tokio::test]
async fn signing_out_ends_the_session_in_every_tab() {
    let world = World::new();
    define_mark(&world);
    let Some(mut tab) = world.signed_in_tab().await else { return };
    let mut other = tab.open_another().await;
    other.go(&format!("{}/", world.site().origin())).await;
    let id = world.start("mark", &json!({"name": "after"}));
    other.card(&id).is_armed().await;
    tab.bring_to_front().await;
    tab.click("[data-action=logout]").await;
    tab.until("document.body.classList.contains('signed-out')").await;
    other.call("Page.bringToFront", json!({})).await;
    other.card(&id).approve().await;
    other.until("document.querySelector('#banner').innerText.includes('signed out')").await;
    assert_eq!(world.result_file(&id)["state"], "awaiting_confirmation");
    assert_eq!(written_marks(&world), "");
}
