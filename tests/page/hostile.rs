//! What hostile texts and hostile pages try in a real browser that is logged in.

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use super::ann::Ann;
use super::decide::approve;
use super::threats::Human;
use crate::browser::Tab;
use crate::world::{World, until};

/// Texts that want to be more than text, and what a human sees of them.
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

/// Nothing on the page but what its own templates put there.
const FOREIGN: &str = "[...document.querySelectorAll('*')].filter(e => [...e.attributes].some(a => /^on/i.test(a.name) \
    || /^\\s*javascript:/i.test(a.value) && a.name !== 'value' && a.name !== 'placeholder' && !a.name.startsWith('data-') \
    && a.name !== 'title') || e.matches('iframe, object, embed, script:not([src^=\"/page\"]), img:not([src=\"/icon.svg\"])'))\
    .map(e => e.outerHTML)";

fn shown(text: &str) -> String {
    format!(
        "[...document.querySelectorAll('bdi, h1, h2, p, dd, span')].some(e => e.textContent.includes({}))",
        json!(text)
    )
}

/// T7, T10: in a description, an input, a reason, an error, a folder, a session and a human's own words.
#[tokio::test]
async fn hostile_texts_are_seen_as_they_are_and_do_nothing() {
    let world = World::new();
    let all = TEXTS.iter().map(|(text, _)| *text).collect::<Vec<_>>().join(" ");
    let plain = TEXTS.iter().map(|(text, _)| text.replace('\0', "")).collect::<Vec<_>>().join(" ");
    let properties = TEXTS
        .iter()
        .enumerate()
        .map(|(n, (text, _))| (format!("f{n}"), json!({"type": "string", "description": text})));
    let properties: serde_json::Map<_, _> = properties.collect();
    let argv = ["sh", "-c", "printf %s \"$1\" >&2; exit 1", "fail", &plain];
    world.define(
        "hostile.json",
        &json!({
            "hostile": {"description": all, "input": {"type": "object", "properties": properties}, "run": {"process": {"argv": ["true"]}}},
            "broken": {"description": "Fails.", "input": {}, "annotations": {"readOnlyHint": true}, "tags": [plain],
                "run": {"process": {"argv": argv}}}
        }),
    );
    let Some(mut tab) = world.human().await else { return };
    let folder = world.folder().join("<img src=x onerror=alert(8)>\n\u{1b}[2J");
    std::fs::create_dir(&folder).expect("made");
    let input: serde_json::Map<_, _> =
        TEXTS.iter().enumerate().map(|(n, (text, _))| (format!("f{n}"), json!(text))).collect();
    let reason = format!("--reason={}", TEXTS[0].0);
    let ask = |tool: &str, input: &Value| {
        let mut command = world.command(&["run", tool, "--input", &input.to_string(), &reason]);
        command.current_dir(&folder).env("AGENT_MAGIC_TOOL_SESSION", plain.replace(['\u{1b}', '\u{7f}'], ""));
        let ran = world.ran(&command.output().expect("the program starts"));
        assert_eq!(ran.exit, 0, "{ran}");
        ran.json()["id"].as_str().expect("an id").to_owned()
    };
    let (asked, failed) = (ask("hostile", &Value::Object(input)), ask("broken", &json!({})));
    world.end_of(&failed);
    let card = format!("[data-card='{asked}']");
    tab.until(&format!("!!document.querySelector(\"{card}\")")).await;
    for (n, (_, seen)) in TEXTS.iter().enumerate() {
        let field = format!("document.querySelector(\"{card} [data-shown='/f{n}'] .value\").textContent");
        assert_eq!(tab.value(&field).await, *seen);
    }
    let reason = tab.value(&format!("document.querySelector(\"{card} .reason .value\").textContent")).await;
    assert_eq!(reason, TEXTS[0].1);
    let of = tab.value(&format!("document.querySelector(\"{card} .origin\").textContent")).await;
    assert!(of.as_str().expect("a text").contains("<img src=x onerror=alert(8)>U+000AU+001B[2J"), "{of}");
    for panel in ["edit", "remember", "deny"] {
        tab.click(&format!("{card} [data-opens={panel}]")).await;
    }
    tab.insert(TEXTS[1].0).await;
    tab.press("Enter").await;
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
            tab.until(&shown(TEXTS[1].1)).await;
        } else if path == format!("/task/{failed}") {
            tab.until(&shown("</textarea></title><svg onload=alert(3)>")).await;
        }
    }
    assert_eq!(tab.complaints, [] as [String; 0]);
}

