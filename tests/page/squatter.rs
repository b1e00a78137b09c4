//! A squatter: a program that takes the page's port when its executor has ended, and plays the page for the browser.
//!
//! It may run as another user: ports belong to whoever binds them first. So it gets all that a browser sends to the
//! address, and tries to become the human with it.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use ground::page_client::site::PageSite;
use serde_json::json;

use super::hostile::{define_mark, written_marks};
use super::http;
use super::human::Human;
use crate::world::{World, until};

/// A service worker that sees every request of the page, and answers as the page would.
const WORKER: &str = "self.addEventListener('install', () => self.skipWaiting()); \
                      self.addEventListener('activate', e => e.waitUntil(self.clients.claim())); \
                      self.addEventListener('fetch', e => e.respondWith(fetch(e.request)));";
/// A page that plants the worker, and fills the name above its own with cookies, which the next address shares.
const PAGE: &str = "<!doctype html><title>hostile</title><script>\
                    const above = location.hostname.split('.').slice(1).join('.');\
                    for (let n = 0; n < 150; n++) document.cookie = `junk${n}=${'x'.repeat(3900)}; path=/; max-age=9999; domain=${above}`;\
                    for (const name of ['session', 'agent-magic-tool-session', 'session-' + location.hostname.split('.')[0]])\
                    document.cookie = `${name}=${'0'.repeat(64)}; path=/; max-age=9999; domain=${above}`;\
                    navigator.serviceWorker.register('/worker.js').then(() => navigator.serviceWorker.ready)\
                    .then(() => { document.title = 'planted'; });</script>";

/// A program at a port of this machine. It keeps every request that it gets.
struct Squatter {
    port: u16,
    requests: Arc<Mutex<Vec<String>>>,
    /// The page to which it passes requests, once it has seen enough.
    forwards_to: Arc<Mutex<Option<PageSite>>>,
}

impl Squatter {
    /// Takes both loopback addresses at `port`; 0 is any free one.
    fn at(port: u16) -> Self {
        let mut first = None;
        // A connection attempt to the port may hold it for a moment.
        until("the port is free", || {
            first = TcpListener::bind(("127.0.0.1", port)).ok();
            first.is_some()
        });
        let first = first.expect("the port is free");
        let port = first.local_addr().expect("bound").port();
        let squatter = Self { port, requests: Arc::default(), forwards_to: Arc::default() };
        let second = TcpListener::bind(("::1", port)).ok();
        for listener in [Some(first), second].into_iter().flatten() {
            let (requests, forwards_to) = (Arc::clone(&squatter.requests), Arc::clone(&squatter.forwards_to));
            // The threads end with the test program.
            std::thread::spawn(move || {
                for stream in listener.incoming().flatten() {
                    let (requests, forwards_to) = (Arc::clone(&requests), Arc::clone(&forwards_to));
                    std::thread::spawn(move || serve(stream, port, &requests, &forwards_to));
                }
            });
        }
        squatter
    }

    fn requests(&self) -> Vec<String> {
        self.requests.lock().expect("the lock is not poisoned").clone()
    }

    /// Passes each request on to the real page from now on, as if the page had this address again.
    fn forward_to(&self, site: PageSite) {
        *self.forwards_to.lock().expect("the lock is not poisoned") = Some(site);
    }
}

fn serve(mut stream: TcpStream, port: u16, requests: &Mutex<Vec<String>>, forwards_to: &Mutex<Option<PageSite>>) {
    let request = read_request(&mut stream);
    requests.lock().expect("the lock is not poisoned").push(request.clone());
    let site = forwards_to.lock().expect("the lock is not poisoned").clone();
    // The browser may have closed the connection.
    match site {
        Some(site) => forward(&request, port, &site, stream),
        None => stream.write_all(hostile_answer(&request).as_bytes()).unwrap_or_default(),
    }
}

