//! `import curl`: one pasted line becomes one subtool, and its credential a secret.

use serde_json::json;

use super::{plan, quiet_world, written};

#[test]
fn a_curl_line_becomes_a_subtool_without_its_credential() {
    let world = quiet_world();
    let line = "curl -X POST 'https://api.notes.example/v1/notes?notify=true' -H 'Authorization: Bearer topsecret' \
                -H 'Content-Type: application/json' -d '{\"text\": \"hi\"}'";
    let imported = world.run(&["import", line]);
    assert_eq!(imported.exit, 0, "{imported}");
    assert_eq!(imported.json()["kind"], "curl");
    let file = written(&world, "notes.json");
    assert!(!file.to_string().contains("topsecret") && !imported.to_string().contains("topsecret"), "{imported}");
    let sent = plan(&world, "notes_post_v1_notes", &json!({"notify": "false", "text": "\"年\""}));
    let url = "https://api.notes.example/v1/notes?notify=false";
    assert_eq!(sent, json!({"method": "POST", "url": url, "body": {"text": "\"年\""}}));
    assert_eq!(world.run(&["lint"]).exit, 0);
    let refreshed = world.run(&["import", "--refresh"]);
    assert_eq!(refreshed.exit, 1, "{refreshed}");
    let wrong = world.run(&["import", "curl", "wget https://a.example"]);
    assert_eq!(wrong.exit, 2, "{wrong}");
}