/// T8, T9: nothing of a megabyte is left out, and it is not approved before its end was seen.
#[tokio::test]
async fn a_megabyte_is_shown_to_its_last_byte_and_must_be_read() {
    let world = World::new();
    world.define(
        "large.json",
        &json!({"count": {"description": "Counts bytes.", "input": {"type": "object", "properties": {"text": {"type": "string"}}},
            "run": {"process": {"argv": ["sh", "-c", "wc -c >> marks"], "folder": ".", "stdin": "{{ text }}"}}}}),
    );
    let Some(mut tab) = world.human().await else { return };
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
    let card = format!("[data-card='{id}']");
    tab.until(&format!("document.querySelector(\"{card}\")?.querySelector('[data-actions]').inert === false")).await;
    let evidence = format!("document.querySelector(\"{card} [data-evidence]\")");
    let last = tab
        .value(&format!("document.querySelector(\"{card} [data-shown='/text'] .value\").textContent.slice(-20)"))
        .await;
    assert_eq!(last, end);
    assert_eq!(
        tab.value(&format!("document.querySelector(\"{card} [data-shown='/text'] .value\").textContent.length")).await,
        text.len()
    );
    // Neither the button nor the keyboard, at the top or half way.
    for scroll in ["0", "e.scrollHeight / 2"] {
        tab.value(&format!("(e => e.scrollTop = {scroll})({evidence})")).await;
        tab.value(&format!(
            "document.querySelector(\"{}\").scrollIntoView({{block: 'center', behavior: 'instant'}})",
            approve(&id)
        ))
        .await;
        let off = format!("document.querySelector(\"{}\").ariaDisabled", approve(&id));
        assert_eq!(tab.value(&off).await, "true");
        tab.value(&format!("document.querySelector(\"{}\").click()", approve(&id))).await;
        tab.press("a").await;
        tab.press("Enter").await;
    }
    assert_eq!(world.result_file(&id)["state"], "awaiting_confirmation");
    tab.value(&format!("{evidence}.scrollIntoView({{block: 'end', behavior: 'instant'}})")).await;
    tab.value(&format!("(e => e.scrollTop = e.scrollHeight)({evidence})")).await;
    tab.click(&approve(&id)).await;
    assert_eq!(world.end_of(&id)["status"], "succeeded");
    let counted = std::fs::read_to_string(world.folder().join("marks")).expect("it ran");
    assert_eq!(counted.trim(), text.len().to_string());
}

/// A subtool that leaves a mark.
fn marks(world: &World) {
    world.define(
        "marks.json",
        &json!({"mark": {"description": "Leaves a mark.", "input": {"type": "object", "properties": {"name": {"type": "string"}}},
            "run": {"process": {"argv": ["sh", "-c", "echo \"$1\" >> marks", "mark", "{{ name }}"], "folder": "."}}}}),
    );
}

fn happened(world: &World) -> String {
    std::fs::read_to_string(world.folder().join("marks")).unwrap_or_default()
}

/// T29: what comes while somebody clicks is not what is clicked.
#[tokio::test]
async fn a_click_lands_on_what_was_shown_or_on_nothing() {
    let world = World::new();
    marks(&world);
    let Some(mut tab) = world.human().await else { return };
    let first = world.start("mark", &json!({"name": "shown"}));
    tab.until(&format!(
        "document.querySelector(\"[data-card='{first}']\")?.querySelector('[data-actions]').inert === false"
    ))
    .await;
    let place = |id: &str| {
        format!(
            "(e => {{ e.scrollIntoView({{block: 'center', behavior: 'instant'}}); const b = e.getBoundingClientRect(); \
                 return [b.x + b.width / 2, b.y + b.height / 2]; }})(document.querySelector(\"{}\"))",
            approve(id)
        )
    };
    let at = tab.value(&place(&first)).await;
    let (x, y) = (at[0].as_f64().expect("a place"), at[1].as_f64().expect("a place"));
    let event = |kind: &str| json!({"type": kind, "x": x, "y": y, "button": "left", "clickCount": 1});
    tab.ask("Input.dispatchMouseEvent", event("mousePressed")).await;
    let second = world.start("mark", &json!({"name": "came meanwhile"}));
    tab.until(&format!("!!document.querySelector(\"[data-card='{second}']\")")).await;
    tab.ask("Input.dispatchMouseEvent", event("mouseReleased")).await;
    assert_eq!(world.end_of(&first)["status"], "succeeded");
    assert_eq!(happened(&world), "shown\n");

    // A click right when a card comes: by a hand that was already there, and by the keyboard.
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
        let at = tab.value(&place(&id)).await;
        tab.click_at(at[0].as_f64().expect("a place"), at[1].as_f64().expect("a place")).await;
        let took = tab.value(&format!("early.at(-1) - came.get('{id}')")).await.as_f64().expect("a time");
        // On a machine that was busy with other things the click came late; then it counted, and that is right.
        if took < 700.0 {
            tab.until(&format!(
                "document.querySelector(\"[data-card='{id}']\")?.querySelector('[data-actions]').inert === false"
            ))
            .await;
            assert_eq!(world.result_file(&id)["state"], "awaiting_confirmation");
            assert_eq!(
                tab.value(&format!(
                    "document.querySelector(\"[data-card='{id}']\").matches('[data-deciding], .closed')"
                ))
                .await,
                false
            );
            break;
        }
        world.run(&["cancel", &id]);
    }
}

