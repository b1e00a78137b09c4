//! The page from another machine, through ssh: a fixed port is forwarded to the same port there, and the link works there.

use std::fs;
use std::io::Write as _;
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};

use ground::page_client::proof::{ChallengeAnswer, ProvenRequest, SessionKey};
use ground::page_client::site::PageSite;
use serde_json::{Value, json};

use super::http::{self, Answer};
use super::human::Human;
use crate::free_port::free_port;
use crate::skip::skip;
use crate::world::{Lines, World, full_program, until, wait_for_end};

const SSHD: &str = "/usr/sbin/sshd";

/// A server of OpenSSH, and a client of it that forwards a port and has `executor page --link` run there. Both end with it.
struct Tunnel {
    server: Child,
    client: Child,
    /// The keyboard of the client.
    keys: ChildStdin,
    /// What it shows.
    lines: Lines,
}

impl Drop for Tunnel {
    fn drop(&mut self) {
        for process in [&mut self.client, &mut self.server] {
            process.kill().ok();
            process.wait().ok();
        }
    }
}

fn key(folder: &Path, name: &str) -> PathBuf {
    let path = folder.join(name);
    let made = Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(&path).status();
    assert!(made.expect("it starts").success());
    path
}

impl Tunnel {
    /// The secret of the link that it shows.
    fn secret(&self) -> String {
        loop {
            if let Some((_, secret)) = self.lines.next().split_once("/#") {
                return secret.split('"').next().expect("a part").to_owned();
            }
        }
    }

    /// Forwards `from`, as if that were another machine's loopback, to this port here; `None` without a server.
    fn open(world: &World, folder: &Path, from: SocketAddr, port: u16) -> Option<Self> {
        if !Path::new(SSHD).exists() || !nix::unistd::geteuid().is_root() {
            skip("no sshd, or no root to run it as: Debian's openssh-server");
            return None;
        }
        let (host, user) = (key(folder, "host"), key(folder, "user"));
        let authorized = folder.join("authorized");
        fs::copy(folder.join("user.pub"), &authorized).expect("copied");
        fs::set_permissions(&authorized, fs::Permissions::from_mode(0o600)).expect("changed");
        // Where the server looks for it, whatever starts it.
        fs::create_dir_all("/run/sshd").expect("made");
        let own = free_port();
        let config = folder.join("sshd_config");
        let text = format!(
            "Port {own}\nListenAddress 127.0.0.1\nHostKey {}\nAuthorizedKeysFile {}\nStrictModes no\nUsePAM no\nPidFile none\n\
             PermitRootLogin prohibit-password\n",
            host.display(),
            authorized.display()
        );
        fs::write(&config, text).expect("written");
        let mut server = Command::new(SSHD);
        server.args(["-D", "-f"]).arg(&config).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let server = server.spawn().expect("it starts");
        until("sshd listens", || TcpStream::connect(("127.0.0.1", own)).is_ok());
        let forward = format!("{from}:127.0.0.1:{port}");
        let options = ["StrictHostKeyChecking=no", "UserKnownHostsFile=/dev/null", "ExitOnForwardFailure=yes"];
        let words = format!(
            "exec env HOME={} AGENT_MAGIC_TOOL_DIR={} {} executor page --link",
            world.home().display(),
            world.mailbox().display(),
            full_program().display()
        );
        let mut client = Command::new("ssh");
        client.args(["-F", "none", "-tt", "-L", &forward, "-p", &own.to_string(), "-i"]).arg(&user);
        client.args(options.iter().flat_map(|option| ["-o", option])).args(["root@127.0.0.1", &words]);
        client.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut client = client.spawn().expect("it starts");
        let keys = client.stdin.take().expect("piped");
        let lines = Lines::of(client.stdout.take().expect("piped"));
        Some(Self { server, client, keys, lines })
    }
}

/// Sends what a browser there sends.
fn send(at: SocketAddr, site: &PageSite, method: &str, path: &str, headers: &str, body: &str) -> Answer {
    let (host, length) = (http::host(site), body.len());
    let request = format!(
        "{method} {path} HTTP/1.1\r\nHost: {host}\r\nOrigin: {}\r\nConnection: close\r\nContent-Type: application/json\r\n\
         Content-Length: {length}\r\n{headers}\r\n{body}",
        site.origin()
    );
    http::exchange_with(TcpStream::connect(at).expect("the tunnel is open"), &request)
}

