//! A client that is generated from our OpenAPI document, and TLS, with `curl`.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::{Server, world_with_model};
use crate::skip::skip;
use crate::world::World;

const PYTHON: &str = "AGENT_MAGIC_TOOL_TEST_SERVE_PYTHON";

/// Uses the generated client: a question, the sessions, an error.
const SCRIPT: &str = r#"
import sys
from agent_magic_tool_serve_client import Client
from agent_magic_tool_serve_client.api.default import submit, sessions, health, delete_session
from agent_magic_tool_serve_client.models import SubmitRequest
client = Client(base_url=sys.argv[1])
assert health.sync(client=client).status == "ok"
answer = submit.sync(client=client, body=SubmitRequest(message="How many words are in it?", session="generated"))
assert answer.answer == "There are 3 words.", answer
listed = sessions.sync(client=client)
assert [one.client for one in listed.sessions] == ["generated"], listed
wrong = submit.sync(client=client, body=SubmitRequest(message=" "))
assert wrong.error.code == "invalid-input" and wrong.error.hint, wrong
assert delete_session.sync("generated", client=client).state == "deleted"
print("all good")
"#;

#[test]
fn a_generated_client_works() {
    let Some(folder) = std::env::var_os(PYTHON).map(PathBuf::from) else {
        return skip(&format!("{PYTHON} does not name PyPI's clients of serve"));
    };
    let Some((world, _model)) = world_with_model("") else { return };
    let server = Server::start(&world);
    let document = world.folder().join("openapi.json");
    std::fs::write(&document, server.get("/openapi.json").body).expect("written");
    // It formats what it generates with a tool beside it.
    let path = format!("{}:{}", folder.display(), std::env::var("PATH").expect("a path"));
    let generated = world
        .within(folder.join("openapi-python-client"), &["generate", "--path", "openapi.json", "--fail-on-warning"])
        .env("PATH", path)
        .output()
        .expect("it starts");
    let said = String::from_utf8_lossy(&generated.stdout).into_owned() + &String::from_utf8_lossy(&generated.stderr);
    assert!(generated.status.success(), "{said}");
    let ran = world
        .within(folder.join("python"), &["-c", SCRIPT, &server.url()])
        .env("PYTHONPATH", world.folder().join("agent-magic-tool-serve-client"))
        .output()
        .expect("it starts");
    let said = String::from_utf8_lossy(&ran.stdout).into_owned() + &String::from_utf8_lossy(&ran.stderr);
    assert!(said.trim_end().ends_with("all good"), "{said}");
}

#[test]
fn other_machines_reach_it_with_tls() {
    let Some((world, _model)) = world_with_model("") else { return };
    let (certificate, key) = (world.folder().join("cert.pem"), world.folder().join("key.pem"));
    if !make_certificate(&world, &certificate, &key) {
        return skip("there is no openssl to make a certificate with");
    }
    let config = world.config_folder().join("config.toml");
    let before = std::fs::read_to_string(&config).expect("readable");
    let (chain, secret) = (certificate.display(), key.display());
    let text = format!("{before}\n[serve]\ncertificate = \"{chain}\"\ncertificate_key = \"{secret}\"\n");
    std::fs::write(&config, text).expect("written");
    let server = Server::start_with(&world, &["--listen=0.0.0.0:0"]);
    let port = server.address.rsplit(':').next().expect("a port").to_owned();
    let url = format!("https://127.0.0.1:{port}/health");
    let curl = |arguments: &[&str]| {
        Command::new("curl").args(["-s", "-m", "20"]).args(arguments).output().expect("curl starts")
    };
    let answer = curl(&["--cacert", certificate.to_str().expect("a path"), &url]);
    assert!(String::from_utf8_lossy(&answer.stdout).contains("\"ok\""), "{answer:?}");
    assert!(!curl(&[&url]).status.success(), "the certificate is checked");
    assert!(curl(&[&format!("http://127.0.0.1:{port}/health")]).stdout.is_empty(), "nothing is said without TLS");
}

fn make_certificate(world: &World, certificate: &Path, key: &Path) -> bool {
    let made = world
        .within("openssl", &["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"])
        .args(["-addext", "subjectAltName=IP:127.0.0.1", "-keyout"])
        .arg(key)
        .arg("-out")
        .arg(certificate)
        .output();
    made.is_ok_and(|made| made.status.success())
}
