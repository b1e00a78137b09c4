//! A URL that comes from a task's input reaches no private address: however it is spelled, wherever its name or a
//! redirect leads, and even if a human tries or approves it on the page.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use nix::sched::{CloneFlags, unshare};
use serde_json::{Value, json};

use super::human::Human;
use crate::skip::skip;
use crate::world::{World, until};

/// A public address that only the test's own network namespace routes to.
const PUBLIC: Ipv4Addr = Ipv4Addr::new(93, 184, 216, 34);

/// The end of the message of a refused address.
const WHY: &str = "a URL from the input may only reach public ones";

/// A world with two subtools that take their URL from the input: one reads at once, one needs a confirmation.
fn world() -> World {
    let world = World::new();
    world.configure("[confirm]\nwaiting_per_user = 100\nwaiting_per_session = 100\nasks_per_hour = 0\n");
    let fetch = |method: &str, reads: bool| {
        json!({"description": "Fetches a page.", "input": {"type": "object", "required": ["url"], "properties": {"url": {"type": "string"}}},
            "annotations": {"readOnlyHint": reads}, "run": {"http": {"method": method, "base_url": "{{ url }}"}}})
    };
    world.define("fetch.json", &json!({"page_read": fetch("GET", true), "page_send": fetch("POST", false)}));
    world
}

/// A server on this machine that no request may reach; returns the number of connections.
fn canary(listener: TcpListener) -> Arc<AtomicUsize> {
    let connections = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&connections);
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            count.fetch_add(1, Ordering::SeqCst);
            stream.write_all(b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 6\r\n\r\ncanary").ok();
        }
    });
    connections
}

/// Runs both subtools with a URL from the page and returns their results; `page_send` is approved first, if a human is
/// asked.
fn results_of(world: &World, human: &Human, url: &str) -> [Value; 2] {
    ["page_read", "page_send"].map(|tool| {
        let answer = human.post("/try", &json!({"tool": tool, "input": {"url": url}}));
        let body: Value = serde_json::from_str(&answer.body).expect("JSON");
        // A call that is known to fail is refused before a human is asked.
        if tool == "page_send" && answer.status == 422 {
            let error = &body["error"];
            let says_why = error["message"].as_str().is_some_and(|message| message.contains(WHY));
            assert_eq!(says_why, error["code"] == "forbidden-address", "{url}: {body}");
            return json!({"status": "failed", "error": error});
        }
        assert_eq!(answer.status, 200, "{tool} {url}: {}", answer.body);
        let id = body["id"].as_str().expect("an id");
        if tool == "page_send" {
            assert_eq!(human.approve(id).status, 200, "{url}");
        }
        let ended = world.end_of(id);
        if let Some(code) = ended["error"]["code"].as_str() {
            let page = human.get(&format!("/task/{id}")).body;
            assert!(page.contains(&format!("<code>{code}</code>")), "{url}: the page shows the code: {page}");
            assert_eq!(page.contains(WHY), code == "forbidden-address", "{url}: {page}");
        }
        ended
    })
}

fn assert_refused(world: &World, human: &Human, url: &str) {
    for ended in results_of(world, human, url) {
        assert_eq!(
            (&ended["status"], &ended["error"]["code"]),
            (&json!("failed"), &json!("forbidden-address")),
            "{url}: {ended}"
        );
        let message = ended["error"]["message"].as_str().expect("a message");
        assert!(message.ends_with(WHY), "{url}: {message}");
        assert!(!ended.to_string().contains("canary"), "{url}: {ended}");
    }
}