fn read_request(stream: &mut TcpStream) -> String {
    let (mut bytes, mut part) = (Vec::new(), [0; 8192]);
    loop {
        let text = String::from_utf8_lossy(&bytes);
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let lengths = head.lines().filter_map(|line| line.split_once(": "));
            let mut lengths = lengths.filter(|(name, _)| name.eq_ignore_ascii_case("content-length"));
            let length: usize = lengths.next().and_then(|(_, length)| length.parse().ok()).unwrap_or(0);
            if body.len() >= length {
                return text.into_owned();
            }
        }
        match stream.read(&mut part) {
            Ok(count @ 1..) => bytes.extend_from_slice(&part[..count]),
            _ => return String::from_utf8_lossy(&bytes).into_owned(),
        }
    }
}

fn hostile_answer(request: &str) -> String {
    let path = request.split(' ').nth(1).unwrap_or_default();
    let (kind, body) = match path {
        "/worker.js" => ("text/javascript", WORKER.to_owned()),
        path if path.starts_with("/challenge") => {
            ("application/json", json!({"nonce": "0".repeat(64), "proof": "0".repeat(64)}).to_string())
        }
        _ => ("text/html", PAGE.to_owned()),
    };
    let length = body.len();
    format!("HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}")
}

/// Passes a request on under the page's own name, and its answer back.
fn forward(request: &str, port: u16, site: &PageSite, mut browser: TcpStream) {
    let (head, body) = request.split_once("\r\n\r\n").unwrap_or((request, ""));
    let mut lines: Vec<_> = head.lines().map(str::to_owned).collect();
    for line in &mut lines {
        let name = line.split(':').next().unwrap_or_default().to_ascii_lowercase();
        match name.as_str() {
            "host" => *line = format!("Host: {}", http::host(site)),
            "origin" => *line = format!("Origin: {}", site.origin()),
            "connection" => "Connection: close".clone_into(line),
            _ => {}
        }
    }
    assert_ne!(port, site.port);
    let mut page = http::connect(site);
    page.write_all(format!("{}\r\n\r\n{body}", lines.join("\r\n")).as_bytes()).expect("the request is sent");
    std::io::copy(&mut page, &mut browser).unwrap_or_default();
}

/// The attack that worked once: the squatter got the cookie and the token, approved, and stayed in the browser.
#[tokio::test]
async fn a_squatter_at_the_page_of_an_ended_executor_decides_nothing() {
    let world = World::new();
    define_mark(&world);
    let Some(mut tab) = world.signed_in_tab().await else { return };
    let id = world.start("mark", &json!({"name": "forged"}));
    tab.card(&id).is_armed().await;
    let digest = tab.card(&id).digest().await;
    let old = world.site();
    world.kill_executor();
    let squatter = Squatter::at(old.port);
    // The tab finds out that another program answers, says so calmly, and sends it nothing that counts.
    tab.until("!document.querySelector('#asleep').hidden").await;
    assert!(tab.text("#asleep").await.contains("agent-magic-tool executor page"));
    tab.card(&id).approve().await;
    tab.until("document.body.innerText.includes('Nothing was sent')").await;
    let requests = squatter.requests();
    assert!(!requests.is_empty(), "the tab tried");
    for request in &requests {
        let is_challenge = request.starts_with("GET /challenge?nonce=");
        assert!(is_challenge && !request.to_ascii_lowercase().contains("proof"), "{request}");
    }
    // The human reloads the tab: now the squatter's own script runs where the page was, with the browser's stored key.
    tab.go(&format!("{}/", old.origin())).await;
    tab.until("document.title === 'planted'").await;
    let stolen = "(async () => { const open = indexedDB.open('session', 1); await new Promise(done => open.onsuccess = done); \
                  const got = open.result.transaction('keys').objectStore('keys').get('key'); \
                  await new Promise(done => got.onsuccess = done); window.key = got.result; \
                  return crypto.subtle.exportKey('raw', key).then(() => 'exported', error => error.name); })()";
    assert_eq!(tab.value(stolen).await, "InvalidAccessError", "no script reads the key");
    // With cookie and key it is not the human at the next executor.
    let cookie = requests.iter().flat_map(|request| request.lines()).find_map(|line| line.strip_prefix("Cookie: "));
    let cookie = format!("Cookie: {}\r\n", cookie.expect("the browser sent the cookie"));
    assert_eq!(world.run(&["executor", "start"]).exit, 0);
    let new = world.site();
    assert!(new.port != old.port && new.host != old.host, "the address is new");
    assert_eq!(http::get(&new, "/challenge?nonce=x", &cookie).status, 401);
    let approval = json!({"decisions": [{"id": id, "digest": digest}], "verdict": "approve"});
    assert_eq!(http::post(&new, "/decide", &approval, &cookie).status, 401);
    // The human signs in again in the same browser. Nothing of the squatter is there but cookies, which do not matter.
    tab.go(&world.link()).await;
    tab.until("document.body.classList.contains('signed-in')").await;
    tab.card(&id).is_armed().await;
    let workers = "navigator.serviceWorker.getRegistrations().then(found => found.length)";
    assert_eq!(tab.value(workers).await, 0, "a worker belongs to one origin");
    assert_eq!(world.result_file(&id)["state"], "awaiting_confirmation");
    assert_eq!(written_marks(&world), "");
    tab.card(&id).approve().await;
    until("the task has run", || written_marks(&world) == "forged\n");
}

