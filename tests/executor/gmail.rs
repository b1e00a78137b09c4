//! The Gmail pack against a Gmail-shaped server: search, result file, invalid token, and no leaked secret.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use super::closed::may_look_inside;
use crate::myworld;
use crate::world::{Transcript, World};

/// A world whose Gmail is `server`.
fn connected(server: &myworld::World, token: &str) -> World {
    let world = World::new();
    let hosts = ["gmail.googleapis.com", "oauth2.googleapis.com", "api.github.com"];
    let endpoints: Vec<_> =
        hosts.iter().map(|host| format!("\"https://{host}\" = \"{}\"", server.endpoint(host))).collect();
    world.configure(&format!("[http.endpoints]\n{}\n", endpoints.join("\n")));
    let ran = world.run_with(&["secret", "set", "google"], token);
    assert_eq!(ran.exit, 0, "{ran}");
    world
}

#[tokio::test]
async fn a_mail_is_found_by_its_subject_and_label() {
    let Some(server) = myworld::World::start().await else { return };
    let id = server.insert_mail("年度报告 2026", "Revenue grew.", &["work"]).await;
    server.insert_mail("年度报告 2026", "Not for work.", &[]).await;
    server.insert_mail("Lunch", "Noon?", &["work"]).await;
    let world = connected(&server, &server.google_token);

    let listed = world.run(&["list", "tools", "--query=gmail", "--full"]).json();
    let search = &listed["gmail_search_messages"];
    assert!(search["description"].is_string() && search["input"]["properties"]["search_query"].is_object(), "{listed}");
    assert!(
        listed
            .as_object()
            .is_some_and(|tools| tools.values().all(|tool| tool.as_object().is_some_and(|tool| tool.len() == 2)))
    );

    let ran = world.run(&["run", "gmail_search_messages", r#"--input={"search_query": "年度报告", "label": "work"}"#]);
    assert_eq!((ran.exit, &ran.json()["status"]), (0, &json!("pending")), "{ran}");
    assert_eq!(ran.json()["input"]["search_query"], "年度报告");
    let path = ran.json()["result_file"].as_str().expect("a path").to_owned();
    let file: Value = serde_json::from_slice(&fs::read(&path).expect("a result file")).expect("complete JSON");
    assert!(file["status"] == "pending" || file["status"] == "succeeded", "{file}");

    let ended = world.run(&["wait", &path]);
    let found: Vec<_> =
        ended.json()["data"].as_array().expect("messages").iter().map(|mail| mail["id"].clone()).collect();
    assert_eq!((ended.exit, found), (0, vec![Value::from(id)]), "{ended}");
    let file: Value = serde_json::from_slice(&fs::read(&path).expect("a result file")).expect("complete JSON");
    assert_eq!((&file["status"], file.get("error")), (&json!("succeeded"), None));
    assert_not_leaked(&server.google_token, &world, &[&ran, &ended]);
}

#[tokio::test]
async fn an_invalid_token_fails_with_googles_message_and_is_not_leaked() {
    let Some(server) = myworld::World::start().await else { return };
    let canary = "ya29.canary-7f3a9c-never-to-be-seen";
    let world = connected(&server, canary);
    let ran = world.run(&["run", "gmail_search_messages", "search_query=x"]);
    let id = ran.json()["id"].as_str().expect("an id").to_owned();
    let ended = world.run(&["wait", &id]);
    let file = ended.json();
    assert_eq!((ended.exit, &file["status"]), (1, &json!("failed")), "{ended}");
    assert!(
        file["error"]["message"].as_str().is_some_and(
            |text| text.contains("invalid authentication credentials") || text.contains("Invalid Credentials")
        ),
        "{file}"
    );
    let plan = world.run(&["run", "gmail_search_messages", "search_query=x", "--dry-run"]);
    let doctor = world.run(&["doctor"]);
    let inspected = world.run(&["inspect", "gmail_search_messages"]);
    let secrets = world.run(&["secret", "list"]);
    assert_not_leaked(canary, &world, &[&ran, &ended, &plan, &doctor, &inspected, &secrets]);
}

/// Checks that the secret is only in its own file: in no other file of this world, no output, and no argument or
/// environment variable of the executor.
fn assert_not_leaked(secret: &str, world: &World, printed: &[&Transcript]) {
    for ran in printed {
        assert!(!ran.stdout.contains(secret) && !ran.stderr.contains(secret), "{ran}");
    }
    let secret_file = world.state().join("secrets/google");
    let mut searched = 0;
    for root in [world.mailbox(), world.home(), world.folder()] {
        visit(&root, &mut |path| {
            let bytes = fs::read(path).unwrap_or_default();
            let has = bytes.windows(secret.len()).any(|part| part == secret.as_bytes());
            assert!(path == secret_file || !has, "the secret is in {}", path.display());
            searched += 1;
        });
    }
    let pid = world.executor().expect("an executor");
    for part in ["cmdline", "environ"].into_iter().filter(|part| *part == "cmdline" || may_look_inside()) {
        let bytes = fs::read(format!("/proc/{pid}/{part}")).expect("readable");
        assert!(!bytes.windows(secret.len()).any(|part| part == secret.as_bytes()), "{part}");
    }
    assert!(searched > 5, "only {searched} files were searched");
}

fn visit(folder: &Path, on_file: &mut impl FnMut(&Path)) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            visit(&path, on_file);
        } else if path.is_file() {
            on_file(&path);
        }
    }
}
