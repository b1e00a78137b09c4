//! Google's own description of Gmail makes the same calls as the pack that was written by hand.

use serde_json::{Value, json};

use super::torture::discovery;
use super::{plan, quiet_world};
use crate::myworld;
use crate::world::World;

/// A world with the pack that ships, and with what Google's document of Gmail becomes.
fn both() -> Option<World> {
    let document = discovery()?.join("gmail.v1.json");
    let world = quiet_world();
    world.configure("[catalog]\npacks = [\"gmail\"]\n");
    let imported = world.run(&["import", &document.display().to_string()]);
    assert_eq!(imported.exit, 0, "{imported}");
    Some(world)
}

#[test]
fn the_imported_gmail_calls_what_the_written_one_calls() {
    let Some(world) = both() else { return };
    for (written, input, imported, same) in [
        (
            "gmail_search_messages",
            json!({"search_query": "年度报告", "label": "work"}),
            "gmail_users_messages_list",
            json!({"q": "年度报告 label:work"}),
        ),
        (
            "gmail_read_message",
            json!({"message_id": "18c1"}),
            "gmail_users_messages_get",
            json!({"id": "18c1", "format": "full"}),
        ),
        ("gmail_list_labels", json!({}), "gmail_users_labels_list", json!({})),
        (
            "gmail_modify_labels",
            json!({"message_id": "18c1", "add_label_ids": ["STARRED"], "remove_label_ids": ["UNREAD"]}),
            "gmail_users_messages_modify",
            json!({"id": "18c1", "addLabelIds": ["STARRED"], "removeLabelIds": ["UNREAD"]}),
        ),
        ("gmail_trash_message", json!({"message_id": "18c1"}), "gmail_users_messages_trash", json!({"id": "18c1"})),
        (
            "gmail_send_message",
            json!({"to": ["ann@example.com"], "subject": "x", "body": "y"}),
            "gmail_users_messages_send",
            json!({"raw": "eA=="}),
        ),
    ] {
        let mut one = plan(&world, written, &input);
        let mut other = plan(&world, imported, &same);
        // How a mail is encoded is not the matter here.
        if written == "gmail_send_message" {
            one["body"] = Value::Null;
            other["body"] = Value::Null;
        }
        assert_eq!(one, other, "{written} and {imported}");
    }
}

#[tokio::test]
async fn the_imported_gmail_finds_a_mail() {
    let Some(server) = myworld::World::start().await else { return };
    let Some(world) = both() else { return };
    let id = server.insert_mail("年度报告 2026", "Revenue grew.", &["work"]).await;
    world.configure(&format!(
        "[catalog]\npacks = [\"gmail\"]\n[http.endpoints]\n\"https://gmail.googleapis.com\" = \"{}\"\n",
        server.endpoint("gmail.googleapis.com")
    ));
    assert_eq!(world.run_with(&["secret", "set", "google"], &server.google_token).exit, 0);
    let ran = world.run(&["run", "gmail_users_messages_list", "q=年度报告 label:work", "--wait"]);
    assert_eq!((ran.exit, &ran.json()["data"]["messages"][0]["id"]), (0, &json!(id)), "{ran}");
    let wrong = world.run(&["run", "gmail_users_messages_get", "ids=1"]);
    assert_eq!((wrong.exit, &wrong.error()["code"]), (2, &json!("invalid-input")), "{wrong}");
}

/// Google's document of Drive marks what a share needs as output only, and says elsewhere that it must be provided.
#[test]
fn a_field_that_must_be_provided_is_an_input_although_it_is_marked_as_output() {
    let Some(folder) = discovery() else { return };
    let world = quiet_world();
    let imported = world.run(&["import", &folder.join("drive.v3.json").display().to_string(), "--name", "d"]);
    assert_eq!(imported.exit, 0, "{imported}");
    let listed = world.run(&["list", "tools", "d_permissions_create", "--full"]).json();
    let fields = &listed["d_permissions_create"]["input"]["properties"];
    for name in ["emailAddress", "domain"] {
        let text = fields[name]["description"].as_str().unwrap_or_default();
        assert!(text.starts_with("The "), "{name}: {fields:#}");
    }
    assert!(fields["displayName"].is_null(), "{fields:#}");
    let input = json!({"fileId": "f", "role": "reader", "type": "user", "emailAddress": "bob@x.example"});
    assert_eq!(plan(&world, "d_permissions_create", &input)["body"]["emailAddress"], "bob@x.example");
}