/// A server of somebody else on this machine: answers everything with a page, and keeps what it was sent.
struct Elsewhere {
    port: u16,
    heard: Arc<Mutex<Vec<String>>>,
}

impl Elsewhere {
    fn start(page: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("bound").port();
        let heard = Arc::new(Mutex::new(Vec::new()));
        let (keeps, page) = (Arc::clone(&heard), page.to_owned());
        // Ends with the test program.
        std::thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                let mut bytes = [0; 8192];
                let count = stream.read(&mut bytes).unwrap_or(0);
                keeps
                    .lock()
                    .expect("nobody panics with it")
                    .push(String::from_utf8_lossy(&bytes[..count]).into_owned());
                let length = page.len();
                let answer = "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nConnection: close\r\nContent-Length";
                // Whoever went away misses nothing.
                stream.write_all(format!("{answer}: {length}\r\n\r\n{page}").as_bytes()).ok();
            }
        });
        Self { port, heard }
    }
}

/// T2, T4, T6: a page of another server on this machine, under the very name of ours.
#[tokio::test]
async fn a_page_on_another_port_gets_the_cookie_and_decides_nothing() {
    let world = World::new();
    marks(&world);
    let Some(mut tab) = world.human().await else { return };
    let id = world.start("mark", &json!({"name": "forged"}));
    tab.until(&format!("!!document.querySelector(\"[data-card='{id}']\")")).await;
    let digest = tab.value(&format!("document.querySelector(\"[data-card='{id}']\").dataset.digest")).await;
    let token = tab.value("localStorage.getItem('page-token')").await.as_str().expect("a token").to_owned();
    let site = world.site();
    let target = site.origin();
    // Even if it knew what to say: the digest, and the token itself.
    let yes = json!({"decisions": [{"id": id, "digest": digest}], "verdict": "approve"}).to_string();
    let elsewhere = Elsewhere::start(
        "<!doctype html><title>elsewhere</title><form id=f method=post enctype=text/plain target=_self></form>",
    );
    for host in [site.host.as_str(), "localhost", "127.0.0.1"] {
        let mut evil = tab.beside().await;
        evil.go(&format!("http://{host}:{}/", elsewhere.port)).await;
        assert_eq!(evil.value("localStorage.getItem('page-token')").await, Value::Null, "{host}");
        let body = json!(yes);
        let fetches = [
            format!(
                "fetch('{target}/decide', {{method: 'POST', mode: 'no-cors', credentials: 'include', body: {body}}})"
            ),
            format!(
                "fetch('{target}/decide', {{method: 'POST', credentials: 'include', body: {body}, \
                     headers: {{'content-type': 'application/json', 'x-page-token': '{token}'}}}})"
            ),
            format!(
                "fetch('{target}/card/{id}', {{credentials: 'include'}}).then(r => r.text()).then(t => {{ window.read = t; }})"
            ),
            format!("Promise.resolve(navigator.sendBeacon('{target}/decide', {body}))"),
        ];
        for fetch in fetches {
            evil.value(&format!("{fetch}.then(() => 0, () => 0)")).await;
        }
        assert_eq!(evil.value("window.read ?? null").await, Value::Null, "{host}: nothing is read either");
        // In a frame.
        evil.complaints.clear();
        evil.value(&format!(
            "new Promise(done => {{ const frame = document.createElement('iframe'); frame.onload = frame.onerror = done; \
             frame.src = '{target}/'; document.body.append(frame); }}).then(() => 0)"
        ))
        .await;
        let frames = evil.ask("Page.getFrameTree", json!({})).await;
        let inner = &frames["frameTree"]["childFrames"][0]["frame"];
        let is_refused = inner["unreachableUrl"].is_string()
            || inner["url"].as_str().is_none_or(|url| url.starts_with("chrome-error"));
        assert!(is_refused, "{host}: {frames}");
        // By a form: its body is `{"a": "..."}` in plain text, and the browser goes where it answers.
        evil.value(&format!(
            "(form => {{ form.action = '{target}/decide'; const field = document.createElement('input'); \
             field.name = {}; field.value = '\"}}'; form.append(field); form.submit(); }})(document.querySelector('#f'))",
            json!(format!("{},\"typed\":\"", yes.trim_end_matches('}')))
        ))
        .await;
        evil.until(&format!("location.href.startsWith('{target}') && document.body.innerText.includes('error')")).await;
    }
    // What a program with the cookie can do: its server was sent it, as every port of the name is.
    let heard = elsewhere.heard.lock().expect("nobody panics with it").clone();
    let cookie = heard.iter().flat_map(|request| request.lines()).find_map(|line| {
        line.split_once(": ")
            .filter(|(name, _)| name.eq_ignore_ascii_case("cookie"))
            .map(|(_, cookie)| cookie.to_owned())
    });
    let cookie = cookie.expect("cookies ignore the port");
    let thief = Human { site, cookie, token: "0".repeat(64) };
    let seen = thief.get("/");
    assert_eq!(seen.status, 200, "the cookie is the session's");
    assert!(!seen.body.contains(&token) && !seen.head.contains(&token), "what decides is on no page");
    let refused = thief.post("/decide", &serde_json::from_str(&yes).expect("JSON"));
    assert_eq!(refused.status, 403, "{}", refused.body);
    assert_eq!(world.result_file(&id)["state"], "awaiting_confirmation");
    assert_eq!(happened(&world), "");
}