#[test]
fn a_human_at_another_machine_decides_through_ssh() {
    let world = World::new();
    let port = free_port();
    world.configure(&format!("[page]\nport = {port}\n"));
    world.define(
        "set.json",
        &json!({"set": {"description": "Sets something.", "input": {},
        "run": {"process": {"folder": ".", "argv": ["sh", "-c", "echo x >> ran; printf done"]}}}}),
    );
    let id = world.start("set", &json!({}));
    let site = world.site();
    assert_eq!(site.port, port);
    let there = SocketAddr::from(([127, 0, 0, 2], port));
    let folder = tempfile::tempdir().expect("a folder");
    let Some(mut tunnel) = Tunnel::open(&world, folder.path(), there, port) else { return };
    let secret = tunnel.secret();

    // Without the link, a browser there sees and decides nothing.
    let card = format!("/card/{id}");
    assert_eq!(send(there, &site, "GET", &card, "", "").status, 401);
    let login = json!({"secret": secret}).to_string();
    let signed_in = send(there, &site, "POST", "/login", "", &login);
    assert_eq!(signed_in.status, 200, "{}", signed_in.body);
    assert_ne!(send(there, &site, "POST", "/login", "", &login).status, 200, "a link works once");
    let cookie = signed_in.head.split("set-cookie: ").nth(1).and_then(|rest| rest.split(';').next()).expect("a cookie");
    let key: Value = serde_json::from_str(signed_in.body.trim()).expect("JSON");
    let key = key["key"].as_str().and_then(SessionKey::from_hex).expect("a key");
    let cookie = format!("Cookie: {cookie}\r\n");
    let proven = |method: &str, path: &str, body: &str| {
        let challenge = send(there, &site, "GET", "/challenge?nonce=ours", &cookie, "");
        let answer: ChallengeAnswer = serde_json::from_str(&challenge.body).expect("a challenge");
        let proof = key.prove(ProvenRequest { method, target: path, body: body.as_bytes() }, &answer);
        let headers = format!("{cookie}X-Page-Proof: {proof}\r\n");
        (send(there, &site, method, path, &headers, body), headers)
    };
    let (shown, _) = proven("GET", &card, "");
    let digest = shown.body.split("data-digest=\"").nth(1).and_then(|rest| rest.split('"').next()).expect("a card");
    let decision = json!({"decisions": [{"id": id, "digest": digest}], "verdict": "approve"}).to_string();
    // Another host name is refused there as here, and a proof counts once and for one body.
    let other = PageSite { host: "localhost".to_owned(), ..site.clone() };
    assert_eq!(send(there, &other, "POST", "/decide", &cookie, &decision).status, 421);
    let (decided, headers) = proven("POST", "/decide", &decision);
    assert_eq!(decided.status, 200, "{}", decided.body);
    assert_ne!(send(there, &site, "POST", "/decide", &headers, &decision).status, 200, "the proof is spent");
    assert_eq!(world.end_of(&id)["status"], "succeeded");
    // The command waits, because the port is forwarded no longer when it has ended.
    assert!(tunnel.client.try_wait().expect("it can be asked").is_none());
    tunnel.keys.write_all(b"\n").expect("typed");
    assert!(wait_for_end(&mut tunnel.client).success());
    TcpStream::connect(there).expect_err("nothing is forwarded");
}

#[test]
fn the_link_is_printed_to_a_terminal_alone_and_a_taken_port_is_no_end_of_the_page() {
    let world = World::new();
    let taken = std::net::TcpListener::bind(("127.0.0.1", 0)).expect("a port");
    let port = taken.local_addr().expect("bound").port();
    world.configure(&format!("[page]\nport = {port}\n"));
    let ran = world.run(&["executor", "page", "--link"]);
    assert_eq!(ran.error()["code"], "humans-only", "{ran}");
    assert!(ran.error()["hint"].as_str().is_some_and(|hint| hint.contains("ssh -t")), "{ran}");
    let human = Human::of(&world);
    assert_ne!(human.site.port, port);
    let log = fs::read_to_string(world.log()).expect("a log");
    assert!(log.contains("the page is served at another port"), "{log}");
    let told = format!("another program had the port {port} of `page.port`");
    let status = world.run(&["executor", "status"]);
    assert!(status.stderr.contains(&told) && status.stdout.contains(&told), "{status}");
    let doctor = world.run(&["doctor"]);
    assert!(doctor.stdout.contains(&told), "{doctor}");
    drop(taken);
    world.run(&["executor", "stop"]);
    world.run(&["executor", "page", "--link"]);
    world.run(&["tasks"]);
    let status = world.run(&["executor", "status"]);
    assert!(!status.stdout.contains(&told), "{status}");
}