#[test]
fn no_spelling_of_this_machines_address_is_accepted_on_the_page() {
    let world = world();
    let human = Human::of(&world);
    // IPv4 and IPv6 on one port.
    let listener = TcpListener::bind("[::]:0").or_else(|_| TcpListener::bind("0.0.0.0:0")).expect("a port");
    let port = listener.local_addr().expect("its address").port();
    let reached = canary(listener);
    for host in [
        "127.0.0.1",
        "127.1",
        "127.9.9.9",
        "0",
        "0.0.0.0",
        "0177.0.0.1",
        "017700000001",
        "2130706433",
        "0x7f000001",
        "0x7F.1",
        "127.0.0.1.",
        "①②⑦.0.0.1",
        "%31%32%37.0.0.1",
        "[::1]",
        "[0:0:0:0:0:0:0:1]",
        "[::]",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "[::127.0.0.1]",
        "[64:ff9b::7f00:1]",
        "localhost",
        "LOCALHOST",
    ] {
        assert_refused(&world, &human, &format!("http://{host}:{port}"));
    }
    assert_refused(&world, &human, &format!("http://127.0.0.1:{port}#@example.com"));
    // The page itself, names that may not resolve here, and URLs that are not HTTP.
    assert_refused(&world, &human, &format!("http://127.0.0.1:{}", human.site.port));
    assert_refused(&world, &human, &format!("http:\\\\127.0.0.1:{port}\\"));
    for url in [
        human.site.origin(),
        format!("http://localhost.:{port}"),
        format!("http://example.com@127.0.0.1:{port}"),
        format!("http://example.com:80@[::1]:{port}"),
        "file:///etc/passwd".to_owned(),
        format!("gopher://127.0.0.1:{port}"),
    ] {
        for ended in results_of(&world, &human, &url) {
            assert_eq!(ended["status"], "failed", "{url}: {ended}");
        }
    }
    assert_eq!(reached.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn a_human_who_types_a_private_address_into_the_form_reads_why_it_is_refused() {
    let world = world();
    let Some(mut tab) = world.signed_in_tab().await else { return };
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("its address").port();
    let reached = canary(listener);
    tab.go(&format!("{}/subtool/page_read", world.site().origin())).await;
    tab.click("[data-form=try] [data-pointer='/url'] input, [data-form=try] [data-pointer='/url'] textarea").await;
    tab.insert(&format!("http://[::ffff:127.0.0.1]:{port}/")).await;
    tab.click("[data-form=try] [type=submit]").await;
    tab.until("location.pathname.startsWith('/task/') && document.body.innerText.includes('is a loopback address')")
        .await;
    assert_eq!(reached.load(Ordering::SeqCst), 0);
}

/// Runs `test` in a thread with its own network namespace, where `PUBLIC` is a local address and the test answers DNS.
///
/// Prints a note and skips the test if network namespaces do not work here.
fn in_network_namespace(test: impl FnOnce(&World) + Send + 'static) {
    // The harness may run the next test in its own thread, so the namespace needs another one.
    let thread = std::thread::spawn(move || {
        let world = world();
        let script = format!(
            "ip link set lo up; ip address add {PUBLIC}/32 dev lo; mount --make-rprivate /
            printf 'nameserver 127.0.0.1\\n' >resolv; printf 'hosts: files dns\\n' >nsswitch
            mount --bind resolv /etc/resolv.conf; [ ! -e /etc/nsswitch.conf ] || mount --bind nsswitch /etc/nsswitch.conf"
        );
        let is_ready = unshare(CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWNS).is_ok()
            && world
                .within("sh", &["-ec", &script])
                .stderr(Stdio::null())
                .status()
                .is_ok_and(|status| status.success());
        if is_ready {
            test(&world);
        } else {
            skip("names that change their address: network namespaces do not work here");
        }
    });
    if let Err(panic) = thread.join() {
        std::panic::resume_unwind(panic);
    }
}

/// A DNS server: `addresses_of` gets a name and how often it was asked before.
fn serve_names(addresses_of: fn(&str, usize) -> Vec<Ipv4Addr>) {
    const A: [u8; 4] = [0, 1, 0, 1];
    let socket = UdpSocket::bind("127.0.0.1:53").expect("the namespace has no other server");
    std::thread::spawn(move || {
        let mut asked = std::collections::HashMap::<String, usize>::new();
        let mut bytes = [0; 512];
        while let Ok((length, from)) = socket.recv_from(&mut bytes) {
            let (mut name, mut at) = (Vec::new(), 12);
            while bytes[at] != 0 {
                let label = &bytes[at + 1..=at + usize::from(bytes[at])];
                name.push(String::from_utf8_lossy(label).to_ascii_lowercase());
                at += label.len() + 1;
            }
            let question = &bytes[12..at + 5];
            let addresses = if question.ends_with(&A) && length > at {
                let name = name.join(".");
                let times = asked.entry(name.clone()).or_default();
                *times += 1;
                addresses_of(&name, *times - 1)
            } else {
                Vec::new()
            };
            let count = u8::try_from(addresses.len()).expect("a few addresses");
            // The header of an answer without error, with one question and `count` answers.
            let mut answer = [&bytes[..2], &[0x81, 0x80, 0, 1, 0, count, 0, 0, 0, 0], question].concat();
            for address in addresses {
                // A pointer to the name in the question, and a TTL of 0.
                answer.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4]);
                answer.extend(address.octets());
            }
            socket.send_to(&answer, from).expect("the answer is sent");
        }
    });
}