/// T38: whatever is linked is looked at, and nothing comes of it.
#[test]
fn following_every_link_changes_nothing() {
    let ann = Ann::new();
    ann.works();
    ann.has_before_her();
    let human = Human::of(&ann.world);
    let record = || {
        ["tasks.db", "tasks.db-wal"]
            .map(|file| std::fs::read(ann.world.executor_folder().join(file)).unwrap_or_default())
    };
    let results = || {
        let mut found: Vec<_> = std::fs::read_dir(ann.world.mailbox().join("results"))
            .expect("a folder")
            .flatten()
            .map(|entry| (entry.path(), std::fs::read(entry.path()).unwrap_or_default()))
            .collect();
        found.sort();
        found
    };
    // The running task has said that it runs.
    until("it runs", || results().iter().any(|(_, text)| String::from_utf8_lossy(text).contains("\"running\"")));
    let before = (record(), results());
    let mut known = BTreeSet::from(["/".to_owned()]);
    let mut ahead = vec!["/".to_owned()];
    while let Some(path) = ahead.pop() {
        let host = format!("{}:{}", human.site.host, human.site.port);
        let request =
            format!("HEAD {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\nCookie: {}\r\n\r\n", human.cookie);
        super::threats::knock(&human.site, &request);
        let body = human.get(&path).body;
        let names = ["href=\"", "src=\"", "action=\""];
        for link in names.iter().flat_map(|name| body.split(name).skip(1)).filter_map(|rest| rest.split('"').next()) {
            let link = link.replace("&amp;", "&").replace("&#x2f;", "/");
            if link.starts_with('/') && known.insert(link.clone()) {
                ahead.push(link);
            }
        }
    }
    assert!(known.len() > 40 && known.iter().any(|path| path.starts_with("/task/")), "{known:?}");
    assert!((record(), results()) == before, "something was written");
}