/// Suppose that the page did come back under an address where a service worker was planted.
#[tokio::test]
async fn a_planted_service_worker_ends_at_the_login() {
    let world = World::new();
    define_mark(&world);
    assert_eq!(world.run(&["executor", "start"]).exit, 0);
    let Some(mut tab) = crate::browser::Tab::open().await else { return };
    let squatter = Squatter::at(0);
    let site = world.site();
    let address = format!("http://squatted.localhost:{}", squatter.port);
    tab.go(&format!("{address}/")).await;
    tab.until("document.title === 'planted' && !!navigator.serviceWorker.controller").await;
    squatter.forward_to(site.clone());
    let link = world.link();
    let (_, secret) = link.split_once('#').expect("a secret");
    tab.go(&format!("{address}/#{secret}")).await;
    tab.until("document.body.classList.contains('signed-in')").await;
    let workers = "navigator.serviceWorker.getRegistrations().then(found => found.length)";
    assert_eq!(tab.value(workers).await, 0);
    tab.go(&format!("{address}/")).await;
    tab.until("document.body.classList.contains('signed-in')").await;
    assert_eq!(tab.value("navigator.serviceWorker.controller").await, serde_json::Value::Null);
    // Nor can one be planted through the page itself.
    let planted = "navigator.serviceWorker.register('/page.js').then(() => 'planted', () => 'refused')";
    assert_eq!(tab.value(planted).await, "refused");
}

#[test]
fn a_request_for_a_workers_script_is_refused() {
    let world = World::new();
    let human = Human::of(&world);
    for header in ["Service-Worker: script", "Sec-Fetch-Dest: serviceworker", "Sec-Fetch-Dest: sharedworker"] {
        for path in ["/page.js", "/page/live.js", "/"] {
            let headers = format!("{}{header}\r\n", human.headers("GET", path, ""));
            assert_eq!(http::get(&human.site, path, &headers).status, 403, "{header} {path}");
        }
    }
    let link = ground::page_client::link::make_link(&world.executor_folder()).expect("a link");
    let login = http::post(&human.site, "/login", &json!({"secret": link}), "");
    assert!(login.head.contains("clear-site-data: \"storage\""), "{}", login.head);
}

/// A link is made for one address: another program may listen there when the executor has ended.
#[test]
fn a_link_ends_with_the_executor_that_it_opens() {
    let world = World::new();
    assert_eq!(world.run(&["executor", "start"]).exit, 0);
    let link = ground::page_client::link::make_link(&world.executor_folder()).expect("a link");
    world.kill_executor();
    assert_eq!(world.run(&["executor", "start"]).exit, 0);
    assert_eq!(http::post(&world.site(), "/login", &json!({"secret": link}), "").status, 403);
}