/// A server at the public address that redirects `/to?URL` to `URL`.
fn serve_redirects() {
    let listener = TcpListener::bind((PUBLIC, 80)).expect("the namespace has no other server");
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut line = String::new();
            let mut reader = BufReader::new(stream.try_clone().expect("a socket"));
            reader.read_line(&mut line).expect("a request");
            let mut header = String::from("x");
            while !header.trim().is_empty() {
                header.clear();
                reader.read_line(&mut header).expect("a header");
            }
            let target = line.split(' ').nth(1).and_then(|path| path.strip_prefix("/to?"));
            let answer = match target {
                Some(target) => format!(
                    "HTTP/1.1 302 Found\r\nlocation: {target}\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
                ),
                None => "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 6\r\n\r\npublic".to_owned(),
            };
            stream.write_all(answer.as_bytes()).ok();
        }
    });
}

#[test]
fn no_name_and_no_redirect_reaches_this_machine() {
    const PRIVATE: Ipv4Addr = Ipv4Addr::LOCALHOST;
    in_network_namespace(|world| {
        serve_names(|name, times| match name {
            "public.example" => vec![PUBLIC],
            "inner.example" => vec![PRIVATE],
            "both.example" => vec![PUBLIC, PRIVATE],
            // DNS rebinding: public at the first lookup, private afterwards.
            "flip.example" | "turn.example" if times == 0 => vec![PUBLIC],
            "flip.example" | "turn.example" => vec![PRIVATE],
            name if name.ends_with(".localhost") => vec![PRIVATE],
            _ => Vec::new(),
        });
        serve_redirects();
        let human = Human::of(world);
        let listener = TcpListener::bind((PRIVATE, 0)).expect("a port");
        let port = listener.local_addr().expect("its address").port();
        let at_80 = canary(TcpListener::bind((PRIVATE, 80)).expect("the namespace has no other server"));
        let reached = canary(listener);

        // A public address is reached.
        for ended in results_of(world, &human, "http://public.example/") {
            assert_eq!((&ended["status"], &ended["data"]), (&json!("succeeded"), &json!("public")), "{ended}");
        }
        for url in ["http://inner.example/", "http://both.example/", "http://x.localhost/"] {
            assert_refused(world, &human, url);
        }
        assert_refused(world, &human, &human.site.origin());

        let read = |url: &str| {
            let [read, _] = results_of(world, &human, url);
            read
        };
        let mut redirects = Vec::new();
        for host in
            ["127.0.0.1", "[::ffff:127.0.0.1]", "0x7f.1", "2130706433", "localhost", "inner.example", "both.example"]
        {
            redirects.push(format!("http://public.example/to?http://{host}:{port}/"));
        }
        redirects.push(format!("http://public.example/to?http://public.example/to?//127.0.0.1:{port}/"));
        // The lookup for the redirect gets another answer than the first one.
        redirects.push(format!("http://turn.example/to?http://turn.example:{port}/"));
        for url in redirects {
            let ended = read(&url);
            assert_eq!(ended["error"]["code"], "forbidden-address", "{url}: {ended}");
            assert!(ended["error"]["message"].as_str().expect("a message").ends_with(WHY), "{url}: {ended}");
        }
        let first = read("http://flip.example/");
        assert_eq!(first["data"], "public", "{first}");
        assert_refused(world, &human, "http://flip.example/");
        assert_eq!((reached.load(Ordering::SeqCst), at_80.load(Ordering::SeqCst)), (0, 0));
        // The canary can be reached at its address, so the zeros above mean something.
        drop(TcpStream::connect((PRIVATE, port)).expect("the canary listens"));
        until("the canary is reached", || reached.load(Ordering::SeqCst) == 1);
        assert!(fs::read_to_string("/etc/resolv.conf").is_ok_and(|text| text == "nameserver 127.0.0.1\n"));
    });
}