/// T46: what an agent calls itself is no line of its own in a log.
#[test]
fn names_and_sessions_forge_no_line_of_the_log() {
    for format in ["json", "plain"] {
        let world = World::new();
        world.configure(&format!("[executor]\nlog = \"debug\"\nlog_format = \"{format}\"\n"));
        marks(&world);
        world.define(
            "look.json",
            &json!({"look": {"description": "Looks.", "input": {}, "annotations": {"readOnlyHint": true},
                "run": {"process": {"argv": ["true"]}}}}),
        );
        let forged = "x\n2026-01-01T00:00:00Z  INFO forged line\r\n{\"level\":\"INFO\",\"forged\":true}\u{1b}[31m\u{85}\u{2028}y";
        let folder = world.folder().join("f\nforged folder\u{1b}[2J");
        std::fs::create_dir(&folder).expect("made");
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
        until("the log tells who ran it", || {
            log = std::fs::read_to_string(world.log()).expect("a log");
            log.contains("task ended")
        });
        assert!(log.contains("forged"), "{format}: it is told, as what it is: {log}");
        for line in log.lines() {
            assert!(!line.contains(['\u{1b}', '\r']), "{format}: {line:?}");
            let is_ours = if format == "json" {
                serde_json::from_str::<Value>(line).is_ok_and(|line| line["forged"].is_null())
            } else {
                line.get(..3).is_some_and(|start| start.starts_with("20")) && !line.starts_with("2026-01-01")
            };
            assert!(is_ours, "{format}: {line:?}");
        }
    }
}

/// T49: the way back shows what is, not what was.
#[tokio::test]
async fn the_way_back_shows_nothing_stale() {
    let world = World::new();
    marks(&world);
    let Some(mut tab) = world.human().await else { return };
    let id = world.start("mark", &json!({"name": "once"}));
    let card = format!("[data-card='{id}']");
    tab.until(&format!("!!document.querySelector(\"{card}\")")).await;
    let digest = tab.value(&format!("document.querySelector(\"{card}\").dataset.digest")).await;
    tab.click("nav a[href='/tasks']").await;
    tab.until("location.pathname === '/tasks' && document.readyState === 'complete'").await;
    let mut other = tab.beside().await;
    other.go(&format!("{}/", world.site().origin())).await;
    other.click(&approve(&id)).await;
    assert_eq!(world.end_of(&id)["status"], "succeeded");
    tab.value("history.back()").await;
    tab.until("location.pathname === '/' && document.readyState === 'complete'").await;
    tab.until(&format!("!document.querySelector(\"{}\")", approve(&id))).await;
    // And a yes to what was shown then is none now.
    let late = format!(
        "fetch('/decide', {{method: 'POST', headers: {{'content-type': 'application/json', 'x-page-token': \
         localStorage.getItem('page-token')}}, body: JSON.stringify({{verdict: 'approve', decisions: [{{id: '{id}', digest: {digest}}}]}})}})\
         .then(r => r.status)"
    );
    assert_eq!(tab.value(&late).await, 409);
    assert_eq!(happened(&world), "once\n");
}

#[tokio::test]
async fn a_second_link_leaves_no_secret_behind_and_both_tabs_go_on() {
    let world = World::new();
    marks(&world);
    let Some(mut tab) = world.human().await else { return };
    let mut other = tab.beside().await;
    other.go(&world.link()).await;
    other.until("document.body.classList.contains('signed-in') && location.hash === ''").await;
    // Somebody else's browser on the same machine: a session of its own.
    let mut stranger = Tab::open().await.expect("the browser runs");
    stranger.go(&world.link()).await;
    stranger.until("document.body.classList.contains('signed-in')").await;
    for (name, tab) in [("first", &mut tab), ("second", &mut other), ("third", &mut stranger)] {
        let id = world.start("mark", &json!({"name": name}));
        tab.ask("Page.bringToFront", json!({})).await;
        tab.click(&approve(&id)).await;
        assert_eq!(world.end_of(&id)["status"], "succeeded");
    }
    assert_eq!(happened(&world), "first\nsecond\nthird\n");
}

#[tokio::test]
async fn signing_out_ends_it_in_every_tab() {
    let world = World::new();
    marks(&world);
    let Some(mut tab) = world.human().await else { return };
    let mut other = tab.beside().await;
    other.go(&format!("{}/", world.site().origin())).await;
    let id = world.start("mark", &json!({"name": "after"}));
    other
        .until(&format!(
            "document.querySelector(\"[data-card='{id}']\")?.querySelector('[data-actions]').inert === false"
        ))
        .await;
    tab.ask("Page.bringToFront", json!({})).await;
    tab.click("[data-action=logout]").await;
    tab.until("document.body.classList.contains('signed-out')").await;
    other.ask("Page.bringToFront", json!({})).await;
    other.click(&approve(&id)).await;
    other.until("document.querySelector('#banner').innerText.includes('signed out')").await;
    assert_eq!(world.result_file(&id)["state"], "awaiting_confirmation");
    assert_eq!(happened(&world), "");
}
