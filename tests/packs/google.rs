//! The packs `drive` and `calendar` against Google-shaped servers.

use serde_json::{Value, json};

use super::{approved, assert_found, data, error};
use crate::myworld;
use crate::page::human::Human;
use crate::world::{World, until};

/// A world with the pack, connected to `server`.
fn connected(server: &myworld::World, pack: &str, config: &str) -> World {
    let endpoint = server.endpoint("www.googleapis.com");
    let config = format!("{config}\n[http.endpoints]\n\"https://www.googleapis.com\" = \"{endpoint}\"\n");
    let world = super::world(pack, &config);
    let ran = world.run_with(&["secret", "set", "google"], &server.google_token);
    assert_eq!(ran.exit, 0, "{ran}");
    world
}

const ALLOWED: &str = "[confirm]\nwrites = \"allow\"\n";

async fn drive() -> Option<myworld::World> {
    let files = json!([
        {"name": "Bob's budget", "type": "sheet", "content": "team,q4\nengineering,120000\n"},
        {"name": "Q4 plan", "type": "doc", "content": "Goals: cut cost."},
        {"name": "Q4 notes.txt", "content": "only text"},
        {"name": "Q4 old", "type": "doc", "content": "x", "trashed": true}
    ]);
    let seed = json!({"user": {"email": "ann@acme.example"}, "domain": "acme.example", "files": files});
    let server = myworld::World::with(&json!({"drive": {"seed": seed}}), &json!([])).await?;
    // Its search finds files only after a while, as Google's does.
    server.advance(120).await;
    Some(server)
}

fn names(files: &Value) -> Vec<&str> {
    files.as_array().expect("files").iter().map(|file| file["name"].as_str().expect("a name")).collect()
}

#[tokio::test]
async fn files_are_found_and_read_as_text_and_deleted_ones_never_appear() {
    let Some(server) = drive().await else { return };
    let world = connected(&server, "drive", "");
    let found = data(&world, "drive_search", &json!({"name": "Q4"}));
    assert_eq!(names(&found).len(), 2, "{found}");
    let budget = data(&world, "drive_search", &json!({"text": "Bob's budget", "kind": "spreadsheet"}));
    assert_eq!(names(&budget), ["Bob's budget"], "a quote in the words stays a quote");
    assert_eq!(data(&world, "drive_search", &json!({"name": "x' or name contains 'Q4"})), json!([]));
    let read =
        |file: &Value| data(&world, "drive_read", &json!({"file_id": file["id"], "mime_type": file["mimeType"]}));
    assert_eq!(read(&budget[0]), "team,q4\nengineering,120000\n");
    let all = data(&world, "drive_list", &json!({}));
    assert_eq!(names(&all), ["Bob's budget", "Q4 notes.txt", "Q4 plan"]);
    assert_eq!((read(&all[1]), read(&all[2])), (json!("only text"), json!("Goals: cut cost.")));
    let nothing = world.run(&["run", "drive_search", "--input={}"]);
    assert_eq!(nothing.error()["code"], "invalid-input", "{nothing}");
}

#[tokio::test]
async fn files_are_made_moved_shared_trashed_and_restored() {
    let Some(server) = drive().await else { return };
    let world = connected(&server, "drive", ALLOWED);
    let folder = data(&world, "drive_create_folder", &json!({"name": "Reports"}))["id"].clone();
    let text = "Zeile \"eins\"\r\n--boundary\n年度报告 \\ {{ x }}";
    let made = data(&world, "drive_upload_text", &json!({"name": "a \"b\".txt", "text": text, "parent_id": folder}));
    assert_eq!((&made["name"], &made["parents"]), (&json!("a \"b\".txt"), &json!([folder])));
    let file = made["id"].clone();
    let read = json!({"file_id": file, "mime_type": "text/plain"});
    assert_eq!(data(&world, "drive_read", &read), text, "byte by byte");
    let document = json!({"name": "Plan", "text": "Goal", "as_document": true});
    assert_eq!(data(&world, "drive_upload_text", &document)["mimeType"], "application/vnd.google-apps.document");
    let smuggled = json!({"name": "a", "text": "x\r\n--agent-magic-tool-part\r\n"});
    let refused = world.run(&["run", "drive_upload_text", "--input", &smuggled.to_string()]);
    assert_eq!(refused.error()["code"], "invalid-input", "{refused}");

    let moved = json!({"file_id": file, "from_folder_id": folder, "to_folder_id": "root", "name": "c.txt"});
    let moved = data(&world, "drive_move", &moved);
    assert_eq!((&moved["name"], &moved["parents"]), (&json!("c.txt"), &json!(["root"])));
    let shared = data(&world, "drive_share", &json!({"file_id": file, "email": "bob@acme.example", "role": "writer"}));
    assert_eq!(shared["role"], "writer", "{shared}");
    data(&world, "drive_share", &json!({"file_id": file, "type": "anyone"}));
    let nobody = world.run(&["run", "drive_share", "--input", &json!({"file_id": file}).to_string()]);
    assert_eq!(nobody.error()["code"], "invalid-input", "{nobody}");

    let asking = connected(&server, "drive", "");
    let info = json!({"file_id": file});
    approved(&asking, "drive_trash", &info, &["c.txt"], "drive_trash");
    assert_eq!(data(&asking, "drive_info", &info)["trashed"], true);
    assert!(!names(&data(&asking, "drive_list", &json!({}))).contains(&"c.txt"));
    data(&world, "drive_restore", &info);
    assert_eq!(data(&asking, "drive_info", &info)["trashed"], false);
    let unknown = error(&asking, "drive_info", &json!({"file_id": "none"}));
    assert!(unknown["message"].as_str().is_some_and(|it| it.contains("File not found")), "{unknown}");
}

