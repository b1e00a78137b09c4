//! The story of the mission, against a real Gmail-shaped server: search, result file, bad token, no secret anywhere.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::myworld;
use crate::world::{Transcript, World};

/// A world whose Gmail is `far`.
fn connected(far: &myworld::World, token: &str) -> World {
    let world = World::new();
    let hosts = ["gmail.googleapis.com", "oauth2.googleapis.com", "api.github.com"];
    let endpoints: Vec<_> =
        hosts.iter().map(|host| format!("\"https://{host}\" = \"{}\"", far.endpoint(host))).collect();
    world.configure(&format!("[http.endpoints]\n{}\n", endpoints.join("\n")));
    let ran = world.run_with(&["secret", "set", "google"], token);
    assert_eq!(ran.exit, 0, "{ran}");
    world
}

#[tokio::test]
async fn a_mail_is_found_by_its_subject_and_label() {
    let Some(far) = myworld::World::start().await else { return };
    let id = far.insert_mail("年度报告 2026", "Revenue grew.", &["work"]).await;
    far.insert_mail("年度报告 2026", "Not for work.", &[]).await;
    far.insert_mail("Lunch", "Noon?", &["work"]).await;
    let world = connected(&far, &far.google_token);

    let listed = world.run(&["list", "tools", "--query=gmail"]).json();
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
    let file: Value = serde_json::from_slice(&fs::read(&path).expect("the file is there")).expect("whole JSON");
    assert!(file["status"] == "pending" || file["success"] == true, "{file}");

    let ended = world.run(&["wait", &path]);
    let found: Vec<_> =
        ended.json()["data"].as_array().expect("messages").iter().map(|mail| mail["id"].clone()).collect();
    assert_eq!((ended.exit, found), (0, vec![Value::from(id)]), "{ended}");
    let file: Value = serde_json::from_slice(&fs::read(&path).expect("the file is there")).expect("whole JSON");
    assert_eq!((&file["success"], file.get("error")), (&json!(true), None));
    nowhere(&far.google_token, &world, &[&ran, &ended]);
}

#[tokio::test]
async fn a_bad_token_ends_with_googles_own_words_and_shows_itself_nowhere() {
    let Some(far) = myworld::World::start().await else { return };
    let canary = "ya29.canary-7f3a9c-never-to-be-seen";
    let world = connected(&far, canary);
    let ran = world.run(&["run", "gmail_search_messages", "search_query=x"]);
    let id = ran.json()["id"].as_str().expect("an id").to_owned();
    let ended = world.run(&["wait", &id]);
    let file = ended.json();
    assert_eq!((ended.exit, &file["status"], &file["success"]), (1, &json!("failed"), &json!(false)), "{ended}");
    assert!(
        file["error"]["message"].as_str().is_some_and(
            |words| words.contains("invalid authentication credentials") || words.contains("Invalid Credentials")
        ),
        "{file}"
    );
    let plan = world.run(&["run", "gmail_search_messages", "search_query=x", "--dry-run"]);
    let doctor = world.run(&["doctor"]);
    let inspected = world.run(&["inspect", "gmail_search_messages"]);
    let secrets = world.run(&["secret", "list"]);
    nowhere(canary, &world, &[&ran, &ended, &plan, &doctor, &inspected, &secrets]);
}

/// The secret stands in its own file of mode 0600, and nowhere else that this world wrote.
fn nowhere(secret: &str, world: &World, printed: &[&Transcript]) {
    for ran in printed {
        assert!(!ran.stdout.contains(secret) && !ran.stderr.contains(secret), "{ran}");
    }
    let own = world.state().join("secrets/google");
    let mut looked_at = 0;
    for root in [world.mailbox(), world.home(), world.folder()] {
        visit(&root, &mut |path| {
            let bytes = fs::read(path).unwrap_or_default();
            let has = bytes.windows(secret.len()).any(|part| part == secret.as_bytes());
            assert!(path == own || !has, "the secret stands in {}", path.display());
            looked_at += 1;
        });
    }
    let pid = world.executor().expect("an executor");
    for part in ["cmdline", "environ"] {
        let bytes = fs::read(format!("/proc/{pid}/{part}")).expect("readable");
        assert!(!bytes.windows(secret.len()).any(|part| part == secret.as_bytes()), "{part}");
    }
    assert!(looked_at > 5, "only {looked_at} files were looked at");
}

fn visit(folder: &Path, see: &mut impl FnMut(&Path)) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() { visit(&path, see) } else { see(&path) }
    }
}
