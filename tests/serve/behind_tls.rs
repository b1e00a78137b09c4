//! A decision through a reverse proxy with TLS: Debian's nginx, as the documents have it, and our own clients behind it.

use std::fs;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use super::{Server, world_with_model};
use crate::free_port::free_port;
use crate::page::human::Human;
use crate::skip::skip;
use crate::world::until;

const NGINX: &str = "/usr/sbin/nginx";
/// The address of the proxy, as if it were another machine than its clients.
const PROXY: &str = "127.0.0.9";

/// A running nginx that ends with this.
struct Proxy {
    process: Child,
    port: u16,
    certificate: PathBuf,
}

impl Drop for Proxy {
    fn drop(&mut self) {
        // Its main process ends the others on SIGTERM, and a kill would leave them.
        let id = i32::try_from(self.process.id()).expect("an id of a process");
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(id), nix::sys::signal::Signal::SIGTERM).ok();
        self.process.wait().ok();
    }
}

impl Proxy {
    /// Passes on to this port; `None` without nginx.
    fn start(folder: &Path, port: u16, target: u16) -> Option<Self> {
        if !Path::new(NGINX).exists() {
            skip("no nginx: Debian's nginx-light");
            return None;
        }
        let (certificate, key) = (folder.join("certificate.pem"), folder.join("key.pem"));
        let made = Command::new("openssl")
            .args(["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=localhost"])
            .args([
                "-addext",
                "subjectAltName=DNS:localhost",
                "-addext",
                "basicConstraints=critical,CA:FALSE",
                "-keyout",
            ])
            .arg(&key)
            .arg("-out")
            .arg(&certificate)
            .stderr(Stdio::null())
            .status();
        assert!(made.expect("openssl starts").success());
        let own = folder.display();
        let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .map(|name| format!("    {name}_temp_path {own}/{name};\n"))
            .concat();
        let user = if nix::unistd::geteuid().is_root() { "user root;\n" } else { "" };
        let config = format!(
            "{user}daemon off;\npid {own}/pid;\nerror_log {own}/errors;\nevents {{}}\nhttp {{\n    access_log off;\n{temporary}    server {{\n\
             \u{20}       listen 127.0.0.1:{port} ssl;\n        proxy_bind {PROXY};\n        ssl_certificate {own}/certificate.pem;\n        ssl_certificate_key {own}/key.pem;\n\
             {}    }}\n}}\n",
            location(target)
        );
        fs::write(folder.join("nginx.conf"), config).expect("written");
        let process =
            Command::new(NGINX).arg("-c").arg(folder.join("nginx.conf")).arg("-e").arg(folder.join("errors")).spawn();
        let proxy = Self { process: process.expect("it starts"), port, certificate };
        until("nginx listens", || TcpStream::connect(("127.0.0.1", port)).is_ok());
        Some(proxy)
    }
}

/// The block of the documents, for a server at this port.
fn location(port: u16) -> String {
    let document =
        fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/serve.md")).expect("a document");
    let (_, rest) = document.split_once("```nginx\n").expect("a block for nginx");
    let (block, _) = rest.split_once("```").expect("an end");
    assert!(block.contains("127.0.0.1:8790"), "{block}");
    block.replace("127.0.0.1:8790", &format!("127.0.0.1:{port}"))
}

#[test]
fn our_clients_ask_and_decide_through_a_proxy_with_tls() {
    let (port, target) = (free_port(), free_port());
    let more = format!("\n[serve]\nproxies = [\"{PROXY}\"]\npublic_names = [\"localhost:{port}\"]\n");
    let Some((world, _model)) = world_with_model(&more) else { return };
    let human = Human::of(&world);
    let (asker, decider) = (world.make_api_key("asker").key, world.make_deciding_key(&human, "decider"));
    let _server = Server::start_with(&world, &[&format!("--listen=127.0.0.1:{target}")]);
    let folder = tempfile::tempdir().expect("a folder");
    let Some(proxy) = Proxy::start(folder.path(), port, target) else { return };
    let url = format!("https://localhost:{}", proxy.port);
    let client = |program: &str, script: &str, command: &Value, trusts: bool| {
        let mut ran = super::clients::command_of(&world, program, script, &[&url, &command.to_string()]);
        if trusts {
            ran.env("SSL_CERT_FILE", &proxy.certificate).env("NODE_EXTRA_CA_CERTS", &proxy.certificate);
        }
        ran.output().expect("it starts")
    };
    for (program, script) in super::clients::languages() {
        // What was denied is not asked again for a while.
        let command = |policy: &Value, text: &str| {
            let message = format!("run: agent-magic-tool run note text={program}-{text}");
            json!({"ask_key": asker, "decide_key": decider, "policy": policy, "message": message})
        };
        for (policy, result) in
            [(json!({"by_subtool": {"note": true}}), "approved"), (json!({"reject_all": null}), "denied")]
        {
            let ran = client(program, script, &command(&policy, result), true);
            let told: Value = serde_json::from_slice(&ran.stdout)
                .unwrap_or_else(|_| panic!("{program}: {}", String::from_utf8_lossy(&ran.stderr)));
            assert_eq!(told["outcomes"][0]["result"], result, "{program}: {told}");
        }
        // A certificate that is not trusted ends it before a key is sent.
        let ran = client(program, script, &command(&json!({"approve_all": null}), "untrusted"), false);
        let said = String::from_utf8_lossy(&ran.stdout).into_owned() + &String::from_utf8_lossy(&ran.stderr);
        assert!(!said.contains("\"result\"") && !said.contains(&decider), "{program}: {said}");
    }
    // Who comes through the proxy is no program of this machine, whatever it says of itself.
    for lie in ["X-Forwarded-For: 127.0.0.1", "X-Real-IP: 127.0.0.1", "Via: none", "Authorization: Bearer none"] {
        let ran = Command::new("curl")
            .args(["-s", "--cacert"])
            .arg(&proxy.certificate)
            .args(["-o", "/dev/null", "-w", "%{http_code}", "-H", lie, &format!("{url}/api/v1/sessions")])
            .output();
        let Ok(ran) = ran else { return skip("there is no curl") };
        assert_eq!(String::from_utf8_lossy(&ran.stdout), "401", "{lie}");
    }
}