async fn calendar() -> Option<myworld::World> {
    let events = json!([
        {"summary": "Standup", "start": "2026-11-24T09:30:00+01:00", "end": "2026-11-24T09:45:00+01:00",
            "attendees": ["bob@acme.example"], "location": "Room 4"},
        {"summary": "Review", "start": "2026-11-25T11:00:00+01:00", "end": "2026-11-25T12:00:00+01:00",
            "organizer": "bob@acme.example", "attendees": ["ann@acme.example"]}
    ]);
    let seed = json!({"user": {"email": "ann@acme.example", "name": "Ann Lee"}, "timeZone": "Europe/Berlin",
        "people": [{"email": "bob@acme.example", "name": "Bob"}], "events": events});
    myworld::World::with(&json!({"calendar": {"seed": seed}}), &json!([])).await
}

#[tokio::test]
async fn events_are_listed_and_free_times_found() {
    let Some(server) = calendar().await else { return };
    let world = connected(&server, "calendar", "");
    let calendars = data(&world, "calendar_list_calendars", &json!({}));
    assert_eq!((&calendars[0]["id"], &calendars[0]["primary"]), (&json!("ann@acme.example"), &json!(true)));
    let day = json!({"time_min": "2026-11-24T00:00:00+01:00", "time_max": "2026-11-25T00:00:00+01:00"});
    let listed = data(&world, "calendar_list_events", &day);
    let guests = json!([
        {"email": "ann@acme.example", "responseStatus": "accepted"},
        {"email": "bob@acme.example", "responseStatus": "needsAction"}
    ]);
    let facts = (&listed[0]["summary"], &listed[0]["start"], &listed[0]["attendees"]);
    assert_eq!(facts, (&json!("Standup"), &json!("2026-11-24T09:30:00+01:00"), &guests));
    assert_eq!(listed.as_array().map(Vec::len), Some(1));
    assert_eq!(data(&world, "calendar_list_events", &json!({"words": "review"}))[0]["summary"], "Review");
    let mut free = day.clone();
    free["calendars"] = json!(["primary", "bob@acme.example"]);
    let free = data(&world, "calendar_free_busy", &free);
    let busy = |of: &str| free[of]["busy"].as_array().map(Vec::len);
    assert_eq!((busy("primary"), busy("bob@acme.example")), (Some(1), Some(1)), "{free}");
}

#[tokio::test]
async fn events_are_made_moved_answered_and_cancelled() {
    let Some(server) = calendar().await else { return };
    let world = connected(&server, "calendar", ALLOWED);
    let lunch = json!({"summary": "午餐 \"Lunch\"", "start": "2026-11-24T12:00:00", "end": "2026-11-24T13:00:00",
        "time_zone": "Europe/Berlin", "attendees": [{"email": "bob@acme.example"}]});
    let made = data(&world, "calendar_create_event", &lunch);
    assert_eq!((&made["summary"], &made["start"]), (&lunch["summary"], &json!("2026-11-24T12:00:00+01:00")));
    let holiday = json!({"summary": "Holiday", "start": "2026-12-24", "end": "2026-12-27"});
    assert_eq!(data(&world, "calendar_create_event", &holiday)["start"], "2026-12-24", "whole days");

    let asking = connected(&server, "calendar", "");
    let id = made["id"].clone();
    let later = json!({"event_id": id, "start": "2026-11-24T14:00:00+01:00", "end": "2026-11-24T15:00:00+01:00"});
    let moved = approved(&asking, "calendar_update_event", &later, &["2026-11-24T12:00:00"], "");
    let facts = (&moved["start"], &moved["summary"], moved["attendees"].as_array().map(Vec::len));
    assert_eq!(facts, (&json!("2026-11-24T14:00:00+01:00"), &lunch["summary"], Some(2)), "the rest stays as it is");
    let review = data(&world, "calendar_list_events", &json!({"words": "review"}))[0]["id"].clone();
    let answer = json!({"event_id": review, "email": "ann@acme.example", "response": "declined"});
    // `myworld` does not know `attendeesOmitted`, with which Google changes only the user's own answer.
    let plan = world.run(&["run", "calendar_respond", "--input", &answer.to_string(), "--dry-run"]).json();
    let guests = json!([{"email": "ann@acme.example", "responseStatus": "declined"}]);
    assert_eq!(plan["would_send"]["http"]["body"], json!({"attendeesOmitted": true, "attendees": guests}), "{plan}");
    let asked = asking.start("calendar_respond", &answer);
    let human = Human::of(&asking);
    until("the card shows the old answer", || human.card(&asked).contains("needsAction"));
    approved(&asking, "calendar_delete_event", &json!({"event_id": id}), &["Lunch"], "calendar_delete_event");
    assert_eq!(data(&world, "calendar_list_events", &json!({"words": "Lunch"})), json!([]));
}

#[test]
fn requests_of_people_find_their_subtools() {
    assert_found("drive", "");
    assert_found("calendar", "");
}
